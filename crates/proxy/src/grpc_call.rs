//! gRPC calls: their deadline (the header `grpc-timeout`), and the errors of the proxy as statuses of gRPC.
//!
//! **Source**: "gRPC over HTTP2", in the repository of gRPC: `Timeout`, and `Trailers-Only`; "HTTP to gRPC Status Code
//! Mapping", ibid., except 429: a limit of the proxy is no sign of a server that is down.

use crate::request::ProxyResponse;
use crate::response::RelayedBody;
use bytes::Bytes;
use curtail_http::grpc;
use curtail_http::head::{Fields, Known, RequestHead};
use curtail_http::pool::ResponseError;
use curtail_units::Duration;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

/// A message is cut off after this many bytes. The text of a leaf may be as long as a body that is buffered.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// The status of a call whose deadline has passed.
pub(crate) const DEADLINE_EXCEEDED: u16 = 4;

/// A status of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcStatus {
    Unknown,
    DeadlineExceeded,
    PermissionDenied,
    ResourceExhausted,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl GrpcStatus {
    /// The status that stands for an error of HTTP.
    const fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_REQUEST => Self::Internal,
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::PermissionDenied,
            StatusCode::NOT_FOUND => Self::Unimplemented,
            StatusCode::TOO_MANY_REQUESTS => Self::ResourceExhausted,
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    const fn code(self) -> &'static [u8] {
        match self {
            Self::Unknown => b"2",
            Self::DeadlineExceeded => b"4",
            Self::PermissionDenied => b"7",
            Self::ResourceExhausted => b"8",
            Self::Unimplemented => b"12",
            Self::Internal => b"13",
            Self::Unavailable => b"14",
            Self::Unauthenticated => b"16",
        }
    }
}

/// The status of gRPC in a header or trailer.
pub(crate) fn parse_status(value: &[u8]) -> Option<u16> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The name of a status with which a server reports its own failure (OpenTelemetry, semantic conventions for gRPC, spans of
/// servers); [`None`] for other statuses.
pub(crate) const fn failure_name(status: u16) -> Option<&'static str> {
    Some(match status {
        2 => "UNKNOWN",
        4 => "DEADLINE_EXCEEDED",
        12 => "UNIMPLEMENTED",
        13 => "INTERNAL",
        14 => "UNAVAILABLE",
        15 => "DATA_LOSS",
        _ => return None,
    })
}

fn all<'f>(fields: &'f Fields, name: &'static [u8]) -> impl Iterator<Item = &'f [u8]> {
    fields.iter().filter(move |(_, field, _)| *field == name).map(|(.., value)| value)
}

/// Whether a request is a gRPC call, which is a `POST`. gRPC-Web is not: it has its status in the body.
fn is_grpc_call(head: &RequestHead) -> bool {
    let kind = all(&head.fields, b"content-type").next();
    let kind = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    let is_grpc = kind.is_some_and(|kind| matches!(kind.first(), None | Some(b'+' | b';')));
    is_grpc && head.method == Method::POST
}

/// Returns the deadline of a gRPC call; [`None`] for other requests, and without exactly one valid `grpc-timeout`.
pub(crate) fn deadline(head: &RequestHead) -> Option<Duration> {
    let mut timeouts = all(&head.fields, b"grpc-timeout");
    let timeout = timeouts.next().filter(|_| is_grpc_call(head))?;
    timeouts.next().is_none().then(|| grpc::parse_timeout(timeout))?
}

/// Whether a replica has ended a call at the deadline of its client, `age` after the request. A server may reset the stream
/// with `CANCEL` in place of a status (grpc-go does).
pub(crate) fn is_at_deadline(request: &RequestHead, age: Duration, error: &ResponseError) -> bool {
    error.is_cancelled() && deadline(request).is_some_and(|deadline| age >= deadline)
}

/// The status of a call whose replica has ended it at the deadline, as trailers.
pub(crate) fn deadline_trailers() -> HeaderMap {
    let status = HeaderValue::from(DEADLINE_EXCEEDED);
    HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), status)])
}

/// Makes an error of the proxy a status of gRPC if the request is a call. The response then is `Trailers-Only`: the headers
/// have the status. `status`: absent, it follows from the status of HTTP.
pub(crate) fn translate(
    request: &RequestHead,
    (mut head, body): ProxyResponse,
    status: Option<GrpcStatus>,
) -> ProxyResponse {
    let RelayedBody::Whole(text) = &body else { return (head, body) };
    if !is_grpc_call(request) {
        return (head, body);
    }
    let status = status.unwrap_or_else(|| GrpcStatus::of(head.status));
    head.status = StatusCode::OK;
    // Those of the text, which a leaf or another proxy has sent.
    head.fields.remove(Known::ContentLength.bit());
    head.fields.remove_named(b"content-type");
    head.fields.append(b"content-type", b"application/grpc");
    head.fields.push(Known::GrpcStatus, status.code());
    let text = text[..text.len().min(MESSAGE_BYTES_MAX)].trim_ascii();
    let message = grpc::encode_message(&String::from_utf8_lossy(text));
    head.fields.append(b"grpc-message", message.as_bytes());
    (head, RelayedBody::Whole(Bytes::new()))
}

#[cfg(test)]
mod tests {
    use super::{GrpcStatus, MESSAGE_BYTES_MAX, deadline, translate};
    use crate::response::RelayedBody;
    use curtail_http::head::{Fields, RequestHead, ResponseHead, Target};
    use curtail_units::Duration;
    use http::{Method, StatusCode, Version};

    #[test]
    fn a_status_of_http_is_that_of_grpc_which_clients_take_it_for() {
        for (status, code) in [
            (400, "13"),
            (401, "16"),
            (403, "7"),
            (404, "12"),
            (429, "8"),
            (502, "14"),
            (503, "14"),
            (504, "14"),
            (408, "2"),
            (500, "2"),
        ] {
            let of_http = StatusCode::from_u16(status).expect("a status");
            assert_eq!(GrpcStatus::of(of_http).code(), code.as_bytes(), "{status}");
        }
    }

    fn call(fields: &[(&str, &str)]) -> RequestHead {
        let mut head = RequestHead {
            method: Method::POST,
            target: Target::own("/pkg.Service/Method"),
            authority: None,
            version: Version::HTTP_2,
            fields: Fields::default(),
        };
        for (name, value) in fields {
            head.fields.append(name.as_bytes(), value.as_bytes());
        }
        head
    }

    #[test]
    fn a_message_is_cut_off() {
        let mut response = ResponseHead::new(StatusCode::BAD_GATEWAY);
        response.fields.append(b"content-type", b"text/plain");
        let text = RelayedBody::Whole("é".repeat(5_000).into());
        let head = call(&[("content-type", "application/grpc")]);
        let (head, _) = translate(&head, (response, text), None);
        assert_eq!(head.fields.sole(b"content-type"), Ok(Some(&b"application/grpc"[..])));
        let message = head.fields.sole(b"grpc-message").expect("one").expect("a message");
        assert_eq!(message, "%C3%A9".repeat(MESSAGE_BYTES_MAX / 2).as_bytes());
    }

    #[test]
    fn a_grpc_call_with_one_timeout_has_a_deadline() {
        let second = Some(Duration::from_secs(1));
        for (fields, expected) in [
            (&[("content-type", "application/grpc"), ("grpc-timeout", "1S")][..], second),
            (&[("grpc-timeout", "1S"), ("content-type", "application/grpc+proto")], second),
            (&[("grpc-timeout", "1S"), ("content-type", "application/grpc;a=b")], second),
            (&[("grpc-timeout", "1S"), ("content-type", "application/grpc-web")], None),
            (&[("grpc-timeout", "1S"), ("content-type", "text/plain")], None),
            (&[("grpc-timeout", "1S")], None),
            (&[("content-type", "application/grpc")], None),
            (&[("content-type", "application/grpc"), ("grpc-timeout", "1s")], None),
            (
                &[
                    ("content-type", "application/grpc"),
                    ("grpc-timeout", "1S"),
                    ("grpc-timeout", "1S"),
                ],
                None,
            ),
        ] {
            let mut head = call(fields);
            assert_eq!(deadline(&head), expected, "{fields:?}");
            head.method = Method::GET;
            assert_eq!(deadline(&head), None, "{fields:?}");
        }
    }
}
