//! The configuration of the receivers.

use curtail_http::access::Access;
use curtail_http::tls::ListenerCertificate;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The configuration of the receivers.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses; each accepts gRPC and HTTP.
    pub addresses: Vec<SocketAddr>,
    /// The certificate of all addresses; absent: clear text.
    pub certificate: Option<Arc<ListenerCertificate>>,
    /// Threads that receive and decode.
    pub workers: usize,
    /// The tokens of senders.
    pub access: Arc<Access>,
    /// Origins whose pages may send from a browser, such as `https://shop.example`; `*` allows all.
    pub origins: Vec<String>,
    /// What a sender may do.
    pub limits: Limits,
}

/// What a sender may do; beyond it, it is told so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One batch and the rows in it.
    pub batch: curtail_otlp::Limits,
    /// Bytes of all batches that are being received.
    pub receiving_bytes: u32,
    /// When what is durable has not been taken for so long, senders are refused; until then they wait.
    pub full_for: Duration,
    /// A body that takes longer to come is refused.
    pub body_timeout: Duration,
    /// A connection on which nothing was asked for so long after it was made is closed.
    pub header_timeout: Duration,
    /// The same between requests, over HTTP/1.1; over HTTP/2 who does not answer a ping for so long is gone.
    pub idle_timeout: Duration,
    /// Maximum number of connections per worker, on average: all workers share the sum.
    pub connections: usize,
    /// Streams at once on one connection.
    pub streams: u32,
}

impl Default for Config {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            addresses: vec![loopback(4317), loopback(4318)],
            certificate: None,
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
