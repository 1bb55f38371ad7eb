//! Searching for traces: the slowest or the newest spans that are asked for, one of each trace, and what the
//! rest of these traces says.

use curtail_store::query::{Each, Filter, Of, Order};
use curtail_store::schema::envelope::{SERVICE, TENANT};
use curtail_store::schema::spans::{DURATION, NAME, PARENT_ID, SPAN_ID, START, STATUS, TRACE_ID};
use curtail_store::tree::Unread;
use curtail_store::{Columns, SpanRows, tree::Tree};
use std::collections::{BTreeMap, BTreeSet};

/// What is searched for.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) filter: Filter,
    pub(crate) order: Order,
    /// So many traces.
    pub(crate) count: usize,
    /// What is shown of spans, besides what every one has.
    pub(crate) shown: Vec<Of>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In their order.
    pub(crate) traces: Vec<Summary>,
    /// Runs that may have more.
    pub(crate) unread: Vec<Unread>,
}

/// A trace in short.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) trace_id: u128,
    /// Its spans, in the order of their starts, with what is needed of them.
    pub(crate) spans: Columns,
    /// Those that are asked for.
    pub(crate) matched: Vec<usize>,
    /// The first one without a parent.
    pub(crate) root: Option<usize>,
    /// The first start and the last end.
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Spans whose parent is not there.
    pub(crate) orphans: usize,
    pub(crate) services: BTreeMap<String, OfService>,
}

/// What a trace has of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfService {
    pub(crate) spans: usize,
    pub(crate) errors: usize,
}

/// Searches.
pub(crate) async fn search(spans: &Tree<SpanRows>, search: &Search) -> Found {
    let Search { filter, order, count, shown } = search;
    let top = spans.top(filter, *order, Each::Trace, *count).await;
    tracing::debug!(read = top.pages.0, of = top.pages.1, "pages searched");
    let mut fields = BTreeSet::from([
        TENANT, TRACE_ID, SPAN_ID, PARENT_ID, START, DURATION, SERVICE, NAME, STATUS,
    ]);
    filter.read(&mut fields);
    shown.iter().for_each(|of| of.read(&mut fields));
    let fields: Vec<_> = fields.into_iter().collect();
    let mut found = Found { traces: Vec::new(), unread: top.unread };
    for hit in &top.hits {
        let trace = spans.fields_with_id(&filter.tenant, hit.trace_id, &fields).await;
        found.unread.extend(trace.unread);
        let matched = filter.rows(&trace.rows);
        found.traces.push(Summary::of(hit.trace_id, trace.rows, matched));
    }
    found
}

impl Summary {
    fn of(trace_id: u128, spans: Columns, matched: Vec<usize>) -> Self {
        let (starts, durations) = (spans.longs(START), spans.longs(DURATION));
        let ends = starts.iter().zip(durations).map(|(start, took)| start.saturating_add(*took));
        let (start_ns, end_ns) =
            (starts.iter().copied().min().unwrap_or(0), ends.max().unwrap_or(0));
        let ids: BTreeSet<_> = spans.narrow(SPAN_ID).iter().copied().collect();
        let parents = spans.narrow(PARENT_ID);
        let parent = |row: usize| parents.get(row).copied().unwrap_or(0);
        let root = (0..spans.len()).find(|row| parent(*row) == 0);
        let is_orphan = |row: &usize| parent(*row) != 0 && !ids.contains(&parent(*row));
        let orphans = (0..spans.len()).filter(is_orphan).count();
        let mut services = BTreeMap::<String, OfService>::new();
        for row in 0..spans.len() {
            let service = services.entry(text(&spans, SERVICE, row).to_owned()).or_default();
            service.spans += 1;
            service.errors += usize::from(text(&spans, STATUS, row) == "error");
        }
        Self { trace_id, matched, root, start_ns, end_ns, orphans, services, spans }
    }

    /// The service and the name of the root; of the first span where there is none.
    pub(crate) fn root(&self) -> (&str, &str) {
        let row = self.root.unwrap_or(0);
        (text(&self.spans, SERVICE, row), text(&self.spans, NAME, row))
    }
}

pub(crate) fn text(rows: &Columns, field: usize, row: usize) -> &str {
    rows.coded(field).text(row)
}
