//! Listeners, and the workers that serve their connections.
//!
//! Each worker is a thread with its own runtime. The first worker also accepts connections, and hands each connection
//! to the worker with the fewest connections. With `SO_REUSEPORT` the kernel would distribute connections, but a second
//! server could then bind the same port without an error and take part of the traffic.

use crate::commit::Committer;
use crate::config::Config;
use crate::metrics::IngestMetrics;
use crate::receive::Receiver;
use curtail_http::accept::{Acceptor, HandedConnection, WorkerInbox, bind};
use curtail_http::hyper_server::{self, Connections, until_stopped};
use curtail_http::stream::Stream;
use curtail_http::tls::ListenerTls;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, watch};

/// The flow-control window of a stream: a sender can send a batch of this size without waiting for window updates.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Running receivers; dropping this stops them without the grace period of [`stop`](Self::stop).
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    metrics: Arc<IngestMetrics>,
    /// The grace period of open connections; absent until the stop.
    stop: watch::Sender<Option<Duration>>,
    threads: Vec<JoinHandle<()>>,
}

/// Why the receivers did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The receivers cannot listen on an address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error; [`io::ErrorKind::AddrInUse`] when another process uses the port.
        source: io::Error,
    },
    /// The system refuses a thread or its runtime.
    #[error("cannot start a worker")]
    Thread(#[source] io::Error),
}

/// Starts receivers; returns when they listen.
///
/// # Errors
/// When an address is in use or not local, or the system refuses a thread.
pub fn start(config: &Config, committer: &Committer) -> Result<Running, StartError> {
    let metrics = Arc::new(IngestMetrics::default());
    let receiver = Arc::new(Receiver::new(config, committer.clone(), Arc::clone(&metrics)));
    let mut addresses = config.addresses.clone();
    let mut listeners = Vec::new();
    for address in &mut addresses {
        let failed = |source| StartError::Listen { address: *address, source };
        let listener = bind(*address).map_err(failed)?;
        // The system has chosen a port for port 0.
        *address = listener.local_addr().unwrap_or(*address);
        listeners.push(listener);
    }
    let (stop, _) = watch::channel(None);
    let workers = config.workers.max(1);
    let places = Arc::new(Semaphore::new(workers.saturating_mul(config.limits.connections)));
    let (inboxes, handed): (Vec<_>, Vec<_>) = (0..workers).map(|_| WorkerInbox::new()).unzip();
    let mut accepting = Some((listeners, places, inboxes));
    let mut running = Running { addresses, metrics, stop, threads: Vec::new() };
    for (nth, handed) in handed.into_iter().enumerate() {
        let stopped = running.stop.subscribe();
        let tls = config.tls.clone();
        let worker = Worker { receiver: Arc::clone(&receiver), tls, handed, stopped };
        let accepting = accepting.take();
        // Created here, where failure is still an error: connections of a worker without a runtime would be lost.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        let thread = std::thread::Builder::new()
            .name(format!("ingest-{nth}"))
            .spawn(move || worker.run(runtime, accepting))
            .map_err(StartError::Thread)?;
        running.threads.push(thread);
    }
    Ok(running)
}

impl Running {
    /// Returns the addresses of the listeners.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The counters.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<IngestMetrics> {
        &self.metrics
    }

    /// Closes the listeners, and waits at most `grace` for the end of open connections.
    pub fn stop(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker has panicked");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// The listening sockets, the permits of their connections, and the workers.
type AcceptLoopParts = (Vec<std::net::TcpListener>, Arc<Semaphore>, Vec<WorkerInbox<()>>);

struct Worker {
    receiver: Arc<Receiver>,
    tls: Option<Arc<ListenerTls>>,
    handed: mpsc::Receiver<HandedConnection<()>>,
    stopped: watch::Receiver<Option<Duration>>,
}

impl Worker {
    fn run(mut self, runtime: Runtime, accepting: Option<AcceptLoopParts>) {
        runtime.block_on(async {
            if let Some((listeners, places, workers)) = accepting {
                for listener in listeners {
                    let places = Arc::clone(&places);
                    tokio::spawn(accept(listener, places, workers.clone(), self.stopped.clone()));
                }
            }
            self.serve().await;
        });
        // Batches that are still being decompressed are abandoned.
        runtime.shutdown_background();
    }

    /// Serves connections until all listeners are closed, then waits for the remaining connections.
    async fn serve(&mut self) {
        let mut connections = Connections::default();
        while let Some(HandedConnection { stream, place, .. }) = self.handed.recv().await {
            let (receiver, stopped) = (Arc::clone(&self.receiver), self.stopped.clone());
            let tls = self.tls.clone();
            let counted = receiver.metrics.connections.enter();
            connections.spawn(async move {
                serve(stream, tls, &receiver, stopped).await;
                drop((counted, place));
            });
        }
        connections.end(self.stopped.clone()).await;
    }
}

/// Accepts connections until the receivers stop.
async fn accept(
    socket: std::net::TcpListener,
    places: Arc<Semaphore>,
    workers: Vec<WorkerInbox<()>>,
    stopped: watch::Receiver<Option<Duration>>,
) {
    let acceptor = Acceptor::new("otlp", socket, places, until_stopped(stopped));
    let Ok(mut acceptor) = acceptor else { return };
    while let Some(accepted) = acceptor.next(|| ()).await {
        WorkerInbox::hand_over(&workers, accepted, ()).await;
    }
}

async fn serve(
    stream: std::net::TcpStream,
    tls: Option<Arc<ListenerTls>>,
    receiver: &Arc<Receiver>,
    stopped: watch::Receiver<Option<Duration>>,
) {
    let limits = &receiver.limits;
    let stream = async {
        Stream::begin(TcpStream::from_std(stream)?, tls.as_deref(), limits.header_timeout).await
    };
    let mut builder = hyper_server::builder(limits.idle_timeout);
    builder
        .http2()
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(limits.idle_timeout / 2)
        .keep_alive_timeout(limits.idle_timeout / 2)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let timeouts = (limits.header_timeout, None);
    let respond = |request| {
        let receiver = Arc::clone(receiver);
        async move { receiver.respond(request).await }
    };
    hyper_server::serve(stream, builder, timeouts, until_stopped(stopped), respond).await;
}
