//! The listener of the query API, and its connections.
//!
//! **Limits**: [`CONNECTIONS_MAX`] connections; [`HEADER_TIMEOUT`] for a TLS handshake, for the first request of a
//! connection, and for the head of each HTTP/1.1 request. A connection is closed if the client has not read the
//! response within the time limit of its last request, so a client that does not read occupies no connection for long.

use crate::metrics::{MetricsPage, QueryMetrics};
use crate::query_service::{PATIENCE, QueryService};
use crate::sql::Sql;
use arc_swap::ArcSwap;
use curtail_http::accept::{AcceptedConnection, Acceptor, bind};
use curtail_http::access::Access;
use curtail_http::drain::DrainSignal;
use curtail_http::hyper_server::{self, Connections, until_stopped};
use curtail_http::stream::Stream;
use curtail_http::tls::ListenerTls;
use curtail_store::Store;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// Maximum number of connections; people send few queries.
const CONNECTIONS_MAX: usize = 256;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent requests on an HTTP/2 connection.
const STREAMS_MAX: u32 = 64;

/// Extra time to send the end of a response, and to look up the functions of a profile of a minute.
const GRACE: Duration = Duration::from_secs(10);

/// The parts of a query API.
#[derive(Debug)]
pub struct Api {
    /// Certificate for TLS; absent: clear text.
    pub tls: Option<Arc<ListenerTls>>,
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
    let tls = api.tls.clone();
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
    tls: Option<Arc<ListenerTls>>,
    query_service: Arc<QueryService>,
    stopped: watch::Receiver<Option<Duration>>,
) {
    let mut connections = Connections::default();
    while let Some(AcceptedConnection { stream, place, .. }) = acceptor.next(|| ()).await {
        let query_service = Arc::clone(&query_service);
        let (tls, stop) = (tls.clone(), until_stopped(stopped.clone()));
        connections.spawn(async move {
            let counted = query_service.api.metrics.connections.enter();
            let stream = Stream::begin(stream, tls.as_deref(), HEADER_TIMEOUT);
            let mut builder = hyper_server::builder(HEADER_TIMEOUT);
            builder.http2().max_concurrent_streams(STREAMS_MAX);
            let timeouts = (HEADER_TIMEOUT, Some(PATIENCE + GRACE));
            let respond = |request| {
                let query_service = Arc::clone(&query_service);
                async move { query_service.respond(request).await }
            };
            hyper_server::serve(stream, builder, timeouts, stop, respond).await;
            drop((counted, place));
        });
    }
    connections.end(stopped).await;
    if let Some(query_service) = Arc::into_inner(query_service) {
        query_service.stop().await;
    }
}
