//! Sorts the rows of a memtable by the [order](crate::schema::Table::order) of its table: spans by trace ID and start.
//!
//! The keys include the position of the row, so no two are equal, and the standard library's unstable sort suffices.
//! Sorted rows take one comparison a row, a million random IDs 49 ns a row. A sort that first distributed the rows into
//! buckets by the first bits of their IDs took 60 ns a row.

/// The sort key of a row, and its position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The ID of the trace, or the ID by which the table is sorted.
    pub trace_id: u128,
    /// The start of the span, or the time by which the table is sorted, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The position is unique, so rows with equal IDs and starts stay in order of arrival.
    pub position: RowPosition,
}

/// The position of a row among the rows of several sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition {
    /// The number of the source, from zero.
    pub batch: u32,
    /// The number of the row in the source, from zero.
    pub row: u32,
}

/// Sorts rows by their keys.
pub fn sort(keys: &mut [Key]) {
    keys.sort_unstable();
}

#[cfg(test)]
mod tests;
