//! Listeners: accepting connections, and handing them to the workers, who serve them ([`crate::serve`]).
//!
//! A connection goes to the worker with the fewest connections ([`WorkerInbox::hand_over`]).
//!
//! **Limits**: `connections_max` for each listener; further clients wait in the kernel's queue.

use crate::StartError;
use crate::leaf::Leaf;
use crate::metrics::ListenerMetrics;
use curtail_http::accept::{self, Acceptor, WorkerInbox};
use curtail_http::drain::DrainSignal;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// The role of a listener.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) leaf: Option<Arc<Leaf>>,
    pub(crate) connections_max: usize,
    pub(crate) metrics: Arc<ListenerMetrics>,
}

/// A worker, as the accept loops of the listeners see it.
pub(crate) type Inbox = WorkerInbox<Arc<Listener>>;

/// A connection on its way to its worker.
pub(crate) type Handed = accept::Handed<Arc<Listener>>;

/// Opens a listening socket.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) fn bind(name: &str, address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    let failed = |source| StartError::Listen { name: name.to_owned(), address, source };
    accept::bind(address).map_err(failed)
}

/// Accepts connections until the proxy stops.
pub(crate) async fn accept(
    socket: std::net::TcpListener,
    listener: Arc<Listener>,
    drain: Arc<DrainSignal>,
    workers: Vec<Inbox>,
) {
    let places = Arc::new(Semaphore::new(listener.connections_max));
    let mut acceptor = match Acceptor::new(&*listener.name, socket, places, drain.wait()) {
        Ok(acceptor) => acceptor,
        Err(error) => {
            tracing::error!(listener = listener.name, %error, "listener not registered");
            return;
        }
    };
    while let Some(accepted) = acceptor.next(|| listener.metrics.waited()).await {
        WorkerInbox::hand_over(&workers, accepted, Arc::clone(&listener)).await;
    }
}
