//! Responses of the proxy itself.

use super::ProxyResponse;
use crate::grpc_call::{self, GrpcStatus};
use crate::response::RelayedBody;
use crate::trail::Trail;
use bytes::Bytes;
use curtail_http::head::{Known, ResponseHead};
use http::StatusCode;

/// A response of the proxy itself: a line of text, and the constant name of the error in a header.
pub(crate) fn own(status: StatusCode, error: &'static str, why: &str) -> ProxyResponse {
    let separator = if why.is_empty() { "" } else { ": " };
    let text = format!("curtail: {error}{separator}{why}\n");
    let mut head = ResponseHead::new(status);
    head.fields.push(Known::CurtailError, error.as_bytes());
    (head, RelayedBody::Whole(Bytes::from(text)))
}

/// Makes an error of the proxy a status of gRPC if the client of this trail expects one. A root gets the errors of its
/// leaves unchanged.
pub(super) fn translate_own(
    trail: &Trail,
    response: ProxyResponse,
    status: Option<GrpcStatus>,
) -> ProxyResponse {
    if trail.is_at_leaf {
        return response;
    }
    grpc_call::translate(trail.received_head(), response, status)
}

pub(super) fn empty(status: StatusCode) -> ProxyResponse {
    (ResponseHead::new(status), RelayedBody::Whole(Bytes::new()))
}
