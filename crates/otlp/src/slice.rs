//! Positions of bytes in a batch, and of entries in a list.

/// The position of a text or value in a batch, or of a row's attributes, events or links in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The first byte or entry.
    pub at: u32,
    /// The number of bytes or entries.
    pub len: u32,
}

impl Slice {
    /// Returns the bytes of the batch, or the entries of the list, at this position.
    ///
    /// # Panics
    /// When `all` is another, shorter batch or list.
    #[must_use]
    pub fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.at as usize..][..self.len as usize]
    }

    /// Whether there are no bytes or entries.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The position from `at` to the end of a list.
    pub(crate) fn to_end<T>(at: usize, all: &[T]) -> Self {
        Self { at: short(at), len: short(all.len() - at) }
    }
}

/// Converts a length or index, which fits because a batch has at most 4 GiB, and at most one entry a byte.
#[inline]
pub(crate) fn short(number: usize) -> u32 {
    u32::try_from(number).expect("a batch has at most 4 GiB")
}
