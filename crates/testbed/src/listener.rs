//! The connections of one listener: accepted, and every request on them answered.
//!
//! Every server speaks HTTP/1.1 with keep-alive and HTTP/2 with prior knowledge on its one port; the first
//! bytes of a connection tell which.
//! **Limits**: every connection is accepted; what answers bounds what it works on at once.

use crate::alarm::Alarm;
use crate::answer::BrokenOff;
use bytes::Bytes;
use curtail_units::{Duration, Instant};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Cancelled requests that a client has sent and we have not yet seen, on one HTTP/2 connection. A proxy
/// that hedges cancels all the time; the usual limit, 20, would cut its connection off.
const PENDING_RESETS_MAX: usize = 1_024;

/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 4_096;

/// After a failure to accept (no more files, usually), the next try waits this long.
const ACCEPT_AGAIN: Duration = Duration::from_ms(50);

/// While connections are not accepted, this is said no more often.
const WARN_AGAIN: Duration = Duration::from_secs(10);

/// Accepts connections as long as it is polled, on the present runtime, which does I/O.
pub(crate) async fn accept<A, F>(listener: TcpListener, alarm: Arc<Alarm>, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Full<Bytes>>, BrokenOff>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime that does I/O");
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                tokio::spawn(serve(connection, answer.clone()));
            }
            Err(error) => {
                warn_seldom(&error, alarm.now());
                alarm.until(alarm.now() + ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Says that a connection was not accepted, but not for every server that the lack of files stops.
fn warn_seldom(error: &io::Error, now: Instant) {
    static SAID_AT_NS: AtomicU64 = AtomicU64::new(0);
    let said_at = Instant::from_ns(SAID_AT_NS.load(Relaxed));
    if said_at == Instant::ZERO || now.since(said_at) >= WARN_AGAIN {
        SAID_AT_NS.store(now.as_ns(), Relaxed);
        tracing::warn!(%error, "connection not accepted");
    }
}

async fn serve<A, F>(connection: tokio::net::TcpStream, answer: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Response<Full<Bytes>>, BrokenOff>> + Send + 'static,
{
    // Answers are small and written at once: waiting for more to send would only add to them.
    if connection.set_nodelay(true).is_err() {
        return;
    }
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(None);
    let served = builder.serve_connection(TokioIo::new(connection), service_fn(answer));
    if let Err(error) = served.await {
        tracing::debug!(error, "connection broken off");
    }
}
