//! Positions of bytes in a batch, and of entries in a list.

/// Where in its batch a text, or a value of several parts, stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The first byte.
    pub at: u32,
    /// How many bytes.
    pub len: u32,
}

impl Slice {
    /// The bytes, in the batch that it was decoded from.
    ///
    /// # Panics
    /// When `batch` is another one, and shorter.
    #[must_use]
    pub fn of(self, batch: &[u8]) -> &[u8] {
        &batch[self.at as usize..][..self.len as usize]
    }

    /// Whether there is nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Where in their list the attributes, events or links of a row stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first one.
    pub at: u32,
    /// How many.
    pub len: u32,
}

impl Range {
    /// Those of `all`.
    ///
    /// # Panics
    /// When `all` is another list, and shorter.
    #[must_use]
    pub fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.at as usize..][..self.len as usize]
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
