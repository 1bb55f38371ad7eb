//! A slab: values in reused entries, so that a long run does not allocate.
//!
//! Messages about a request can be in flight when the request is over, so a [`Key`] has the generation of its entry. A
//! key from before the entry was reused finds nothing.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl Key {
    /// A key that never finds anything.
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: u32::MAX };

    pub(crate) const fn as_u64(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    pub(crate) const fn from_u64(number: u64) -> Self {
        Self { index: number as u32, generation: (number >> 32) as u32 }
    }
}

#[derive(Clone, Debug)]
struct SlabEntry<T> {
    generation: u32,
    value: Option<T>,
}

/// Values in entries that are used again.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<SlabEntry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Puts `value` into the place that was freed last, or into a new place.
    ///
    /// # Panics
    /// Beyond 2^32 − 1 values at a time.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return Key { index, generation: entry.generation };
        }
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 values at a time");
        self.entries.push(SlabEntry { generation: 0, value: Some(value) });
        Key { index, generation: 0 }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    /// The key of the value that is at `index` now.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let entry = self.entries.get(index as usize)?;
        entry.value.is_some().then_some(Key { index, generation: entry.generation })
    }

    /// The keys of the values that satisfy `is_wanted`.
    pub(crate) fn keys_where(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<Key> {
        let key = |(index, entry): (u32, &SlabEntry<T>)| {
            let is_wanted = entry.value.as_ref().is_some_and(&is_wanted);
            is_wanted.then_some(Key { index, generation: entry.generation })
        };
        (0..).zip(&self.entries).filter_map(key).collect()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T>
    where
        T: Copy,
    {
        let value = *self.get_mut(key)?;
        self.free(key);
        Some(value)
    }

    /// Removes a value and returns it.
    pub(crate) fn take(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        let entry = &mut self.entries[key.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        entry.value.take()
    }

    /// Removes all values and returns them; keys of before must not be used again.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::replace(self, Self::new()).entries.into_iter().filter_map(|entry| entry.value)
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Removes a value without moving it out, which would be slow for a large value.
    pub(crate) fn free(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(key.index as usize) else { return };
        if entry.generation == key.generation && entry.value.take().is_some() {
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(key.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Slab};

    #[test]
    fn a_key_of_an_earlier_use_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.index, first.index, "the entry is used again");
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
        assert_eq!(slab.key_at(second.index), Some(second));
        assert_eq!(slab.keys_where(|value| *value == 'b'), [second]);
        assert!(slab.keys_where(|value| *value == 'a').is_empty());
        assert_eq!(slab.get_mut(Key::NONE), None);
        assert_eq!(Key::from_u64(second.as_u64()), second);
    }
}
