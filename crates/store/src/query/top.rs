//! The slowest spans, or the newest.
//!
//! Pages are read in descending order of their maxima, as long as a page can have better spans than the hits so far. Of
//! ten million spans, that takes a few pages.

use super::filter::Filter;
use super::scan::{Bounds, Part, pages};
use crate::columns::Columns;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::{DURATION, NAME, SPAN_ID, START, STATUS, TRACE_ID};
use crate::tree::{ReadView, Tree, Unread};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The number of rows of a memtable that are read first. Each further step reads twice as many as the last.
const FIRST_ROWS: usize = 4_096;

/// The order of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The longest duration.
    Slowest,
    /// The latest start.
    Newest,
}

/// The unit in which hits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitUnit {
    /// Spans.
    Span,
    /// Traces. The hit of a trace is its first span in the order.
    Trace,
}

/// A span.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// The ID of its trace.
    pub trace_id: u128,
    /// Its own ID.
    pub span_id: u64,
    /// Its start, in nanoseconds since 1970.
    pub start_ns: i64,
    /// Its duration, in nanoseconds.
    pub duration_ns: i64,
    /// Its service.
    pub service: String,
    /// Its name.
    pub name: String,
    /// `unset`, `ok` or `error`.
    pub status: String,
}

/// The hits of a query.
#[derive(Debug, Default)]
pub struct TopHits {
    /// The hits in the order of the query.
    pub hits: Vec<Hit>,
    /// The number of read pages, and of all pages.
    pub pages: (usize, usize),
    /// Runs that could not be read and may have more spans.
    pub unread: Vec<Unread>,
}

/// The hits so far.
struct HitSet {
    /// The hits by their value in the order. The least is removed first.
    hits: BTreeSet<(i64, Hit)>,
    /// The hit of each trace, if traces are counted.
    of_traces: Option<BTreeMap<u128, (i64, Hit)>>,
    count: usize,
    /// The column of the order.
    by: usize,
}

impl Tree {
    /// The first `count` spans in an order, or the first `count` traces, of the spans that a filter selects.
    pub async fn top(&self, filter: &Filter, order: Order, each: HitUnit, count: usize) -> TopHits {
        let of_hits = [TRACE_ID, SPAN_ID, START, DURATION, SERVICE, NAME, STATUS];
        let by = match order {
            Order::Slowest => DURATION,
            Order::Newest => START,
        };
        let mut in_memory = filter.fields(&Bounds::NONE);
        in_memory.extend(of_hits);
        let view = self.view_of_spans();
        let (objects, keys) = (&**self.objects(), filter.keys());
        let mut found = HitSet::new(each, count, by);
        for rows in view.memory(&in_memory) {
            found.take(filter, &rows);
        }
        let ReadView { runs, unopened, .. } = view;
        let mut parts: Vec<_> = runs.iter().flat_map(|run| pages(run, filter)).collect();
        let most = |part: &Part| match order {
            Order::Newest => *part.bounds.starts.end(),
            Order::Slowest => *part.bounds.durations.end(),
        };
        parts.sort_by_key(|part| Reverse(most(part)));
        let mut top = TopHits { pages: (0, parts.len()), unread: unopened, ..TopHits::default() };
        for part in &parts {
            if found.has_all_above(most(part)) {
                break;
            }
            top.pages.0 += 1;
            // Most pages have few better spans, and most of these do not match.
            let looked = async {
                let rows = part.read(objects, &[by].into(), None).await?;
                let among = found.better(&rows, 0..rows.len());
                if among.is_empty() {
                    return Ok(());
                }
                let rows = part.read(objects, &filter.fields(&part.bounds), Some(&keys)).await?;
                let selected = filter.among(&rows, &part.bounds, among);
                if !selected.is_empty() {
                    let rows = part.read(objects, &of_hits.into(), None).await?;
                    selected.into_iter().for_each(|row| found.push(&rows, row));
                }
                Ok(())
            };
            if let Err(error) = looked.await {
                top.unread.push(part.run.unread(error));
            }
        }
        top.hits = found.hits.into_iter().rev().map(|(_, hit)| hit).collect();
        top
    }
}

impl HitSet {
    fn new(each: HitUnit, count: usize, by: usize) -> Self {
        let of_traces = (each == HitUnit::Trace).then(BTreeMap::new);
        Self { hits: BTreeSet::new(), of_traces, count, by }
    }

    /// Whether there are `count` hits with at least this value. If so, a span with this value is no hit.
    fn has_all_above(&self, most: i64) -> bool {
        self.hits.len() >= self.count && self.hits.first().is_none_or(|(least, _)| *least >= most)
    }

    /// Adds the hits of a memtable: those of a few rows first, so that most other rows are skipped.
    fn take(&mut self, filter: &Filter, rows: &Columns) {
        let (mut from, mut len) = (0, FIRST_ROWS);
        while from < rows.len() {
            let to = rows.len().min(from + len);
            let among = self.better(rows, from..to);
            let selected = filter.among(rows, &Bounds::NONE, among);
            selected.into_iter().for_each(|row| self.push(rows, row));
            (from, len) = (to, 2 * len);
        }
    }

    /// The rows that may be hits.
    fn better(&self, rows: &Columns, of: Range<usize>) -> Vec<usize> {
        let by = rows.longs(self.by);
        of.filter(|row| !self.has_all_above(by[*row])).collect()
    }

    fn push(&mut self, rows: &Columns, row: usize) {
        let by = rows.longs(self.by)[row];
        if self.has_all_above(by) {
            return;
        }
        let new = (by, hit(rows, row));
        if let Some(of_traces) = &mut self.of_traces {
            let trace_id = new.1.trace_id;
            match of_traces.get(&trace_id) {
                Some(known) if known.0 >= by => return,
                Some(known) => drop(self.hits.remove(known)),
                None => {}
            }
            of_traces.insert(trace_id, new.clone());
        }
        self.hits.insert(new);
        if self.hits.len() > self.count
            && let Some((_, least)) = self.hits.pop_first()
            && let Some(of_traces) = &mut self.of_traces
        {
            of_traces.remove(&least.trace_id);
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
