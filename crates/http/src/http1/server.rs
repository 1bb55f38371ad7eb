//! One HTTP/1.1 connection with a client, driven by the task that responds to its requests.
//!
//! Requests are served one at a time; bytes that arrive meanwhile wait. When a client closes its sending side, its request
//! is abandoned, because a server cannot distinguish a half-close from a full close.
//!
//! **Limits**: a head has at most [`ServerLimits::head_bytes_max`] bytes and [`FIELDS_MAX`] fields. It must begin
//! within [`ServerLimits::idle_timeout`] after the previous response, and end within [`ServerLimits::header_timeout`].
//! [`fields`] limits trailers. A client that reads nothing for [`ServerLimits::write_timeout`] is disconnected.
//!
//! [`fields`]: super::fields
//! [`FIELDS_MAX`]: super::fields::FIELDS_MAX

mod body;
mod request;
mod response;

pub use body::{InterimSink, RequestBody};
pub(crate) use response::with_date;

use super::Error;
use super::inbound::Inbound;
use super::outbound::{Length, Outbound};
use crate::clock::Clock;
use crate::drain::{Drain, LAST_MOMENT};
use crate::head::{Fault, RequestHead, ResponseHead};
use crate::linger::Linger;
use crate::progress::ProgressTimer;
use crate::replay::ClientBody;
use crate::service::{self, Service};
use crate::stream::{ClientStream, Stream};
use crate::timers::Timers;
use body::{SharedConnection, lock};
use bytes::{Bytes, BytesMut};
use curtail_units::Duration;
use http::{StatusCode, Version};
use http_body::Body;
use request::{ParsedRequest, RequestHeadReader, Terms};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

/// Limits on a client.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum size of a request's head.
    pub head_bytes_max: usize,
    /// Maximum time from the start of a head to its end.
    pub header_timeout: Duration,
    /// Idle time after which a connection is closed.
    pub idle_timeout: Duration,
    /// Maximum time for which a client reads nothing of its response.
    pub write_timeout: Duration,
}

/// A connection with a client.
#[derive(Debug)]
pub struct Server {
    /// The connection, which is shared with the body of the request in progress.
    shared: Arc<Mutex<SharedConnection>>,
    heads: RequestHeadReader,
    limits: ServerLimits,
    outbound: Outbound,
    /// Waits for requests, and for progress of responses.
    timer: ProgressTimer,
    /// Whether no request has arrived: the first one has no idle time before it.
    is_new: bool,
    drain: Drain,
    clock: Clock,
}

/// A connection on which both sides have agreed on another protocol.
#[derive(Debug)]
pub struct UpgradedConnection<B> {
    /// The stream of the connection.
    pub stream: Stream,
    /// Bytes of the other protocol that have already been read.
    pub read: BytesMut,
    /// The body of the response that upgraded the connection.
    pub body: B,
}

enum NextRequest {
    /// A request has arrived.
    Request(RequestHead, Option<RequestBody>, Terms),
    /// The request is malformed.
    Rejected(Fault),
    /// The client has disconnected, or the connection drains.
    Closed,
}

enum SendOutcome {
    /// Another request may follow.
    Kept,
    /// The connection is to be closed.
    Last,
    /// The client has disconnected, or must be able to detect that the response is incomplete.
    Broken,
    /// The client does not read its response.
    TimedOut,
}

impl Server {
    /// Creates a connection whose first bytes, `prefix`, have already been read.
    #[must_use]
    pub fn new(
        (stream, prefix): (Stream, BytesMut),
        limits: ServerLimits,
        drain: Drain,
        (timers, clock): (&Arc<Timers>, Clock),
    ) -> Self {
        Self {
            shared: Arc::new(Mutex::new(SharedConnection::new(Inbound::new(stream, prefix)))),
            heads: RequestHeadReader::default(),
            limits,
            outbound: Outbound::default(),
            timer: ProgressTimer::new(timers, clock, limits.write_timeout),
            is_new: true,
            drain,
            clock,
        }
    }

    /// Serves requests until the connection closes; returns the connection if a response has upgraded it.
    pub async fn serve<S: Service>(mut self, service: S) -> Option<UpgradedConnection<S::Body>> {
        loop {
            let ((head, body), terms) = match poll_fn(|cx| self.poll_next(cx)).await {
                NextRequest::Request(head, body, terms) => {
                    let interim = service::InterimSink::Http1(InterimSink::new(&self.shared));
                    let interim = (terms.version != Version::HTTP_10).then_some(interim);
                    let body = body.map(ClientBody::Http1);
                    let response = pin!(service.respond(head, body, interim));
                    (self.unless_gone(response).await?, terms)
                }
                NextRequest::Rejected(fault) => (service.reject(fault), Terms::LAST),
                NextRequest::Closed => return None,
            };
            let changes = head.status == StatusCode::SWITCHING_PROTOCOLS;
            let mut body = body;
            match self.send(&head, &mut body, terms).await {
                SendOutcome::Kept if changes => return self.into_upgraded(body),
                SendOutcome::Kept => self.is_new = false,
                SendOutcome::Last => {
                    let mut linger = Linger::default();
                    poll_fn(|cx| linger.poll(cx, &mut lock(&self.shared).inbound.stream)).await;
                    return None;
                }
                SendOutcome::Broken => return None,
                SendOutcome::TimedOut => {
                    service.write_timed_out(&mut body);
                    return None;
                }
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextRequest> {
        let mut shared = lock(&self.shared);
        loop {
            match self.heads.take(&mut shared.inbound.read, self.limits.head_bytes_max) {
                Ok(Some(ParsedRequest { head, framing, terms, is_continue_expected })) => {
                    shared.inbound.begin_body(framing, &head.fields);
                    let number = shared.begin_request(is_continue_expected);
                    let has_body = !framing.is_end();
                    let body = has_body.then(|| RequestBody::new(&self.shared, number));
                    return Poll::Ready(NextRequest::Request(head, body, terms));
                }
                Ok(None) => {}
                Err(fault) => return Poll::Ready(NextRequest::Rejected(fault)),
            }
            let is_begun = !shared.inbound.read.is_empty();
            let is_closing = self.drain.is_closing() || self.drain.poll(cx).is_ready();
            match shared.inbound.poll_read(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(NextRequest::Closed),
                Poll::Pending => {
                    let ServerLimits { header_timeout, idle_timeout, .. } = self.limits;
                    let (phase, timeout) = match (is_begun, is_closing, self.is_new) {
                        (true, ..) | (false, false, true) => (1, header_timeout),
                        (false, true, _) => (2, LAST_MOMENT),
                        (false, false, false) => (0, idle_timeout),
                    };
                    ready!(self.timer.poll_within(cx, phase, timeout));
                    let next = if is_begun {
                        NextRequest::Rejected(Fault::SLOW)
                    } else {
                        NextRequest::Closed
                    };
                    return Poll::Ready(next);
                }
            }
        }
    }

    /// Waits for a future while the client is connected.
    async fn unless_gone<T>(&self, mut what: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|cx| match what.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_gone(cx).map(|()| None),
        })
        .await
    }

    /// Ready when the client has closed. Until the request is complete, the reader of its body reads the end of the
    /// connection.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &mut *lock(&self.shared);
        // The poll may be pending: the client may still close while it does not read them.
        _ = shared.poll_interim(cx);
        let inbound = &mut shared.inbound;
        if inbound.is_closed {
            return Poll::Ready(());
        }
        // The received part of the next request is kept; more of it is not needed yet.
        while inbound.framing.is_end() && inbound.read.is_empty() {
            if !matches!(ready!(inbound.poll_read(cx)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    async fn send<B>(&mut self, head: &ResponseHead, body: &mut B, mut terms: Terms) -> SendOutcome
    where
        B: Body<Data = Bytes, Error: Into<Error>> + Unpin,
    {
        self.timer.rest();
        let length = response::framing(head.status, &body.size_hint(), terms);
        // A changed protocol goes on during a drain.
        let is_last = self.drain.is_begun() && head.status != StatusCode::SWITCHING_PROTOCOLS;
        terms.keeps &= length != Some(Length::UntilClosed) && !is_last;
        let mut discarded = 0;
        let is_unread = Arc::strong_count(&self.shared) == 1;
        if is_unread && lock(&self.shared).has_chunks() {
            // Their end may have arrived.
            poll_fn(|cx| Poll::Ready(_ = lock(&self.shared).poll_discard(cx, &mut discarded)))
                .await;
        }
        terms.keeps &= lock(&self.shared).may_discard_rest();
        let buffer = self.outbound.begin(length.unwrap_or(Length::Ended), terms.takes_trailers);
        buffer.extend_from_slice(&lock(&self.shared).end_interim());
        response::write_head(buffer, head, length, terms, &self.clock);
        let mut failure = None;
        if let Err(error) = poll_fn(|cx| self.poll_send(cx, body, &mut failure)).await {
            tracing::debug!(%error, "a response was not sent completely");
            let is_timeout = error.is_timeout();
            // Without a reset, the kernel would retransmit the rest to a client that does not read.
            if is_timeout || length == Some(Length::UntilClosed) {
                lock(&self.shared).inbound.stream.reset_at_drop();
            }
            return if is_timeout { SendOutcome::TimedOut } else { SendOutcome::Broken };
        }
        self.timer.rest();
        lock(&self.shared).end_request();
        let is_read = poll_fn(|cx| {
            let read = self.poll_rest(cx, &mut discarded);
            // What has arrived is read, so that the close does not reset the connection.
            if read.is_pending() && !terms.keeps { Poll::Ready(false) } else { read }
        });
        let keeps = is_read.await && terms.keeps;
        self.timer.rest();
        if keeps { SendOutcome::Kept } else { SendOutcome::Last }
    }

    /// Discards the rest of the request's body, within the time for a head; ready with whether the body has ended.
    fn poll_rest(&mut self, cx: &mut Context<'_>, discarded: &mut usize) -> Poll<bool> {
        let read = lock(&self.shared).poll_discard(cx, discarded);
        if read.is_ready() {
            return read;
        }
        let is_closing = self.drain.is_closing() || self.drain.poll(cx).is_ready();
        let (phase, timeout) =
            if is_closing { (4, LAST_MOMENT) } else { (3, self.limits.header_timeout) };
        ready!(self.timer.poll_within(cx, phase, timeout));
        Poll::Ready(false)
    }

    /// Sends the message that has been begun, with what the body has. What it had before its `failure` is sent, too: to a
    /// client, a connection that closes without a byte is an idle one that has timed out, and it sends its request again.
    fn poll_send<B>(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut B,
        failure: &mut Option<Error>,
    ) -> Poll<Result<(), Error>>
    where
        B: Body<Data = Bytes, Error: Into<Error>> + Unpin,
    {
        loop {
            let gathered = match failure {
                None => self.outbound.gather(cx, body).map(|gathered| *failure = gathered.err()),
                Some(_) => Poll::Ready(()),
            };
            let written = self.outbound.poll_write(cx, &mut lock(&self.shared).inbound.stream);
            let Poll::Ready(written) = written else {
                ready!(self.timer.poll(cx, self.outbound.taken_bytes()));
                return Poll::Ready(Err(Error::Incomplete(Some(io::ErrorKind::TimedOut.into()))));
            };
            written.map_err(|error| Error::Incomplete(Some(error)))?;
            if let Some(failure) = failure.take() {
                return Poll::Ready(Err(failure));
            }
            if gathered.is_pending() {
                ready!(self.poll_gone(cx));
                return Poll::Ready(Err(Error::Incomplete(None)));
            }
            if self.outbound.is_end() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn into_upgraded<B>(self, body: B) -> Option<UpgradedConnection<B>> {
        let shared = Arc::into_inner(self.shared)?;
        let SharedConnection { inbound, .. } = shared.into_inner().ok()?;
        Some(UpgradedConnection { stream: inbound.stream, read: inbound.read, body })
    }
}

impl Terms {
    /// The terms of a malformed request, whose response is the last on the connection.
    const LAST: Self =
        Self { is_head: false, version: Version::HTTP_11, takes_trailers: false, keeps: false };
}
