//! Listeners: accepting connections, and handing them to the workers, who serve them ([`crate::serve`]).
//!
//! A connection goes to the worker with the fewest connections, whoever accepted it: sockets that the
//! kernel spreads by hash leave some workers with twice the work of others, and that is a tail of its own.
//!
//! **Limits**: `connections_max` for each listener; what comes beyond waits in the kernel's queue.

use crate::StartError;
use crate::leaf::Leaf;
use crate::metrics::ListenerMetrics;
use crate::worker::Worker;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

/// Connections that wait for a worker to take them.
pub(crate) const HANDED_MAX: usize = 1_024;

/// The pause after an accept that failed for lack of file descriptors.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

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
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: Arc<Listener>,
    /// Its place among the listener's connections.
    pub(crate) permit: tokio::sync::OwnedSemaphorePermit,
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
    let drain = Arc::clone(&workers[0].worker.shared.drain);
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
            () = drain.wait() => return,
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
