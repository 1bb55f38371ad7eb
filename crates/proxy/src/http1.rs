//! One HTTP/1.1 connection to a replica, driven by the very task that uses it.
//!
//! No second task has to be woken for a request, and a connection that the replica has closed is noticed
//! when it is taken from the pool, before a request is written to it.
//!
//! **Who wakes whom**: the connection and those who wait for its news (the answer, the body) are polled
//! together by one task, yet each would wake the other through hyper's channels, and the task would be
//! polled once more for nothing. So they are polled with a waker that does nothing, and only when there is
//! no news does the connection learn whom to wake when the socket has some. Each request is then two
//! polls of its task instead of four.

use crate::body::AttemptBody;
use crate::connect::Stream;
use crate::pool::CountedConnection;
use curtail_units::Instant;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// One open connection of a pool; counted until dropped.
#[derive(Debug)]
pub(crate) struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    /// Counts one more, unless there are `max` already.
    pub(crate) fn new(open: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let counted = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < max).then_some(counted)
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is not in use, or is lent to one exchange.
pub(crate) struct Http1 {
    sender: http1::SendRequest<AttemptBody>,
    connection: Box<http1::Connection<TokioIo<Stream>, AttemptBody>>,
    /// It has been used before: the replica may be about to close it.
    pub(crate) is_reused: bool,
    is_over: bool,
    pub(crate) idle_since: Instant,
    _counted: CountedConnection,
}

impl std::fmt::Debug for Http1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1").field("idle_since", &self.idle_since).finish_non_exhaustive()
    }
}

impl Http1 {
    /// Begins to speak HTTP/1.1 on a new connection.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub(crate) async fn new(
        stream: Stream,
        now: Instant,
        counted: CountedConnection,
    ) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            sender,
            connection: Box::new(connection),
            is_reused: false,
            is_over: false,
            idle_since: now,
            _counted: counted,
        })
    }

    /// Whether a request can be sent on it now.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.is_over && self.sender.is_ready()
    }

    /// Whether it has ended.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// With the request itself when it was not written.
    pub(crate) async fn send(
        &mut self,
        request: Request<AttemptBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<AttemptBody>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        std::future::poll_fn(|cx| self.poll_news(cx, |cx| answer.as_mut().poll(cx))).await
    }

    /// Drives the connection until `news` has some.
    pub(crate) fn poll_news<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut news: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let silent = &mut Context::from_waker(Waker::noop());
        self.drive(silent);
        let first = news(silent);
        if first.is_ready() {
            return first;
        }
        self.drive(cx);
        news(silent)
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.is_over {
            self.is_over = Pin::new(&mut self.connection).poll(cx).is_ready();
        }
    }
}
