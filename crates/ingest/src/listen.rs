//! Listening, and serving each connection to its end.
//!
//! Each worker is a thread with a runtime and sockets of its own: the kernel deals connections out to them.

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
use tokio::sync::{Semaphore, watch};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// Flow control: a long batch comes without waiting for us.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

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

/// Why receivers did not start: something that the system would not give.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StartError {
    what: String,
    #[source]
    source: io::Error,
}

/// Starts receivers; they listen when this returns.
///
/// # Errors
/// When an address cannot be listened on, or there is no thread.
pub fn start(config: &Config, committer: &Committer) -> Result<Running, StartError> {
    let counts = Arc::new(Counts::default());
    let receiver = Arc::new(Receiver::new(config, committer.clone(), Arc::clone(&counts)));
    let (stop, _) = watch::channel(None);
    let mut addresses = config.addresses.clone();
    let mut threads = Vec::new();
    for nth in 0..config.workers.max(1) {
        let mut listeners = Vec::new();
        for address in &mut addresses {
            let listener = listen(*address).map_err(|source| StartError {
                what: format!("{address} cannot be listened on"),
                source,
            })?;
            // The first worker finds out which port is free where any would do.
            *address = listener.local_addr().unwrap_or(*address);
            listeners.push(listener);
        }
        let (receiver, told) = (Arc::clone(&receiver), stop.subscribe());
        let thread = std::thread::Builder::new()
            .name(format!("ingest-{nth}"))
            .spawn(move || work(listeners, receiver, told))
            .map_err(|source| StartError { what: "there is no thread".to_owned(), source })?;
        threads.push(thread);
    }
    Ok(Running { addresses, counts, stop, threads })
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
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn work(
    listeners: Vec<std::net::TcpListener>,
    receiver: Arc<Receiver>,
    mut told: watch::Receiver<Option<Duration>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime.inspect_err(|error| tracing::error!(%error, "no runtime")) else {
        return;
    };
    runtime.block_on(async {
        let connections_max = receiver.limits().connections;
        let room = Arc::new(Semaphore::new(connections_max));
        for listener in listeners {
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    let (receiver, told) = (Arc::clone(&receiver), told.clone());
                    tokio::spawn(accept(listener, receiver, Arc::clone(&room), told));
                }
                Err(error) => tracing::error!(%error, "a socket was lost"),
            }
        }
        let Ok(grace) = told.wait_for(Option::is_some).await.map(|grace| grace.unwrap_or_default())
        else {
            return;
        };
        let all = u32::try_from(connections_max).unwrap_or(u32::MAX);
        if tokio::time::timeout(grace, room.acquire_many(all)).await.is_err() {
            tracing::warn!("connections did not end within {grace:?} and are cut off");
        }
    });
    // Whatever is still being unpacked is for nobody.
    runtime.shutdown_background();
}

async fn accept(
    listener: TcpListener,
    receiver: Arc<Receiver>,
    room: Arc<Semaphore>,
    mut told: watch::Receiver<Option<Duration>>,
) {
    loop {
        // Beyond the bound they wait in the kernel's queue.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let accepted = tokio::select! {
            biased;
            () = until_told(&mut told) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let serving = serve(stream, Arc::clone(&receiver), told.clone());
                tokio::spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
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
