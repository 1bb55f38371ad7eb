//! Values by replica, in the order of the replicas' numbers.
//!
//! Numbers ascend and are never reused. A value is found at the index of its number until a replica leaves, and by
//! binary search afterwards.

use crate::ReplicaId;
use alloc::vec::Vec;

/// One value for each replica of an upstream.
#[derive(Clone, Debug)]
pub struct ReplicaMap<T> {
    entries: Vec<(ReplicaId, T)>,
}

impl<T> Default for ReplicaMap<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> ReplicaMap<T> {
    /// Adds or replaces the value of a replica.
    pub fn insert(&mut self, id: ReplicaId, value: T) {
        match self.place(id) {
            Ok(place) => self.entries[place].1 = value,
            Err(place) => self.entries.insert(place, (id, value)),
        }
    }

    /// Removes the value of a replica.
    pub fn remove(&mut self, id: ReplicaId) -> Option<T> {
        self.place(id).ok().map(|place| self.entries.remove(place).1)
    }

    /// The value of a replica.
    #[must_use]
    pub fn get(&self, id: ReplicaId) -> Option<&T> {
        self.place(id).ok().map(|place| &self.entries[place].1)
    }

    /// The value of a replica.
    pub fn get_mut(&mut self, id: ReplicaId) -> Option<&mut T> {
        self.place(id).ok().map(|place| &mut self.entries[place].1)
    }

    /// The number of replicas.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no replica.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The numbers of the replicas.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = ReplicaId> {
        self.entries.iter().map(|(id, _)| *id)
    }

    /// The values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The replicas with their values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ReplicaId, &T)> {
        self.entries.iter().map(|(id, value)| (*id, value))
    }

    /// The replica at `place` modulo the number of replicas.
    ///
    /// # Panics
    /// When there is no replica.
    #[must_use]
    pub fn id_at(&self, place: usize) -> ReplicaId {
        self.entries[place % self.entries.len()].0
    }

    /// The place of the first replica whose number is at least `id`.
    #[must_use]
    pub fn place_from(&self, id: ReplicaId) -> usize {
        self.place(id).unwrap_or_else(|place| place)
    }

    fn place(&self, id: ReplicaId) -> Result<usize, usize> {
        match self.entries.get(id.index()) {
            Some((at, _)) if *at == id => Ok(id.index()),
            _ => self.entries.binary_search_by_key(&id, |(at, _)| *at),
        }
    }
}

impl<T> FromIterator<(ReplicaId, T)> for ReplicaMap<T> {
    fn from_iter<I: IntoIterator<Item = (ReplicaId, T)>>(entries: I) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(id, value)| map.insert(id, value));
        map
    }
}
