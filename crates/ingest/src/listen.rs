//! Listeners, and the workers that serve their connections.
//!
//! Each worker is a thread with its own runtime. The first worker also accepts connections, and hands each connection
//! to the worker with the fewest connections. With `SO_REUSEPORT` the kernel would distribute connections, but a second
//! server could then bind the same port without an error and take part of the traffic.

use crate::commit::Committer;
use crate::config::Config;
use crate::metrics::IngestMetrics;
use crate::receive::Receiver;
use curtail_http::accept::{Acceptor, Handed, WorkerInbox, bind};
use curtail_http::stream::Stream;
use curtail_http::tls::{ListenerCertificate, TlsAcceptor};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

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
        let tls = config.certificate.as_ref().map(ListenerCertificate::acceptor);
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
    tls: Option<TlsAcceptor>,
    handed: mpsc::Receiver<Handed<()>>,
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
        let mut connections = JoinSet::new();
        while let Some(Handed { stream, place, .. }) = self.handed.recv().await {
            while connections.try_join_next().is_some() {}
            let (receiver, stopped) = (Arc::clone(&self.receiver), self.stopped.clone());
            let tls = self.tls.clone();
            let counted = receiver.metrics.connections.enter();
            connections.spawn(async move {
                if let Err(error) = begin(stream, tls, receiver, stopped).await {
                    tracing::debug!(%error, "connection not begun");
                }
                drop((counted, place));
            });
        }
        let Ok(grace) =
            self.stopped.wait_for(Option::is_some).await.map(|grace| grace.unwrap_or_default())
        else {
            return;
        };
        let all_ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            tracing::warn!("connections did not end within {grace:?} and are cut off");
        }
    }
}

/// Accepts connections until the receivers stop.
async fn accept(
    socket: std::net::TcpListener,
    places: Arc<Semaphore>,
    workers: Vec<WorkerInbox<()>>,
    mut stopped: watch::Receiver<Option<Duration>>,
) {
    let acceptor = Acceptor::new("otlp", socket, places, until_stopped(&mut stopped));
    let mut acceptor = match acceptor {
        Ok(acceptor) => acceptor,
        Err(error) => {
            return tracing::error!(%error, "failed to register a listener with the runtime");
        }
    };
    while let Some(accepted) = acceptor.next(|| ()).await {
        WorkerInbox::hand_over(&workers, accepted, ()).await;
    }
}

/// Serves a connection, after the TLS handshake if there is one.
async fn begin(
    stream: std::net::TcpStream,
    tls: Option<TlsAcceptor>,
    receiver: Arc<Receiver>,
    stopped: watch::Receiver<Option<Duration>>,
) -> io::Result<()> {
    let stream = TcpStream::from_std(stream)?;
    let stream = Stream::begin(stream, tls.as_ref(), receiver.limits.header_timeout).await?;
    serve(stream, receiver, stopped).await;
    Ok(())
}

async fn serve(
    stream: Stream,
    receiver: Arc<Receiver>,
    mut stopped: watch::Receiver<Option<Duration>>,
) {
    let limits = &receiver.limits;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(limits.idle_timeout / 2)
        .keep_alive_timeout(limits.idle_timeout / 2)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let has_request = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        has_request.store(true, Ordering::Relaxed);
        let receiver = Arc::clone(&receiver);
        async move { Ok::<_, Infallible>(receiver.respond(request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // hyper's timeout starts only when the version is known, and never over HTTP/2.
    let no_request = async {
        tokio::time::sleep(limits.header_timeout).await;
        if has_request.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = no_request => return tracing::debug!("no request arrived in time"),
        () = until_stopped(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection broke off");
    }
}

/// Waits for the stop, or until its sender is dropped.
async fn until_stopped(stopped: &mut watch::Receiver<Option<Duration>>) {
    drop(stopped.wait_for(Option::is_some).await);
}
