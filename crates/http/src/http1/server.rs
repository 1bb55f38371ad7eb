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

use super::Error;
use super::inbound::Inbound;
use super::outbound::{Length, Outbound};
use crate::clock::Clock;
use crate::drain::Drain;
use crate::head::{Fault, RequestHead, ResponseHead};
use crate::linger::Linger;
use crate::stream::Stream;
use body::{SharedConnection, lock};
use bytes::{Bytes, BytesMut};
use http::{StatusCode, Version};
use http_body::Body;
use request::{HeadReader, ParsedRequest, Terms};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep};

/// Responds to the requests of a connection.
pub trait Service {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<Error>> + Unpin;

    /// Responds to a request; interim responses go to the sink, if the client understands them.
    fn respond(
        &self,
        head: RequestHead,
        body: Option<RequestBody>,
        interim: Option<InterimSink>,
    ) -> impl Future<Output = (ResponseHead, Self::Body)>;

    /// Returns the response to a malformed request.
    fn reject(&self, fault: Fault) -> (ResponseHead, Self::Body);

    /// Counts a client that is disconnected because it does not read its response.
    fn count_write_timeout(&self);
}

/// Limits on a client.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum size of a request's head.
    pub head_bytes_max: usize,
    /// Maximum time from the start of a head to its end.
    pub header_timeout: std::time::Duration,
    /// Idle time after which a connection is closed.
    pub idle_timeout: std::time::Duration,
    /// Maximum time for which a client reads nothing of its response.
    pub write_timeout: std::time::Duration,
}

/// A connection with a client.
#[derive(Debug)]
pub struct Server {
    /// The connection, which is shared with the body of the request in progress.
    shared: Arc<Mutex<SharedConnection>>,
    heads: HeadReader,
    head_bytes_max: usize,
    outbound: Outbound,
    timeouts: ClientTimeouts,
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

enum Next {
    /// A request has arrived.
    Request(RequestHead, Option<RequestBody>, Terms),
    /// The request is malformed.
    Rejected(Fault),
    /// The client has disconnected, or the connection drains.
    Closed,
}

enum Sent {
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
    /// Creates a connection whose first bytes, `begun`, have already been read.
    #[must_use]
    pub fn new(
        (stream, begun): (Stream, BytesMut),
        limits: &ServerLimits,
        drain: Drain,
        clock: Clock,
    ) -> Self {
        Self {
            shared: Arc::new(Mutex::new(SharedConnection::new(Inbound::new(stream, begun)))),
            heads: HeadReader::default(),
            head_bytes_max: limits.head_bytes_max,
            outbound: Outbound::default(),
            timeouts: ClientTimeouts::new(limits),
            drain,
            clock,
        }
    }

    /// Serves requests until the connection closes; returns the connection if a response has upgraded it.
    pub async fn serve<S: Service>(mut self, service: S) -> Option<UpgradedConnection<S::Body>> {
        loop {
            let ((head, body), terms) = match poll_fn(|cx| self.poll_next(cx)).await {
                Next::Request(head, body, terms) => {
                    let interim = InterimSink::new(&self.shared);
                    let interim = (terms.version != Version::HTTP_10).then_some(interim);
                    let response = pin!(service.respond(head, body, interim));
                    (self.unless_gone(response).await?, terms)
                }
                Next::Rejected(fault) => (service.reject(fault), Terms::LAST),
                Next::Closed => return None,
            };
            let changes = head.status == StatusCode::SWITCHING_PROTOCOLS;
            let mut body = body;
            match self.send(&head, &mut body, terms).await {
                Sent::Kept if changes => return self.into_upgraded(body),
                Sent::Kept => self.timeouts.begin_idle(),
                Sent::Last => {
                    let mut linger = Linger::default();
                    poll_fn(|cx| linger.poll(cx, &mut lock(&self.shared).inbound.stream)).await;
                    return None;
                }
                Sent::Broken => return None,
                Sent::TimedOut => {
                    service.count_write_timeout();
                    return None;
                }
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut shared = lock(&self.shared);
        loop {
            match self.heads.take(&mut shared.inbound.read, self.head_bytes_max) {
                Ok(Some(ParsedRequest { head, framing, terms, is_continue_expected })) => {
                    shared.inbound.begin_body(framing);
                    let number = shared.begin_request(is_continue_expected);
                    let has_body = !framing.is_end();
                    let body = has_body.then(|| RequestBody::new(&self.shared, number));
                    return Poll::Ready(Next::Request(head, body, terms));
                }
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Next::Rejected(fault)),
            }
            let is_begun = !shared.inbound.read.is_empty();
            if !is_begun && self.drain.poll(cx).is_ready() {
                return Poll::Ready(Next::Closed);
            }
            match shared.inbound.poll_read(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Next::Closed),
                Poll::Pending => {
                    ready!(self.timeouts.poll(cx, is_begun));
                    let next = if is_begun { Next::Rejected(Fault::SLOW) } else { Next::Closed };
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

    /// Ready when the client has closed. Until the request is complete, the reader of its body detects the close.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &mut *lock(&self.shared);
        // The poll may be pending: the client may still close while it does not read them.
        _ = shared.poll_interim(cx);
        let inbound = &mut shared.inbound;
        // The received part of the next request is kept; more of it is not needed yet.
        while inbound.framing.is_end() && inbound.read.is_empty() {
            if !matches!(ready!(inbound.poll_read(cx)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    async fn send<B>(&mut self, head: &ResponseHead, body: &mut B, mut terms: Terms) -> Sent
    where
        B: Body<Data = Bytes, Error: Into<Error>> + Unpin,
    {
        let length = response::framing(head.status, &body.size_hint(), terms);
        terms.keeps &= length != Some(Length::UntilClosed) && !self.drain.is_begun();
        let buffer = self.outbound.begin(length.unwrap_or(Length::Ended), terms.takes_trailers);
        buffer.extend_from_slice(&lock(&self.shared).end_interim());
        response::write_head(buffer, head, length, terms, &self.clock);
        if let Err(error) = poll_fn(|cx| self.poll_send(cx, body)).await {
            tracing::debug!(%error, "a response was not sent completely");
            let is_timeout = error.is_timeout();
            // Without a reset, the kernel would retransmit the rest to a client that does not read.
            if is_timeout || length == Some(Length::UntilClosed) {
                lock(&self.shared).inbound.stream.reset_at_drop();
            }
            return if is_timeout { Sent::TimedOut } else { Sent::Broken };
        }
        let is_read = poll_fn(|cx| Poll::Ready(lock(&self.shared).pass_over(cx))).await;
        let keeps = terms.keeps && is_read;
        if keeps { Sent::Kept } else { Sent::Last }
    }

    fn poll_send<B>(&mut self, cx: &mut Context<'_>, body: &mut B) -> Poll<Result<(), Error>>
    where
        B: Body<Data = Bytes, Error: Into<Error>> + Unpin,
    {
        loop {
            let gathered = self.outbound.gather(cx, body)?;
            let written = self.outbound.poll_write(cx, &mut lock(&self.shared).inbound.stream);
            let Poll::Ready(written) = written else {
                ready!(self.timeouts.poll_taken(cx, self.outbound.taken_bytes()));
                return Poll::Ready(Err(Error::Incomplete(Some(io::ErrorKind::TimedOut.into()))));
            };
            written.map_err(|error| Error::Incomplete(Some(error)))?;
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

/// The timeouts of a client, for its requests and for reading responses. One timer serves the whole connection, and is
/// set to a later time only when it fires. To set a timer for each request would take longer than to read the request.
#[derive(Debug)]
struct ClientTimeouts {
    header_timeout: std::time::Duration,
    idle_timeout: std::time::Duration,
    write_timeout: std::time::Duration,
    /// The number of bytes of the response that the client had read at its last progress.
    taken_bytes: Option<u64>,
    /// Whether the head of a request has begun to arrive.
    is_begun: bool,
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl ClientTimeouts {
    fn new(limits: &ServerLimits) -> Self {
        let header_timeout = limits.header_timeout;
        let until = Instant::now() + header_timeout;
        Self {
            header_timeout,
            idle_timeout: limits.idle_timeout,
            write_timeout: limits.write_timeout,
            taken_bytes: None,
            is_begun: true,
            until,
            timer: Box::pin(tokio::time::sleep_until(until)),
        }
    }

    /// Begins the idle timeout, after a response.
    fn begin_idle(&mut self) {
        self.is_begun = false;
        self.taken_bytes = None;
        self.wait(self.idle_timeout);
    }

    /// Ready when the client has read no more than `bytes` for the write timeout.
    fn poll_taken(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<()> {
        if self.taken_bytes != Some(bytes) {
            self.taken_bytes = Some(bytes);
            self.wait(self.write_timeout);
        }
        self.poll_over(cx)
    }

    fn wait(&mut self, timeout: std::time::Duration) {
        self.until = Instant::now() + timeout;
        if self.timer.deadline() > self.until {
            self.timer.as_mut().reset(self.until);
        }
    }

    /// Ready when a request has not begun, or its head has not ended, in time.
    fn poll(&mut self, cx: &mut Context<'_>, is_begun: bool) -> Poll<()> {
        if is_begun && !self.is_begun {
            self.is_begun = true;
            self.wait(self.header_timeout);
        }
        self.poll_over(cx)
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if self.timer.deadline() >= self.until {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.until);
        }
    }
}
