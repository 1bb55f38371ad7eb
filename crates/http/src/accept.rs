//! The accept loop of all servers.
//!
//! **Limits**: a server has a maximum number of connections; further clients wait in the kernel's queue. After a
//! failure to accept, usually for lack of file descriptors, the loop pauses ([`PAUSE`]).

use crate::listen_socket::{ListenSocket, SocketFile};
use crate::stream;
use curtail_metrics::{Gauge, GaugeGuard};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of connections in the kernel's queue, which wait to be accepted.
pub(crate) const BACKLOG: i32 = 4_096;

/// The pause after a failure to accept.
const PAUSE: Duration = Duration::from_millis(50);

/// Minimum time between two warnings of one [`WarnLimit`].
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of accepted connections that wait for their worker.
const HANDED_MAX: usize = 1_024;

/// Opens a listening socket of TCP.
///
/// # Errors
/// The system's error; [`io::ErrorKind::AddrInUse`] when another process uses the port.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    // Allows a restart while old connections are in TIME_WAIT; a port with a listener is still rejected.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Limits the warnings about something that clients cause, so that they cannot fill the log.
#[derive(Debug, Default)]
pub struct WarnLimit(Mutex<Option<Instant>>);

impl WarnLimit {
    /// Allows the first warning.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether the time has come for another warning.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = warned.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if is_due {
            *warned = Some(Instant::now());
        }
        is_due
    }
}

/// A connection of a client; over TCP, `TCP_NODELAY` is set.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The stream of the connection, of TCP or of a Unix socket ([`stream::of_unix`]).
    pub stream: TcpStream,
    /// The address of the client; absent on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The connection's permit under the server's maximum; released when this is dropped.
    pub place: OwnedSemaphorePermit,
}

/// Accepts the connections of one listening socket.
#[derive(Debug)]
pub struct Acceptor<D> {
    /// The name of the server in messages.
    name: String,
    socket: AcceptSocket,
    places: Arc<Semaphore>,
    drain: Pin<Box<D>>,
}

/// A listening socket of the runtime.
#[derive(Debug)]
enum AcceptSocket {
    Tcp(TcpListener),
    /// With its file, which is removed after the socket has closed.
    Unix(UnixListener, #[expect(dead_code, reason = "it is dropped")] Arc<SocketFile>),
}

impl AcceptSocket {
    fn new(socket: ListenSocket) -> io::Result<Self> {
        Ok(match socket {
            ListenSocket::Tcp(socket) => Self::Tcp(TcpListener::from_std(socket)?),
            ListenSocket::Unix(socket, file) => Self::Unix(UnixListener::from_std(socket)?, file),
        })
    }

    async fn accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(socket) => socket.accept().await.map(|(stream, peer)| (stream, Some(peer))),
            Self::Unix(socket, _) => {
                let (stream, _) = socket.accept().await?;
                Ok((stream::of_unix(stream)?, None))
            }
        }
    }
}

impl<D: Future<Output = ()>> Acceptor<D> {
    /// Accepts on the runtime of the caller until `drain` is ready. `places` has a permit for each allowed connection;
    /// several acceptors may share these permits.
    ///
    /// # Errors
    /// When the runtime cannot register the socket, which is also logged.
    pub fn new(
        name: impl Into<String>,
        socket: impl Into<ListenSocket>,
        places: Arc<Semaphore>,
        drain: D,
    ) -> io::Result<Self> {
        let name = name.into();
        let socket = AcceptSocket::new(socket.into()).inspect_err(|error| {
            tracing::error!(listener = name, %error, "failed to register a listener with the runtime");
        })?;
        Ok(Self { name, socket, places, drain: Box::pin(drain) })
    }

    /// Returns the next connection; [`None`] when the drain has begun, after which no call is allowed. Calls `on_full`
    /// if clients have to wait for a permit.
    pub async fn next(&mut self, on_full: impl Fn()) -> Option<AcceptedConnection> {
        loop {
            if self.places.available_permits() == 0 {
                on_full();
            }
            let accepted = tokio::select! {
                biased;
                () = self.drain.as_mut() => return None,
                accepted = accept(&self.socket, &self.places) => accepted,
            };
            match accepted {
                // A connection that has broken already is not served.
                Ok(AcceptedConnection { stream, peer: Some(_), .. })
                    if stream.set_nodelay(true).is_err() => {}
                Ok(accepted) => return Some(accepted),
                Err(error) => {
                    self.warn(&error);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn warn(&self, error: &io::Error) {
        static WARNED: WarnLimit = WarnLimit::new();
        if WARNED.is_due() {
            tracing::warn!(listener = self.name, %error, "connection not accepted");
        }
    }
}

async fn accept(socket: &AcceptSocket, places: &Arc<Semaphore>) -> io::Result<AcceptedConnection> {
    let place = Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = socket.accept().await?;
    Ok(AcceptedConnection { stream, peer, place })
}

/// The inbox of a worker thread with its own runtime, for accept loops.
#[derive(Debug)]
pub struct WorkerInbox<T> {
    sender: mpsc::Sender<HandedConnection<T>>,
    /// The number of the worker's connections that have not ended.
    connections: Gauge,
}

/// A connection on its way to its worker.
#[derive(Debug)]
pub struct HandedConnection<T> {
    /// The stream of the connection, for the runtime of the worker.
    pub stream: std::net::TcpStream,
    /// The address of the client; absent on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The listener that accepted the connection.
    pub listener: T,
    /// The connection's count at the worker, and its permit; released when this is dropped.
    pub place: (GaugeGuard, OwnedSemaphorePermit),
}

impl<T> Clone for WorkerInbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), connections: self.connections.clone() }
    }
}

impl<T> WorkerInbox<T> {
    /// Creates an inbox, and the receiver of its connections, which ends when all clones of the inbox are dropped.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<HandedConnection<T>>) {
        let (sender, connections) = mpsc::channel(HANDED_MAX);
        (Self { sender, connections: Gauge::default() }, connections)
    }

    /// Hands a connection to the worker with the fewest connections. If the kernel distributed connections by hash,
    /// some workers would have twice the work of others.
    pub async fn hand_over(workers: &[Self], accepted: AcceptedConnection, listener: T) {
        let load = |worker: &&Self| worker.connections.get();
        let Some(freest) = workers.iter().min_by_key(load) else { return };
        let AcceptedConnection { stream, peer, place } = accepted;
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(?peer, %error, "connection was gone at once"),
        };
        let place = (freest.connections.enter(), place);
        if freest.sender.send(HandedConnection { stream, peer, listener, place }).await.is_err() {
            tracing::debug!(?peer, "connection came as its worker stopped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Poll;
    use tokio::io::AsyncReadExt as _;

    fn listen() -> (std::net::TcpListener, SocketAddr) {
        let socket = bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        (socket, address)
    }

    fn places(max: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(max))
    }

    #[tokio::test]
    async fn a_client_beyond_the_limit_waits_until_another_one_has_gone() {
        let (socket, address) = listen();
        let never = std::future::pending();
        let mut acceptor = Acceptor::new("in", socket, places(1), never).expect("a runtime");
        let clients = [TcpStream::connect(address).await, TcpStream::connect(address).await];
        let first = acceptor.next(|| panic!("there is a place")).await.expect("the first client");
        let is_full = AtomicBool::new(false);
        let mut second = Box::pin(acceptor.next(|| is_full.store(true, Ordering::Relaxed)));
        let polled = std::future::poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx))).await;
        assert!(polled.is_pending() && is_full.load(Ordering::Relaxed), "it has no place");
        drop(first);
        let second = second.await.expect("the second client");
        let clients = clients.map(|client| client.expect("connected").local_addr().expect("it is"));
        assert_eq!(second.peer, Some(clients[1]));
    }

    #[tokio::test]
    async fn nothing_is_accepted_once_the_drain_begins() {
        let (socket, address) = listen();
        let mut acceptor = Acceptor::new("in", socket, places(1), async {}).expect("a runtime");
        let _client = TcpStream::connect(address).await.expect("the kernel accepts it");
        assert!(acceptor.next(|| ()).await.is_none());
    }

    #[tokio::test]
    async fn each_connection_goes_to_the_worker_with_the_fewest() {
        let (socket, address) = listen();
        let socket = TcpListener::from_std(socket).expect("a runtime");
        let ((first, mut of_first), (second, mut of_second)) =
            (WorkerInbox::new(), WorkerInbox::new());
        let workers = [first, second];
        let places = places(3);
        let connect = async || {
            let (client, accepted) = tokio::join!(TcpStream::connect(address), socket.accept());
            let (stream, peer) = accepted.expect("a client");
            let peer = Some(peer);
            let place = Arc::clone(&places).acquire_owned().await.expect("a place");
            WorkerInbox::hand_over(&workers, AcceptedConnection { stream, peer, place }, "in")
                .await;
            client.expect("connected")
        };
        let _clients = [connect().await, connect().await];
        let kept = of_first.try_recv().expect("the first worker has one");
        drop(of_second.try_recv().expect("the second worker has the other"));
        let mut client = connect().await;
        assert!(of_first.try_recv().is_err());
        drop(of_second.try_recv().expect("its only connection had ended"));
        assert_eq!(client.read(&mut [0]).await.expect("it was closed"), 0);
        assert_eq!((kept.listener, places.available_permits()), ("in", 2));
    }
}
