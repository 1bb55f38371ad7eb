//! Replicas that do with their connections what a script says: the ones that fail.

use crate::wire::{Message, Wire};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

/// A server that accepts connections and runs a script on each.
#[derive(Debug)]
pub(crate) struct RawReplica {
    address: SocketAddr,
    record: Arc<Record>,
    accepting: tokio::task::JoinHandle<()>,
}

/// What a raw replica saw; scripts add to it.
#[derive(Debug, Default)]
pub(crate) struct Record {
    connections: AtomicUsize,
    /// Scripts that have ended.
    ended: AtomicUsize,
    requests: Mutex<Vec<Message>>,
    changed: Notify,
    failed: AtomicBool,
}

impl Record {
    /// Puts down a request that was read to its end: it is executed from here on.
    pub(crate) fn executes(&self, request: Message) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        self.changed.notify_waiters();
    }

    /// Reads the next request and puts it down; [`None`] when the proxy has closed the connection.
    pub(crate) async fn read(&self, wire: &mut Wire) -> Option<Message> {
        let request = wire.read_message().await.ok()??;
        self.executes(request.clone());
        Some(request)
    }

    /// Requests that were read to their end.
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections whose script has not ended.
    pub(crate) fn open_connections(&self) -> usize {
        self.connections() - self.ended.load(Ordering::SeqCst)
    }

    /// Waits until the record says so.
    pub(crate) async fn until(&self, so: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if so(self) {
                return;
            }
            changed.await;
        }
    }
}

impl RawReplica {
    /// Runs `script` on each connection, in tasks of their own. It gets the connection, the record, and how
    /// many connections there were before.
    pub(crate) async fn start<F>(
        script: impl Fn(Wire, Arc<Record>, usize) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), script).await
    }

    /// The same at an address of the test's choice.
    pub(crate) async fn start_at<F>(
        address: SocketAddr,
        script: impl Fn(Wire, Arc<Record>, usize) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let record = Arc::new(Record::default());
        let shared = Arc::clone(&record);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("connections come");
                stream.set_nodelay(true).expect("a TCP connection");
                let nth = shared.connections.fetch_add(1, Ordering::SeqCst);
                shared.changed.notify_waiters();
                let running = script(Wire::new(stream), Arc::clone(&shared), nth);
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let ended = tokio::spawn(running).await;
                    shared.ended.fetch_add(1, Ordering::SeqCst);
                    shared.changed.notify_waiters();
                    if ended.is_err_and(|error| error.is_panic()) {
                        shared.failed.store(true, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, record, accepting }
    }

    /// Responds to every request with 200 and `body`, over connections that are kept alive.
    pub(crate) async fn responding(body: &'static str) -> Self {
        Self::start(move |wire, record, _| serve(wire, record, body)).await
    }

    /// Reads requests and never responds.
    pub(crate) async fn silent() -> Self {
        Self::start(
            |mut wire, record, _| async move { while record.read(&mut wire).await.is_some() {} },
        )
        .await
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }
}

impl Drop for RawReplica {
    fn drop(&mut self) {
        self.accepting.abort();
        let failed = self.record.failed.load(Ordering::SeqCst);
        assert!(!failed || std::thread::panicking(), "a script of a replica failed: see above");
    }
}

/// Responds to requests on one connection until the proxy closes it.
pub(crate) async fn serve(mut wire: Wire, record: Arc<Record>, body: &'static str) {
    while let Some(request) = record.read(&mut wire).await {
        let body = if request.head.request().0 == "HEAD" { "" } else { body };
        if wire.write(response(body)).await.is_err() {
            return;
        }
    }
}

/// The bytes of a good response.
pub(crate) fn response(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// An address where nothing listens: connections to it are refused at once.
///
/// The port stays taken as long as this lives, so that no server of another test is given it.
#[derive(Debug)]
pub(crate) struct Refusing {
    bound: TcpSocket,
}

impl Refusing {
    pub(crate) fn new() -> Self {
        let bound = TcpSocket::new_v4().expect("a socket");
        bound.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("loopback");
        Self { bound }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.bound.local_addr().expect("it is bound")
    }
}
