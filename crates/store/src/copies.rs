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

/// Whether the row at a position is a copy of a row `before` it, in the order of a run. `sources` has all fields of the
/// table.
pub(crate) fn is_copy(
    table: &Table,
    sources: &[impl Borrow<Columns>],
    before: &[RowPosition],
    position: RowPosition,
) -> bool {
    let Some(identity) = table.identity else { return false };
    let row = |position: RowPosition| -> (&Columns, usize) {
        (sources[position.batch as usize].borrow(), position.row as usize)
    };
    let key = |(rows, row): (&Columns, usize)| table.sort_key(rows, row);
    let identity = |(rows, row): (&Columns, usize)| rows.narrow(identity).get(row).copied();
    let this = row(position);
    let others = before.iter().rev().take(ALIKE_MAX).map(|other| row(*other));
    others.take_while(|other| key(*other) == key(this)).any(|other| {
        identity(other) == identity(this) && other.0.is_same_row(other.1, this.0, this.1)
    })
}
