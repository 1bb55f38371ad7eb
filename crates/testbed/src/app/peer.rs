//! A client of storage or of the server, with counts of its attempts.
//!
//! **Limits**: the size of a response body, and the number of idle connections ([`LIMITS`]). An attempt that times out
//! closes its connection.

use super::BODY_BYTES_MAX;
use bytes::Bytes;
use curtail_http::client::{Client, ClientError, ClientLimits};
use curtail_http::connect::{ConnectConfig, Connector};
use curtail_http::origin::ServerOrigin;
use curtail_units::Duration;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LIMITS: ClientLimits = ClientLimits { body_bytes_max: BODY_BYTES_MAX, idle_max: 64 };

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    client: Client<Full<Bytes>>,
    pub(super) tally: Tally,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    attempts: AtomicU64,
    pub(super) retries: AtomicU64,
    timeouts: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Call<'c> {
    pub(super) method: Method,
    pub(super) path: &'c str,
    pub(super) body: Bytes,
    pub(super) timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The attempt timed out; the peer may have executed it.
    TimedOut,
    /// The attempt was not executed: the peer responded with 503.
    Refused,
    /// Another failure, in words; the peer may have executed the attempt.
    Broken(String),
}

impl Peer {
    pub(super) fn new(name: &'static str, address: SocketAddr, connect_timeout: Duration) -> Self {
        let connect = ConnectConfig { timeout: connect_timeout, ..ConnectConfig::default() };
        let connector = Connector::load(&ServerOrigin::from(address), &connect);
        let connector = connector.expect("clear text needs no certificate");
        Self { name, client: Client::new(connector, LIMITS), tally: Tally::default() }
    }

    pub(super) async fn attempt(&self, call: &Call<'_>) -> Result<Bytes, Failed> {
        self.tally.attempts.fetch_add(1, Relaxed);
        let result = self.exchange(call).await;
        match &result {
            Err(Failed::TimedOut) => self.tally.timeouts.fetch_add(1, Relaxed),
            Err(Failed::Refused) => self.tally.refusals.fetch_add(1, Relaxed),
            Ok(_) | Err(Failed::Broken(_)) => 0,
        };
        result
    }

    async fn exchange(&self, call: &Call<'_>) -> Result<Bytes, Failed> {
        let request = Request::builder()
            .method(&call.method)
            .uri(call.path)
            .body(Full::new(call.body.clone()))
            .expect("paths are our own");
        let failed = |error: ClientError| {
            if error.is_timeout() {
                Failed::TimedOut
            } else {
                Failed::Broken(format!("no response: {error}"))
            }
        };
        let response = self.client.send(request, call.timeout).await.map_err(failed)?;
        match response.status {
            StatusCode::OK => Ok(response.body),
            StatusCode::SERVICE_UNAVAILABLE => Err(Failed::Refused),
            status => Err(Failed::Broken(format!("the {} responded with {status}", self.name))),
        }
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
