//! What responds to the requests of a client's connection, over any version of HTTP.

use crate::head::{Fault, RequestHead, ResponseHead};
use crate::http1;
use crate::http2;
use crate::replay::ClientBody;
use bytes::Bytes;
use http_body::Body;
use std::future::Future;

/// Responds to the requests of a connection.
pub trait Service: Send + Sync {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<http1::Error> + std::error::Error> + Unpin + Send;

    /// Responds to a request; interim responses go to the sink, if the client understands them.
    fn respond(
        &self,
        head: RequestHead,
        body: Option<ClientBody>,
        interim: Option<InterimSink>,
    ) -> impl Future<Output = (ResponseHead, Self::Body)> + Send;

    /// Carries the bytes of a WebSocket over HTTP/2, until both sides have ended it. The body is that of the response 101.
    fn carry(
        &self,
        stream: http2::DuplexStream,
        body: Self::Body,
    ) -> impl Future<Output = ()> + Send;

    /// Returns the response to a malformed request.
    fn reject(&self, fault: Fault) -> (ResponseHead, Self::Body);

    /// The client does not read the response with this body within the write timeout.
    fn write_timed_out(&self, body: &mut Self::Body);
}

/// Receives the interim responses to a request, except "100 Continue", which the proxy sends itself when it reads the
/// body (RFC 9110, section 15.2).
#[derive(Clone, Debug)]
pub enum InterimSink {
    /// Over HTTP/1.1.
    Http1(http1::InterimSink),
    /// Over HTTP/2.
    Http2(http2::InterimSink),
}

impl InterimSink {
    /// Queues an interim response, which the connection's task writes.
    pub fn send(&self, head: ResponseHead) {
        match self {
            Self::Http1(sink) => sink.send(head),
            Self::Http2(sink) => sink.send(head),
        }
    }
}
