//! The app as it runs: listeners, and a thread for each role.
//!
//! **Limits**: one thread a role, so what is done in one does not delay another as long as there are cores.
//! All listen before this returns, and all threads have ended when it is dropped.

use super::client::Client;
use super::server::Server;
use super::storage::Storage;
use super::{Config, Role, busy};
use crate::alarm::Alarm;
use crate::listener;
use crate::running::StartError;
use curtail_units::Rng;
use hyper::Request;
use hyper::body::Incoming;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// An app that runs; it ends when it is dropped.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<(Role, SocketAddr)>,
    threads: Vec<Thread>,
}

/// One role's thread. It ends, and is waited for, when this is dropped.
#[derive(Debug)]
struct Thread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A role, about to be served.
struct Starting {
    role: Role,
    config: Config,
    /// Where the client finds storage and server.
    others: (SocketAddr, SocketAddr),
    rng: Rng,
    alarm: Arc<Alarm>,
}

impl Running {
    /// Starts these roles of the app; all that is random about them is drawn from `seed`. The client finds
    /// roles that are not among these where `config` says that they listen.
    ///
    /// # Errors
    /// When an address cannot be listened on, or the system gives no thread.
    pub fn start(config: &Config, roles: &[Role], seed: u64) -> Result<Self, StartError> {
        let is_here = |role: &Role| roles.contains(role);
        let listeners = Role::ALL
            .into_iter()
            .filter(is_here)
            .map(|role| Ok((role, listen(config, role)?)))
            .collect::<Result<Vec<_>, StartError>>()?;
        let addresses = listeners
            .iter()
            .map(|(role, listener)| Ok((*role, listener.local_addr()?)))
            .collect::<io::Result<Vec<_>>>()
            .map_err(StartError::of("no address"))?;
        let mut running = Self { addresses, threads: Vec::new() };
        let alarm = Arc::new(Alarm::start().map_err(StartError::of("no thread for its alarm"))?);
        let others = (
            running.address(Role::Storage).unwrap_or(config.storage.listen),
            running.address(Role::Server).unwrap_or(config.server.listen),
        );
        for (role, listener) in listeners {
            let starting = Starting {
                role,
                config: config.clone(),
                others,
                rng: Rng::new(seed).split(role.name()),
                alarm: Arc::clone(&alarm),
            };
            running.threads.push(Thread::start(starting, listener)?);
        }
        tracing::info!(roles = running.addresses.len(), seed, "app started");
        Ok(running)
    }

    /// Where a role listens, if it is here.
    #[must_use]
    pub fn address(&self, role: Role) -> Option<SocketAddr> {
        self.addresses().find(|(here, _)| *here == role).map(|(_, address)| address)
    }

    /// The roles that are here, and where they listen.
    pub fn addresses(&self) -> impl Iterator<Item = (Role, SocketAddr)> {
        self.addresses.iter().copied()
    }
}

impl Thread {
    fn start(starting: Starting, listener: TcpListener) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(StartError::of("no runtime"))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name(starting.role.name().to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        () = starting.serve(listener) => {}
                        // Stopped, or its owner is gone: the same.
                        _stopped = stopped => {}
                    }
                });
            })
            .map_err(StartError::of("no thread"))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            drop(thread.join());
        }
    }
}

impl Starting {
    /// Serves the role, as long as it is polled.
    async fn serve(self, listener: TcpListener) {
        let Self { role, config, others, rng, alarm } = self;
        if config.causes.cpu_load == Some(role) {
            tokio::spawn(busy::compute());
        }
        match role {
            Role::Client => {
                let client = Arc::new(Client::new(&config, others, &rng, &alarm));
                let response = move |request: Request<Incoming>| {
                    let client = Arc::clone(&client);
                    async move { Ok(client.respond(request).await) }
                };
                listener::accept(listener, response).await;
            }
            Role::Storage => {
                let storage = Arc::new(Storage::new(&config, &rng, &alarm));
                let response = move |request: Request<Incoming>| {
                    let storage = Arc::clone(&storage);
                    async move { Ok(storage.respond(request).await) }
                };
                listener::accept(listener, response).await;
            }
            Role::Server => {
                let server = Arc::new(Server::new(&config, &rng, &alarm));
                let response = move |request: Request<Incoming>| {
                    let server = Arc::clone(&server);
                    async move { Ok(server.respond(request).await) }
                };
                listener::accept(listener, response).await;
            }
        }
    }
}

fn listen(config: &Config, role: Role) -> Result<TcpListener, StartError> {
    let address = config.address(role);
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(StartError::of(format!("the {} cannot listen on {address}", role.name())))
}
