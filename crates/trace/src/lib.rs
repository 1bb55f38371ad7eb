//! The tree of a trace ([`Assembly`]) and its critical path ([`CriticalPath`]).
//!
//! **Limits**: fewer than 2^32 spans. Both take time in proportion to the number of spans, apart from sorting the
//! spans, and reuse their memory for the next trace. Times are nanoseconds since 1970.
#![no_std]

extern crate alloc;

mod assembly;
mod path;

pub use assembly::Assembly;
pub use path::{CriticalPath, Section};

/// The fields of a span that the tree and the path need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The ID of the span.
    pub id: u64,
    /// The ID of the parent; zero: no parent.
    pub parent_id: u64,
    /// The start.
    pub start_ns: i64,
    /// The end. A span that ends before its start has no duration.
    pub end_ns: i64,
}

impl Span {
    /// The duration; zero if it ends before its start.
    #[must_use]
    pub const fn duration_ns(&self) -> i64 {
        if self.end_ns > self.start_ns { self.end_ns.saturating_sub(self.start_ns) } else { 0 }
    }
}
