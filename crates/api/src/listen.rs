//! The listener of the query API, and its connections.
//!
//! **Limits**: [`CONNECTIONS_MAX`] connections; [`HEADER_TIMEOUT`] for a TLS handshake, for the first request and for a
//! head. A connection is closed if the client has not read the response within the time limit of its last request, so a
//! client that does not read occupies no connection for long.

use crate::metrics::{MetricsPage, QueryMetrics};
use crate::query_service::{PATIENCE, QueryService};
use crate::sql::Sql;
use arc_swap::ArcSwap;
use curtail_http::accept::{Acceptor, bind};
use curtail_http::access::Access;
use curtail_http::drain::DrainSignal;
use curtail_http::stream::Stream;
use curtail_http::tls::{ListenerCertificate, TlsAcceptor};
use curtail_store::Store;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Maximum number of connections; people send few queries.
const CONNECTIONS_MAX: usize = 256;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent requests on an HTTP/2 connection.
const STREAMS_MAX: u32 = 64;

/// Extra time to send the end of a response.
const GRACE: Duration = Duration::from_secs(1);

/// The parts of a query API.
#[derive(Debug)]
pub struct Api {
    /// Certificate for TLS; absent: clear text.
    pub certificate: Option<Arc<ListenerCertificate>>,
    /// The tokens of clients.
    pub access: Arc<Access>,
    /// The store to query.
    pub store: Arc<Store>,
    /// The program for SQL.
    pub sql: Sql,
    /// The limits of a request; a reload replaces them.
    pub limits: Arc<ArcSwap<Limits>>,
    /// The number of threads that run queries, at least 1; absent: one per core.
    pub query_threads: Option<usize>,
    /// The counters of queries.
    pub metrics: Arc<QueryMetrics>,
    /// The page of `/metrics`.
    pub page: Arc<dyn MetricsPage>,
}

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of spans of a trace that are read, in the order of their starts.
    pub trace_spans: usize,
    /// Maximum number of bytes of a response.
    pub response_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { trace_spans: 1_000_000, response_bytes: 1 << 30 }
    }
}

/// A running API. Without [`stop`](Self::stop), the API stops in the background when this is dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    accepting: JoinHandle<()>,
    draining: Arc<DrainSignal>,
    /// The grace period of requests in progress; absent until the stop.
    stop: watch::Sender<Option<Duration>>,
}

/// Starts the API on the runtime of the caller.
///
/// # Errors
/// When the address cannot be bound, or the system refuses a thread.
pub async fn start(address: SocketAddr, api: Api) -> io::Result<Running> {
    let socket = bind(address)?;
    let address = socket.local_addr()?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stop, stopped) = watch::channel(None);
    let acceptor = Acceptor::new("api", socket, places, until_stopped(stopped.clone()))?;
    let draining = Arc::<DrainSignal>::default();
    let tls = api.certificate.as_ref().map(ListenerCertificate::acceptor);
    let query_service = Arc::new(QueryService::new(api, Arc::clone(&draining))?);
    let accepting = tokio::spawn(serve_all(acceptor, tls, query_service, stopped));
    Ok(Running { address, accepting, draining, stop })
}

impl Running {
    /// The address of the listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins the drain: `/readyz` responds 503, and queries are still served.
    pub fn begin_drain(&self) {
        self.draining.begin();
    }

    /// Rejects new connections and requests, and waits at most `grace` for requests in progress; then aborts these
    /// requests.
    pub async fn stop(self, grace: Duration) {
        self.draining.begin();
        self.stop.send_replace(Some(grace));
        // It has panicked, or it has ended.
        let _ended = self.accepting.await;
    }
}

/// Serves until the stop. Queries of aborted requests end.
async fn serve_all(
    mut acceptor: Acceptor<impl Future<Output = ()>>,
    tls: Option<TlsAcceptor>,
    query_service: Arc<QueryService>,
    stopped: watch::Receiver<Option<Duration>>,
) {
    let mut connections = JoinSet::new();
    while let Some(accepted) = acceptor.next(|| ()).await {
        // Connections that have ended are forgotten.
        while connections.try_join_next().is_some() {}
        let (query_service, stopped) = (Arc::clone(&query_service), stopped.clone());
        let tls = tls.clone();
        connections.spawn(async move {
            let counted = query_service.api.metrics.connections.enter();
            match Stream::begin(accepted.stream, tls.as_ref(), HEADER_TIMEOUT).await {
                Ok(stream) => serve(stream, &query_service, stopped).await,
                Err(error) => tracing::debug!(%error, "TLS handshake failed"),
            }
            drop((counted, accepted.place));
        });
    }
    let grace = stopped.borrow().unwrap_or_default();
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all_ended).await.is_err() {
        tracing::warn!("queries did not end within {grace:?} and are aborted");
    }
    connections.shutdown().await;
    if let Some(query_service) = Arc::into_inner(query_service) {
        query_service.stop().await;
    }
}

/// Waits for the stop, or until its sender is dropped.
async fn until_stopped(mut stopped: watch::Receiver<Option<Duration>>) {
    drop(stopped.wait_for(Option::is_some).await);
}

async fn serve(
    stream: Stream,
    query_service: &Arc<QueryService>,
    stopped: watch::Receiver<Option<Duration>>,
) {
    // The deadline of the first request's head, then of the last request.
    let until = watch::Sender::new(Instant::now() + HEADER_TIMEOUT);
    let deadline = until.subscribe();
    let service = service_fn(move |request| {
        until.send_replace(Instant::now() + PATIENCE + GRACE);
        let query_service = Arc::clone(query_service);
        async move { Ok::<_, Infallible>(query_service.respond(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let serving = async {
        tokio::select! {
            served = connection.as_mut() => served,
            () = until_stopped(stopped) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    tokio::select! {
        // The client knows why it closed the connection.
        served = serving => if let Err(error) = served {
            tracing::debug!(error, "connection ended with an error");
        },
        () = is_over(deadline) => {
            tracing::debug!("connection closed: its last request exceeded its time limit");
        }
    }
}

/// Waits until the deadline, which the sender may move, has passed.
async fn is_over(mut until: watch::Receiver<Instant>) {
    loop {
        let at = *until.borrow_and_update();
        tokio::select! {
            () = tokio::time::sleep_until(at) => return,
            changed = until.changed() => if changed.is_err() { pending::<()>().await },
        }
    }
}
