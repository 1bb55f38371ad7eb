//! The connections of one listener.
//!
//! The first bytes of a connection distinguish HTTP/1.1 with keep-alive from HTTP/2 with prior knowledge.
//! **Limits**: every connection is accepted; the servers limit the requests in service.

use crate::respond::ConnectionBreak;
use bytes::Bytes;
use curtail_http::accept::{AcceptedConnection, Acceptor};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of cancelled requests of one HTTP/2 connection that were not served yet. A proxy that hedges cancels
/// all the time, so the usual limit of 20 would close its connection.
const PENDING_RESETS_MAX: usize = 1_024;

const STREAMS_MAX: u32 = 4_096;

/// A server of requests.
pub(crate) trait Respond: Send + Sync + 'static {
    fn respond(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, ConnectionBreak>> + Send;
}

/// Accepts connections as long as the future is polled, and serves their requests.
pub(crate) async fn accept(socket: TcpListener, server: Arc<impl Respond>) {
    let places = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let never = std::future::pending();
    let acceptor = Acceptor::new("testbed", socket, places, never);
    let mut acceptor = acceptor.expect("a runtime that does I/O");
    while let Some(accepted) = acceptor.next(|| ()).await {
        tokio::spawn(serve(accepted, Arc::clone(&server)));
    }
}

async fn serve(accepted: AcceptedConnection, server: Arc<impl Respond>) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(None);
    let respond = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { server.respond(request).await }
    });
    if let Err(error) = builder.serve_connection(TokioIo::new(accepted.stream), respond).await {
        tracing::debug!(error, "connection broken off");
    }
}
