//! Summarizes one trace.

use crate::columns::{Coded, Columns, Dictionary};
use crate::schema::envelope::{SERVICE, TENANT};
use crate::schema::spans::{
    DURATION, NAME, PARENT_ID, SPAN_ID, SPANS, START, STATUS, STATUSES, TRACE_ID, WEIGHT,
};
use crate::schema::traces;
use curtail_trace::{Assembly, CriticalPath, Span};
use std::collections::BTreeSet;

/// The maximum number of spans of a trace in memory: 64 MB. Further spans are only counted.
pub(super) const SPANS_MAX: usize = 1 << 20;

/// The status of a failed span.
const ERROR: &str = STATUSES[2];

/// The columns of attributes that summaries need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    resends: usize,
    request_bytes: usize,
    response_bytes: usize,
}

impl Default for Fields {
    fn default() -> Self {
        let own = |key: &str| SPANS.schema().own.get(key).expect("it has a column").0;
        Self {
            resends: own("http.request.resend_count"),
            request_bytes: own("http.request.body.size"),
            response_bytes: own("http.response.body.size"),
        }
    }
}

impl Fields {
    pub(super) fn all(&self) -> BTreeSet<usize> {
        let Self { resends, request_bytes, response_bytes } = *self;
        let own = [resends, request_bytes, response_bytes];
        let ids = [TENANT, SERVICE, TRACE_ID, SPAN_ID, PARENT_ID];
        let others = [START, DURATION, NAME, STATUS, WEIGHT];
        ids.into_iter().chain(others).chain(own).collect()
    }

    pub(super) fn of<'a>(&self, rows: &'a Columns) -> Values<'a> {
        let status = rows.coded(STATUS);
        let is_error = |code: &u32| *code != 0 && status.dictionary.get(*code) == ERROR.as_bytes();
        Values {
            span_ids: rows.narrow(SPAN_ID),
            parent_ids: rows.narrow(PARENT_ID),
            starts: rows.longs(START),
            durations: rows.longs(DURATION),
            names: rows.coded(NAME),
            status,
            error: (1..=status.dictionary.len()).find(is_error),
            resends: rows.coded(self.resends),
            request_bytes: rows.coded(self.request_bytes),
            response_bytes: rows.coded(self.response_bytes),
            weights: rows.coded(WEIGHT),
        }
    }
}

/// The columns of some rows that summaries need.
#[derive(Debug)]
pub(super) struct Values<'a> {
    span_ids: &'a [u64],
    /// Empty if no span has a parent.
    parent_ids: &'a [u64],
    starts: &'a [i64],
    durations: &'a [i64],
    names: &'a Coded,
    status: &'a Coded,
    /// The code of the status of failed spans.
    error: Option<u32>,
    resends: &'a Coded,
    request_bytes: &'a Coded,
    response_bytes: &'a Coded,
    weights: &'a Coded,
}

/// A span by its row, and the code of its service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) row: usize,
    pub(super) service: u32,
}

/// The spans of one tenant in a trace.
#[derive(Debug, Default)]
pub(super) struct OneTrace {
    /// The code of the tenant's name.
    pub(super) tenant: u32,
    spans: Vec<Span>,
    /// The code of the service of each span, and whether the span has failed.
    of_spans: Vec<(u32, bool)>,
    root: Option<Root>,
    counts: Counts,
    start_ns: i64,
    end_ns: i64,
    /// The weight of each span. All spans have the same, because they are kept or removed together.
    weight: i64,
    /// The counts by the code of the service; all zero between two traces.
    tallies: Vec<Tally>,
    assembly: Assembly,
    path: CriticalPath,
}

/// Counts of spans.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    spans: i64,
    errors: i64,
    retries: i64,
}

/// The span without a parent that began first.
#[derive(Debug)]
struct Root {
    start_ns: i64,
    duration_ns: i64,
    service: u32,
    name: Option<Vec<u8>>,
    status: Option<Vec<u8>>,
    request_bytes: Option<i64>,
    response_bytes: Option<i64>,
}

/// The counts of a service in a trace.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    spans: i64,
    errors: i64,
    critical_ns: i64,
}

impl OneTrace {
    pub(super) fn begin(&mut self, tenant: u32) {
        self.tenant = tenant;
        self.spans.clear();
        self.of_spans.clear();
        self.root = None;
        self.counts = Counts::default();
        (self.start_ns, self.end_ns, self.weight) = (i64::MAX, i64::MIN, 1);
    }

    pub(super) fn push(&mut self, values: &Values<'_>, Row { row, service }: Row) {
        let (start_ns, duration_ns) = (values.starts[row], values.durations[row]);
        let span = Span {
            id: values.span_ids[row],
            parent_id: values.parent_ids.get(row).copied().unwrap_or(0),
            start_ns,
            end_ns: start_ns.saturating_add(duration_ns),
        };
        let is_error = values.error.is_some_and(|error| values.status.code(row) == error);
        self.weight = values.weights.int(row).unwrap_or(1);
        self.counts.spans += 1;
        self.counts.errors += i64::from(is_error);
        self.counts.retries += i64::from(values.resends.int(row).is_some_and(|again| again > 0));
        self.start_ns = self.start_ns.min(start_ns);
        self.end_ns = self.end_ns.max(start_ns.max(span.end_ns));
        // The root, as in the assembled tree: the first to arrive of the spans with the earliest start.
        let is_root =
            span.parent_id == 0 && self.root.as_ref().is_none_or(|root| start_ns < root.start_ns);
        if is_root {
            self.root = Some(Root {
                start_ns,
                duration_ns,
                service,
                name: values.names.get(row).map(<[u8]>::to_vec),
                status: values.status.get(row).map(<[u8]>::to_vec),
                request_bytes: values.request_bytes.int(row),
                response_bytes: values.response_bytes.int(row),
            });
        }
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span);
            self.of_spans.push((service, is_error));
        }
    }

    /// Replaces each code of a name by the code that `number` returns.
    pub(super) fn rename(&mut self, mut number: impl FnMut(u32) -> u32) {
        self.tenant = number(self.tenant);
        if let Some(root) = &mut self.root {
            root.service = number(root.service);
        }
        for (service, _) in &mut self.of_spans {
            *service = number(*service);
        }
    }

    /// Adds the row of the trace to the table of traces.
    pub(super) fn summarize(&mut self, trace_id: u128, names: &Dictionary, into: &mut Columns) {
        self.assembly.assemble(&self.spans);
        let Self { spans, of_spans, tallies, assembly, path, .. } = self;
        tallies.resize(names.len() as usize + 1, Tally::default());
        for (service, is_error) in &*of_spans {
            let tally = &mut tallies[*service as usize];
            tally.spans += 1;
            tally.errors += i64::from(*is_error);
        }
        if let Some(root) = assembly.root() {
            for section in path.of(spans, assembly, root) {
                let (service, _) = of_spans[section.span as usize];
                tallies[service as usize].critical_ns += section.to_ns - section.from_ns;
            }
        }
        self.put_root(names, into);
        self.put_services(names, into);
        let Self { counts, assembly, .. } = self;
        let is_all = usize::try_from(counts.spans).is_ok_and(|count| count == self.spans.len());
        let is_whole = is_all && assembly.roots() == 1 && assembly.orphans() == 0;
        let orphans = i64::try_from(assembly.orphans()).unwrap_or(i64::MAX);
        into.push_wide(traces::TRACE_ID, trace_id);
        let longs = [
            (traces::START, self.start_ns),
            (traces::DURATION, self.end_ns.saturating_sub(self.start_ns)),
            (traces::SPAN_COUNT, counts.spans),
            (traces::ERROR_COUNT, counts.errors),
            (traces::ORPHAN_COUNT, orphans),
            (traces::RETRY_COUNT, counts.retries),
            (traces::WEIGHT, self.weight),
        ];
        longs.into_iter().for_each(|(field, value)| into.push_long(field, value));
        into.set_value(traces::IS_WHOLE, &[u8::from(is_whole)]);
        if self.tenant != 0 {
            into.set_value(traces::TENANT, names.get(self.tenant));
        }
        into.end_row();
    }

    /// Sets the fields of the root, and the status of the trace.
    fn put_root(&self, names: &Dictionary, into: &mut Columns) {
        let root_status = self.root.as_ref().and_then(|root| root.status.as_deref());
        let status = if self.counts.errors > 0 { Some(ERROR.as_bytes()) } else { root_status };
        into.set_value(traces::STATUS, status.unwrap_or(STATUSES[0].as_bytes()));
        let Some(root) = &self.root else { return };
        let service = (root.service != 0).then(|| names.get(root.service));
        let texts = [
            (traces::ROOT_SERVICE, service),
            (traces::ROOT_NAME, root.name.as_deref()),
            (traces::ROOT_STATUS, root_status),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                into.set_value(field, text);
            }
        }
        let numbers = [
            (traces::ROOT_DURATION, Some(root.duration_ns)),
            (traces::REQUEST_BYTES, root.request_bytes),
            (traces::RESPONSE_BYTES, root.response_bytes),
        ];
        for (field, number) in numbers {
            if let Some(number) = number {
                into.set_value(field, &number.to_le_bytes());
            }
        }
    }

    /// Sets the counts of services in the order of their first spans.
    fn put_services(&mut self, names: &Dictionary, into: &mut Columns) {
        for (service, _) in &self.of_spans {
            // Each service is written once.
            let tally = std::mem::take(&mut self.tallies[*service as usize]);
            if tally.spans == 0 {
                continue;
            }
            let name = if *service == 0 { &[] } else { names.get(*service) };
            into.push_entry(traces::SERVICES).coded(name).long(tally.spans).long(tally.errors);
            if tally.critical_ns > 0 {
                into.push_entry(traces::CRITICAL_PATH).coded(name).long(tally.critical_ns);
            }
        }
    }
}
