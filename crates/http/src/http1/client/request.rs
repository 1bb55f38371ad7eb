//! The request that is being sent to a server.

use super::super::Error;
use super::super::fields::write_length;
use super::super::outbound::{Length, Outbound};
use crate::head::{Known, write_field};
use crate::outbound_request::OutboundRequest;
use crate::replay::OutboundBody;
use http::Method;
use http_body::Body;
use std::io;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// The unwritten part of a request.
#[derive(Debug)]
pub(super) struct Sending {
    state: WriteState,
    outbound: Outbound,
    body: OutboundBody,
}

#[derive(Debug)]
enum WriteState {
    Writing,
    /// The whole request is written.
    Done,
    /// The connection accepts no more bytes. The error is taken from here once.
    Broken(Option<io::Error>),
}

impl Sending {
    pub(super) fn new() -> Self {
        Self { state: WriteState::Done, outbound: Outbound::default(), body: OutboundBody::Empty }
    }

    pub(super) fn begin(&mut self, request: Box<OutboundRequest>) {
        let length = match &request.body {
            OutboundBody::Empty => Length::Ended,
            OutboundBody::Full(_) | OutboundBody::Replay(_) => {
                request.body.size_hint().exact().map_or(Length::Chunked, Length::Known)
            }
        };
        write_head(self.outbound.begin(length, true), &request, length);
        self.body = request.body;
        self.state = WriteState::Writing;
    }

    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, WriteState::Done)
    }

    /// Whether the connection has accepted no byte of the request.
    pub(super) const fn is_unwritten(&self) -> bool {
        self.outbound.is_unwritten()
    }

    /// Takes the error with which the connection stopped accepting bytes, if it did.
    pub(super) const fn take_failure(&mut self) -> Option<io::Error> {
        match &mut self.state {
            WriteState::Broken(failure) => failure.take(),
            WriteState::Writing | WriteState::Done => None,
        }
    }

    /// Continues to write, until the request is written or the connection accepts no more bytes.
    ///
    /// # Errors
    /// When the client does not send the body. A broken connection is no error here: [`Self::take_failure`] returns its
    /// error.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), Error>> {
        while matches!(self.state, WriteState::Writing) {
            // The present part of the body is sent together with the header.
            let gathered = self.outbound.gather(cx, &mut self.body)?;
            if let Err(failure) = ready!(self.outbound.poll_write(cx, stream)) {
                self.state = WriteState::Broken(Some(failure));
                break;
            }
            ready!(gathered);
            if self.outbound.is_end() {
                self.body = OutboundBody::Empty;
                self.state = WriteState::Done;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes the head, with the framing of this connection: the body may have arrived with another framing.
fn write_head(buffer: &mut Vec<u8>, request: &OutboundRequest, length: Length) {
    let head = &request.head;
    for part in [head.method.as_str(), " ", head.target.as_str(), " HTTP/1.1\r\n"] {
        buffer.extend_from_slice(part.as_bytes());
    }
    let framing = Known::ContentLength.bit() | Known::TransferEncoding.bit();
    head.fields.write(buffer, request.own() | framing);
    for (known, name, value) in request.own_fields() {
        if known.bit() & framing == 0 {
            write_field(buffer, name, value);
        }
    }
    if request.has(Known::Te) && !request.has(Known::Connection) {
        // RFC 9110, section 10.1.4: another proxy must not forward it.
        write_field(buffer, b"connection", b"te");
    }
    // RFC 9110, section 8.6: methods that usually have a body announce an empty one.
    let is_body_usual = matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
    match length {
        Length::Chunked => write_field(buffer, b"transfer-encoding", b"chunked"),
        Length::Known(bytes) => write_length(buffer, bytes),
        Length::Ended if is_body_usual => write_length(buffer, 0),
        Length::Ended | Length::UntilClosed => {}
    }
    buffer.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
