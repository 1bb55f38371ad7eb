//! The running app: its listeners, and a thread for each role.
//!
//! All roles listen before [`Running::start`] returns, and all threads have ended when [`Running`] is dropped.

use super::client::Client;
use super::server::Server;
use super::storage::Storage;
use super::{Config, Requests, Role};
use crate::listener;
use crate::running::StartError;
use curtail_http::accept::bind;
use curtail_http::runtime_thread::RuntimeThread;
use curtail_units::{Duration, Rng};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

/// An app that runs; it ends when it is dropped.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<(Role, SocketAddr)>,
    threads: Vec<RuntimeThread>,
}

impl Running {
    /// Starts `roles` of the app; `seed` decides everything random. The client finds the other roles at their
    /// addresses in `config`.
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
        let others = (
            running.address(Role::Storage).unwrap_or(config.storage.listen),
            running.address(Role::Server).unwrap_or(config.server.listen),
        );
        for (role, listener) in listeners {
            let config = config.clone();
            let rng = Rng::new(seed).split(role.name());
            let thread = RuntimeThread::start(role.name()).map_err(StartError::of("no thread"))?;
            thread.runtime().spawn(async move {
                if config.causes.cpu_load == Some(role) {
                    tokio::spawn(compute());
                }
                match role {
                    Role::Client => {
                        let client = Client::new(&config, others, Requests::new(&rng));
                        listener::accept(listener, Arc::new(client)).await;
                    }
                    Role::Storage => {
                        let requests = Requests::new(&rng.split("service"));
                        let storage = Storage::new(&config, &rng, requests);
                        listener::accept(listener, Arc::new(storage)).await;
                    }
                    Role::Server => {
                        let server = Server::new(&config, Requests::new(&rng));
                        listener::accept(listener, Arc::new(server)).await;
                    }
                }
            });
            running.threads.push(thread);
        }
        tracing::info!(roles = running.addresses.len(), seed, "app started");
        Ok(running)
    }

    /// The address of a role, if this process runs it.
    #[must_use]
    pub fn address(&self, role: Role) -> Option<SocketAddr> {
        self.addresses().find(|(here, _)| *here == role).map(|(_, address)| address)
    }

    /// The roles that this process runs, with their addresses.
    pub fn addresses(&self) -> impl Iterator<Item = (Role, SocketAddr)> {
        self.addresses.iter().copied()
    }
}

fn listen(config: &Config, role: Role) -> Result<TcpListener, StartError> {
    let address = config.address(role);
    bind(address).map_err(StartError::of(format!("the {} cannot listen on {address}", role.name())))
}

/// The CPU time that the other job takes without a break.
const SLICE: Duration = Duration::from_ms(10);

/// Another job on the thread of a role: computes in slices, between which the runtime polls I/O. On a thread of its
/// own, the kernel would give the job another core.
async fn compute() {
    let mut sum = 0_u64;
    loop {
        let began = Instant::now();
        while began.elapsed() < SLICE.into() {
            for n in 0..1_000_u64 {
                sum = std::hint::black_box(sum.rotate_left(5) ^ n);
            }
        }
        tokio::task::yield_now().await;
    }
}
