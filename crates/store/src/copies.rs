//! Copies of rows: spans that were sent again in other batches or another encoding.
//!
//! In a table whose rows have an [identity](Table::identity), rows that are equal in all fields are copies. Copies have
//! the same sort key, so a row is compared only with the rows just before it.

use crate::columns::Columns;
use crate::schema::Table;
use crate::sort::RowPosition;
use std::borrow::Borrow;

/// Maximum number of rows with which a row is compared. If more spans of one trace start in the same nanosecond, a copy
/// may be kept.
const ALIKE_MAX: usize = 1_024;

/// Finds the copies among rows in the order of a run.
#[derive(Debug, Default)]
pub(crate) struct CopyFinder {
    /// The sort key of the previous row.
    key: Option<(u128, i64)>,
    /// The identities and positions of the rows with this key, without copies.
    identities: Vec<u64>,
    positions: Vec<RowPosition>,
}

impl CopyFinder {
    /// Adds the next row; returns whether it is a copy of an earlier row. `sources` has all fields of the table.
    pub(crate) fn add_row(
        &mut self,
        table: &Table,
        sources: &[impl Borrow<Columns>],
        next: RowPosition,
    ) -> bool {
        let Some(identity) = table.identity else { return false };
        let row = |at: RowPosition| (sources[at.batch as usize].borrow(), at.row as usize);
        let (rows, nth) = row(next);
        let (key, identity) = (Some(table.sort_key(rows, nth)), rows.narrow(identity).get(nth));
        let identity = identity.copied().unwrap_or(0);
        if self.key != key {
            self.key = key;
            self.identities.clear();
            self.positions.clear();
        }
        let from = self.identities.len().saturating_sub(ALIKE_MAX);
        let alike = self.identities[from..].iter().zip(&self.positions[from..]);
        let is_copy = alike.filter(|(other, _)| **other == identity).any(|(_, at)| {
            let (others, other) = row(*at);
            others.is_same_row(other, rows, nth)
        });
        if !is_copy {
            self.identities.push(identity);
            self.positions.push(next);
        }
        is_copy
    }
}
