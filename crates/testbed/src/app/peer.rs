//! One of the other two, as the client reaches it: connections, one attempt, and how attempts went.
//!
//! **Limits**: [`IDLE_MAX`] connections are kept for later; an answer has at most
//! [`BODY_BYTES_MAX`]. An attempt that is given up takes its connection with it.

use super::BODY_BYTES_MAX;
use bytes::Bytes;
use curtail_units::Duration;
use http::header::HOST;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The most connections that are kept while nobody uses them.
const IDLE_MAX: usize = 64;

/// One of the other two.
#[derive(Debug)]
pub(super) struct Peer {
    name: &'static str,
    address: SocketAddr,
    connect_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    pub(super) tally: Tally,
}

/// How attempts went, since the start.
#[derive(Debug, Default)]
pub(super) struct Tally {
    attempts: AtomicU64,
    pub(super) retries: AtomicU64,
    timeouts: AtomicU64,
    refusals: AtomicU64,
}

/// One request to a peer.
#[derive(Debug)]
pub(super) struct Call<'c> {
    pub(super) method: Method,
    pub(super) path: &'c str,
    pub(super) body: Bytes,
    /// How long one attempt may take, a new connection included.
    pub(super) timeout: Duration,
}

/// Why an attempt gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It took too long; it may have been executed.
    TimedOut,
    /// It was not executed: the peer said 503.
    Refused,
    /// Something else, in words; it may have been executed.
    Broken(String),
}

#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Closes the socket at once, also when an answer is still to come.
        self.driver.abort();
    }
}

impl Peer {
    pub(super) fn new(name: &'static str, address: SocketAddr, connect_timeout: Duration) -> Self {
        Self { name, address, connect_timeout, idle: Mutex::default(), tally: Tally::default() }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    /// One attempt; its answer's body.
    pub(super) async fn attempt(&self, call: &Call<'_>) -> Result<Bytes, Failed> {
        self.tally.attempts.fetch_add(1, Relaxed);
        let result = timeout(call.timeout.into(), self.exchange(call)).await;
        let result = result.unwrap_or(Err(Failed::TimedOut));
        match &result {
            Err(Failed::TimedOut) => self.tally.timeouts.fetch_add(1, Relaxed),
            Err(Failed::Refused) => self.tally.refusals.fetch_add(1, Relaxed),
            Ok(_) | Err(Failed::Broken(_)) => 0,
        };
        result
    }

    async fn exchange(&self, call: &Call<'_>) -> Result<Bytes, Failed> {
        let broken = |what: &str, error: &dyn std::error::Error| {
            Failed::Broken(format!("{what} {}: {error}", self.address))
        };
        let mut connection = match self.idle().await {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let host = HeaderValue::try_from(self.address.to_string()).expect("an address is plain");
        let request = Request::builder()
            .method(&call.method)
            .uri(call.path)
            .header(HOST, host)
            .body(Full::new(call.body.clone()))
            .expect("paths are our own");
        let response = connection.sender.send_request(request).await;
        let (head, body) = response.map_err(|error| broken("no answer from", &error))?.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| broken("no whole answer from", &*error))?.to_bytes();
        self.keep(connection);
        match head.status {
            StatusCode::OK => Ok(body),
            StatusCode::SERVICE_UNAVAILABLE => Err(Failed::Refused),
            status => Err(Failed::Broken(format!("{} answered {status}", self.address))),
        }
    }

    async fn connect(&self) -> Result<Connection, Failed> {
        let broken = |error: &dyn std::error::Error| {
            Failed::Broken(format!("no connection to {}: {error}", self.address))
        };
        let connecting = timeout(self.connect_timeout.into(), TcpStream::connect(self.address));
        let stream = connecting.await.map_err(|_| Failed::TimedOut)?.map_err(|e| broken(&e))?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        let driver = tokio::spawn(async move {
            // How it ends, its user learns from the request.
            let _ended = driver.await;
        });
        Ok(Connection { sender, driver })
    }

    /// A connection that was kept, the last one first, if one is left that is open.
    async fn idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.kept().pop()?;
            if connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    fn keep(&self, connection: Connection) {
        let mut kept = self.kept();
        if kept.len() < IDLE_MAX {
            kept.push(connection);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().expect("nothing panics while the lock is held")
    }
}

impl Tally {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "attempts": self.attempts.load(Relaxed),
            "retries": self.retries.load(Relaxed),
            "timeouts": self.timeouts.load(Relaxed),
            "refusals": self.refusals.load(Relaxed),
        })
    }
}
