//! HTTP/1.1: a connection carries one exchange at a time, and is idle between two exchanges.

use super::refill::{KEPT_MIN, succession_after};
use super::{ResponseBody, ResponseError, Transport};
use crate::clock::Clock;
use crate::connect::ConnectConfig;
use crate::connection_counts::CountedConnection;
use crate::head::ResponseHead;
use crate::http1::{ClientConnection, Error};
use crate::outbound_request::OutboundRequest;
use crate::stream::Stream;
use bytes::Bytes;
use curtail_metrics::{Gauge, GaugeGuard};
use curtail_units::{Duration, Instant};
use http_body::{Frame, SizeHint};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

#[derive(Debug)]
pub(super) struct Http1Transport {
    /// The idle connections; the last returned connection is leased first.
    idle: Mutex<Vec<Http1Lease>>,
    idle_max: usize,
    idle_timeout: Duration,
    open: Gauge,
    /// The requests whose bodies are incomplete.
    uploads: Gauge,
    /// Whether the server has closed a new connection before a request.
    has_early_close: AtomicBool,
}

/// A lease of a connection; boxed, because it moves twice for each request.
pub(super) type Http1Lease = Box<Http1>;

#[derive(Debug)]
pub(super) struct Http1 {
    connection: ClientConnection,
    idle_since: Instant,
    /// When the connection was opened, until its first request.
    unused_since: Option<Instant>,
    _counted: CountedConnection,
}

impl Http1Transport {
    pub(super) fn new(config: &ConnectConfig) -> Self {
        let ConnectConfig { idle_max, idle_timeout, .. } = *config;
        Self {
            idle: Mutex::default(),
            idle_max,
            idle_timeout,
            open: Gauge::default(),
            uploads: Gauge::default(),
            has_early_close: AtomicBool::default(),
        }
    }

    /// Creates a transport without connections, whose connections count together with these.
    pub(super) fn with_same_limit(&self) -> Self {
        let Self { idle_max, idle_timeout, .. } = *self;
        Self {
            idle: Mutex::default(),
            idle_max,
            idle_timeout,
            open: self.open.clone(),
            uploads: self.uploads.clone(),
            has_early_close: AtomicBool::default(),
        }
    }

    /// Counts a new connection; [`None`] if there are already `max`.
    pub(super) fn count_connection(&self, max: usize) -> Option<GaugeGuard> {
        self.open.enter_below(max)
    }

    /// Counts a request whose body is incomplete; an error with `max` if there are already as many.
    pub(super) fn count_upload(&self, max: usize) -> Result<GaugeGuard, usize> {
        self.uploads.enter_below(max).ok_or(max)
    }

    pub(super) fn idle_count(&self) -> usize {
        self.idle().len()
    }

    /// The number of idle connections that do not soon reach their idle timeout.
    pub(super) fn lasting_count(&self, now: Instant) -> usize {
        let needs_successor = succession_after(self.idle_timeout);
        self.idle().iter().filter(|idle| now.since(idle.idle_since) < needs_successor).count()
    }

    /// Whether, since the last call, the server has closed a new connection before a request.
    pub(super) fn take_early_close(&self) -> bool {
        self.has_early_close.swap(false, Ordering::Relaxed)
    }

    /// Adds a new connection, instead of the oldest one if there is no room.
    pub(super) fn put_successor(&self, mut lease: Http1Lease, now: Instant) {
        lease.idle_since = now;
        let mut idle = self.idle();
        if idle.len() >= self.idle_max {
            idle.remove(0);
        }
        idle.push(lease);
    }

    pub(super) fn put_idle(&self, mut lease: Http1Lease, now: Instant) {
        lease.idle_since = now;
        let mut idle = self.idle();
        if idle.len() < self.idle_max {
            idle.push(lease);
        }
    }

    /// Whether the server has kept an idle connection open.
    fn is_kept(&self, idle: &mut Http1, now: Instant) -> bool {
        let is_kept = idle.connection.is_usable();
        if !is_kept && idle.unused_since.is_some_and(|at| now.since(at) < KEPT_MIN) {
            self.has_early_close.store(true, Ordering::Relaxed);
        }
        is_kept
    }

    /// Sends a request and waits for the head of its response. The body keeps the lease until its end.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        mut lease: Http1Lease,
        request: Box<OutboundRequest>,
        clock: &Clock,
    ) -> Result<(ResponseHead, ResponseBody), ResponseError> {
        // If the server closes a reused connection after it has accepted the first byte, it may have executed the request.
        lease.unused_since = None;
        let head = lease.connection.send(request).await?;
        let mut body = Http1Body(Some((lease, Arc::clone(self), *clock)));
        body.return_at_end();
        Ok((head, body.into()))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Http1Lease>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Http1Transport {
    type Lease = Http1Lease;

    /// Leases the connection that was used last, because it is the most likely to be open.
    fn lease(&self, now: Instant) -> Option<Http1Lease> {
        loop {
            let mut lease = self.idle().pop()?;
            if now.since(lease.idle_since) > self.idle_timeout {
                // The others are older.
                self.idle().clear();
                return None;
            }
            if self.is_kept(&mut lease, now) {
                return Some(lease);
            }
        }
    }

    async fn start(
        &self,
        stream: Stream,
        counted: CountedConnection,
        now: Instant,
    ) -> Result<Http1Lease, ResponseError> {
        let connection = ClientConnection::new(stream);
        let unused_since = Some(now);
        Ok(Box::new(Http1 { connection, idle_since: now, unused_since, _counted: counted }))
    }

    fn sweep(&self, now: Instant) {
        self.idle().retain_mut(|idle| {
            now.since(idle.idle_since) <= self.idle_timeout && self.is_kept(idle, now)
        });
    }

    fn connection_count(&self) -> usize {
        usize::try_from(self.open.get()).unwrap_or(usize::MAX)
    }

    fn exchanges_max(&self) -> usize {
        1
    }
}

/// The body of a response. At the end of the body, the connection returns to the pool. If the body is dropped earlier,
/// the connection closes.
#[derive(Debug)]
pub(super) struct Http1Body(Option<(Http1Lease, Arc<Http1Transport>, Clock)>);

impl Http1Body {
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some((lease, ..)) = &mut self.0 else { return Poll::Ready(None) };
        let frame = lease.connection.poll_frame(cx);
        self.return_at_end();
        frame
    }

    fn return_at_end(&mut self) {
        if self.0.as_ref().is_some_and(|(lease, ..)| lease.connection.is_end())
            && let Some((lease, transport, clock)) = self.0.take()
            && lease.connection.is_reusable()
        {
            transport.put_idle(lease, clock.now());
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.0.as_ref().is_none_or(|(lease, ..)| lease.connection.is_end())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let rest = self.0.as_ref().map(|(lease, ..)| lease.connection.size_hint());
        rest.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}
