//! Listeners: accepting connections, and serving them.
//!
//! A connection goes to the worker with the fewest connections, whoever accepted it: sockets that the
//! kernel spreads by hash leave some workers with twice the work of others, and that is a tail of its own.
//!
//! **Limits**: `connections_max` for each listener; what comes beyond waits in the kernel's queue.
//!
//! **HTTP/2 in clear text** is known by its preface (RFC 9113, section 3.4), whose first three bytes no
//! HTTP/1.1 request has.

use crate::StartError;
use crate::answer::AnswerBody;
use crate::config::Limits;
use crate::leaf::Leaf;
use crate::metrics::ListenerMetrics;
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
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

/// Flow control towards clients.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// What a listener does with its connections.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) leaf: Option<Arc<Leaf>>,
    pub(crate) limits: Limits,
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
    let room = Arc::new(Semaphore::new(listener.limits.connections_max));
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

/// Serves one connection to its end.
pub(crate) async fn serve(worker: Arc<Worker>, handed: Handed) {
    let Handed { stream, peer, listener, permit } = handed;
    let _counted = (ConnectionCount::new(&worker, &listener.metrics), permit);
    let client = Arc::new(Client {
        address: HeaderValue::from_str(&peer.ip().to_string()).expect("an address is plain text"),
        tls: listener.tls.is_some(),
        leaf: listener.leaf.clone(),
        metrics: Arc::clone(&listener.metrics),
    });
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    // Until the first request is under way, the client is held to the time of a header.
    let patience = std::time::Duration::from(listener.limits.header_timeout);
    match &listener.tls {
        None => {
            let preface = tokio::time::timeout(patience, speaks_http2(&stream)).await;
            let Ok(Ok(is_http2)) = preface else { return };
            serve_http(worker, client, &listener, stream, is_http2).await;
        }
        Some(acceptor) => match tokio::time::timeout(patience, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                serve_http(worker, client, &listener, stream, is_http2).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
        },
    }
}

/// Whether the first bytes are those of the HTTP/2 preface.
async fn speaks_http2(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; 3];
    Ok(stream.peek(&mut first).await? == first.len() && &first == b"PRI")
}

async fn serve_http<S>(
    worker: Arc<Worker>,
    client: Arc<Client>,
    listener: &Listener,
    stream: S,
    is_http2: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &listener.limits;
    let drain = Drain::new(&worker.shared);
    let resets = if client.leaf.is_some() { ROOT_RESETS_MAX } else { CLIENT_RESETS_MAX };
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(Arc::clone(&worker), Arc::clone(&client), request);
        async move { Ok::<Response<AnswerBody>, Infallible>(response.await) }
    });
    let io = TokioIo::new(stream);
    let headers_bytes = limits.headers.as_len();
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
        until_drained(connection, drain, |c| c.graceful_shutdown()).await;
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(std::time::Duration::from(limits.header_timeout))
            .max_buf_size(headers_bytes)
            .serve_connection(io, service)
            .with_upgrades();
        let connection = pin!(connection);
        until_drained(connection, drain, |c| c.graceful_shutdown()).await;
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
