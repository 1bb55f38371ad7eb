//! Serving connections with hyper, for the servers outside the data path.
//!
//! **Limits**: a connection is closed when no request has arrived, or its last request has not ended, in time
//! ([`RequestDeadline`]). When the server stops, connections have a grace period for their requests
//! ([`Connections::end`]).

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Returns settings for both versions of HTTP. Over HTTP/1.1 a head must arrive within `header_timeout`.
#[must_use]
pub fn builder(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
    builder.http2().timer(TokioTimer::new());
    builder
}

/// Serves a connection until it closes or exceeds its [`RequestDeadline`] of `timeouts`. When `stop` is ready, requests
/// in progress still get their responses.
pub async fn serve<S, R, B>(
    stream: impl Future<Output = io::Result<S>>,
    builder: auto::Builder<TokioExecutor>,
    timeouts: (Duration, Option<Duration>),
    stop: impl Future<Output = ()>,
    respond: impl Fn(Request<Incoming>) -> R,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let stream = match stream.await {
        Ok(stream) => TokioIo::new(stream),
        Err(error) => return tracing::debug!(%error, "connection not begun"),
    };
    let deadline = RequestDeadline::new(timeouts);
    let service = service_fn(|request| {
        deadline.begin_request();
        let response = respond(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut connection = pin!(builder.serve_connection(stream, service));
    let serving = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = stop => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    tokio::select! {
        biased;
        // The client knows why it closed the connection.
        ended = serving => if let Err(error) = ended {
            tracing::debug!(error, "connection ended with an error");
        },
        () = deadline.passed() => {
            tracing::debug!("connection closed: no request, or no response, in time");
        }
    }
}

/// The deadline of a connection: of its first request, then of its last one. hyper has neither: its header timeout
/// starts only when the version is known, and never over HTTP/2.
#[derive(Debug)]
pub struct RequestDeadline {
    request_timeout: Option<Duration>,
    start: Instant,
    /// The deadline in milliseconds since the start; `u64::MAX`: none.
    at_ms: AtomicU64,
}

impl RequestDeadline {
    /// Begins to wait `header_timeout` for the first request. Each request sets the deadline to `request_timeout` after
    /// its arrival; without one, the first request removes it.
    #[must_use]
    pub fn new((header_timeout, request_timeout): (Duration, Option<Duration>)) -> Self {
        let at_ms = AtomicU64::new(as_ms(header_timeout));
        Self { request_timeout, start: Instant::now(), at_ms }
    }

    /// A request has arrived.
    pub fn begin_request(&self) {
        let at = self.request_timeout.map(|timeout| as_ms(self.start.elapsed() + timeout));
        self.at_ms.store(at.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Waits until the deadline has passed.
    pub async fn passed(&self) {
        loop {
            match self.at_ms.load(Ordering::Relaxed) {
                u64::MAX => pending().await,
                at if at <= as_ms(self.start.elapsed()) => return,
                // A request may move it meanwhile.
                at => tokio::time::sleep_until(self.start + Duration::from_millis(at)).await,
            }
        }
    }
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until a server stops, or its sender is dropped.
pub async fn until_stopped(mut stop: watch::Receiver<Option<Duration>>) {
    drop(stop.wait_for(Option::is_some).await);
}

/// The connections of a server, each in a task of its own. Dropping this aborts them.
#[derive(Debug, Default)]
pub struct Connections(JoinSet<()>);

impl Connections {
    /// Serves a connection.
    pub fn spawn(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        // Connections that have ended are forgotten.
        while self.0.try_join_next().is_some() {}
        self.0.spawn(connection);
    }

    /// Waits for the end of all connections.
    pub async fn join(mut self) {
        while self.0.join_next().await.is_some() {}
    }

    /// Waits for the stop, whose value is a grace period; then waits at most that long for the end of the connections,
    /// and aborts the others.
    pub async fn end(mut self, mut stop: watch::Receiver<Option<Duration>>) {
        let grace = stop.wait_for(Option::is_some).await.map_or(None, |grace| *grace);
        let grace = grace.unwrap_or_default();
        let all_ended = async { while self.0.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            tracing::warn!("connections did not end within {grace:?} and are aborted");
        }
        self.0.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    #[tokio::test]
    async fn a_request_moves_the_deadline_or_removes_it() {
        let (soon, late) = (Duration::from_millis(5), Duration::from_secs(3_600));
        RequestDeadline::new((soon, None)).passed().await;
        let moved = RequestDeadline::new((late, Some(soon)));
        moved.begin_request();
        moved.passed().await;
        for timeout in [Some(late), None] {
            let waiting = RequestDeadline::new((Duration::ZERO, timeout));
            waiting.begin_request();
            let mut passed = pin!(waiting.passed());
            let polled = poll_fn(|cx| Poll::Ready(passed.as_mut().poll(cx).is_pending()));
            assert!(polled.await, "{timeout:?}");
        }
    }
}
