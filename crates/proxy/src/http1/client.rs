//! One HTTP/1.1 connection to a replica, driven by the very task that uses it.
//!
//! It carries one exchange at a time: a request is written while its answer may already come, for a replica
//! need not read a request to its end before it answers. No second task has to be woken, and a connection
//! that the replica has closed is noticed when it is taken from the pool, before a request is written to it.
//!
//! **Limits**: an answer's head, with the interim answers before it, and its trailers: [`HEAD_BYTES_MAX`]
//! and [`FIELDS_MAX`] each.
//!
//! [`HEAD_BYTES_MAX`]: super::fields::HEAD_BYTES_MAX
//! [`FIELDS_MAX`]: super::fields::FIELDS_MAX

mod answer;
mod request;

use super::inbound::Inbound;
use super::{Error, InterimSink};
use crate::attempt::AttemptRequest;
use crate::counted::CountedConnection;
use crate::head::AnswerHead;
use crate::stream::Stream;
use answer::HeadReader;
use bytes::{Bytes, BytesMut};
use curtail_units::Instant;
use http_body::{Frame, SizeHint};
use request::Sending;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::task::coop::unconstrained;

/// A connection that is not in use, or is lent to one exchange.
#[derive(Debug)]
pub(crate) struct Http1 {
    inbound: Inbound,
    sending: Sending,
    head: HeadReader,
    /// Another exchange may follow.
    is_kept: bool,
    pub(crate) idle_since: Instant,
    _counted: CountedConnection,
}

impl Http1 {
    /// Begins to speak HTTP/1.1 on a new connection.
    pub(crate) fn new(stream: Stream, now: Instant, counted: CountedConnection) -> Self {
        Self {
            inbound: Inbound::new(stream, BytesMut::new()),
            sending: Sending::new(),
            head: HeadReader::default(),
            is_kept: true,
            idle_since: now,
            _counted: counted,
        }
    }

    /// Whether a request can be sent on it now: nothing is under way, and the replica has neither closed
    /// nor said anything unasked.
    pub(crate) fn is_usable(&mut self) -> bool {
        if !self.is_free() {
            return false;
        }
        // A task that has done much already is told to wait before anything is looked at.
        let read = unconstrained(std::future::poll_fn(|cx| self.inbound.poll_read(cx)));
        pin!(read).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Whether the last exchange has left it as it was before.
    pub(crate) fn is_free(&self) -> bool {
        self.is_kept
            && self.inbound.framing.is_end()
            && self.sending.is_done()
            && self.inbound.read.is_empty()
    }

    /// Sends a request and waits for the head of its response; interim responses go to the request's sink.
    ///
    /// # Errors
    /// Whatever happens to the connection; [`Error::Unwritten`] when the replica cannot have seen anything.
    pub(crate) async fn send(&mut self, mut request: AttemptRequest) -> Result<AnswerHead, Error> {
        let is_head = request.head.method == http::Method::HEAD;
        let interim = request.interim.take();
        self.sending.begin(request);
        self.head = HeadReader::default();
        // Until the answer has said so itself.
        self.is_kept = false;
        std::future::poll_fn(|cx| self.poll_head(cx, is_head, interim.as_ref())).await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        is_head: bool,
        interim: Option<&InterimSink>,
    ) -> Poll<Result<AnswerHead, Error>> {
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
                // Whatever the replica has said meanwhile, it is no answer to this.
                return Poll::Ready(Err(Error::Unwritten(failure)));
            }
            if let Some((version, mut head)) = self.head.take(&mut self.inbound.read, pass_on)? {
                let (framing, is_kept) = answer::framing(version, &mut head, is_head)?;
                self.inbound.begin_body(framing);
                self.is_kept = is_kept;
                return Poll::Ready(Ok(head));
            }
            let read = ready!(self.inbound.poll_read(cx));
            if !matches!(read, Ok(1..)) {
                return Poll::Ready(Err(self.unanswered(read.err())));
            }
        }
    }

    /// Why there is no answer.
    fn unanswered(&mut self, source: Option<io::Error>) -> Error {
        let source = self.sending.take_failure().or(source);
        if self.head.is_begun(&self.inbound.read) {
            Error::CutShort(source)
        } else {
            Error::Unanswered(source)
        }
    }

    /// The next frame of the answer's body.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.drive_sending(cx)?;
        self.inbound.poll_frame(cx)
    }

    /// Whether nothing more of the answer will come.
    pub(crate) const fn is_end(&self) -> bool {
        self.inbound.framing.is_end()
    }

    /// What is known of the length of the answer's body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.inbound.framing.size_hint()
    }

    /// Writes what can be written. That the connection takes no more is not the end: there may be an answer
    /// that says why.
    fn drive_sending(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.sending.poll(cx, &mut self.inbound.stream) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
