//! Listeners: accepting connections, and serving them.
//!
//! A connection goes to the worker with the fewest connections, whoever accepted it: sockets that the
//! kernel spreads by hash leave some workers with twice the work of others, and that is a tail of its own.
//!
//! **Limits**: `connections_max` for each listener; what comes beyond waits in the kernel's queue.
//!
//! **HTTP/2 in clear text** is known by its preface ([`crate::preface`]).

use crate::StartError;
use crate::answer::AnswerBody;
use crate::config::Limits;
use crate::leaf::Leaf;
use crate::linger::Lingering;
use crate::metrics::ListenerMetrics;
use crate::preface;
use crate::request::{Client, answer};
use crate::worker::{ConnectionCount, Shared, Worker};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

/// Connections that wait for a worker to take them.
pub(crate) const HANDED_MAX: usize = 1_024;

/// The pause after an accept that failed for lack of file descriptors.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// How many streams a client may have open on one connection.
const STREAMS_MAX: u32 = 1_000;

/// Streams that a client has reset before we looked at them: more is taken for an attack (Rapid Reset).
const CLIENT_RESETS_MAX: usize = 200;

/// The same between roots and leaves, where resets are how hedges are cancelled.
const ROOT_RESETS_MAX: usize = 10_000;

/// A connection on which nothing was asked when the proxy is told to stop has this long for a request that
/// may be on its way.
const LAST_MOMENT: std::time::Duration = std::time::Duration::from_millis(100);

/// Flow control towards clients.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// What a listener does with its connections.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) leaf: Option<Arc<Leaf>>,
    pub(crate) connections_max: usize,
    pub(crate) metrics: Arc<ListenerMetrics>,
}

/// A connection on its way to its worker.
pub(crate) struct Handed {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    listener: Arc<Listener>,
    permit: tokio::sync::OwnedSemaphorePermit,
}

/// A worker as the accepting side sees it.
#[derive(Clone)]
pub(crate) struct Handover {
    pub(crate) worker: Arc<Worker>,
    pub(crate) sender: mpsc::Sender<Handed>,
}

/// Opens a listening socket.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) fn bind(name: &str, address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    let failed = |source| StartError::Listen { name: name.to_owned(), address, source };
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).map_err(failed)?;
    socket.set_reuse_address(true).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    socket.bind(&address.into()).map_err(failed)?;
    socket.listen(4_096).map_err(failed)?;
    Ok(socket.into())
}

/// Accepts connections until the proxy is told to stop.
pub(crate) async fn accept(
    socket: std::net::TcpListener,
    listener: Arc<Listener>,
    workers: Vec<Handover>,
) {
    let mut draining = workers[0].worker.shared.draining.subscribe();
    let room = Arc::new(Semaphore::new(listener.connections_max));
    let socket = match TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(listener = listener.name, %error, "listener not registered");
            return;
        }
    };
    loop {
        let accepted = async {
            if room.available_permits() == 0 {
                listener.metrics.waited();
            }
            let permit = Arc::clone(&room).acquire_owned().await;
            (socket.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => return,
            accepted = accepted => accepted,
        };
        match (accepted, permit) {
            (Ok((stream, peer)), Ok(permit)) => {
                hand_over(stream, peer, &listener, permit, &workers).await;
            }
            (Err(error), _) => {
                tracing::warn!(listener = listener.name, %error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (Ok(_), Err(_)) => return,
        }
    }
}

async fn hand_over(
    stream: TcpStream,
    peer: SocketAddr,
    listener: &Arc<Listener>,
    permit: tokio::sync::OwnedSemaphorePermit,
    workers: &[Handover],
) {
    let Some(freest) = workers.iter().min_by_key(|w| w.worker.connections()) else { return };
    let stream = stream.set_nodelay(true).and_then(|()| stream.into_std());
    match stream {
        Ok(stream) => {
            let listener = Arc::clone(listener);
            let handed = Handed { stream, peer, listener, permit };
            if freest.sender.send(handed).await.is_err() {
                tracing::debug!(%peer, "connection came as its worker stopped");
            }
        }
        Err(error) => tracing::debug!(%peer, %error, "connection was gone at once"),
    }
}

/// Serves one connection to its end, whatever it speaks in the end.
pub(crate) async fn serve(worker: Arc<Worker>, handed: Handed) {
    let Handed { stream, peer, listener, permit } = handed;
    let _counted = (ConnectionCount::new(&worker, &listener.metrics), permit);
    let client = Arc::new(Client {
        address: HeaderValue::from_str(&peer.ip().to_string()).expect("an address is plain text"),
        tls: listener.tls.is_some(),
        leaf: listener.leaf.clone(),
        metrics: Arc::clone(&listener.metrics),
        is_tunnel: AtomicBool::new(false),
        tunnel: Mutex::default(),
    });
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    // A reload is for the connections that come after it.
    let limits = worker.shared.site.load().config.limits.clone();
    let speaking = Speaking { worker: Arc::clone(&worker), client: Arc::clone(&client), limits };
    match &listener.tls {
        None => match speaking.in_time(preface::begin(stream)).await {
            Some(Ok((stream, is_http2))) => speaking.serve(stream, is_http2).await,
            Some(Err(error)) => tracing::debug!(%peer, %error, "connection broke at its beginning"),
            None => tracing::debug!(%peer, "nothing was asked in time"),
        },
        Some(acceptor) => match speaking.in_time(acceptor.accept(stream)).await {
            Some(Ok(stream)) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                speaking.serve(stream, is_http2).await;
            }
            Some(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            None => tracing::debug!(%peer, "TLS handshake took too long"),
        },
    }
    let tunnel = client.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(tunnel) = tunnel {
        // A tunnel that panicked has said so, and is over.
        tunnel.await.ok();
    }
}

/// HTTP with one client.
struct Speaking {
    worker: Arc<Worker>,
    client: Arc<Client>,
    limits: Limits,
}

impl Speaking {
    /// What comes before the first request has the time of a header; hardly any when the proxy stops.
    async fn in_time<T>(&self, beginning: impl Future<Output = T>) -> Option<T> {
        let mut draining = self.worker.shared.draining.subscribe();
        let stopped = async {
            drop(draining.wait_for(|draining| *draining).await);
            tokio::time::sleep(LAST_MOMENT).await;
        };
        let patience = std::time::Duration::from(self.limits.header_timeout);
        tokio::select! {
            biased;
            begun = tokio::time::timeout(patience, beginning) => begun.ok(),
            () = stopped => None,
        }
    }

    async fn serve<S>(self, stream: S, is_http2: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { worker, client, limits } = self;
        let drain = Drain::new(&worker.shared);
        let resets = if client.leaf.is_some() { ROOT_RESETS_MAX } else { CLIENT_RESETS_MAX };
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_asked);
        let io = TokioIo::new(Lingering::new(stream, Arc::clone(&client)));
        let service = service_fn(move |request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            let response = answer(Arc::clone(&worker), Arc::clone(&client), request);
            async move { Ok::<Response<AnswerBody>, Infallible>(response.await) }
        });
        let headers_bytes = limits.headers.as_len();
        let patience = std::time::Duration::from(limits.header_timeout);
        if is_http2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_header_list_size(u32::try_from(headers_bytes).unwrap_or(u32::MAX))
                .max_concurrent_streams(STREAMS_MAX)
                .max_pending_accept_reset_streams(resets)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .serve_connection(io, service);
            let connection = pin!(connection);
            // hyper has no such limit over HTTP/2: a client that never asks would stay for ever.
            let never_asked = async {
                tokio::time::sleep(patience).await;
                if has_asked.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = until_drained(connection, drain, |c| c.graceful_shutdown()) => {}
                () = never_asked => tracing::debug!("nothing was asked in time over HTTP/2"),
            }
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(patience)
                .max_buf_size(headers_bytes)
                .serve_connection(io, service)
                .with_upgrades();
            let connection = pin!(connection);
            until_drained(connection, drain, |c| c.graceful_shutdown()).await;
        }
    }
}

/// Knows when the proxy is told to stop.
struct Drain {
    shared: Arc<Shared>,
    told: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_waiting: bool,
}

impl Drain {
    fn new(shared: &Arc<Shared>) -> Self {
        let mut draining = shared.draining.subscribe();
        let told = async move { drop(draining.wait_for(|draining| *draining).await) };
        Self { shared: Arc::clone(shared), told: Box::pin(told), is_waiting: false }
    }

    /// Ready once. A connection is polled several times for each request: only the first of all polls
    /// asks to be woken, the others are one look at a flag.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_waiting && !self.shared.is_draining.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.is_waiting = true;
        self.told.as_mut().poll(cx)
    }
}

/// Drives a connection to its end; when the proxy is told to stop, asks it to end after its requests.
async fn until_drained<C>(
    mut connection: Pin<&mut C>,
    mut drain: Drain,
    shut_down: impl FnOnce(Pin<&mut C>),
) where
    C: Future<Output = hyper::Result<()>>,
{
    let mut shut_down = Some(shut_down);
    let ended = std::future::poll_fn(|cx| {
        if let Some(shut_down) = shut_down.take_if(|_| drain.poll(cx).is_ready()) {
            shut_down(connection.as_mut());
        }
        connection.as_mut().poll(cx)
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "client connection ended");
    }
}
