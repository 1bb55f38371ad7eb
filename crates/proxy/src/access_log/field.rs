//! The fields of a line, and their values.

use super::line::{self, PreparedText, SecondText};
use super::{AccessLog, AccessRecord};
use crate::trace_context::TraceId;
use crate::trail::{AttemptTrail, Trail};
use curtail_http::clock::Clock;
use curtail_policy::Reason;
use curtail_units::Duration;
use http::Version;
use std::net::IpAddr;

/// Names the fields. Those of `text` are no keys of a JSON line, because its `attempts` have them.
macro_rules! fields {
    (json { $($json:ident $json_name:literal,)* } text { $($text:ident $text_name:literal,)* }) => {
        /// A field of a line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Field { $($json,)* $($text,)* }

        impl Field {
            const NAMES: &[(Self, &str)] =
                &[$((Self::$json, $json_name),)* $((Self::$text, $text_name),)*];
        }

        /// Appends the fields of a JSON line that the request has, each with its key. The code of each field is its own, so
        /// the compiler knows the key and the kind of the value.
        pub(super) fn write_members(
            (out, second): (&mut Vec<u8>, &mut SecondText),
            facts: &Facts<'_>,
        ) {
            $(if let Some(value) = facts.value(Field::$json) {
                let key = concat!(",\"", $json_name, "\":\"");
                line::write_member((&mut *out, &mut *second), key, value);
            })*
        }
    };
}

fields! {
    json {
        Time "time",
        Client "client",
        Listener "listener",
        Method "method",
        Scheme "scheme",
        Host "host",
        Path "path",
        Protocol "protocol",
        Route "route",
        Upstream "upstream",
        Class "class",
        Tenant "tenant",
        Status "status",
        GrpcStatus "grpc_status",
        Error "error",
        ErrorDetail "error_detail",
        Reason "reason",
        RequestBytes "request_bytes",
        ResponseBytes "response_bytes",
        DurationMs "duration_ms",
        FirstByteMs "first_byte_ms",
        QueueMs "queue_ms",
        Replica "replica",
        Hedges "hedges",
        Retries "retries",
        Skipped "skipped",
        Holdout "holdout",
        Shards "shards",
        ShardsMissing "shards_missing",
        ShardsMissingDetail "shards_missing_detail",
        TraceId "trace_id",
    }
    text {
        Attempts "attempts",
        LookupMs "lookup_ms",
        TcpMs "tcp_ms",
        TlsMs "tls_ms",
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// A text that may come from a client: any bytes.
    Text(&'a [u8]),
    /// A text of the configuration.
    Prepared(&'a PreparedText),
    /// A short text that has no character to escape: names of reasons, IP addresses.
    Word(&'a str),
    Count(u64),
    Flag(bool),
    Duration(Duration),
    /// Nanoseconds since 1970.
    Time(u64),
    TraceId(&'a TraceId),
    Address(IpAddr),
}

/// The source of all values of a line.
pub(super) struct Facts<'a> {
    pub(super) log: &'a AccessLog,
    pub(super) record: &'a AccessRecord<'a>,
    pub(super) clock: &'a Clock,
}

impl Field {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(field, _)| *field)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(_, name)| *name)
    }
}

impl<'a> Facts<'a> {
    /// The value of a field; [`None`] if the request has none.
    #[inline(always)]
    pub(super) fn value(&self, field: Field) -> Option<Value<'a>> {
        let AccessRecord { client, trail, end, .. } = *self.record;
        Some(match field {
            Field::Time => {
                let started = trail.map_or(end.at, |trail| trail.started);
                Value::Time(self.clock.unix_ns(started))
            }
            Field::Client => match trail {
                Some(trail) if client.is_trusted => {
                    let origin = client.origin(&trail.request_head);
                    origin.map_or(Value::Word(&client.address_text), Value::Address)
                }
                Some(_) | None => Value::Word(&client.address_text),
            },
            Field::Listener => text(&client.listener),
            Field::Scheme => Value::Word(match trail {
                Some(trail) => client.scheme(&trail.request_head).name(),
                None if client.tls => "https",
                None => "http",
            }),
            Field::Status => Value::Count(end.status?.as_u16().into()),
            Field::GrpcStatus => Value::Count(trail?.grpc_status?.into()),
            Field::Error => Value::Word(end.error?),
            Field::ErrorDetail => text(self.record.error_detail?),
            Field::Reason => Value::Word(end.reason.as_ref().map(Reason::name).or(end.error)?),
            Field::DurationMs => Value::Duration(self.record.duration()?),
            Field::FirstByteMs => {
                let first_byte = trail?.response_begun.or(end.status.map(|_| end.at))?;
                Value::Duration(first_byte.since(trail?.started))
            }
            Field::Method => text(trail?.request_head.method.as_str()),
            Field::Host => Value::Text(trail?.received_head().host_bytes()?),
            Field::Path if self.log.config.query => text(trail?.received_head().target.as_str()),
            Field::Path => text(trail?.received_head().target.path()),
            Field::Protocol => Value::Word(protocol(trail?.request_head.version)),
            Field::Route => Value::Prepared(&trail?.destination.as_ref()?.route.path_prefix),
            Field::Upstream => {
                Value::Prepared(trail?.destination.as_ref()?.route.upstream.as_ref()?)
            }
            Field::Class => Value::Word(trail?.destination.as_ref()?.class.name()),
            Field::Tenant => Value::Text(trail?.tenant(self.log.tenant_header.as_deref()?)?),
            Field::RequestBytes => Value::Count(trail?.request_body_bytes?),
            Field::ResponseBytes => Value::Count(trail?.response_body_bytes?),
            Field::QueueMs => Value::Duration(trail?.leaf_wait?),
            Field::Holdout => Value::Flag(trail?.draw?.is_holdout),
            Field::Shards => Value::Count(trail?.fan_out.as_ref()?.calls),
            Field::ShardsMissing => Value::Count(trail?.fan_out.as_ref()?.missing),
            Field::ShardsMissingDetail => text(trail?.fan_out.as_ref()?.missing_detail.as_deref()?),
            Field::TraceId => Value::TraceId(&trail?.context.trace_id),
            Field::Replica => Value::Prepared(&winner(trail?)?.replica.address),
            Field::LookupMs => Value::Duration(winner(trail?)?.connect?.lookup),
            Field::TcpMs => Value::Duration(winner(trail?)?.connect?.tcp),
            Field::TlsMs => Value::Duration(winner(trail?)?.connect?.tls),
            // Each call has attempts of its own.
            Field::Attempts if trail?.fan_out.is_some() => return None,
            Field::Attempts => Value::Count(trail?.attempts.len() as u64),
            Field::Hedges => Value::Count(trail?.hedges()),
            Field::Retries => Value::Count(trail?.retries()),
            Field::Skipped => Value::Word(trail?.skipped.last()?.1.name()),
        })
    }

    /// The value of a request header, as the replicas get it.
    pub(super) fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.record.trail?.header(name)
    }

    /// The attempts of the request.
    pub(super) fn attempts(&self) -> &'a [AttemptTrail] {
        self.record.trail.map_or(&[], |trail| &trail.attempts)
    }
}

const fn text(text: &str) -> Value<'_> {
    Value::Text(text.as_bytes())
}

/// The attempt whose response the client got.
fn winner(trail: &Trail) -> Option<&AttemptTrail> {
    trail.attempts.iter().find(|attempt| attempt.won)
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}
