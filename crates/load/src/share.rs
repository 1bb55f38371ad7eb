//! The part of a plan that one generator, or one thread of it, sends.

/// A part of a plan: every `of`th request, from the `nth` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Less than `of`.
    pub nth: usize,
    /// At least 1.
    pub of: usize,
}

impl Share {
    /// All of a plan.
    pub const ALL: Self = Self { nth: 0, of: 1 };

    /// Whether it includes the request with this number.
    #[must_use]
    pub const fn includes(self, request: u64) -> bool {
        request % self.of as u64 == self.nth as u64
    }

    /// One of `of` parts of this part.
    #[must_use]
    pub const fn part(self, nth: usize, of: usize) -> Self {
        Self { nth: nth * self.of + self.nth, of: self.of * of }
    }
}
