//! One HTTP/1.1 connection to a replica, driven by the very task that uses it.
//!
//! It carries one exchange at a time: a request is written while its answer may already come, for a replica
//! need not read a request to its end before it answers. No second task has to be woken, and a connection
//! that the replica has closed is noticed when it is taken from the pool, before a request is written to it.
//!
//! **Limits**: an answer's head, with the interim answers before it, and its trailers: [`HEAD_BYTES_MAX`]
//! and [`FIELDS_MAX`] each.
//! **Source**: RFC 9112.
//!
//! [`HEAD_BYTES_MAX`]: fields::HEAD_BYTES_MAX
//! [`FIELDS_MAX`]: fields::FIELDS_MAX

mod answer;
mod chunked;
mod fields;
mod request;

use crate::attempt::AttemptRequest;
use crate::body::BodyError;
use crate::connect::Stream;
use crate::counted::CountedConnection;
use answer::{Framing, HeadReader};
use bytes::{Bytes, BytesMut};
use chunked::Piece;
use curtail_units::Instant;
use http::Response;
use http_body::{Frame, SizeHint};
use request::Sending;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::AsyncReadExt;
use tokio::task::coop::unconstrained;

/// How much is read at once.
const READ_BYTES: usize = 8 << 10;

/// The same when an answer keeps filling it.
const READ_BYTES_MAX: usize = 64 << 10;

/// What goes wrong with an exchange.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the connection was closed before a byte of the request was taken: {0}")]
    Unwritten(io::Error),
    #[error("the connection was closed before a byte of the answer came")]
    Unanswered(#[source] Option<io::Error>),
    #[error("the connection was closed before the answer was whole")]
    CutShort(#[source] Option<io::Error>),
    #[error("what came is no answer of HTTP/1.1: {0}")]
    BadAnswer(&'static str),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the request body is not as long as was announced")]
    BodyLength,
}

/// A connection that is not in use, or is lent to one exchange.
#[derive(Debug)]
pub(crate) struct Http1 {
    stream: Stream,
    /// What has come and is not yet taken.
    read: BytesMut,
    read_bytes: usize,
    sending: Sending,
    head: HeadReader,
    /// How the body of the answer is framed, and where in it we are.
    framing: Framing,
    /// Another exchange may follow.
    is_kept: bool,
    /// It has been used before: the replica may be about to close it.
    pub(crate) is_reused: bool,
    pub(crate) idle_since: Instant,
    _counted: CountedConnection,
}

impl Http1 {
    /// Begins to speak HTTP/1.1 on a new connection.
    pub(crate) fn new(stream: Stream, now: Instant, counted: CountedConnection) -> Self {
        Self {
            stream,
            read: BytesMut::new(),
            read_bytes: READ_BYTES,
            sending: Sending::default(),
            head: HeadReader::default(),
            framing: Framing::Ended,
            is_kept: true,
            is_reused: false,
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
        let read = unconstrained(std::future::poll_fn(|cx| self.poll_read(cx)));
        pin!(read).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Whether the last exchange has left it as it was before.
    pub(crate) fn is_free(&self) -> bool {
        self.is_kept && self.framing.is_end() && self.sending.is_done() && self.read.is_empty()
    }

    /// Sends a request and waits for the head of its answer; interim answers are passed over.
    ///
    /// # Errors
    /// Whatever happens to the connection; [`Error::Unwritten`] when the replica cannot have seen anything.
    pub(crate) async fn send(&mut self, request: AttemptRequest) -> Result<Response<()>, Error> {
        let is_head = request.head.method == http::Method::HEAD;
        self.sending.begin(request);
        self.head = HeadReader::default();
        self.read_bytes = READ_BYTES;
        // Until the answer has said so itself.
        self.is_kept = false;
        std::future::poll_fn(|cx| self.poll_head(cx, is_head)).await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        is_head: bool,
    ) -> Poll<Result<Response<()>, Error>> {
        loop {
            self.drive_sending(cx)?;
            if self.sending.is_unwritten()
                && let Some(failure) = self.sending.take_failure()
            {
                // Whatever the replica has said meanwhile, it is no answer to this.
                return Poll::Ready(Err(Error::Unwritten(failure)));
            }
            if let Some(response) = self.head.take(&mut self.read)? {
                (self.framing, self.is_kept) = answer::framing(&response, is_head)?;
                return Poll::Ready(Ok(response));
            }
            let read = ready!(self.poll_read(cx));
            if !matches!(read, Ok(1..)) {
                return Poll::Ready(Err(self.unanswered(read.err())));
            }
        }
    }

    /// Why there is no answer.
    fn unanswered(&mut self, source: Option<io::Error>) -> Error {
        let source = self.sending.take_failure().or(source);
        if self.head.is_begun(&self.read) {
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
        loop {
            self.drive_sending(cx)?;
            match self.framing.take(&mut self.read)? {
                Piece::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Piece::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Piece::End => return Poll::Ready(None),
                Piece::None => {}
            }
            match ready!(self.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) if self.framing.ends_with_connection() => self.framing = Framing::Ended,
                read => return Poll::Ready(Some(Err(Error::CutShort(read.err())))),
            }
        }
    }

    /// Whether nothing more of the answer will come.
    pub(crate) const fn is_end(&self) -> bool {
        self.framing.is_end()
    }

    /// What is known of the length of the answer's body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.framing.size_hint()
    }

    /// Writes what can be written. That the connection takes no more is not the end: there may be an answer
    /// that says why.
    fn drive_sending(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        match self.sending.poll(cx, &mut self.stream) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Reads what has come; zero: the replica has closed.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < READ_BYTES / 4 {
            self.read.reserve(self.read_bytes);
        }
        let read = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx));
        if self.read.len() == self.read.capacity() {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        }
        Poll::Ready(read)
    }
}

#[cfg(test)]
mod tests;
