//! One HTTP/1.1 connection with a client, driven by the very task that answers it.
//!
//! One request is answered at a time; what comes meanwhile waits. While a request is answered the client is
//! listened to, and one that closes has gone, with all that was done for it: a half-close and a full one look
//! alike from here.
//!
//! **Limits**: a head has [`Limits::headers`] bytes and [`FIELDS_MAX`] fields, comes within
//! [`Limits::header_timeout`] and begins within [`Limits::idle_timeout`] of the answer before it; trailers as
//! in [`fields`]. A client that reads nothing of its response for [`Limits::write_timeout`] is cut off.
//!
//! [`fields`]: super::fields
//! [`FIELDS_MAX`]: super::fields::FIELDS_MAX

mod answer;
mod body;
mod request;

pub(crate) use body::{InterimSink, RequestBody};

use super::Error;
use super::inbound::Inbound;
use super::outbound::{Length, Outbound};
use crate::clock::Clock;
use crate::config::Limits;
use crate::drain::Drain;
use crate::head::{AnswerHead, Fault, RequestHead};
use crate::linger::Linger;
use crate::stream::Stream;
use body::{Asking, lock};
use bytes::{Bytes, BytesMut};
use http::{StatusCode, Version};
use http_body::Body;
use request::{Asked, HeadReader, Terms};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep};

/// Whoever answers the requests of a connection.
pub(crate) trait Answers {
    type Body: Body<Data = Bytes, Error: Into<Error>> + Unpin;

    /// Responds to a request; interim responses go to the sink, if the client understands them.
    fn answer(
        &self,
        head: RequestHead,
        body: Option<RequestBody>,
        interim: Option<InterimSink>,
    ) -> impl Future<Output = (AnswerHead, Self::Body)>;

    /// Answers what is no request.
    fn refuse(&self, fault: Fault) -> (AnswerHead, Self::Body);

    /// Counts a client that is cut off because it does not read its response.
    fn count_write_timeout(&self);
}

/// A connection with a client.
pub(crate) struct Server {
    /// Shared with the body of the request in progress.
    asking: Arc<Mutex<Asking>>,
    heads: HeadReader,
    head_bytes_max: usize,
    outbound: Outbound,
    patience: Patience,
    drain: Drain,
    clock: Clock,
}

/// A connection on which both sides have agreed to speak something else.
#[derive(Debug)]
pub(crate) struct Changed<B> {
    pub(crate) stream: Stream,
    /// What the client has said of it already.
    pub(crate) read: BytesMut,
    /// What the answer had for a body.
    pub(crate) body: B,
}

/// What happens next on a connection.
enum Next {
    /// A request is to be answered.
    Asked(RequestHead, Option<RequestBody>, Terms),
    /// What has come is no request.
    Refused(Fault),
    /// The client has gone, or nothing more is wanted of it.
    Over,
}

/// How an answer was sent.
enum Sent {
    /// Another request may follow.
    Kept,
    /// The connection is to be closed.
    Last,
    /// The client has gone, or must not take what it got for all of it.
    Broken,
    /// The client does not read its response.
    Stuck,
}

impl Server {
    /// A connection of which `begun` has been read already.
    pub(crate) fn new(
        (stream, begun): (Stream, BytesMut),
        limits: &Limits,
        drain: Drain,
        clock: Clock,
    ) -> Self {
        Self {
            asking: Arc::new(Mutex::new(Asking::new(Inbound::new(stream, begun)))),
            heads: HeadReader::default(),
            head_bytes_max: limits.headers.as_len(),
            outbound: Outbound::default(),
            patience: Patience::new(limits),
            drain,
            clock,
        }
    }

    /// Answers requests for as long as there are any; returns the connection if it is to be used for
    /// something else.
    pub(crate) async fn serve<A: Answers>(mut self, answers: A) -> Option<Changed<A::Body>> {
        loop {
            let ((head, body), terms) = match poll_fn(|cx| self.poll_next(cx)).await {
                Next::Asked(head, body, terms) => {
                    let interim = InterimSink::new(&self.asking);
                    let interim = (terms.version != Version::HTTP_10).then_some(interim);
                    let answering = pin!(answers.answer(head, body, interim));
                    (self.unless_gone(answering).await?, terms)
                }
                Next::Refused(fault) => (answers.refuse(fault), Terms::LAST),
                Next::Over => return None,
            };
            let changes = head.status == StatusCode::SWITCHING_PROTOCOLS;
            let mut body = body;
            match self.send(&head, &mut body, terms).await {
                Sent::Kept if changes => return self.into_changed(body),
                Sent::Kept => self.patience.begin_idle(),
                Sent::Last => {
                    let mut linger = Linger::default();
                    poll_fn(|cx| linger.poll(cx, &mut lock(&self.asking).inbound.stream)).await;
                    return None;
                }
                Sent::Broken => return None,
                Sent::Stuck => {
                    answers.count_write_timeout();
                    return None;
                }
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut asking = lock(&self.asking);
        loop {
            match self.heads.take(&mut asking.inbound.read, self.head_bytes_max) {
                Ok(Some(Asked { head, framing, terms, is_continue_expected })) => {
                    asking.inbound.begin_body(framing);
                    let number = asking.begin_request(is_continue_expected);
                    let has_body = !framing.is_end();
                    let body = has_body.then(|| RequestBody::new(&self.asking, number));
                    return Poll::Ready(Next::Asked(head, body, terms));
                }
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Next::Refused(fault)),
            }
            let is_begun = !asking.inbound.read.is_empty();
            if !is_begun && self.drain.poll(cx).is_ready() {
                return Poll::Ready(Next::Over);
            }
            match asking.inbound.poll_read(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Next::Over),
                Poll::Pending => {
                    ready!(self.patience.poll(cx, is_begun));
                    let next = if is_begun { Next::Refused(Fault::SLOW) } else { Next::Over };
                    return Poll::Ready(next);
                }
            }
        }
    }

    /// Waits for something while the client is there.
    async fn unless_gone<T>(&self, mut what: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|cx| match what.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_gone(cx).map(|()| None),
        })
        .await
    }

    /// Ready when the client has closed. Until its request has come whole, whoever reads that hears of it.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let asking = &mut *lock(&self.asking);
        // The poll may be pending: the client may still close while it does not read them.
        _ = asking.poll_interim(cx);
        let inbound = &mut asking.inbound;
        // What has come of the next request is kept; more of it is not needed yet.
        while inbound.framing.is_end() && inbound.read.is_empty() {
            if !matches!(ready!(inbound.poll_read(cx)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Sends an answer.
    async fn send<B>(&mut self, head: &AnswerHead, body: &mut B, mut terms: Terms) -> Sent
    where
        B: Body<Data = Bytes, Error: Into<Error>> + Unpin,
    {
        let length = answer::framing(head.status, &body.size_hint(), terms);
        terms.keeps &= length != Some(Length::UntilClosed) && !self.drain.is_told();
        let buffer = self.outbound.begin(length.unwrap_or(Length::Ended), terms.takes_trailers);
        buffer.extend_from_slice(&lock(&self.asking).end_interim());
        answer::write_head(buffer, head, length, terms, &self.clock);
        if let Err(error) = poll_fn(|cx| self.poll_send(cx, body)).await {
            tracing::debug!(%error, "an answer did not get through");
            let is_stuck = error.is_timeout();
            // Without a reset, the kernel would retransmit the rest to a client that does not read.
            if is_stuck || length == Some(Length::UntilClosed) {
                lock(&self.asking).inbound.stream.reset_at_drop();
            }
            return if is_stuck { Sent::Stuck } else { Sent::Broken };
        }
        let is_read = poll_fn(|cx| Poll::Ready(lock(&self.asking).pass_over(cx))).await;
        let keeps = terms.keeps && is_read;
        if keeps { Sent::Kept } else { Sent::Last }
    }

    fn poll_send<B>(&mut self, cx: &mut Context<'_>, body: &mut B) -> Poll<Result<(), Error>>
    where
        B: Body<Data = Bytes, Error: Into<Error>> + Unpin,
    {
        loop {
            let gathered = self.outbound.gather(cx, body)?;
            let written = self.outbound.poll_write(cx, &mut lock(&self.asking).inbound.stream);
            let Poll::Ready(written) = written else {
                ready!(self.patience.poll_taken(cx, self.outbound.taken_bytes()));
                return Poll::Ready(Err(Error::CutShort(Some(io::ErrorKind::TimedOut.into()))));
            };
            written.map_err(|error| Error::CutShort(Some(error)))?;
            if gathered.is_pending() {
                ready!(self.poll_gone(cx));
                return Poll::Ready(Err(Error::CutShort(None)));
            }
            if self.outbound.is_end() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn into_changed<B>(self, body: B) -> Option<Changed<B>> {
        let asking = Arc::into_inner(self.asking)?;
        let Asking { inbound, .. } = asking.into_inner().ok()?;
        Some(Changed { stream: inbound.stream, read: inbound.read, body })
    }
}

impl Terms {
    /// Of what is no request: it gets an answer, and no other.
    const LAST: Self =
        Self { is_head: false, version: Version::HTTP_11, takes_trailers: false, keeps: false };
}

/// How long we wait for a client, to ask or to take its answer. The timer stays for as long as the connection, and is set to a later
/// time only when the last one is over: setting one for each request would cost more than reading it.
struct Patience {
    header_timeout: std::time::Duration,
    idle_timeout: std::time::Duration,
    write_timeout: std::time::Duration,
    /// It takes no more of its answer than this.
    taken_bytes: Option<u64>,
    /// It is a head that we wait for, no longer its beginning.
    is_begun: bool,
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    /// A new connection is there to ask something.
    fn new(limits: &Limits) -> Self {
        let header_timeout = limits.header_timeout.into();
        let until = Instant::now() + header_timeout;
        Self {
            header_timeout,
            idle_timeout: limits.idle_timeout.into(),
            write_timeout: limits.write_timeout.into(),
            taken_bytes: None,
            is_begun: true,
            until,
            timer: Box::pin(tokio::time::sleep_until(until)),
        }
    }

    /// A request was answered: the next one may take its time.
    fn begin_idle(&mut self) {
        self.is_begun = false;
        self.taken_bytes = None;
        self.wait(self.idle_timeout);
    }

    /// Ready when a client that has taken so much of its answer takes no more.
    fn poll_taken(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<()> {
        if self.taken_bytes != Some(bytes) {
            self.taken_bytes = Some(bytes);
            self.wait(self.write_timeout);
        }
        self.poll_over(cx)
    }

    fn wait(&mut self, patience: std::time::Duration) {
        self.until = Instant::now() + patience;
        if self.timer.deadline() > self.until {
            self.timer.as_mut().reset(self.until);
        }
    }

    /// Ready when a client that has asked nothing, or begun to, does not go on.
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
