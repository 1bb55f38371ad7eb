//! The response to an export request.

use crate::error::{Broken, Malformed, Refused};
use crate::schema::Message;
use crate::wire::{LEN, Reader, VARINT};
use curtail_protobuf as protobuf;

/// The kind of rows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Points of metrics.
    Metrics,
}

curtail_units::labels!(Signal { Traces => "traces", Logs => "logs", Metrics => "metrics", });

/// The paths of exports, each with its signal and whether it is a gRPC method.
const EXPORT_PATHS: [(&str, Signal, bool); 6] = [
    ("/v1/traces", Signal::Traces, false),
    ("/v1/logs", Signal::Logs, false),
    ("/v1/metrics", Signal::Metrics, false),
    ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", Signal::Traces, true),
    ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", Signal::Logs, true),
    ("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", Signal::Metrics, true),
];

impl Signal {
    /// The path to which batches are sent over HTTP, or the gRPC method.
    ///
    /// # Panics
    /// Never: each signal has both.
    #[must_use]
    pub fn export_path(self, is_grpc: bool) -> &'static str {
        let of = EXPORT_PATHS.iter().find(|(_, signal, grpc)| (*signal, *grpc) == (self, is_grpc));
        of.expect("each signal has both").0
    }

    /// The signal that a path is for, and whether it is a gRPC method.
    #[must_use]
    pub fn of_export_path(path: &str) -> Option<(Self, bool)> {
        let of = EXPORT_PATHS.iter().find(|(known, ..)| *known == path);
        of.map(|(_, signal, is_grpc)| (*signal, *is_grpc))
    }

    /// Returns the name of the field with the number of rejected rows, in a JSON response.
    const fn rejected(self) -> &'static str {
        match self {
            Self::Traces => "rejectedSpans",
            Self::Logs => "rejectedLogRecords",
            Self::Metrics => "rejectedDataPoints",
        }
    }
}

/// Encodes the response to an accepted batch in protobuf, with `partial_success` if rows were rejected.
#[must_use]
pub fn response(refused: Refused) -> Vec<u8> {
    let mut out = Vec::new();
    if refused.count > 0 {
        protobuf::long_message_field(&mut out, 1, |out| {
            protobuf::varint_field(out, 1, refused.count);
            protobuf::bytes_field(out, 2, refused.to_string().as_bytes());
        });
    }
    out
}

/// Encodes the response to an accepted batch in JSON.
#[must_use]
pub fn json_response(signal: Signal, refused: Refused) -> String {
    if refused.count == 0 {
        return "{}".to_owned();
    }
    // 64 bits stand in JSON as text.
    let count = refused.count.to_string();
    let message = refused.to_string();
    serde_json::json!({"partialSuccess": {signal.rejected(): count, "errorMessage": message}})
        .to_string()
}

/// Decodes the `partial_success` of a response: the number of rejected rows, and the reason.
///
/// # Errors
/// When the response is not the expected message.
pub fn left_out(response: &[u8]) -> Result<(u64, String), Malformed> {
    read_left_out(response).map_err(|broken| *broken)
}

fn read_left_out(response: &[u8]) -> Result<(u64, String), Broken> {
    // The messages of all signals have these fields.
    static RESPONSE: Message = Message { name: "ExportTraceServiceResponse", fields: &[] };
    static PARTIAL: Message = Message { name: "ExportTracePartialSuccess", fields: &[] };
    let (mut count, mut why) = (0, String::new());
    let mut response = Reader::new(response, &RESPONSE);
    while let Some(tag) = response.tag()? {
        if (tag.field, tag.wire_type) != (1, LEN) {
            response.skip(tag)?;
            continue;
        }
        let mut partial = response.message(&PARTIAL)?;
        while let Some(tag) = partial.tag()? {
            match (tag.field, tag.wire_type) {
                (1, VARINT) => count = partial.varint()?,
                (2, LEN) => {
                    let text = partial.slice()?;
                    why = String::from_utf8_lossy(partial.bytes(text)).into_owned();
                }
                _ => partial.skip(tag)?,
            }
        }
    }
    Ok((count, why))
}

/// Decodes the message of a `google.rpc.Status`, the body of a response to a rejected request; [`None`] for other bytes.
#[must_use]
pub fn status_message(body: &[u8]) -> Option<String> {
    static STATUS: Message = Message { name: "Status", fields: &[] };
    let (mut status, mut message) = (Reader::new(body, &STATUS), None);
    while let Some(tag) = status.tag().ok()? {
        if (tag.field, tag.wire_type) == (2, LEN) {
            let text = status.slice().ok()?;
            message = String::from_utf8(status.bytes(text).to_vec()).ok();
        } else {
            status.skip(tag).ok()?;
        }
    }
    message
}

/// Encodes the response to a rejected batch: a `google.rpc.Status`, with the delay before a retry.
#[must_use]
pub fn status(code: u8, message: &str, retry_after_s: Option<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::varint_field(&mut out, 1, u64::from(code));
    protobuf::bytes_field(&mut out, 2, message.as_bytes());
    if let Some(seconds) = retry_after_s {
        protobuf::long_message_field(&mut out, 3, |out| {
            protobuf::bytes_field(out, 1, b"type.googleapis.com/google.rpc.RetryInfo");
            // A `RetryInfo` of a `Duration`.
            protobuf::long_message_field(out, 2, |out| {
                protobuf::long_message_field(out, 1, |out| protobuf::varint_field(out, 1, seconds));
            });
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{RefusedRow, RowFault};

    #[test]
    fn the_message_of_a_status_is_read_back_and_other_bytes_have_none() {
        let message = "expected authorization: Bearer <token>";
        for retry_after_s in [None, Some(7)] {
            assert_eq!(
                status_message(&status(16, message, retry_after_s)).as_deref(),
                Some(message)
            );
        }
        for other in
            [&b"404 page not found"[..], b"", b"<html>", b"\x12\x7f", b"{\"message\":\"no\"}"]
        {
            assert_eq!(status_message(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_was_left_out_is_counted_with_the_first_reason() {
        assert_eq!(response(Refused::default()), b"");
        assert_eq!(json_response(Signal::Logs, Refused::default()), "{}");
        let mut refused = Refused::default();
        for (number, fault) in [(3, RowFault::SpanId), (7, RowFault::Time)] {
            refused.add(RefusedRow { number, trace_id: 0, span_id: 0xab, fault });
        }
        let message = "2 rejected; the first is number 3 of the batch, span 00000000000000ab: its span ID is not 8 \
                    bytes, or zero";
        let inner = [&[8, 2, 0x12, message.len().to_le_bytes()[0]], message.as_bytes()].concat();
        let whole = [&[0x0A, inner.len().to_le_bytes()[0]], &*inner].concat();
        assert_eq!(response(refused), whole);
        assert_eq!(left_out(&whole).expect("a message"), (2, message.to_owned()));
        assert_eq!(left_out(b"").expect("a message"), (0, String::new()));
        // Fields that are not known are passed over, and what is cut off is none.
        let unknown = [&[0x15, 1, 2, 3, 4], &*whole].concat();
        assert_eq!(left_out(&unknown).expect("a message").0, 2);
        for (message, rejected) in [
            (&[0x0a, 0][..], 0),
            (&[0x0a, 3, 0x08, 0x96, 0x01], 150),
            // Unknown fields of every wire type before it.
            (&[0x10, 1, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4, 0x0a, 2, 0x08, 9], 9),
        ] {
            assert_eq!(left_out(message).expect("a message").0, rejected, "{message:?}");
        }
        for broken in [&[0x0a, 200, 0x08][..], &[0x0b], &[0xff; 16]] {
            assert!(left_out(broken).is_err(), "{broken:?}");
        }
        assert!(left_out(&whole[..whole.len() - 1]).is_err());
        assert_eq!(
            json_response(Signal::Traces, refused),
            format!(r#"{{"partialSuccess":{{"errorMessage":"{message}","rejectedSpans":"2"}}}}"#)
        );
    }
}
