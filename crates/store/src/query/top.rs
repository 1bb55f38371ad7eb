//! The slowest spans, or the newest.
//!
//! Pages are looked at in the order of the most that they have, and no further than that can be: of ten
//! million spans a few pages are read.

use super::filter::Filter;
use super::scan::pages;
use crate::columns::Columns;
use crate::memtable::SpanRows;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::{DURATION, NAME, SPAN_ID, START, STATUS, TRACE_ID};
use crate::tree::{Tree, Unread};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The longest duration.
    Slowest,
    /// The latest start.
    Newest,
}

/// A span that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// The trace that it belongs to.
    pub trace_id: u128,
    /// Its own ID.
    pub span_id: u64,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: i64,
    /// How long it took, in nanoseconds.
    pub duration_ns: i64,
    /// Of which service.
    pub service: String,
    /// What was done.
    pub name: String,
    /// `unset`, `ok` or `error`.
    pub status: String,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Top {
    /// In their order.
    pub hits: Vec<Hit>,
    /// How many pages were read, of how many.
    pub pages: (usize, usize),
    /// Runs that may have more.
    pub unread: Vec<Unread>,
}

/// Those that were found so far: the least of them is the first to go.
struct Found {
    hits: BinaryHeap<Reverse<(i64, Hit)>>,
    count: usize,
    order: Order,
}

impl Tree<SpanRows> {
    /// The first `count` spans in an order, of all that a filter lets through.
    pub async fn top(&self, filter: &Filter, order: Order, count: usize) -> Top {
        let mut fields = filter.fields();
        fields.extend([TRACE_ID, SPAN_ID, SERVICE, NAME, STATUS]);
        let (memory, runs) = self.moment(&fields);
        let mut found = Found { hits: BinaryHeap::new(), count, order };
        for rows in &memory {
            found.take(filter, rows);
        }
        let mut parts: Vec<_> = runs.iter().flat_map(|run| pages(run, filter)).collect();
        let most = |most: &[i64; 2]| match order {
            Order::Newest => most[0],
            Order::Slowest => most[1],
        };
        parts.sort_by_key(|part| Reverse(most(&part.most)));
        let mut top = Top { pages: (0, parts.len()), ..Top::default() };
        for part in &parts {
            if found.has_all_above(most(&part.most)) {
                break;
            }
            top.pages.0 += 1;
            match part.read(self, &fields).await {
                Ok(rows) => found.take(filter, &rows),
                Err(error) => top.unread.push(part.unread(error)),
            }
        }
        let hits = found.hits.into_sorted_vec();
        top.hits = hits.into_iter().map(|Reverse((_, hit))| hit).collect();
        top
    }
}

impl Found {
    /// Whether nothing that is no more than this can be among them.
    fn has_all_above(&self, most: i64) -> bool {
        self.hits.len() >= self.count
            && self.hits.peek().is_none_or(|Reverse((least, _))| *least > most)
    }

    fn take(&mut self, filter: &Filter, rows: &Columns) {
        let by = match self.order {
            Order::Slowest => rows.longs(DURATION),
            Order::Newest => rows.longs(START),
        };
        for row in filter.select(rows) {
            if self.has_all_above(by[row]) {
                continue;
            }
            self.hits.push(Reverse((by[row], hit(rows, row))));
            if self.hits.len() > self.count {
                self.hits.pop();
            }
        }
    }
}

fn hit(rows: &Columns, row: usize) -> Hit {
    let text = |field: usize| rows.coded(field).text(row).to_owned();
    Hit {
        trace_id: rows.wide(TRACE_ID)[row],
        span_id: rows.narrow(SPAN_ID)[row],
        start_ns: rows.longs(START)[row],
        duration_ns: rows.longs(DURATION)[row],
        service: text(SERVICE),
        name: text(NAME),
        status: text(STATUS),
    }
}
