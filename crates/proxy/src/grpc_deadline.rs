//! The deadline of a gRPC call: the header `grpc-timeout`, and the response when the deadline has passed.
//!
//! **Source**: "gRPC over HTTP2", in the repository of gRPC: `Timeout`, and `Trailers-Only`.

use crate::request::ProxyResponse;
use crate::response::RelayedBody;
use bytes::Bytes;
use curtail_http::grpc;
use curtail_http::head::{Fields, Known, ResponseHead};
use curtail_units::Duration;
use http::StatusCode;

/// The status `DEADLINE_EXCEEDED`.
const DEADLINE_EXCEEDED: &[u8] = b"4";

/// Returns the deadline of a gRPC call; [`None`] for other requests, and without exactly one valid `grpc-timeout`.
pub(crate) fn of_request(fields: &Fields) -> Option<Duration> {
    let all = |name: &'static [u8]| {
        fields.iter().filter(move |(_, field, _)| *field == name).map(|(.., value)| value)
    };
    // gRPC-Web has its status in the body.
    let kind = all(b"content-type").next()?.strip_prefix(b"application/grpc")?;
    if !matches!(kind.first(), None | Some(b'+' | b';')) {
        return None;
    }
    let mut timeouts = all(b"grpc-timeout");
    let timeout = timeouts.next()?;
    timeouts.next().is_none().then(|| grpc::parse_timeout(timeout))?
}

/// The response to a call whose deadline has passed, as `Trailers-Only`: the headers have the status of gRPC.
pub(crate) fn response(error: &'static str) -> ProxyResponse {
    let mut head = ResponseHead::new(StatusCode::OK);
    head.fields.append(b"content-type", b"application/grpc");
    head.fields.push(Known::GrpcStatus, DEADLINE_EXCEEDED);
    head.fields.append(b"grpc-message", format!("curtail: {error}").as_bytes());
    head.fields.push(Known::CurtailError, error.as_bytes());
    (head, RelayedBody::Whole(Bytes::new()))
}

#[cfg(test)]
mod tests {
    use super::of_request;
    use curtail_http::head::Fields;
    use curtail_units::Duration;

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
            let mut head = Fields::default();
            fields.iter().for_each(|(name, value)| head.append(name.as_bytes(), value.as_bytes()));
            assert_eq!(of_request(&head), expected, "{fields:?}");
        }
    }
}
