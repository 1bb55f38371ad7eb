//! Listening, and serving each connection to its end.
//!
//! Each worker is a thread with a runtime of its own. The first one also accepts connections, and hands each of them to
//! the worker with the fewest. With `SO_REUSEPORT` the kernel would spread them, but a second server could bind the
//! same port without an error and take part of the traffic.

use crate::commit::Committer;
use crate::config::Config;
use crate::counts::Counts;
use crate::receive::Receiver;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{Domain, Protocol, Socket, Type};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// Flow control: a long batch comes without waiting for us.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Maximum accepted connections that wait for their worker.
const HANDED_MAX: usize = 64;

/// After a failure to accept (no more files, usually) the next try waits so long.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Receivers that run. They stop when they are told, or dropped.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    counts: Arc<Counts>,
    /// How long connections have to end, once it is said.
    stop: watch::Sender<Option<Duration>>,
    threads: Vec<JoinHandle<()>>,
}

/// Why the receivers did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be bound.
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

/// Starts receivers; they listen when this returns.
///
/// # Errors
/// When an address is in use or not local, or the system refuses a thread.
pub fn start(config: &Config, committer: &Committer) -> Result<Running, StartError> {
    let counts = Arc::new(Counts::default());
    let receiver = Arc::new(Receiver::new(config, committer.clone(), Arc::clone(&counts)));
    let mut addresses = config.addresses.clone();
    let mut listeners = Vec::new();
    for address in &mut addresses {
        let failed = |source| StartError::Listen { address: *address, source };
        let listener = listen(*address).map_err(failed)?;
        // The system has chosen a port for port 0.
        *address = listener.local_addr().unwrap_or(*address);
        listeners.push(listener);
    }
    let (stop, _) = watch::channel(None);
    let (handovers, inboxes): (Vec<_>, Vec<_>) = (0..config.workers.max(1))
        .map(|_| {
            let (sender, inbox) = mpsc::channel(HANDED_MAX);
            let room = Arc::new(Semaphore::new(config.limits.connections));
            (Handover { sender, room: Arc::clone(&room) }, (inbox, room))
        })
        .unzip();
    let mut accepting = Some((listeners, handovers));
    let mut running = Running { addresses, counts, stop, threads: Vec::new() };
    for (nth, (inbox, room)) in inboxes.into_iter().enumerate() {
        let worker =
            Worker { receiver: Arc::clone(&receiver), inbox, room, told: running.stop.subscribe() };
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
    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it has counted.
    #[must_use]
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Takes no more connections, gives those that there are so long to end, and waits for that.
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

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Allows a restart while old connections are in TIME_WAIT; a port with a listener is still rejected.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection for a worker, with its share of that worker's limit.
type HandedConnection = (std::net::TcpStream, OwnedSemaphorePermit);

/// A worker, as the accept loop sees it.
#[derive(Clone, Debug)]
struct Handover {
    sender: mpsc::Sender<HandedConnection>,
    /// One permit for each connection that it may still get.
    room: Arc<Semaphore>,
}

/// The listening sockets, and the workers for their connections.
type AcceptLoopParts = (Vec<std::net::TcpListener>, Vec<Handover>);

/// A thread that serves connections.
struct Worker {
    receiver: Arc<Receiver>,
    inbox: mpsc::Receiver<HandedConnection>,
    room: Arc<Semaphore>,
    told: watch::Receiver<Option<Duration>>,
}

impl Worker {
    fn run(mut self, runtime: Runtime, accepting: Option<AcceptLoopParts>) {
        runtime.block_on(async {
            if let Some((listeners, handovers)) = accepting {
                for listener in listeners {
                    tokio::spawn(accept(listener, handovers.clone(), self.told.clone()));
                }
            }
            self.serve().await;
        });
        // Does not wait for batches that are still being decompressed.
        runtime.shutdown_background();
    }

    /// Serves connections until all listeners are closed, then waits for the remaining connections.
    async fn serve(&mut self) {
        while let Some((stream, permit)) = self.inbox.recv().await {
            let (receiver, told) = (Arc::clone(&self.receiver), self.told.clone());
            tokio::spawn(async move {
                match TcpStream::from_std(stream) {
                    Ok(stream) => serve(stream, receiver, told).await,
                    Err(error) => {
                        tracing::warn!(%error, "failed to register a connection with the runtime")
                    }
                }
                drop(permit);
            });
        }
        let Ok(grace) =
            self.told.wait_for(Option::is_some).await.map(|grace| grace.unwrap_or_default())
        else {
            return;
        };
        let all = u32::try_from(self.receiver.limits().connections).unwrap_or(u32::MAX);
        if tokio::time::timeout(grace, self.room.acquire_many(all)).await.is_err() {
            tracing::warn!("connections did not end within {grace:?} and are cut off");
        }
    }
}

/// Accepts connections until the receivers stop.
async fn accept(
    listener: std::net::TcpListener,
    workers: Vec<Handover>,
    mut told: watch::Receiver<Option<Duration>>,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(%error, "failed to register a listener with the runtime");
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = until_told(&mut told) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => tokio::select! {
                biased;
                () = until_told(&mut told) => return,
                () = hand_over(stream, &workers) => {}
            },
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Hands a connection to the worker with the fewest. While all workers are full, it waits, and further connections
/// wait in the kernel's queue.
async fn hand_over(stream: std::net::TcpStream, workers: &[Handover]) {
    let freest = workers.iter().max_by_key(|worker| worker.room.available_permits());
    let Some(Handover { sender, room }) = freest else { return };
    if let Ok(permit) = Arc::clone(room).acquire_owned().await
        && sender.send((stream, permit)).await.is_err()
    {
        tracing::error!("a worker thread ended unexpectedly; its connections are lost");
    }
}

async fn serve(
    stream: TcpStream,
    receiver: Arc<Receiver>,
    mut told: watch::Receiver<Option<Duration>>,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let limits = receiver.limits();
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
    let has_asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        let receiver = Arc::clone(&receiver);
        async move { Ok::<_, Infallible>(receiver.answer(request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // hyper begins to count when it knows which version is spoken, and over HTTP/2 never.
    let never_asked = async {
        tokio::time::sleep(limits.header_timeout).await;
        if has_asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = never_asked => return tracing::debug!("nothing was asked in time"),
        () = until_told(&mut told) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection broke off");
    }
}

/// Told to stop, or whoever could tell is gone: the same.
async fn until_told(told: &mut watch::Receiver<Option<Duration>>) {
    drop(told.wait_for(Option::is_some).await);
}
