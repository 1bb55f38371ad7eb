//! One HTTP/1.1 connection to a server, driven by the task that uses it.
//!
//! A connection carries one exchange at a time. The response may begin before the request is written completely. No
//! second task has to be woken, and a closed connection is detected before a request is written to it.
//! **Limits**: [`HEAD_BYTES_MAX`] and [`FIELDS_MAX`] for the head of a response with its interim responses, and for
//! trailers.
//!
//! [`HEAD_BYTES_MAX`]: super::fields::HEAD_BYTES_MAX
//! [`FIELDS_MAX`]: super::fields::FIELDS_MAX

mod request;
mod response;

use super::Error;
use super::inbound::Inbound;
use crate::head::ResponseHead;
use crate::outbound_request::OutboundRequest;
use crate::service::InterimSink;
use crate::stream::Stream;
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use request::Sending;
use response::ResponseHeadReader;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::task::coop::unconstrained;

/// A connection to a server.
#[derive(Debug)]
pub struct ClientConnection {
    inbound: Inbound,
    sending: Sending,
    head: ResponseHeadReader,
    /// Whether another exchange may follow.
    is_kept: bool,
}

impl ClientConnection {
    /// Begins HTTP/1.1 on a new connection.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self {
            inbound: Inbound::new(stream, BytesMut::new()),
            sending: Sending::new(),
            head: ResponseHeadReader::default(),
            is_kept: true,
        }
    }

    /// Whether a request can be sent now: the connection is reusable, and the server has neither closed it nor sent
    /// bytes without a request.
    pub(crate) fn is_usable(&mut self) -> bool {
        if !self.is_reusable() {
            return false;
        }
        // A task that has used up its budget would get no look at the connection.
        let closed = unconstrained(std::future::poll_fn(|cx| self.poll_closed(cx)));
        pin!(closed).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Ready when, between exchanges, the server has closed the connection or sent bytes without a request.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inbound.poll_read(cx).map(drop)
    }

    /// Whether the last exchange is complete on both sides, and another exchange may follow.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        self.is_kept
            && self.inbound.framing.is_end()
            && self.sending.is_done()
            && self.inbound.read.is_empty()
    }

    /// Sends a request and waits for the head of its response; interim responses go to the request's sink.
    ///
    /// # Errors
    /// Any error of the connection; [`Error::Unwritten`] if the server cannot have read any part of the request.
    pub async fn send(&mut self, mut request: Box<OutboundRequest>) -> Result<ResponseHead, Error> {
        let is_head = request.head.method == http::Method::HEAD;
        let interim = request.interim.take();
        self.sending.begin(request);
        self.head = ResponseHeadReader::default();
        // Until the response itself decides.
        self.is_kept = false;
        std::future::poll_fn(|cx| self.poll_head(cx, is_head, interim.as_ref())).await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        is_head: bool,
        interim: Option<&InterimSink>,
    ) -> Poll<Result<ResponseHead, Error>> {
        let pass_on = |head| {
            if let Some(interim) = interim {
                interim.send(head);
            }
        };
        loop {
            self.drive_sending(cx)?;
            if self.sending.is_unwritten()
                && let Some(failure) = self.sending.take_failure()
            {
                // What the server has sent meanwhile is no response to this request.
                return Poll::Ready(Err(Error::Unwritten(failure)));
            }
            if let Some((version, mut head)) = self.head.take(&mut self.inbound.read, pass_on)? {
                let (framing, is_kept) = response::framing(version, &mut head, is_head)?;
                self.inbound.begin_body(framing, &head.fields);
                self.is_kept = is_kept;
                return Poll::Ready(Ok(head));
            }
            let read = ready!(self.inbound.poll_read(cx));
            if !matches!(read, Ok(1..)) {
                return Poll::Ready(Err(self.no_response(read.err())));
            }
        }
    }

    fn no_response(&mut self, source: Option<io::Error>) -> Error {
        let source = self.sending.take_failure().or(source);
        if self.head.is_begun(&self.inbound.read) {
            Error::Incomplete(source)
        } else {
            Error::NoResponse(source)
        }
    }

    /// Reads the next frame of the response body.
    ///
    /// # Errors
    /// When the connection fails, or the body is malformed.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.drive_sending(cx)?;
        self.inbound.poll_frame(cx)
    }

    /// Whether the response has ended.
    pub(crate) const fn is_end(&self) -> bool {
        self.inbound.framing.is_end()
    }

    /// Returns the remaining length of the response body, as far as it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.inbound.framing.size_hint()
    }

    /// Writes as much of the request as possible. A connection that accepts no more bytes is not an error yet, because
    /// a response may state the reason.
    fn drive_sending(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.sending.poll(cx, &mut self.inbound.stream) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
