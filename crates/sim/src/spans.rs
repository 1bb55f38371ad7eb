//! Spans of simulated requests, in OTLP, with the names and attributes that the proxy's own spans have.
//!
//! | span | kind | service, instance |
//! |---|---|---|
//! | a request at its root | server | `root`, `root-CLIENT` |
//! | a call of a fan-out | internal | the same |
//! | an attempt | client | the same |
//! | an attempt at its server; `curtail.leaf.wait_ns` is its time in the queue | server | `shard-SHARD`, `server-SERVER` |
//!
//! Resources name the model (`curtail.variant`) and the arm (`curtail.arm`). Requests have a size
//! (`http.request.body.size`) if the model states one, and a type (`curtail.request_type`) if it has types.
//! **Invariant**: the seed and the names of model and arm determine all IDs.

use crate::model::RequestType;
use crate::record::{AttemptEnd, AttemptRecord, CallRecord, RequestRecord};
use crate::scenario::{Arm, Variant};
use curtail_otlp::{BatchWriter, PlainValue, ResourceText, ScopeText, SpanRow};
use curtail_policy::{Class, Outcome, Reason, TieRole};
use curtail_units::{Bytes, Instant, Rng};
use serde_json::json;

#[cfg(test)]
mod tests;

/// The start of the simulated time: 2026-01-01, in nanoseconds since 1970.
const START_UNIX_NS: u64 = 1_767_225_600_000_000_000;

const SCOPE: ScopeText<'_> = ScopeText {
    name: "curtail.simulate",
    version: "",
    attributes: "",
    dropped_attributes: 0,
    schema_url: "",
};

const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

const STATUS_ERROR: i32 = 2;

/// The status code of a response, and the type of an error.
type Status = (Option<i64>, Option<&'static str>);

type Attributes<'a> = Vec<(&'a str, PlainValue<'a>)>;

/// Writes the records of one run as spans.
#[derive(Debug)]
pub struct SpanWriter {
    variant: String,
    arm: String,
    class: Class,
    types: Vec<RequestType>,
    fan_out: u32,
    request_bytes: Option<Bytes>,
    ids: Rng,
    batch: BatchWriter,
}

/// The request whose spans are being written.
struct Trace<'r> {
    id: u128,
    ids: Rng,
    record: &'r RequestRecord,
    /// The size of the request's body.
    bytes: Option<i64>,
}

/// The parts of a span that every span has.
struct Part<'a> {
    resource: &'a str,
    parent: u64,
    name: &'a str,
    kind: i32,
    from: Instant,
    to: Instant,
    status: Status,
}

impl SpanWriter {
    /// A writer for the run of `variant` and `arm` with `seed`.
    #[must_use]
    pub fn new(variant: &Variant, arm: &Arm, seed: u64) -> Self {
        Self {
            variant: variant.name.clone(),
            arm: arm.name.clone(),
            class: variant.model.class,
            types: variant.model.request_types.clone(),
            fan_out: variant.model.fan_out,
            request_bytes: variant.model.request_bytes,
            ids: Rng::new(seed).split("spans").split(&variant.name).split(&arm.name),
            batch: BatchWriter::new(),
        }
    }

    /// Adds the spans of a request.
    pub fn write(&mut self, record: &RequestRecord) {
        let mut ids = self.ids.split_index(record.number);
        let id = u128::from(ids.next_u64()) << 64 | u128::from(ids.next_u64());
        #[expect(clippy::cast_possible_truncation, reason = "a cast from a float saturates")]
        let bytes = self.request_bytes.map(|size| (size.get() as f64 * record.factor) as i64);
        let mut trace = Trace { id, ids, record, bytes };
        let root_resource = self.resource("root", &format!("root-{}", record.client));
        let root = self.request(&mut trace, &root_resource);
        for call in &record.calls {
            let parent = match self.fan_out {
                1 => root,
                _ => self.call(&mut trace, (&root_resource, root), call),
            };
            for (nth, attempt) in call.attempts.iter().enumerate() {
                let resource = (&*root_resource, parent);
                let client = self.attempt(&mut trace, resource, call, (nth, attempt));
                self.execution(&mut trace, client, call, attempt);
            }
        }
    }

    /// The number of bytes of the batch so far.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// Takes the batch: an `ExportTraceServiceRequest` in protobuf.
    #[must_use]
    pub fn take_batch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.batch).finish()
    }

    fn request(&mut self, trace: &mut Trace<'_>, resource: &str) -> u64 {
        let record = trace.record;
        let of_type = record.of_type.map(|nth| self.types[nth].clone());
        let class = of_type.as_ref().and_then(|of| of.class).unwrap_or(self.class);
        let mut attributes = vec![("curtail.class", PlainValue::Text(class.name()))];
        let name = of_type.as_ref().map(|of| of.name.as_str());
        attributes.extend(name.map(|name| ("curtail.request_type", PlainValue::Text(name))));
        // Several calls without a fan-out are those of a client that has retried.
        let calls = if self.fan_out == 1 { record.calls.as_slice() } else { &[] };
        let attempts = calls.iter().map(|call| call.attempts.len()).sum();
        let upstream = calls.first().map(shard);
        attributes.push(("curtail.attempts", count(attempts)));
        attributes
            .extend(upstream.as_deref().map(|name| ("curtail.upstream", PlainValue::Text(name))));
        let status = response_status(record.is_complete, record);
        let (name, kind) = ("GET /", SERVER);
        let (from, to) = (record.arrived, record.ended);
        let part = Part { resource, parent: 0, name, kind, from, to, status };
        self.span(trace, &part, attributes)
    }

    fn call(
        &mut self,
        trace: &mut Trace<'_>,
        (resource, parent): (&str, u64),
        call: &CallRecord,
    ) -> u64 {
        let upstream = shard(call);
        let attributes = vec![
            ("curtail.upstream", PlainValue::Text(&upstream)),
            ("curtail.attempts", count(call.attempts.len())),
        ];
        let status = response_status(call.is_complete, trace.record);
        let (name, kind, from, to) = ("GET /", INTERNAL, call.began, call.ended);
        let part = Part { resource, parent, name, kind, from, to, status };
        self.span(trace, &part, attributes)
    }

    fn attempt(
        &mut self,
        trace: &mut Trace<'_>,
        (resource, parent): (&str, u64),
        call: &CallRecord,
        (nth, attempt): (usize, &AttemptRecord),
    ) -> u64 {
        let server = format!("server-{}", attempt.server);
        let upstream = shard(call);
        let (reason, cancelled) = (attempt.reason.to_string(), cancellation(attempt));
        let detail = cancelled.map(|reason| reason.to_string()).unwrap_or_default();
        let mut attributes = vec![
            ("curtail.upstream", PlainValue::Text(&upstream)),
            ("server.address", PlainValue::Text(&server)),
            ("curtail.attempt", count(nth)),
            ("curtail.reason", PlainValue::Text(attempt.reason.name())),
            ("curtail.choice", PlainValue::Text(attempt.choice.name())),
            ("curtail.won", PlainValue::Bool(attempt.won)),
        ];
        if nth > 0 {
            attributes.push(("http.request.resend_count", count(nth)));
        }
        if attempt.reason.has_detail() {
            attributes.push(("curtail.reason.detail", PlainValue::Text(&reason)));
        }
        if let Some(tie) = attempt.tie {
            let role = if tie.role == TieRole::First { "first" } else { "second" };
            attributes.push(("curtail.tie", PlainValue::Text(role)));
        }
        if let Some(cancelled) = &cancelled {
            attributes.push(("curtail.cancelled", PlainValue::Text(cancelled.name())));
            attributes.push(("curtail.cancelled.detail", PlainValue::Text(&detail)));
        }
        let (name, kind) = ("GET", CLIENT);
        let (from, to) = (attempt.sent, attempt.ended.unwrap_or(call.ended));
        let part = Part { resource, parent, name, kind, from, to, status: attempt_status(attempt) };
        self.span(trace, &part, attributes)
    }

    /// The span of an attempt at its server, if it arrived there.
    fn execution(
        &mut self,
        trace: &mut Trace<'_>,
        parent: u64,
        call: &CallRecord,
        attempt: &AttemptRecord,
    ) {
        let (Some(from), Some(to)) = (attempt.arrived, attempt.left) else { return };
        let resource = self.resource(&shard(call), &format!("server-{}", attempt.server));
        let queued = attempt.started.unwrap_or(to).since(from);
        let queued = i64::try_from(queued.as_ns()).unwrap_or(i64::MAX);
        let attributes = vec![("curtail.leaf.wait_ns", PlainValue::Int(queued))];
        let (name, kind) = ("GET /", SERVER);
        // The server does not know that the root has given up.
        let status =
            if cancellation(attempt).is_some() { (None, None) } else { attempt_status(attempt) };
        let part = Part { resource: &resource, parent, name, kind, from, to, status };
        self.span(trace, &part, attributes);
    }

    /// The attributes of a resource, as plain JSON.
    fn resource(&self, service: &str, instance: &str) -> String {
        json!({
            "service.name": service,
            "service.instance.id": instance,
            "host.name": instance,
            "curtail.variant": self.variant,
            "curtail.arm": self.arm,
        })
        .to_string()
    }

    fn span(
        &mut self,
        trace: &mut Trace<'_>,
        part: &Part<'_>,
        mut attributes: Attributes<'_>,
    ) -> u64 {
        attributes.push(("http.request.method", PlainValue::Text("GET")));
        attributes.extend(trace.bytes.map(|n| ("http.request.body.size", PlainValue::Int(n))));
        let (code, error) = part.status;
        attributes.extend(code.map(|code| ("http.response.status_code", PlainValue::Int(code))));
        attributes.extend(error.map(|error| ("error.type", PlainValue::Text(error))));
        // An ID of zero would be absent.
        let span_id = trace.ids.next_u64().max(1);
        let row = SpanRow {
            trace_id: trace.id,
            span_id,
            parent_id: part.parent,
            start_ns: START_UNIX_NS.saturating_add(part.from.as_ns()),
            end_ns: START_UNIX_NS.saturating_add(part.to.as_ns()),
            name: part.name,
            kind: part.kind,
            status: if error.is_some() { STATUS_ERROR } else { 0 },
            attributes: &attributes,
            ..SpanRow::default()
        };
        let resource = ResourceText { attributes: part.resource, ..ResourceText::default() };
        self.batch.span(&resource, &SCOPE, &row).expect("the attributes are plain JSON");
        span_id
    }
}

fn shard(call: &CallRecord) -> String {
    format!("shard-{}", call.shard)
}

fn count(number: usize) -> PlainValue<'static> {
    PlainValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

const fn cancellation(attempt: &AttemptRecord) -> Option<Reason> {
    match attempt.end {
        Some(AttemptEnd::Cancelled(reason)) => Some(reason),
        Some(AttemptEnd::Responded(_) | AttemptEnd::Failed(_)) | None => None,
    }
}

/// The status code and the error of a request or of one of its calls.
fn response_status(is_complete: bool, record: &RequestRecord) -> Status {
    if is_complete {
        return (Some(200), None);
    }
    let attempts = record.calls.iter().flat_map(|call| &call.attempts);
    let mut reasons = attempts.filter_map(cancellation);
    match reasons.any(|reason| matches!(reason, Reason::RequestTimeout { .. })) {
        true => (Some(504), Some("request_timeout")),
        false => (Some(503), Some("503")),
    }
}

/// The status code and the error of an attempt, as its root sees them. A cancellation is an error only after a timeout.
const fn attempt_status(attempt: &AttemptRecord) -> Status {
    match attempt.end {
        Some(AttemptEnd::Responded(Outcome::Good)) => (Some(200), None),
        Some(AttemptEnd::Responded(Outcome::Bad | Outcome::Refused)) => (Some(503), Some("503")),
        Some(AttemptEnd::Responded(Outcome::TwinStarted)) | None => (None, None),
        Some(AttemptEnd::Failed(failure)) => (None, Some(failure.name())),
        Some(AttemptEnd::Cancelled(reason @ Reason::RequestTimeout { .. })) => {
            (None, Some(reason.name()))
        }
        Some(AttemptEnd::Cancelled(_)) => (None, None),
    }
}
