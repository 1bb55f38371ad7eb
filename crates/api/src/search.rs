//! Searches for the slowest or the newest matching spans, one of each trace, and summarizes these traces.
//!
//! A trace may have more spans than fit in memory, so its spans are read a window at a time.

use crate::Limits;
use crate::api_error::ApiError;
use crate::response_chunks::WINDOW_ROWS;
use curtail_store::parallel::{run_in_order, worker_count};
use curtail_store::query::{Filter, HitUnit, Order, SpanField, Value};
use curtail_store::schema::envelope::{SERVICE, TENANT};
use curtail_store::schema::spans::{DURATION, NAME, PARENT_ID, SPAN_ID, START, STATUS, TRACE_ID};
use curtail_store::tree::Unread;
use curtail_store::{Columns, tree::Tree};
use futures_util::StreamExt as _;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::pin;
use std::sync::Arc;

/// Maximum number of traces that a thread reads at once, because the times of all their spans are in memory.
const TRACES_PER_WORKER: usize = 2;

/// A search.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) filter: Filter,
    pub(crate) order: Order,
    /// Maximum number of traces.
    pub(crate) count: usize,
    /// Maximum number of spans to return of each trace.
    pub(crate) per_set: usize,
    /// The fields of spans to return.
    pub(crate) shown: Vec<SpanField>,
}

/// The summary of a trace.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) trace_id: u128,
    pub(crate) span_count: usize,
    /// The number of matched spans.
    pub(crate) matched_count: usize,
    /// The first matched spans in order of start, or the slowest matched spans.
    pub(crate) matched: Vec<MatchedSpan>,
    /// The service and the name of the first span without a parent.
    root: Option<(String, String)>,
    /// The service and the name of the first span.
    first: (String, String),
    /// The first start and the last end of all spans.
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// The number of spans whose parent is missing.
    pub(crate) orphans: usize,
    pub(crate) services: BTreeMap<String, ServiceCounts>,
}

/// A matched span.
#[derive(Debug)]
pub(crate) struct MatchedSpan {
    pub(crate) span_id: u64,
    pub(crate) name: String,
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: i64,
    /// The values of [`Search::shown`], in the same order.
    pub(crate) values: Vec<Vec<Value<'static>>>,
}

/// The numbers of spans of a service in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceCounts {
    pub(crate) spans: usize,
    pub(crate) errors: usize,
}

/// Searches, and calls `each` for each trace in order. Returns the runs that could not be read and may have more rows.
pub(crate) async fn search(
    spans: &Arc<Tree>,
    limits: &Limits,
    search: Search,
    mut each: impl FnMut(Summary) -> Result<(), ApiError>,
) -> Result<Vec<Unread>, ApiError> {
    let Search { filter, order, count, shown, .. } = &search;
    let top = spans.top(filter, *order, HitUnit::Trace, *count).await;
    tracing::debug!(read = top.pages.0, of = top.pages.1, "pages searched");
    let mut fields = BTreeSet::from([
        TENANT, TRACE_ID, SPAN_ID, PARENT_ID, START, DURATION, SERVICE, NAME, STATUS,
    ]);
    filter.read(&mut fields);
    shown.iter().for_each(|of| of.read(&mut fields));
    let fields: Vec<_> = fields.into_iter().collect();
    let mut unread = top.unread;
    let (max, shared) = (limits.trace_spans, Arc::new((Arc::clone(spans), search, fields)));
    let summaries = top.hits.into_iter().map(|hit| {
        let shared = Arc::clone(&shared);
        async move {
            let (spans, search, fields) = &*shared;
            summarize(spans, search, fields, (hit.trace_id, max)).await
        }
    });
    let mut summaries = pin!(run_in_order(TRACES_PER_WORKER * worker_count(), summaries));
    while let Some((summary, unread_runs)) = summaries.next().await {
        unread.extend(unread_runs);
        each(summary)?;
    }
    Ok(unread)
}

/// Summarizes the first `max` spans of a trace. Also returns the runs that could not be read and may have more rows.
async fn summarize(
    spans: &Tree,
    search: &Search,
    fields: &[usize],
    (trace_id, max): (u128, usize),
) -> (Summary, Vec<Unread>) {
    let found = spans.rows_with_id(&search.filter.tenant, trace_id, max).await;
    let mut unread = found.unread().to_vec();
    let mut trace = TraceReader::new(search, trace_id);
    for from in (0..found.len()).step_by(WINDOW_ROWS) {
        let to = found.len().min(from + WINDOW_ROWS);
        let window = found.window(fields, from..to).await;
        unread.extend(window.unread);
        trace.take(&window.rows);
    }
    (trace.finish(), unread)
}

/// Reads a trace into its summary.
struct TraceReader<'a> {
    search: &'a Search,
    summary: Summary,
    ids: HashSet<u64>,
    /// The parents of spans that have one.
    parents: Vec<u64>,
}

impl<'a> TraceReader<'a> {
    fn new(search: &'a Search, trace_id: u128) -> Self {
        let (start_ns, end_ns) = (i64::MAX, i64::MIN);
        let summary = Summary { trace_id, start_ns, end_ns, ..Summary::default() };
        Self { search, summary, ids: HashSet::new(), parents: Vec::new() }
    }

    /// Adds the next spans in order of start.
    fn take(&mut self, rows: &Columns) {
        let (starts, durations) = (rows.longs(START), rows.longs(DURATION));
        let (ids, parents) = (rows.narrow(SPAN_ID), rows.narrow(PARENT_ID));
        let named = |row: usize| (text(rows, SERVICE, row), text(rows, NAME, row));
        let owned = |(service, name): (&str, &str)| (service.to_owned(), name.to_owned());
        let summary = &mut self.summary;
        if summary.span_count == 0 && !rows.is_empty() {
            summary.first = owned(named(0));
        }
        summary.span_count += rows.len();
        for row in 0..rows.len() {
            summary.start_ns = summary.start_ns.min(starts[row]);
            // The duration of a span that ends before it starts is zero.
            let end_ns = starts[row].saturating_add(durations[row].max(0));
            summary.end_ns = summary.end_ns.max(end_ns);
            let parent = parents.get(row).copied().unwrap_or(0);
            if parent != 0 {
                self.parents.push(parent);
            } else if summary.root.is_none() {
                summary.root = Some(owned(named(row)));
            }
            let name = text(rows, SERVICE, row);
            if !summary.services.contains_key(name) {
                summary.services.insert(name.to_owned(), ServiceCounts::default());
            }
            if let Some(service) = summary.services.get_mut(name) {
                service.spans += 1;
                service.errors += usize::from(text(rows, STATUS, row) == "error");
            }
        }
        self.ids.extend(ids);
        self.take_matched(rows);
    }

    fn take_matched(&mut self, rows: &Columns) {
        let Search { filter, order, per_set, shown, .. } = self.search;
        let durations = rows.longs(DURATION);
        let mut matched = filter.rows(rows);
        let summary = &mut self.summary;
        summary.matched_count += matched.len();
        match order {
            Order::Slowest => matched.sort_by_key(|row| Reverse(durations[*row])),
            Order::Newest => matched.truncate(per_set.saturating_sub(summary.matched.len())),
        }
        matched.truncate(*per_set);
        // The values of each selected field, by span.
        let mut values: Vec<_> =
            shown.iter().map(|of| of.of_rows(rows, &matched).into_iter()).collect();
        for row in matched {
            summary.matched.push(MatchedSpan {
                span_id: rows.narrow(SPAN_ID)[row],
                name: text(rows, NAME, row).to_owned(),
                start_ns: rows.longs(START)[row],
                duration_ns: durations[row].max(0),
                values: values.iter_mut().map(|of| of.next().unwrap_or_default()).collect(),
            });
        }
        if *order == Order::Slowest {
            summary.matched.sort_by_key(|span| Reverse(span.duration_ns));
            summary.matched.truncate(*per_set);
        }
    }

    fn finish(self) -> Summary {
        let Self { mut summary, ids, parents, .. } = self;
        summary.orphans = parents.iter().filter(|parent| !ids.contains(parent)).count();
        if summary.span_count == 0 {
            (summary.start_ns, summary.end_ns) = (0, 0);
        }
        summary
    }
}

impl Summary {
    /// Returns the service and the name of the root span; without a root span, of the first span.
    pub(crate) fn root(&self) -> (&str, &str) {
        let (service, name) = self.root.as_ref().unwrap_or(&self.first);
        (service, name)
    }
}

fn text(rows: &Columns, field: usize, row: usize) -> &str {
    rows.coded(field).text(row)
}
