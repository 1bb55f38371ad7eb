//! Reduces each trace to what the statistics need: its duration, the time of each component, and its values.
//!
//! | span on the critical path | its self time is |
//! |---|---|
//! | a call with one child, on another service | a gap between the two services |
//! | a call without a child | a gap to the service that serves this operation elsewhere; else a call to an unknown service |
//! | any other | self time of its operation |
//!
//! A call is a span of kind client, or a span without a kind whose only child is on another service, or whose operation
//! another service serves elsewhere. An abandoned attempt counts until the next attempt started. The root does not wait for
//! asynchronous work (a producer's consumers).
//!
//! **Limits**: [`TRACES_MAX`] traces and [`SPANS_MAX`] spans of a trace; [`VALUES_MAX`] values of all traces. Beyond
//! [`COMPONENTS_MAX`] components, further operations of a service are one component; beyond twice as many, all others are one
//! component together. Beyond [`FIELDS_MAX`] attributes and called operations of services, the values of others are left
//! out. Of each trace, attributes are those of the spans on its critical path, and each operation called is a value too.

mod sections;

use crate::cause::is_name;
use crate::component::{Component, Components, Phase};
use crate::fan_outs::{FanOut, FanOutFinder};
use crate::interner::{Interner, Names};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;
use curtail_trace::{Assembly, CriticalPath, Span};
use sections::PathSection;
use serde::Serialize;

/// Maximum number of traces.
pub const TRACES_MAX: usize = 4 << 20;

/// Maximum number of spans of a trace; a longer trace is left out and counted.
pub const SPANS_MAX: usize = 1 << 20;

/// Maximum number of values, and of times of components, of all traces; further traces are left out and counted.
const VALUES_MAX: usize = 1 << 28;

/// Maximum number of components with an operation of their own, and of further ones with a service of their own.
const COMPONENTS_MAX: usize = 4_096;

/// Maximum number of fields (attributes and called operations of services), and of operations that services serve.
const FIELDS_MAX: usize = 1 << 16;

/// A span, as a caller passes it.
#[derive(Clone, Copy, Debug)]
pub struct SpanRow<'a> {
    /// IDs and times.
    pub span: Span,
    /// The service.
    pub service: &'a str,
    /// The name of the operation.
    pub operation: &'a str,
    /// The kind.
    pub kind: SpanKind,
    /// Whether this is an attempt that was cancelled because another attempt took its place.
    pub is_abandoned: bool,
    /// The attributes of the span and of its resource.
    pub attributes: &'a [(&'a str, AttributeValue<'a>)],
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// Not known.
    #[default]
    Unset,
    /// Inside a service.
    Internal,
    /// A request served.
    Server,
    /// A request sent.
    Client,
    /// A message sent, whose processing is not waited for.
    Producer,
    /// A message processed.
    Consumer,
}

impl SpanKind {
    /// The kind with OTLP's number.
    #[must_use]
    pub const fn from_otlp(kind: i32) -> Self {
        match kind {
            1 => Self::Internal,
            2 => Self::Server,
            3 => Self::Client,
            4 => Self::Producer,
            5 => Self::Consumer,
            _ => Self::Unset,
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttributeValue<'a> {
    /// A text, or a flag as `true` or `false`.
    Text(&'a str),
    /// A number.
    Number(f64),
}

/// The population of a trace, where two populations are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The traces to compare with; also the side of every trace when a tail is explained.
    #[default]
    Baseline,
    /// The traces to explain.
    Slow,
}

/// A key of a service's spans, by the numbers of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Field {
    pub(crate) service: u32,
    /// The number of the attribute's key, or of the operation whose calls are counted.
    pub(crate) name: u32,
    pub(crate) is_call_count: bool,
}

/// A trace, reduced.
#[derive(Clone, Debug)]
pub(crate) struct TraceRow {
    /// The service and operation of the root, as a number.
    pub(crate) root_operation: u32,
    pub(crate) trace_id: u128,
    pub(crate) side: Side,
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: i64,
    pub(crate) fan_out: Option<FanOut>,
    times: Range<u32>,
    values: Range<u32>,
    numbers: Range<u32>,
}

/// The time of one component in one trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ComponentTime {
    pub(crate) component: u32,
    /// The number of spans with this component.
    pub(crate) visits: u32,
    pub(crate) time_ns: i64,
}

/// Reduced traces.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    pub(crate) names: Names,
    pub(crate) components: Components,
    /// The service and operation of each root, and of each caller of a fan-out.
    pub(crate) operations: Interner<(u32, u32)>,
    pub(crate) fields: Interner<Field>,
    /// The depth of the first call that each field counts; zero for attributes.
    pub(crate) depths: Vec<usize>,
    /// Each text value: its field and the number of the text.
    pub(crate) values: Interner<(u32, u32)>,
    pub(crate) rows: Vec<TraceRow>,
    /// The number of the calls of an operation (by name) that each service served.
    pub(crate) served: Interner<(u32, u32)>,
    pub(crate) served_counts: Vec<u64>,
    times: Vec<ComponentTime>,
    of_values: Vec<u32>,
    of_numbers: Vec<(u32, f64)>,
    /// The number of traces that could not be used, by reason.
    pub(crate) unused: UnusedTraces,
    scratch: Scratch,
}

/// The number of traces that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnusedTraces {
    /// Traces in which no span is a root.
    pub without_root: u64,
    /// Traces with more than [`SPANS_MAX`] spans.
    pub too_long: u64,
    /// Traces after the first [`TRACES_MAX`], or without room for their values.
    pub too_many: u64,
    /// Traces in neither of two populations, or in both.
    pub not_compared: u64,
    /// Traces of an operation with too few traces for the quantile.
    pub too_rare: u64,
    /// Traces of an operation that only one of two populations has.
    pub unmatched: u64,
}

/// Memory that is used again for each trace.
#[derive(Clone, Debug, Default)]
struct Scratch {
    spans: Vec<Span>,
    /// The numbers of service and operation of each span.
    names: Vec<(u32, u32)>,
    assembly: Assembly,
    path: CriticalPath,
    /// The component of the self time of each span on the path.
    components: Vec<Option<Component>>,
    sections: Vec<PathSection>,
    /// The number of the component of each section, the section's span and its time.
    numbered: Vec<(u32, u32, i64)>,
    /// The service and operation of each call, and its span.
    calls: Vec<((u32, u32), u32)>,
    /// The number of callers of each span and itself; empty: not counted yet.
    depths: Vec<usize>,
    /// The spans of a walk to the root.
    ancestors: Vec<usize>,
    is_on_path: Vec<bool>,
    /// Whether each span is a hedge of a Curtail proxy, or below one.
    is_of_hedge: Vec<bool>,
    fan_outs: FanOutFinder,
}

impl Traces {
    /// The number of traces.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no trace.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The number of traces that were left out.
    #[must_use]
    pub const fn unused(&self) -> UnusedTraces {
        self.unused
    }

    /// Counts a trace in neither of two populations, or in both.
    pub const fn count_not_compared(&mut self) {
        self.unused.not_compared += 1;
    }

    /// Adds a trace. The root is the span without a parent that began first; a trace without such a span is left out.
    pub fn add(&mut self, trace_id: u128, side: Side, spans: &[SpanRow<'_>]) {
        let values = self.times.len().max(self.of_values.len()).max(self.of_numbers.len());
        if self.rows.len() >= TRACES_MAX || values >= VALUES_MAX {
            self.unused.too_many += 1;
            return;
        }
        if spans.len() > SPANS_MAX {
            self.unused.too_long += 1;
            return;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        if self.reduce((trace_id, side), spans, &mut scratch).is_none() {
            self.unused.without_root += 1;
        }
        self.scratch = scratch;
    }

    pub(crate) fn times(&self, row: &TraceRow) -> &[ComponentTime] {
        &self.times[as_usize(&row.times)]
    }

    /// The text values of a trace, in ascending order.
    pub(crate) fn values_of(&self, row: &TraceRow) -> &[u32] {
        &self.of_values[as_usize(&row.values)]
    }

    /// The numeric values of a trace: field and value, in ascending order.
    pub(crate) fn numbers_of(&self, row: &TraceRow) -> &[(u32, f64)] {
        &self.of_numbers[as_usize(&row.numbers)]
    }

    fn reduce(
        &mut self,
        (trace_id, side): (u128, Side),
        spans: &[SpanRow<'_>],
        scratch: &mut Scratch,
    ) -> Option<()> {
        let root = self.assemble(spans, scratch)?;
        self.divide_path(spans, root, scratch);
        let fan_out = self.fan_out(spans, scratch);
        let times = self.add_times(scratch);
        let (values, numbers) = self.add_values(spans, scratch);
        let (service, operation) = scratch.names[root];
        let (start_ns, duration_ns) =
            (scratch.spans[root].start_ns, scratch.spans[root].duration_ns());
        let of_components = self.times[as_usize(&times)].iter().map(|time| time.time_ns);
        debug_assert_eq!(of_components.sum::<i64>(), duration_ns, "the sections tile the root");
        let root_operation = self.operations.intern((service, operation));
        self.rows.push(TraceRow {
            root_operation,
            trace_id,
            side,
            start_ns,
            duration_ns,
            fan_out,
            times,
            values,
            numbers,
        });
        Some(())
    }

    /// Builds the tree of a trace. Abandoned attempts end at the start of the next attempt, and consumers of messages
    /// are roots of their own.
    fn assemble(&mut self, rows: &[SpanRow<'_>], scratch: &mut Scratch) -> Option<usize> {
        let Scratch { spans, names, assembly, .. } = scratch;
        spans.clear();
        spans.extend(rows.iter().map(|row| row.span));
        names.clear();
        names.extend(rows.iter().map(|row| {
            (self.names.intern_text(row.service), self.names.intern_text(row.operation))
        }));
        assembly.assemble(spans);
        let root = assembly.root()?;
        let (mut changed, mut abandoned) = (false, Vec::new());
        for (nth, row) in rows.iter().enumerate() {
            let Some(parent) = assembly.parent(nth) else { continue };
            if row.kind == SpanKind::Consumer && rows[parent].kind == SpanKind::Producer {
                // No span has this parent, so that the root does not wait for it.
                (spans[nth].parent_id, changed) = (u64::MAX, true);
            }
            if row.is_abandoned {
                abandoned.push((parent, nth));
            }
        }
        abandoned.sort_unstable();
        for of_parent in abandoned.chunk_by(|one, other| one.0 == other.0) {
            let siblings = assembly.children(of_parent[0].0).iter();
            let mut starts: Vec<i64> =
                siblings.map(|nth| rows[*nth as usize].span.start_ns).collect();
            starts.sort_unstable();
            for (_, nth) in of_parent {
                let next = starts.partition_point(|start| *start <= rows[*nth].span.start_ns);
                if let Some(next) = starts.get(next) {
                    (spans[*nth].end_ns, changed) = (spans[*nth].end_ns.min(*next), true);
                }
            }
        }
        if changed {
            assembly.assemble(spans);
        }
        Some(root)
    }

    /// Adds the attributes of the spans on the critical path, and the calls of all operations.
    fn add_values(
        &mut self,
        rows: &[SpanRow<'_>],
        scratch: &mut Scratch,
    ) -> (Range<u32>, Range<u32>) {
        find_hedges(rows, &scratch.assembly, &mut scratch.is_of_hedge);
        let Scratch { sections, names, is_of_hedge, .. } = scratch;
        let (from_value, from_number) = (self.of_values.len(), self.of_numbers.len());
        sections.sort_unstable_by_key(|section| section.span);
        sections.dedup_by_key(|section| section.span);
        for PathSection { span, .. } in &*sections {
            let ((service, _), row) = (names[*span as usize], &rows[*span as usize]);
            if Phase::of_span(row.operation).is_some() || is_of_hedge[*span as usize] {
                continue;
            }
            for (key, value) in row.attributes {
                if is_ignored(key) || is_client_port(row.kind, key) {
                    continue;
                }
                let name = self.names.intern_text(key);
                let field = Field { service, name, is_call_count: false };
                let Some(field) = self.field(field) else { continue };
                match value {
                    AttributeValue::Text(text) => {
                        let text = self.names.intern_text(text);
                        self.of_values.push(self.values.intern((field, text)));
                    }
                    AttributeValue::Number(number) if is_name(key) => {
                        let text = self.names.intern(format!("{number}"));
                        self.of_values.push(self.values.intern((field, text)));
                    }
                    AttributeValue::Number(number) => self.of_numbers.push((field, *number)),
                }
            }
        }
        self.add_call_counts(rows, scratch);
        self.add_resends(rows, scratch);
        let values = &mut self.of_values;
        values[from_value..].sort_unstable();
        truncate_repeated(values, from_value, |one, other| one == other);
        let numbers = &mut self.of_numbers;
        // The largest number of each field comes first, and stays.
        numbers[from_number..]
            .sort_unstable_by(|(one, a), (other, b)| one.cmp(other).then(b.total_cmp(a)));
        truncate_repeated(numbers, from_number, |one, other| one.0 == other.0);
        (range(from_value, values.len()), range(from_number, numbers.len()))
    }

    /// The number of a field; [`None`] if it is new and there are too many.
    fn field(&mut self, field: Field) -> Option<u32> {
        let has_room = self.fields.len() < FIELDS_MAX || self.fields.contains(&field);
        has_room.then(|| self.fields.intern(field))
    }

    /// Adds the number of calls of each operation.
    fn add_call_counts(&mut self, rows: &[SpanRow<'_>], scratch: &mut Scratch) {
        let Scratch { names, calls, assembly, depths, ancestors, is_of_hedge, .. } = scratch;
        calls.clear();
        // Slow requests need more connections and hedges: these are effects. What a new connection costs is a phase.
        let of_rows = (0_u32..).zip(rows.iter().zip(&*names));
        let counted = of_rows.filter(|(nth, (row, _))| {
            Phase::of_span(row.operation).is_none() && !is_of_hedge[*nth as usize]
        });
        calls.extend(counted.map(|(nth, (_, name))| (*name, nth)));
        calls.sort_unstable();
        depths.clear();
        for same in calls.chunk_by(|one, other| one.0 == other.0) {
            let ((service, name), first) = same[0];
            let field = Field { service, name, is_call_count: true };
            let Some(field) = self.field(field) else { continue };
            if self.depths.len() <= field as usize {
                if depths.is_empty() {
                    count_callers(assembly, rows.len(), (depths, ancestors));
                }
                self.depths.resize(field as usize + 1, 0);
                self.depths[field as usize] = depths[first as usize];
            }
            self.of_numbers.push((field, same.len() as f64));
        }
    }
}

/// The attribute of a retry: its number, from one. A first attempt has none.
const RESEND_COUNT: &str = "http.request.resend_count";

/// Whether a call is a hedge of a Curtail proxy: it was sent because the request is slow, so it is no cause.
fn is_hedge(row: &SpanRow<'_>) -> bool {
    let is_reason = |text: &str| matches!(text, "slower_than_quantile" | "slower_than_cap");
    row.attributes.iter().any(|(key, value)| {
        *key == "curtail.reason" && matches!(value, AttributeValue::Text(text) if is_reason(text))
    })
}

/// Sets for each span whether it is a hedge, or below one.
fn find_hedges(rows: &[SpanRow<'_>], assembly: &Assembly, is_of_hedge: &mut Vec<bool>) {
    is_of_hedge.clear();
    is_of_hedge.extend(rows.iter().map(is_hedge));
    let mut callers: Vec<usize> = (0..rows.len()).filter(|span| is_of_hedge[*span]).collect();
    while let Some(caller) = callers.pop() {
        for span in assembly.children(caller).iter().map(|span| *span as usize) {
            if !core::mem::replace(&mut is_of_hedge[span], true) {
                callers.push(span);
            }
        }
    }
}

/// Whether an attribute says nothing about causes: it repeats a name or a duration, is unique for each request, or an effect
/// of slow requests.
fn is_ignored(key: &str) -> bool {
    key == "service.name"
        || key == RESEND_COUNT
        || Phase::ATTRIBUTES.iter().any(|(name, _)| *name == key)
        || matches!(
            key,
            "curtail.response_after_ns"
                | "curtail.reason.detail"
                | "curtail.cancelled.detail"
                // As the calls of phases: an effect of slow requests.
                | "curtail.connection.reused"
                // What the proxy did about slow requests, or did not do. `http.request.resend_count` has retries.
                | "curtail.attempt"
                | "curtail.attempts"
                | "curtail.cancelled"
                | "curtail.holdout"
                | "curtail.reason"
                | "curtail.won"
        )
        || key.starts_with("telemetry.sdk.")
}

/// Whether an attribute of a served request is the port of its client, which tells connections apart, not replicas.
fn is_client_port(kind: SpanKind, key: &str) -> bool {
    kind == SpanKind::Server
        && matches!(
            key,
            "network.peer.port" | "client.port" | "net.peer.port" | "net.sock.peer.port"
        )
}

impl Traces {
    /// Adds the largest number of retries of a call, for each service with calls.
    fn add_resends(&mut self, rows: &[SpanRow<'_>], scratch: &Scratch) {
        let key = self.names.intern_text(RESEND_COUNT);
        let Scratch { names, is_of_hedge, .. } = scratch;
        let of_rows = rows.iter().zip(names).zip(is_of_hedge);
        let calls = of_rows.filter(|((row, _), _)| row.kind == SpanKind::Client);
        for ((row, (service, _)), is_of_hedge) in calls {
            let of_row = row.attributes.iter().find(|(key, _)| *key == RESEND_COUNT);
            let count = match of_row {
                Some((_, AttributeValue::Number(count))) if !is_of_hedge => *count,
                _ => 0.0,
            };
            let field = Field { service: *service, name: key, is_call_count: false };
            if let Some(field) = self.field(field) {
                self.of_numbers.push((field, count));
            }
        }
    }
}

/// Sets the number of callers of each span, and itself, in a time in proportion to the number of spans.
fn count_callers(
    assembly: &Assembly,
    spans: usize,
    (depths, ancestors): (&mut Vec<usize>, &mut Vec<usize>),
) {
    depths.resize(spans, 0);
    for from in 0..spans {
        ancestors.clear();
        let mut at = Some(from);
        while let Some(span) = at.filter(|span| depths[*span] == 0) {
            ancestors.push(span);
            at = assembly.parent(span);
        }
        let known = at.map_or(0, |span| depths[span]);
        for (depth, span) in (known + 1..).zip(ancestors.iter().rev()) {
            depths[*span] = depth;
        }
    }
}

/// Removes repeated items from `from` on.
fn truncate_repeated<T: Copy>(items: &mut Vec<T>, from: usize, is_same: impl Fn(&T, &T) -> bool) {
    let mut kept = from;
    for nth in from..items.len() {
        if kept == from || !is_same(&items[kept - 1], &items[nth]) {
            items[kept] = items[nth];
            kept += 1;
        }
    }
    items.truncate(kept);
}

fn range(from: usize, to: usize) -> Range<u32> {
    let number = |at| u32::try_from(at).expect("memory has room for less");
    number(from)..number(to)
}

fn as_usize(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

#[cfg(test)]
mod tests;
