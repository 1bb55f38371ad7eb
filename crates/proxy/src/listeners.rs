//! The open sockets of a proxy: those of its listeners and leaves, and its admin port.
//!
//! A start and a reload take the same two steps. [`Listeners::prepare`] opens the missing sockets and may fail.
//! [`Listeners::apply`] cannot fail. A socket whose address stays is kept, so no client is refused meanwhile. If
//! another key of a listener has changed, a new accept loop uses the same socket, and the earlier connections drain. They
//! also drain if the file of a Unix socket was deleted or replaced: the address is then bound anew.

use crate::check;
use crate::config::{self, Config, FileMode, ListenAddress, ListenerConfig};
use crate::listen::{self, Inbox, Listener};
use crate::restart::inherited::InheritedSockets;
use crate::snapshot::ConfigSnapshot;
use crate::worker::Worker;
use crate::{StartError, admin};
use curtail_http::drain::DrainSignal;
use curtail_http::listen_socket::ListenSocket;
use curtail_http::tls::{ListenerTls, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// The open sockets, and the worker that accepts their connections.
#[derive(Debug)]
pub(crate) struct Listeners {
    worker: Arc<Worker>,
    runtime: Handle,
    /// The inboxes of all workers.
    inboxes: Vec<Inbox>,
    open: Vec<OpenListener>,
    admin: Option<AdminPort>,
    /// Listeners whose socket a new process has, and whose connections drain.
    released: Vec<Arc<Listener>>,
    is_released: bool,
    /// Increases with each reload.
    version: u64,
}

#[derive(Debug)]
struct OpenListener {
    /// The address in the configuration; its port may be 0.
    address: ListenAddress,
    /// The mode of the file in the configuration.
    mode: Option<FileMode>,
    socket: ListenSocket,
    listener: Arc<Listener>,
}

impl OpenListener {
    /// Gives the file of a Unix socket its mode, which an inherited or a kept socket may not have.
    fn apply_mode(&self) {
        let Some(file) = self.socket.file() else { return };
        if let Err(error) = file.set_mode(self.mode.map(|mode| mode.0)) {
            let file = file.path().display();
            tracing::error!(%file, %error, "cannot set the mode of the socket file");
        }
    }
}

#[derive(Debug)]
struct AdminPort {
    /// The address in the configuration; its port may be 0.
    address: SocketAddr,
    socket: ListenSocket,
    task: AbortHandle,
    released: Arc<DrainSignal>,
}

/// The sockets and certificates of one configuration, which [`Listeners::apply`] needs.
#[derive(Debug)]
pub(crate) struct PreparedListeners {
    listeners: Vec<PreparedListener>,
    admin: Option<PreparedAdmin>,
}

#[derive(Debug)]
struct PreparedListener {
    open: OpenListener,
    /// The socket of a new accept loop; [`None`] if the earlier loop continues.
    accept: Option<ListenSocket>,
    /// The new TLS of a listener that stays.
    tls: Option<Arc<ServerConfig>>,
}

#[derive(Debug)]
enum PreparedAdmin {
    Unchanged,
    Opened { address: SocketAddr, socket: ListenSocket, served: ListenSocket },
}

impl Listeners {
    /// Creates the state without open sockets. `runtime` is that of `worker`.
    pub(crate) const fn new(worker: Arc<Worker>, runtime: Handle, inboxes: Vec<Inbox>) -> Self {
        Self {
            worker,
            runtime,
            inboxes,
            open: Vec::new(),
            admin: None,
            released: Vec::new(),
            is_released: false,
            version: 0,
        }
    }

    /// Reads the certificates of a configuration and opens its new addresses, by `inherited` sockets if there are any.
    ///
    /// # Errors
    /// When a certificate cannot be used, or an address cannot be listened on; nothing has changed then.
    pub(crate) fn prepare(
        &self,
        snapshot: &ConfigSnapshot,
        inherited: &mut InheritedSockets,
    ) -> Result<PreparedListeners, StartError> {
        if self.is_released {
            return Err(StartError::Replaced);
        }
        let Config { listeners, leaves, admin, limits, .. } = &snapshot.config;
        let mut tls = listeners_tls(listeners)?.into_iter();
        let mut proxies = listeners.iter().map(|listener| listener.proxy_protocol.clone());
        let address = |of: &ListenerConfig| (of.address.clone(), of.mode);
        let clients = listeners.iter().map(|listener| (address(listener), None));
        let roots = leaves.iter().map(|leaf| (ListenAddress::Tcp(leaf.address), None));
        let roots = roots.zip(&snapshot.leaves).map(|(address, leaf)| (address, Some(leaf)));
        let listeners = clients.chain(roots).zip(&snapshot.listeners);
        let prepare = |((address, leaf), (name, metrics)): (_, &(String, Arc<_>))| {
            let mut wanted = Listener::new(name, (leaf, metrics), limits.connections_max);
            wanted.proxy_protocol = proxies.next().flatten();
            self.prepare_one(address, wanted, tls.next().flatten(), inherited)
        };
        let listeners = listeners.map(prepare).collect::<Result<_, _>>()?;
        let admin = admin.map(|address| self.prepare_admin(address, inherited)).transpose()?;
        Ok(PreparedListeners { listeners, admin })
    }

    fn prepare_one(
        &self,
        (address, mode): (ListenAddress, Option<FileMode>),
        mut wanted: Listener,
        tls: Option<Arc<ServerConfig>>,
        inherited: &mut InheritedSockets,
    ) -> Result<PreparedListener, StartError> {
        let is_kept = |open: &&OpenListener| {
            open.address == address
                && (!address.has_any_port() || open.listener.name == wanted.name)
                && open.socket.is_reachable()
        };
        let kept = self.open.iter().find(is_kept);
        let socket = match kept {
            Some(open) => open.socket.try_clone()?,
            None => listen::open(&wanted.name, (&address, mode), inherited)?,
        };
        if let Some(OpenListener { listener, .. }) = kept
            && listener.tls.is_some() == tls.is_some()
            && listener.is_same(&wanted)
        {
            let open = OpenListener { address, mode, socket, listener: Arc::clone(listener) };
            return Ok(PreparedListener { open, accept: None, tls });
        }
        wanted.tls = tls.map(ListenerTls::new);
        let accept = Some(socket.try_clone()?);
        let open = OpenListener { address, mode, socket, listener: Arc::new(wanted) };
        Ok(PreparedListener { open, accept, tls: None })
    }

    fn prepare_admin(
        &self,
        address: SocketAddr,
        inherited: &mut InheritedSockets,
    ) -> Result<PreparedAdmin, StartError> {
        if self.admin.as_ref().is_some_and(|open| open.address == address) {
            return Ok(PreparedAdmin::Unchanged);
        }
        let socket = listen::open("admin", (&ListenAddress::Tcp(address), None), inherited)?;
        Ok(PreparedAdmin::Opened { address, served: socket.try_clone()?, socket })
    }

    /// Accepts connections as prepared. Listeners that are not in use any more close, and their connections drain.
    pub(crate) fn apply(&mut self, prepared: PreparedListeners) {
        self.version += 1;
        let before = std::mem::take(&mut self.open);
        for PreparedListener { open, accept, tls } in prepared.listeners {
            if let (Some(old), Some(new)) = (&open.listener.tls, tls) {
                old.replace(new);
            }
            open.apply_mode();
            if let Some(socket) = accept {
                let listener = Arc::clone(&open.listener);
                self.runtime.spawn(listen::accept(socket, listener, self.inboxes.clone()));
            }
            self.open.push(open);
        }
        let is_open = |old: &Arc<Listener>| self.open.iter().any(|o| Arc::ptr_eq(&o.listener, old));
        for old in before.iter().map(|old| &old.listener).filter(|old| !is_open(old)) {
            old.drain.begin();
        }
        match prepared.admin {
            Some(PreparedAdmin::Unchanged) => {}
            Some(PreparedAdmin::Opened { address, socket, served }) => {
                let released = Arc::<DrainSignal>::default();
                let (worker, signal) = (Arc::clone(&self.worker), Arc::clone(&released));
                let task = self.runtime.spawn(admin::serve(served, worker, signal)).abort_handle();
                self.replace_admin(Some(AdminPort { address, socket, task, released }));
            }
            None => self.replace_admin(None),
        }
    }

    fn replace_admin(&mut self, port: Option<AdminPort>) {
        if let Some(old) = std::mem::replace(&mut self.admin, port) {
            old.task.abort();
        }
    }

    /// The addresses that are listened on, leaves included, by name.
    pub(crate) fn addresses(&self) -> Vec<(String, ListenAddress)> {
        let local = |open: &OpenListener| {
            let address = open.socket.tcp_address().map(ListenAddress::Tcp);
            (open.listener.name.clone(), address.unwrap_or_else(|| open.address.clone()))
        };
        self.open.iter().map(local).collect()
    }

    /// The address of the admin port.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|admin| admin.socket.tcp_address())
    }

    /// All open sockets, for a new process.
    ///
    /// # Errors
    /// When the process may not open another file.
    pub(crate) fn sockets(&self) -> io::Result<Vec<ListenSocket>> {
        let listeners = self.open.iter().map(|open| &open.socket);
        listeners
            .chain(self.admin.as_ref().map(|admin| &admin.socket))
            .map(ListenSocket::try_clone)
            .collect()
    }

    /// The version of the open sockets: it is another one after each reload.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Leaves all sockets to a new process, which accepts from them. Each connection closes after its next response.
    pub(crate) fn release(&mut self) {
        self.is_released = true;
        for OpenListener { listener, .. } in self.open.drain(..) {
            listener.drain.begin_with_last_responses();
            self.released.push(listener);
        }
        if let Some(admin) = self.admin.take() {
            admin.released.begin();
        }
        self.inboxes.clear();
    }

    /// Closes all listeners, and drains their connections; the admin port stays.
    pub(crate) fn close(&mut self) {
        let open = self.open.drain(..).map(|open| open.listener);
        open.chain(self.released.drain(..)).for_each(|listener| listener.drain.begin());
        self.inboxes.clear();
    }
}

/// Reads the certificates of the listeners with TLS.
fn listeners_tls(
    listeners: &[ListenerConfig],
) -> Result<Vec<Option<Arc<ServerConfig>>>, StartError> {
    let read = |(index, listener): (usize, &ListenerConfig)| {
        let tls = listener.tls.as_ref().map(config::load_listener_tls).transpose();
        tls.map_err(|error| match &listener.tls {
            Some(tls) => check::listener_tls_error(index, tls, error),
            None => error.into(),
        })
    };
    listeners.iter().enumerate().map(read).collect()
}
