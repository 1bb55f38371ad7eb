//! Copies of rows: a span that was sent again in other bytes, say by a sender that has put its spans into other batches.
//!
//! Rows of a table in which a row has an [identity](Rows::IDENTITY) are copies where all fields are equal. They have the
//! same place in the order of a run, so a copy is found among the rows just before it.

use crate::columns::Columns;
use crate::memtable::Rows;
use crate::sort::Place;
use std::borrow::Borrow;

/// A row is held against this many before it: that many spans of one trace begin at the same nanosecond at most, or a
/// copy among them stays.
const ALIKE_MAX: usize = 1_024;

/// Whether the row at a place is a copy of one `before` it. Both are places in `sources`, in the order of a run, and
/// all fields of the table are in them.
pub(crate) fn is_copy<R: Rows>(
    sources: &[impl Borrow<Columns>],
    before: &[Place],
    place: Place,
) -> bool {
    let Some(identity) = R::IDENTITY else { return false };
    let key = |place: Place| {
        let (rows, row): (&Columns, usize) =
            (sources[place.batch as usize].borrow(), place.row as usize);
        let id = rows.wide(R::ORDER.0).get(row).copied().unwrap_or(0);
        (id, rows.longs(R::ORDER.1)[row])
    };
    let identity = |place: Place| {
        let rows: &Columns = sources[place.batch as usize].borrow();
        rows.narrow(identity).get(place.row as usize).copied()
    };
    let alike = before.iter().rev().take(ALIKE_MAX).take_while(|other| key(**other) == key(place));
    alike.copied().any(|other| {
        let (one, two): (&Columns, &Columns) =
            (sources[other.batch as usize].borrow(), sources[place.batch as usize].borrow());
        identity(other) == identity(place)
            && one.is_same_row(other.row as usize, two, place.row as usize)
    })
}
