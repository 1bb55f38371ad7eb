//! Requests that must go no further (`max-forwards`).

use super::{ProxyResponse, empty, own, record_own};
use crate::route::Target;
use crate::trail::Trail;
use crate::worker::Worker;
use curtail_http::forwarding;
use curtail_http::head::RequestHead;
use http::{Method, StatusCode};

/// Whether the request must go no further (`max-forwards`: RFC 9110, section 7.6.2). Counts this hop if it may.
pub(super) fn is_last_hop(head: &mut RequestHead) -> bool {
    matches!(head.method, Method::OPTIONS | Method::TRACE)
        && !forwarding::count_hop(&mut head.fields)
}

/// Responds in place of the replica to a request that must go no further.
pub(super) fn respond_as_last_hop(
    worker: &Worker,
    target: &Target,
    trail: Box<Trail>,
) -> ProxyResponse {
    let (status, error) = match trail.request_head.method {
        Method::OPTIONS => (StatusCode::OK, None),
        _ => (StatusCode::NOT_IMPLEMENTED, Some("trace_unsupported")),
    };
    let upstream = match target {
        Target::Upstream(upstream) => Some(&**upstream),
        Target::FanOut(_) => None,
    };
    record_own(worker, upstream, trail, (Some(status), error));
    error.map_or_else(|| empty(status), |error| own(status, error, ""))
}
