//! The configuration of the receivers.

use curtail_http::access::Access;
use curtail_http::tls::ListenerTls;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The configuration of the receivers.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses to listen on; each accepts gRPC and HTTP.
    pub addresses: Vec<SocketAddr>,
    /// The TLS of all addresses; absent: clear text.
    pub tls: Option<Arc<ListenerTls>>,
    /// The number of threads that receive and decode.
    pub workers: usize,
    /// The tokens of senders.
    pub access: Arc<Access>,
    /// Origins whose pages may send from a browser, such as `https://shop.example`; `*` allows all.
    pub origins: Vec<String>,
    /// The limits of senders.
    pub limits: Limits,
}

/// The limits of senders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limits of one batch and of its rows.
    pub batch: curtail_otlp::Limits,
    /// Maximum memory of all batches from arrival to commit.
    pub receiving_bytes: u32,
    /// Maximum time for which senders wait for a stalled sink or log; then their batches are rejected.
    pub full_for: Duration,
    /// Maximum time to receive a body.
    pub body_timeout: Duration,
    /// Maximum time from the start of a connection to its first request.
    pub header_timeout: Duration,
    /// Maximum time between requests over HTTP/1.1; over HTTP/2, maximum time until the reply to a ping.
    pub idle_timeout: Duration,
    /// Maximum number of connections per worker on average; all workers share the sum of these maxima.
    pub connections: usize,
    /// Maximum number of concurrent streams of a connection.
    pub streams: u32,
}

impl Default for Config {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            addresses: vec![loopback(4317), loopback(4318)],
            tls: None,
            workers: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)),
            access: Arc::default(),
            origins: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch: curtail_otlp::Limits::default(),
            receiving_bytes: 256 << 20,
            full_for: Duration::from_secs(1),
            body_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
            // Metrics are sent once a minute, by default.
            idle_timeout: Duration::from_secs(120),
            connections: 4_096,
            streams: 256,
        }
    }
}
