//! The connections of one listener: accepts them and serves their requests.
//!
//! Every server speaks HTTP/1.1 with keep-alive and HTTP/2 with prior knowledge on its one port; the first
//! bytes of a connection tell which.
//! **Limits**: every connection is accepted; the servers bound the requests in service.

use crate::respond::BrokenOff;
use bytes::Bytes;
use curtail_http::accept::{Accepted, Acceptor};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Cancelled requests that a client has sent and we have not yet seen, on one HTTP/2 connection. A proxy
/// that hedges cancels all the time; the usual limit, 20, would cut its connection off.
const PENDING_RESETS_MAX: usize = 1_024;

/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 4_096;

/// Accepts connections as long as it is polled, on the present runtime, which does I/O and has timers.
pub(crate) async fn accept<A, F>(socket: TcpListener, respond: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Full<Bytes>>, BrokenOff>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let never = std::future::pending();
    let acceptor = Acceptor::new("testbed", socket, places, never);
    let mut acceptor = acceptor.expect("a runtime that does I/O");
    while let Some(accepted) = acceptor.next(|| ()).await {
        tokio::spawn(serve(accepted, respond.clone()));
    }
}

async fn serve<A, F>(accepted: Accepted, respond: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Response<Full<Bytes>>, BrokenOff>> + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(None);
    let served = builder.serve_connection(TokioIo::new(accepted.stream), service_fn(respond));
    if let Err(error) = served.await {
        tracing::debug!(error, "connection broken off");
    }
}
