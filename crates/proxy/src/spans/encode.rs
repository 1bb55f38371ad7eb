//! A trail as spans: one of kind server for the request (internal for a call of a fan-out), one of kind client for each
//! attempt. A cancelled request or attempt is no error, unless it timed out.
//!
//! **Limits**: texts are cut after [`super::attributes::TEXT_MAX`] bytes. The query of a URL is left out, because it
//! may hold secrets.
//! **Source**: OTLP 1.x, `trace.proto`; OpenTelemetry's semantic conventions for HTTP spans. Our own attributes are
//! named `curtail.…`.

use super::attributes::{Attributes, SPAN_ATTRIBUTES};
use crate::trace_context::SpanId;
use crate::trail::{AttemptEnd, AttemptTrail, CancelReason, Destination, RequestEnd, Trail};
use curtail_http::clock::Clock;
use curtail_http::head::{Fields, Known};
use curtail_policy::{Choice, Failure, Reason, TieRole};
use curtail_protobuf::{FIXED32, FIXED64, LEN, VARINT, short_tag};
use curtail_protobuf::{bytes_field, fixed64_field, message_field, padded_varint, varint_field};
use curtail_units::Instant;
use http::{Method, StatusCode, Version};
use std::fmt::Write as _;

/// The field of `ScopeSpans` that holds a span.
pub(super) const SCOPE_SPANS_SPAN: u32 = 2;

/// Fields of `Span`.
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const TRACE_STATE: u32 = 3;
const PARENT_SPAN_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START_UNIX_NS: u32 = 7;
const END_UNIX_NS: u32 = 8;
const EVENTS: u32 = 11;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;

/// Maximum length of `tracestate`; a longer one is omitted. Every tracer keeps at least as much (Trace Context, section
/// 3.3.1.5).
const TRACE_STATE_MAX: usize = 512;

/// Fields of `Span.Event`.
const EVENT_UNIX_NS: u32 = 1;
const EVENT_NAME: u32 = 2;
const EVENT_ATTRIBUTES: u32 = 3;

/// The field of `Status` that holds the code, and the code of an error.
const STATUS_CODE: u32 = 3;
const STATUS_ERROR: u64 = 2;

/// `SpanKind`.
const KIND_INTERNAL: u8 = 1;
const KIND_SERVER: u8 = 2;
const KIND_CLIENT: u8 = 3;

/// `SpanFlags`: the flags of the trace in the low byte, then what is known of the parent.
const FLAG_SAMPLED: u32 = 0x01;
const FLAG_RANDOM: u32 = 0x02;
const FLAG_PARENT_KNOWN: u32 = 0x100;
const FLAG_PARENT_REMOTE: u32 = 0x200;

/// The first fields of every span.
#[derive(Clone, Copy)]
struct Head<'a> {
    span_id: SpanId,
    parent: Option<SpanId>,
    flags: u32,
    name: &'a str,
    kind: u8,
    from: Instant,
    to: Instant,
}

/// Writes the spans of one trail.
pub(super) struct Encoder<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// A reusable buffer for the texts that the encoder builds.
    pub(super) scratch: &'a mut String,
    pub(super) clock: &'a Clock,
    /// The request header that names the tenant of a request, in lower case.
    pub(super) tenant_header: Option<&'a str>,
}

impl Encoder<'_> {
    /// All spans of a trail, each as a field of `ScopeSpans`.
    pub(super) fn trail(&mut self, trail: &Trail) {
        let end = trail.end.unwrap_or_else(|| trail.end_or_unfinished(self.clock.now()));
        self.request(trail, &end);
        for (index, attempt) in trail.attempts.iter().enumerate() {
            self.attempt(trail, index as u64, attempt, end.at);
        }
    }

    fn request(&mut self, trail: &Trail, end: &RequestEnd) {
        let Self { out, scratch, clock, tenant_header } = self;
        message_field(out, SCOPE_SPANS_SPAN, |out| {
            scratch.clear();
            scratch.push_str(known_method(&trail.request_head.method).unwrap_or("HTTP"));
            if let Some(destination) = &trail.destination {
                scratch.push(' ');
                scratch.push_str(destination.route.path_prefix.as_str());
            }
            let (kind, flags) = match trail.is_call {
                true => (KIND_INTERNAL, 0),
                false => (KIND_SERVER, FLAG_PARENT_REMOTE),
            };
            let head = Head {
                span_id: trail.context.span_id,
                parent: trail.context.parent,
                flags,
                name: scratch,
                kind,
                from: trail.started,
                to: end.at,
            };
            write_head(out, trail, &head, clock);
            let mut attributes = Attributes::new(out, SPAN_ATTRIBUTES);
            describe_request(&mut attributes, trail);
            let tenant = tenant_header.and_then(|header| trail.tenant(header));
            if let Some(tenant) = tenant.and_then(|tenant| std::str::from_utf8(tenant).ok()) {
                attributes.text(b"curtail.tenant", tenant);
            }
            if let Some(destination) = &trail.destination {
                describe_destination(&mut attributes, destination);
            }
            if let Some(draw) = trail.draw {
                attributes.flag(b"curtail.holdout", draw.is_holdout);
            }
            attributes.int(b"curtail.attempts", trail.attempts.len() as u64);
            if let Some(reason) = &end.reason {
                describe_reason(&mut attributes, scratch, reason);
            }
            let failed = match trail.cancelled(end) {
                Some(reason) => {
                    describe_cancelled(&mut attributes, scratch, &reason);
                    false
                }
                None => describe_request_end(&mut attributes, trail, end),
            };
            if let Some(detail) = &trail.error_detail {
                attributes.text(b"curtail.error.detail", detail);
            }
            for (at, reason) in &trail.skipped {
                write_skipped(out, scratch, clock.unix_ns(*at), reason);
            }
            write_status(out, failed);
        });
    }

    fn attempt(&mut self, trail: &Trail, index: u64, attempt: &AttemptTrail, latest: Instant) {
        let Self { out, scratch, clock, .. } = self;
        message_field(out, SCOPE_SPANS_SPAN, |out| {
            let head = Head {
                span_id: attempt.span_id,
                parent: Some(trail.context.span_id),
                flags: 0,
                name: known_method(&trail.request_head.method).unwrap_or("HTTP"),
                kind: KIND_CLIENT,
                from: attempt.sent,
                to: attempt.end.map_or(latest, |(at, _)| at),
            };
            write_head(out, trail, &head, clock);
            let mut attributes = Attributes::new(out, SPAN_ATTRIBUTES);
            describe_method(&mut attributes, &trail.request_head.method);
            describe_replica(&mut attributes, scratch, trail, attempt);
            describe_decision(&mut attributes, scratch, (trail, index), attempt);
            let failed = describe_attempt_end(&mut attributes, scratch, attempt);
            write_status(out, failed);
        });
    }
}

fn write_head(out: &mut Vec<u8>, trail: &Trail, head: &Head<'_>, clock: &Clock) {
    let context = &trail.context;
    // Fields of constant length are built on the stack and appended at once: a vector checks its capacity at each append.
    let mut ids = [0; 28];
    ids[..2].copy_from_slice(&[short_tag(TRACE_ID, LEN), 16]);
    ids[2..18].copy_from_slice(&context.trace_id);
    ids[18..20].copy_from_slice(&[short_tag(SPAN_ID, LEN), 8]);
    ids[20..].copy_from_slice(&head.span_id);
    out.extend_from_slice(&ids);
    if trail.request_head.fields.has(Known::Tracestate) {
        write_trace_state(out, &trail.request_head.fields);
    }
    if let Some(parent) = &head.parent {
        bytes_field(out, PARENT_SPAN_ID, parent);
    }
    bytes_field(out, NAME, head.name.as_bytes());
    let random = if context.random { FLAG_RANDOM } else { 0 };
    let flags = FLAG_PARENT_KNOWN | FLAG_SAMPLED | random | head.flags;
    let mut numbers = [0; 26];
    numbers[..2].copy_from_slice(&[short_tag(KIND, VARINT), head.kind]);
    numbers[2] = short_tag(START_UNIX_NS, FIXED64);
    numbers[3..11].copy_from_slice(&clock.unix_ns(head.from).to_le_bytes());
    numbers[11] = short_tag(END_UNIX_NS, FIXED64);
    numbers[12..20].copy_from_slice(&clock.unix_ns(head.to.max(head.from)).to_le_bytes());
    let flags_tag = u64::from(FLAGS << 3) | u64::from(FIXED32);
    numbers[20..22].copy_from_slice(&padded_varint::<2>(flags_tag));
    numbers[22..].copy_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&numbers);
}

/// Writes the client's `tracestate`, which it may have split into several fields (Trace Context, section 3.3.1).
#[cold]
fn write_trace_state(out: &mut Vec<u8>, fields: &Fields) {
    let lines = fields.all(Known::Tracestate).map(std::str::from_utf8);
    let Ok(lines) = lines.collect::<Result<Vec<_>, _>>() else { return };
    let state = lines.join(",");
    if state.len() <= TRACE_STATE_MAX {
        bytes_field(out, TRACE_STATE, state.as_bytes());
    }
}

/// Writes a skipped extra attempt (a hedge or a retry), with the reason, as an event of the request.
fn write_skipped(out: &mut Vec<u8>, scratch: &mut String, unix_ns: u64, reason: &Reason) {
    message_field(out, EVENTS, |out| {
        fixed64_field(out, EVENT_UNIX_NS, unix_ns);
        bytes_field(out, EVENT_NAME, b"curtail.skipped");
        describe_reason(&mut Attributes::new(out, EVENT_ATTRIBUTES), scratch, reason);
    });
}

/// Writes the status of a failed span. A successful span has no status, which means "unset".
fn write_status(out: &mut Vec<u8>, failed: bool) {
    if failed {
        message_field(out, STATUS, |out| varint_field(out, STATUS_CODE, STATUS_ERROR));
    }
}

fn describe_request(attributes: &mut Attributes<'_>, trail: &Trail) {
    let head = trail.received_head();
    describe_method(attributes, &head.method);
    attributes.text(b"url.path", head.target.path());
    attributes.text(b"url.scheme", trail.client.scheme(&trail.request_head).name());
    attributes.text(b"network.protocol.version", version(head.version));
    if let Some(bytes) = trail.request_body_bytes {
        attributes.int(b"http.request.body.size", bytes);
    }
    if let Some(bytes) = trail.response_body_bytes {
        attributes.int(b"http.response.body.size", bytes);
    }
    if let Some(wait) = trail.leaf_wait {
        attributes.int(b"curtail.leaf.wait_ns", wait.as_ns());
    }
    if let Some(host) = head.host() {
        let (address, port) = split_port(host);
        attributes.text(b"server.address", address);
        if let Some(port) = port {
            attributes.int(b"server.port", port.into());
        }
    }
}

fn describe_method(attributes: &mut Attributes<'_>, method: &Method) {
    match known_method(method) {
        Some(method) => attributes.text(b"http.request.method", method),
        None => {
            attributes.text(b"http.request.method", "_OTHER");
            attributes.text(b"http.request.method_original", method.as_str());
        }
    }
}

fn describe_destination(attributes: &mut Attributes<'_>, destination: &Destination) {
    attributes.prepared(&destination.route.attributes);
    attributes.text(b"curtail.class", destination.class.name());
}

/// Writes the constant name of a reason, and its text if it has fields.
fn describe_reason(attributes: &mut Attributes<'_>, scratch: &mut String, reason: &Reason) {
    attributes.text(b"curtail.reason", reason.name());
    if reason.has_detail() {
        attributes.text(b"curtail.reason.detail", display(scratch, reason));
    }
}

fn describe_cancelled(
    attributes: &mut Attributes<'_>,
    scratch: &mut String,
    reason: &CancelReason,
) {
    attributes.text(b"curtail.cancelled", reason.name());
    attributes.text(b"curtail.cancelled.detail", display(scratch, reason));
}

/// Returns whether the request counts as failed.
fn describe_request_end(attributes: &mut Attributes<'_>, trail: &Trail, end: &RequestEnd) -> bool {
    if let Some(status) = end.status {
        attributes.int(b"http.response.status_code", status.as_u16().into());
    }
    if let Some(status) = trail.grpc_status {
        attributes.int(b"rpc.grpc.status_code", status.into());
    }
    let server_error = end.status.filter(StatusCode::is_server_error);
    let status_error = server_error.as_ref().map(StatusCode::as_str);
    if let Some(error) = end.error.or(status_error).or(trail.grpc_failure()) {
        attributes.text(b"error.type", error);
    }
    trail.is_failure(end)
}

fn describe_replica(
    attributes: &mut Attributes<'_>,
    scratch: &mut String,
    trail: &Trail,
    attempt: &AttemptTrail,
) {
    attributes.prepared(&attempt.replica.attributes);
    scratch.clear();
    scratch.push_str(&attempt.replica.url);
    scratch.push_str(trail.request_head.target.path());
    attributes.text(b"url.full", scratch);
}

/// Writes the reasons for the attempt and for its replica.
fn describe_decision(
    attributes: &mut Attributes<'_>,
    scratch: &mut String,
    (trail, index): (&Trail, u64),
    attempt: &AttemptTrail,
) {
    attributes.int(b"curtail.attempt", index);
    if index > 0 {
        attributes.int(b"http.request.resend_count", index);
    }
    if trail.destination.as_ref().is_none_or(|destination| destination.class != attempt.class) {
        attributes.text(b"curtail.class", attempt.class.name());
    }
    describe_reason(attributes, scratch, &attempt.reason);
    describe_choice(attributes, &attempt.choice);
    match attempt.tie {
        Some(TieRole::First) => attributes.text(b"curtail.tie", "first"),
        Some(TieRole::Second) => attributes.text(b"curtail.tie", "second"),
        None => {}
    }
}

fn describe_choice(attributes: &mut Attributes<'_>, choice: &Choice) {
    attributes.text(b"curtail.choice", choice.name());
    match *choice {
        Choice::Only | Choice::Turn | Choice::Chance => {}
        Choice::FewerInFlight { in_flight, other } => {
            attributes.int(b"curtail.choice.in_flight", in_flight.into());
            attributes.int(b"curtail.choice.other_in_flight", other.into());
        }
        Choice::LowerPeakEwma { cost, other } => {
            attributes.int(b"curtail.choice.cost_ns", cost.as_ns());
            attributes.int(b"curtail.choice.other_cost_ns", other.as_ns());
        }
        Choice::ColdLowestLatency { latency, in_flight, threshold } => {
            attributes.int(b"curtail.choice.latency_ns", latency.as_ns());
            attributes.int(b"curtail.choice.in_flight", in_flight.into());
            if let Some(threshold) = threshold {
                attributes.int(b"curtail.choice.threshold", threshold.into());
            }
        }
        Choice::AllHotFewestInFlight { in_flight, threshold } => {
            attributes.int(b"curtail.choice.in_flight", in_flight.into());
            attributes.int(b"curtail.choice.threshold", threshold.into());
        }
        Choice::OtherZone { in_flight, near } => {
            attributes.int(b"curtail.choice.in_flight", in_flight.into());
            attributes.int(b"curtail.choice.other_in_flight", near.into());
        }
        Choice::PoolTooSmall { len } => attributes.int(b"curtail.choice.pool_len", len.into()),
    }
}

/// Returns whether the attempt counts as failed: in a span of kind client, a client error (4xx) does too.
fn describe_attempt_end(
    attributes: &mut Attributes<'_>,
    scratch: &mut String,
    attempt: &AttemptTrail,
) -> bool {
    if let Some(phases) = attempt.connect {
        attributes.int(b"curtail.connect.lookup_ns", phases.lookup.as_ns());
        attributes.int(b"curtail.connect.tcp_ns", phases.tcp.as_ns());
        attributes.int(b"curtail.connect.tls_ns", phases.tls.as_ns());
    }
    if let Some((at, status)) = attempt.responded {
        attributes.flag(b"curtail.connection.reused", attempt.connect.is_none());
        attributes.int(b"http.response.status_code", status.as_u16().into());
        attributes.int(b"curtail.response_after_ns", at.since(attempt.sent).as_ns());
    }
    attributes.flag(b"curtail.won", attempt.won);
    let end = attempt.end.map(|(_, end)| end);
    if let Some(AttemptEnd::Cancelled(reason)) = &end {
        describe_cancelled(attributes, scratch, reason);
    }
    let status = attempt.responded.map(|(_, status)| status);
    let bad_status = status.filter(|s| s.is_client_error() || s.is_server_error());
    let bad_status = bad_status.as_ref().map(StatusCode::as_str);
    let error = match &end {
        Some(AttemptEnd::Failed(failure @ Failure::BadResponse)) => {
            bad_status.or(Some(failure.name()))
        }
        Some(AttemptEnd::Failed(failure)) => Some(failure.name()),
        Some(AttemptEnd::Cancelled(reason)) if reason.is_failure() => Some(reason.name()),
        Some(AttemptEnd::Responded | AttemptEnd::Cancelled(_)) | None => bad_status,
    };
    if let Some(error) = error {
        attributes.text(b"error.type", error);
    }
    error.is_some()
}

/// The text of `value`, put together in `scratch`.
fn display<'s>(scratch: &'s mut String, value: &dyn std::fmt::Display) -> &'s str {
    scratch.clear();
    write!(scratch, "{value}").expect("a string takes everything");
    scratch
}

/// The method, if the conventions list it; clients can invent any number of others.
fn known_method(method: &Method) -> Option<&'static str> {
    Some(match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => return None,
    })
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// A host as clients write it, without its port and without the brackets of an IPv6 address.
fn split_port(host: &str) -> (&str, Option<u16>) {
    // Hosts are so short that a loop over their bytes is faster than `rsplit_once`.
    let (address, port) = match host.bytes().rposition(|byte| byte == b':') {
        Some(at) if !host[..at].contains(':') || host[..at].ends_with(']') => {
            (&host[..at], host[at + 1..].parse().ok())
        }
        _ => (host, None),
    };
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    (bare.unwrap_or(address), port)
}

#[cfg(test)]
mod tests;
