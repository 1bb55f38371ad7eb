//! Copies of rows: spans that were sent again in other batches or another encoding.
//!
//! In a table whose rows have an [identity](Table::identity), rows that are equal in all fields are copies. Copies have
//! the same position in the order of a run, so a row is compared only with the rows just before it.

use crate::columns::Columns;
use crate::schema::Table;
use crate::sort::Place;
use std::borrow::Borrow;

/// A row is compared with at most this many rows before it. If more spans of one trace begin at the same nanosecond,
/// a copy may be kept.
const ALIKE_MAX: usize = 1_024;

/// Whether a row is a copy of one `before` it. Both are places in `sources`, in the order of a run; `sources` has all
/// fields of the table.
pub(crate) fn is_copy(
    table: &Table,
    sources: &[impl Borrow<Columns>],
    before: &[Place],
    place: Place,
) -> bool {
    let Some(identity) = table.identity else { return false };
    let row = |place: Place| -> (&Columns, usize) {
        (sources[place.batch as usize].borrow(), place.row as usize)
    };
    let key = |(rows, row): (&Columns, usize)| {
        let id = rows.wide(table.order.0).get(row).copied().unwrap_or(0);
        (id, rows.longs(table.order.1)[row])
    };
    let identity = |(rows, row): (&Columns, usize)| rows.narrow(identity).get(row).copied();
    let this = row(place);
    let others = before.iter().rev().take(ALIKE_MAX).map(|other| row(*other));
    others.take_while(|other| key(*other) == key(this)).any(|other| {
        identity(other) == identity(this) && other.0.is_same_row(other.1, this.0, this.1)
    })
}
