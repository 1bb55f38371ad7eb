//! Merges sorted runs, a row group at a time from each.
//!
//! The rows of a trace are mostly in one run, so rows are taken from one run as long as its next row precedes those of the
//! others. If all fields are merged, [copies](crate::copies) of a row are dropped. Copies on both sides of the end of a row
//! group remain until a later merge.
//!
//! **Limits**: memory holds a row group of each run, and the one that is being made.

use crate::columns::Columns;
use crate::copies::is_copy;
use crate::run::{GROUP_BYTES, GROUP_ROWS};
use crate::schema::Table;
use crate::sort::Place;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// By what rows are in order: an ID, a number, then the number of their run.
type Key = (u128, i64, usize);

/// A merge, which is given row groups and gives others.
#[derive(Debug)]
pub struct Merge {
    table: &'static Table,
    runs: Vec<Input>,
    /// The next row of each run that has one at hand, but for those that wait for their next row group.
    heads: BinaryHeap<Reverse<Key>>,
    /// Row groups of which rows go into the one that is being made, or later ones.
    groups: Vec<Columns>,
    /// What a row of each takes, on average.
    row_bytes: Vec<usize>,
    /// Rows of the one that is being made: where they are in `groups`.
    places: Vec<Place>,
    /// What these take, as far as rows of a row group are alike.
    bytes: usize,
    /// Whether copies are dropped, and the number of dropped ones.
    can_drop_copies: bool,
    copies: u64,
}

/// Where in a run the merge is.
#[derive(Clone, Copy, Debug, Default)]
struct Input {
    /// Its row group at hand, of [`Merge::groups`], and its next row there.
    next: Option<(usize, usize)>,
    is_at_end: bool,
}

/// What a merge does next.
#[derive(Debug)]
pub enum Step {
    /// It needs the next row group of a run, counted from zero: [`Merge::give`], or [`Merge::end`].
    Needs(usize),
    /// It has made a row group.
    Made(Columns),
    /// All rows have been taken.
    Done,
}

impl Merge {
    /// A merge of `runs` runs of a table. Copies may be dropped if the runs have all fields.
    #[must_use]
    pub fn new(table: &'static Table, runs: usize, can_drop_copies: bool) -> Self {
        Self {
            table,
            runs: vec![Input::default(); runs],
            heads: BinaryHeap::new(),
            groups: Vec::new(),
            row_bytes: Vec::new(),
            places: Vec::new(),
            bytes: 0,
            can_drop_copies,
            copies: 0,
        }
    }

    /// The next row group of a run that needs one.
    pub fn give(&mut self, run: usize, group: Columns) {
        if !group.is_empty() {
            self.heads.push(Reverse(key(self.table, &group, 0, run)));
            self.runs[run].next = Some((self.groups.len(), 0));
            self.row_bytes.push(group.bytes() / group.len());
            self.groups.push(group);
        }
    }

    /// A run that needs a row group has none any more.
    pub fn end(&mut self, run: usize) {
        self.runs[run].is_at_end = true;
    }

    /// The number of dropped copies.
    #[must_use]
    pub const fn copies(&self) -> u64 {
        self.copies
    }

    /// Goes on until something is needed or made.
    pub fn step(&mut self) -> Step {
        loop {
            if is_full(self.places.len(), self.bytes) {
                return Step::Made(self.make());
            }
            // A run without a row at hand could have the next one of all.
            let needs = self.runs.iter().position(|run| run.next.is_none() && !run.is_at_end);
            if let Some(run) = needs {
                return Step::Needs(run);
            }
            let Some(Reverse((.., run))) = self.heads.pop() else { break };
            self.take(run);
        }
        if self.places.is_empty() { Step::Done } else { Step::Made(self.make()) }
    }

    /// Takes rows of a run as long as they come before those of the others.
    fn take(&mut self, run: usize) {
        let Some((nth, mut row)) = self.runs[run].next else { return };
        let (group, batch) = (&self.groups[nth], short(nth));
        let others = self.heads.peek().map(|Reverse(key)| *key);
        let each = self.row_bytes[nth];
        loop {
            let place = Place { batch, row: short(row) };
            if self.can_drop_copies && is_copy(self.table, &self.groups, &self.places, place) {
                self.copies += 1;
            } else {
                self.places.push(place);
                self.bytes += each;
            }
            row += 1;
            if row == group.len() {
                self.runs[run].next = None;
                return;
            }
            let key = key(self.table, group, row, run);
            if is_full(self.places.len(), self.bytes) || others.is_some_and(|others| others < key) {
                self.heads.push(Reverse(key));
                self.runs[run].next = Some((nth, row));
                return;
            }
        }
    }

    /// Puts the rows that were taken together, and forgets the row groups that have no more.
    fn make(&mut self) -> Columns {
        let groups: Vec<_> = self.groups.iter().collect();
        let made = Columns::gather(self.table.schema(), &groups, &self.places);
        self.places.clear();
        self.bytes = 0;
        let mut groups: Vec<_> = self.groups.drain(..).map(Some).collect();
        for (nth, _) in self.runs.iter_mut().filter_map(|run| run.next.as_mut()) {
            self.groups.extend(groups[*nth].take());
            *nth = self.groups.len() - 1;
        }
        self.row_bytes = self.groups.iter().map(|group| group.bytes() / group.len()).collect();
        made
    }
}

/// Whether a row group has as many rows, or bytes, as it may.
const fn is_full(rows: usize, bytes: usize) -> bool {
    rows >= GROUP_ROWS || bytes >= GROUP_BYTES
}

fn key(table: &Table, group: &Columns, row: usize, run: usize) -> Key {
    let (id, number) = table.order();
    // Where no row has an ID, a file has no column of them.
    (group.wide(id).get(row).copied().unwrap_or(0), group.longs(number)[row], run)
}

fn short(number: usize) -> u32 {
    u32::try_from(number).expect("memory is bounded")
}

#[cfg(test)]
mod tests;
