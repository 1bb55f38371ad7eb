//! The outcome of an attempt by its response, and the request of an attempt.

use super::Outgoing;
use crate::config::FAILED_STATUSES;
use crate::leaf_headers::{LEAF_TWIN_STARTED, QUEUE_FULL};
use crate::response::BufferedResponse;
use crate::trace_context::{self, TraceContext};
use curtail_http::head::{Known, ResponseHead};
use curtail_http::outbound_request::OutboundRequest;
use curtail_http::replay::OutboundBody;
use curtail_policy::{Class, Failure, Outcome};
use http::{StatusCode, Version};
use std::sync::Arc;

impl Outgoing {
    /// Whether the request is the WebSocket handshake of an HTTP/2 client (RFC 8441).
    pub(crate) fn is_connect(&self) -> bool {
        self.upgrade.is_some() && self.head.version == Version::HTTP_2
    }

    pub(super) fn outcome(&self, response: &BufferedResponse) -> Outcome {
        let ResponseHead { status, fields } = &response.head;
        if let Some(leaf) = fields.get(Known::CurtailLeaf) {
            return if leaf == LEAF_TWIN_STARTED { Outcome::TwinStarted } else { Outcome::Refused };
        }
        // gRPC reports UNAVAILABLE (14) with status 200, and in the headers if there is no body.
        let is_unavailable =
            *status == StatusCode::OK && fields.get(Known::GrpcStatus) == Some(b"14");
        let failed = self.failed_statuses.as_deref().unwrap_or(&FAILED_STATUSES);
        if is_unavailable || failed.contains(status) { Outcome::Bad } else { Outcome::Good }
    }

    /// The name of the error of a response that stands for all leaves that refused the request.
    pub(super) fn error(&self, response: &BufferedResponse) -> Option<&'static str> {
        if self.outcome(response) != Outcome::Refused {
            return None;
        }
        let name = response.head.fields.get_text(Known::CurtailError);
        let known = [QUEUE_FULL, Failure::ConnectionLimit.name(), Failure::Unprocessed.name()];
        let known = known.into_iter().find(|known| name == Some(known));
        Some(known.unwrap_or(Failure::Refused.name()))
    }

    pub(super) fn attempt(
        &self,
        context: &TraceContext,
        span_id: trace_context::SpanId,
        class: Class,
    ) -> Box<OutboundRequest> {
        let body = match &self.body {
            None => OutboundBody::Empty,
            Some(replay) => OutboundBody::Replay(replay.reader()),
        };
        let mut request = OutboundRequest::new(Arc::clone(&self.head), body);
        request.interim.clone_from(&self.interim);
        // Without spans of the proxy, the replicas' spans belong to the span of the caller.
        if self.is_traced {
            request.set_traceparent(context.child_header(span_id));
        }
        if class != Class::default() {
            request.set(Known::CurtailClass, class.name().as_bytes());
        }
        if let Some(protocol) = &self.upgrade {
            request.set(Known::Connection, b"upgrade");
            request.set(Known::Upgrade, protocol);
        }
        request
    }
}
