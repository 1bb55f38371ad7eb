//! The envelope of spans on the wire: the resource that sends them, and the frame of the transport.
//!
//! Encoded spans are not copied: the body of an export request is the envelope, then the buffers themselves.

use super::Batch;
use super::attributes::Attributes;
use crate::config::{SpansConfig, SpansProtocol};
use crate::trace_context::entropy_rng;
use bytes::Bytes;
use curtail_http::grpc;
use curtail_protobuf::{bytes_field, length_field, message_field};
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// `ExportTraceServiceRequest.resource_spans`.
const RESOURCE_SPANS: u32 = 1;
/// Fields of `ResourceSpans`.
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
/// The field of `Resource` that holds attributes.
const RESOURCE_ATTRIBUTES: u32 = 1;
/// The field of `ScopeSpans` with the scope, which names the writer of the spans, and the fields of the scope.
const SCOPE: u32 = 1;
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;

/// The parts of an `ExportTraceServiceRequest` that are the same every time.
#[derive(Debug)]
pub(super) struct Envelope {
    /// The field of `ResourceSpans` that describes this process.
    resource: Vec<u8>,
    /// The field of `ScopeSpans` that names this program.
    scope: Vec<u8>,
    protocol: SpansProtocol,
}

impl Envelope {
    pub(super) fn new(config: &SpansConfig) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let instance = format!("{:016x}", entropy_rng().next_u64());
        let mut resource = Vec::new();
        message_field(&mut resource, RESOURCE, |out| {
            let mut attributes = Attributes::new(out, RESOURCE_ATTRIBUTES);
            attributes.text(b"service.name", &config.service_name);
            attributes.text(b"service.version", version);
            attributes.text(b"service.instance.id", &instance);
            attributes.int(b"process.pid", std::process::id().into());
        });
        let mut scope = Vec::new();
        message_field(&mut scope, SCOPE, |out| {
            bytes_field(out, SCOPE_NAME, b"curtail-proxy");
            bytes_field(out, SCOPE_VERSION, version.as_bytes());
        });
        Self { resource, scope, protocol: config.protocol }
    }

    /// The body that carries a batch.
    pub(super) fn wrap(&self, batch: &Batch) -> Parts {
        let scope_spans_len = self.scope.len() + batch.bytes;
        let mut scope_spans_head = Vec::new();
        length_field(&mut scope_spans_head, SCOPE_SPANS, scope_spans_len);
        let resource_spans_len = self.resource.len() + scope_spans_head.len() + scope_spans_len;
        let mut head = Vec::new();
        length_field(&mut head, RESOURCE_SPANS, resource_spans_len);
        let message_len = head.len() + resource_spans_len;

        let mut before = Vec::new();
        if self.protocol == SpansProtocol::Grpc {
            let prefix = grpc::prefix(message_len).expect("what is buffered fits four bytes");
            before.extend_from_slice(&prefix);
        }
        for part in [&head, &self.resource, &scope_spans_head, &self.scope] {
            before.extend_from_slice(part);
        }
        Parts(std::iter::once(before.into()).chain(batch.chunks.iter().cloned()).collect())
    }
}

/// A body of known length, in non-empty parts that are sent one after the other. A clone shares the parts.
#[derive(Clone, Debug)]
pub(super) struct Parts(VecDeque<Bytes>);

impl Parts {
    /// A whole message.
    pub(super) fn of(message: Vec<u8>, protocol: SpansProtocol) -> Self {
        let is_grpc = protocol == SpansProtocol::Grpc;
        let prefix = is_grpc.then(|| grpc::prefix(message.len()).expect("it is short"));
        let prefix = prefix.map(|prefix| Bytes::copy_from_slice(&prefix));
        Self(prefix.into_iter().chain([message.into()]).collect())
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}
