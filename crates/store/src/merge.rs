//! Merges sorted runs, a row group at a time from each.
//!
//! The rows of a trace are mostly in one run, so rows are taken from one run as long as its next row precedes the next
//! rows of all others. [Copies](crate::copies) of a row are dropped only if the merge reads all fields, because copies
//! are equal in all fields. Copies in two row groups of the new run remain until a later merge.
//!
//! **Limits**: memory holds a row group of each run, and the row group that is being made.

use crate::columns::{Columns, short};
use crate::copies::CopyFinder;
use crate::run::{GROUP_BYTES, GROUP_ROWS};
use crate::schema::Table;
use crate::sort::RowPosition;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The sort key of a row: an ID, a number, then the number of the run.
type Key = (u128, i64, usize);

/// A merge of runs.
#[derive(Debug)]
pub struct Merge {
    table: &'static Table,
    runs: Vec<Input>,
    /// The key of the next row of each run that has a row group in `groups`.
    heads: BinaryHeap<Reverse<Key>>,
    /// The read row groups that have rows for the current row group or a later one.
    groups: Vec<Columns>,
    /// The average size of a row in each of `groups`.
    row_bytes: Vec<usize>,
    /// The rows of the current row group, as positions in `groups`.
    taken: Vec<RowPosition>,
    /// The approximate size of these rows.
    bytes: usize,
    /// Whether copies are dropped, and the number of dropped copies.
    can_drop_copies: bool,
    copy_finder: CopyFinder,
    copies: u64,
}

/// The position of the merge in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Input {
    /// The current row group in [`Merge::groups`], and its next row.
    next: Option<(usize, usize)>,
    is_at_end: bool,
}

/// The next step of a merge.
#[derive(Debug)]
pub enum Step {
    /// The run with this number, from zero, needs its next row group ([`Merge::give`]) or its end ([`Merge::end`]).
    Needs(usize),
    /// A row group is complete.
    Made(Columns),
    /// All rows have been taken.
    Done,
}

impl Merge {
    /// A merge of `runs` runs of a table. Copies may be dropped only if the row groups have all fields.
    #[must_use]
    pub fn new(table: &'static Table, runs: usize, can_drop_copies: bool) -> Self {
        Self {
            table,
            runs: vec![Input::default(); runs],
            heads: BinaryHeap::new(),
            groups: Vec::new(),
            row_bytes: Vec::new(),
            taken: Vec::new(),
            bytes: 0,
            can_drop_copies,
            copy_finder: CopyFinder::default(),
            copies: 0,
        }
    }

    /// Adds the next row group of a run that needs one.
    pub fn give(&mut self, run: usize, group: Columns) {
        if !group.is_empty() {
            self.heads.push(Reverse(key(self.table, &group, 0, run)));
            self.runs[run].next = Some((self.groups.len(), 0));
            self.row_bytes.push(group.bytes() / group.len());
            self.groups.push(group);
        }
    }

    /// Ends a run that has no more row groups.
    pub fn end(&mut self, run: usize) {
        self.runs[run].is_at_end = true;
    }

    /// The number of dropped copies.
    #[must_use]
    pub const fn copies(&self) -> u64 {
        self.copies
    }

    /// Continues until a row group is needed or made.
    pub fn step(&mut self) -> Step {
        loop {
            if is_full(self.taken.len(), self.bytes) {
                return Step::Made(self.make());
            }
            // A run without a row group may have the next row.
            let needs = self.runs.iter().position(|run| run.next.is_none() && !run.is_at_end);
            if let Some(run) = needs {
                return Step::Needs(run);
            }
            let Some(Reverse((.., run))) = self.heads.pop() else { break };
            self.take(run);
        }
        if self.taken.is_empty() { Step::Done } else { Step::Made(self.make()) }
    }

    /// Takes rows of a run as long as they precede the next rows of all other runs.
    fn take(&mut self, run: usize) {
        let Some((nth, mut row)) = self.runs[run].next else { return };
        let (group, batch) = (&self.groups[nth], short(nth));
        let others = self.heads.peek().map(|Reverse(key)| *key);
        let each = self.row_bytes[nth];
        loop {
            let position = RowPosition { batch, row: short(row) };
            if self.can_drop_copies && self.copy_finder.add_row(self.table, &self.groups, position)
            {
                self.copies += 1;
            } else {
                self.taken.push(position);
                self.bytes += each;
            }
            row += 1;
            if row == group.len() {
                self.runs[run].next = None;
                return;
            }
            let key = key(self.table, group, row, run);
            if is_full(self.taken.len(), self.bytes) || others.is_some_and(|others| others < key) {
                self.heads.push(Reverse(key));
                self.runs[run].next = Some((nth, row));
                return;
            }
        }
    }

    /// Makes a row group of the taken rows, and drops row groups without further rows.
    fn make(&mut self) -> Columns {
        let groups: Vec<_> = self.groups.iter().collect();
        let made = Columns::gather(self.table.schema(), &groups, &self.taken);
        self.taken.clear();
        self.copy_finder = CopyFinder::default();
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

/// Whether a row group has the maximum of rows or bytes.
const fn is_full(rows: usize, bytes: usize) -> bool {
    rows >= GROUP_ROWS || bytes >= GROUP_BYTES
}

fn key(table: &Table, group: &Columns, row: usize, run: usize) -> Key {
    let (id, number) = table.sort_key(group, row);
    (id, number, run)
}

#[cfg(test)]
mod tests;
