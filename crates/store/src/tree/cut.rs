//! Cuts rows in the order of their IDs into runs.
//!
//! A run ends when it has its share of rows and the ID changes. So the ranges of IDs of two runs are disjoint.
//!
//! **Limits**: a run may exceed its share by the remaining rows of its last ID. The last run may be small. If all rows
//! have the same ID or none, there is one run.

use std::ops::Range;

/// Cuts rows into runs.
#[derive(Debug)]
pub(super) struct Cut {
    /// The number of rows after which a run may end.
    share: u64,
    /// The number of rows of the current run.
    rows: u64,
    /// The ID of its last row.
    id: u128,
}

impl Cut {
    /// Cuts rows into runs of `share` rows.
    pub(super) const fn new(share: u64) -> Self {
        Self { share, rows: 0, id: 0 }
    }

    /// Cuts the next rows into parts; `ids` is empty if no row has an ID. The first part, which may be empty, belongs
    /// to the current run. Each other part begins a run.
    pub(super) fn parts(&mut self, ids: &[u128], rows: usize) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut from = 0;
        for row in 0..rows {
            let id = ids.get(row).copied().unwrap_or(0);
            if self.rows >= self.share && self.id != id {
                parts.push(from..row);
                (from, self.rows) = (row, 0);
            }
            (self.rows, self.id) = (self.rows + 1, id);
        }
        parts.push(from..rows);
        parts
    }
}

#[cfg(test)]
mod tests;
