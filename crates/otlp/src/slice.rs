//! Positions of bytes in a batch, and of entries in a list.

/// The position of a text or a value in its batch, or of the attributes, events or links of a row in their list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The first byte or entry.
    pub at: u32,
    /// The number of bytes or entries.
    pub len: u32,
}

impl Slice {
    /// The bytes of the batch, or the entries of the list, that it was decoded with.
    ///
    /// # Panics
    /// When `all` is another batch or list, and shorter.
    #[must_use]
    pub fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.at as usize..][..self.len as usize]
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// All from `at` to the end of a list.
    pub(crate) fn to_end<T>(at: usize, all: &[T]) -> Self {
        Self { at: short(at), len: short(all.len() - at) }
    }
}

/// A batch has at most 4 GiB, and of nothing more than it has bytes.
#[inline]
pub(crate) fn short(number: usize) -> u32 {
    u32::try_from(number).expect("a batch has at most 4 GiB")
}
