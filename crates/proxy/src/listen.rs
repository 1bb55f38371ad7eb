//! Listeners: accepting connections, and handing them to the workers, who serve them ([`crate::serve`]).
//!
//! A connection goes to the worker with the fewest connections ([`WorkerInbox::hand_over`]).
//!
//! **Limits**: `connections_max` for each listener; further clients wait in the kernel's queue.

use crate::StartError;
use crate::config::{FileMode, ListenAddress, PrecedingProxies};
use crate::leaf::Leaf;
use crate::metrics::ListenerMetrics;
use crate::restart::inherited::InheritedSockets;
use curtail_http::accept::{self, Acceptor, WorkerInbox};
use curtail_http::drain::DrainSignal;
use curtail_http::listen_socket::ListenSocket;
use curtail_http::tls::ListenerTls;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The properties of a listener, which its connections share.
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) tls: Option<Arc<ListenerTls>>,
    /// The proxies whose connections begin with a PROXY header; absent: no connection does.
    pub(crate) proxy_protocol: Option<PrecedingProxies>,
    pub(crate) leaf: Option<Arc<Leaf>>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// Begins when the proxy stops, or a reload closes or changes the listener.
    pub(crate) drain: Arc<DrainSignal>,
    connections_max: usize,
}

impl Listener {
    /// A listener without TLS and PROXY protocol.
    pub(crate) fn new(
        name: &str,
        (leaf, metrics): (Option<&Arc<Leaf>>, &Arc<ListenerMetrics>),
        connections_max: usize,
    ) -> Self {
        let (name, leaf, metrics) = (name.to_owned(), leaf.cloned(), Arc::clone(metrics));
        let (tls, proxy_protocol, drain) = (None, None, Arc::default());
        Self { name, tls, proxy_protocol, leaf, metrics, drain, connections_max }
    }

    /// Whether this listener serves its connections as `other` does, apart from TLS.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
            && self.proxy_protocol == other.proxy_protocol
            && self.leaf.as_ref().map(Arc::as_ptr) == other.leaf.as_ref().map(Arc::as_ptr)
            && self.connections_max == other.connections_max
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A worker, as the accept loops of the listeners see it.
pub(crate) type Inbox = WorkerInbox<Arc<Listener>>;

/// A connection on its way to its worker.
pub(crate) type HandedConnection = accept::HandedConnection<Arc<Listener>>;

/// Takes the inherited socket of an address, or opens one.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) fn open(
    name: &str,
    (address, mode): (&ListenAddress, Option<FileMode>),
    inherited: &mut InheritedSockets,
) -> Result<ListenSocket, StartError> {
    if let Some(socket) = inherited.take(address) {
        return Ok(socket);
    }
    let opened = match address {
        ListenAddress::Tcp(address) => accept::bind(*address).map(ListenSocket::from),
        ListenAddress::Unix(path) => ListenSocket::bind_unix(path, mode.map(|mode| mode.0)),
    };
    opened.map_err(|source| StartError::Listen {
        name: name.to_owned(),
        address: address.clone(),
        source,
    })
}

/// Accepts connections until the listener drains.
pub(crate) async fn accept(socket: ListenSocket, listener: Arc<Listener>, workers: Vec<Inbox>) {
    let places = Arc::new(Semaphore::new(listener.connections_max));
    let acceptor = Acceptor::new(&*listener.name, socket, places, listener.drain.wait());
    let Ok(mut acceptor) = acceptor else { return };
    while let Some(accepted) = acceptor.next(|| listener.metrics.waited.add(1)).await {
        WorkerInbox::hand_over(&workers, accepted, Arc::clone(&listener)).await;
    }
}
