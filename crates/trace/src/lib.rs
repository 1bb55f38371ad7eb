//! The tree of a trace ([`Assembly`]) and its critical path ([`CriticalPath`]).
//!
//! **Limits**: fewer than 2^32 spans. Both take time in proportion to the spans, apart from sorting them, and keep their memory
//! for the next trace. Times are nanoseconds since 1970.
#![no_std]

extern crate alloc;

mod assembly;
mod path;

pub use assembly::Assembly;
pub use path::{CriticalPath, Section};

/// A span, as far as it is needed here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its ID.
    pub id: u64,
    /// That of its parent; zero: it has none.
    pub parent_id: u64,
    /// When it began.
    pub start_ns: i64,
    /// When it ended. What ends before it begins took no time.
    pub end_ns: i64,
}

impl Span {
    /// How long it took.
    #[must_use]
    pub const fn duration_ns(&self) -> i64 {
        if self.end_ns > self.start_ns { self.end_ns.saturating_sub(self.start_ns) } else { 0 }
    }
}
