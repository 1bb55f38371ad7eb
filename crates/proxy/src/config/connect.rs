//! The keys of `connect`: connections to replicas.

use curtail_config::Section;
use curtail_units::{Bytes, Duration};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// How connections to replicas are opened and kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectConfig {
    /// The version of HTTP to speak.
    pub protocol: Protocol,
    /// Maximum time of a connection attempt, including DNS lookup and TLS handshake.
    pub timeout: Duration,
    /// Idle time after which a connection is closed.
    pub idle_timeout: Duration,
    /// Maximum idle HTTP/1.1 connections per replica and worker.
    pub idle_max: usize,
    /// Maximum HTTP/1.1 connections per replica and worker; at the limit, attempts fail without being sent.
    pub connections_max: usize,
    /// Maximum HTTP/2 connections per replica and worker.
    pub http2_connections_max: usize,
    /// Maximum concurrent requests on one HTTP/2 connection.
    pub http2_streams_max: usize,
    /// HTTP/2 flow-control window of a stream: bytes of a response body in transit or unread.
    pub http2_stream_window: Bytes,
    /// Idle time after which an HTTP/2 connection with requests in progress is pinged.
    pub http2_ping_interval: Duration,
    /// Idle time after which TCP probes a connection.
    pub tcp_keepalive: Duration,
    /// Trusted certificate authorities (PEM); absent: the system's.
    pub ca_file: Option<PathBuf>,
}

impl ConnectConfig {
    /// The flow-control window of one HTTP/2 connection: the sum of its stream windows. A stalled stream returns
    /// no credit to either window, so a smaller connection window would stall the other streams.
    #[must_use]
    pub const fn http2_connection_window(&self) -> Bytes {
        Bytes::new(self.http2_stream_window.get().saturating_mul(self.http2_streams_max as u64))
    }
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Auto,
            timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            idle_max: 128,
            connections_max: 1_024,
            // As many requests as `connections_max`, on connections that few requests share.
            http2_connections_max: 16,
            http2_streams_max: 64,
            http2_stream_window: Bytes::from_kib(1_024),
            // gRPC servers close a connection that is pinged more often than every five minutes.
            http2_ping_interval: Duration::from_secs(360),
            tcp_keepalive: Duration::from_secs(60),
            ca_file: None,
        }
    }
}

/// The version of HTTP towards replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// As TLS negotiates; HTTP/1.1 in clear text.
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; in clear text with prior knowledge.
    Http2,
}

/// The kernel takes whole seconds; Linux takes at most 32,767.
pub(crate) const TCP_KEEPALIVE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(9 * 3_600);

/// Reads the section.
pub(super) fn read(s: &mut Section<'_>) -> ConnectConfig {
    let default = ConnectConfig::default();
    let config = ConnectConfig {
        protocol: s
            .choice(
                "protocol",
                "HTTP version; auto: as TLS negotiates, HTTP/1.1 in clear text.",
                &[("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)],
            )
            .default(default.protocol),
        timeout: s
            .field("timeout", "Maximum time of a connection attempt, including DNS lookup and TLS handshake.")
            .default(default.timeout),
        idle_timeout: s
            .field("idle_timeout", "Idle time after which a connection is closed.")
            .default(default.idle_timeout),
        idle_max: s
            .field("idle_max", "Maximum idle HTTP/1.1 connections per replica and worker.")
            .default(default.idle_max),
        connections_max: s
            .field("connections_max", "Maximum HTTP/1.1 connections per replica and worker.")
            .at_least(1)
            .default(default.connections_max),
        http2_connections_max: s
            .field("http2_connections_max", "Maximum HTTP/2 connections per replica and worker.")
            .range(1..=64)
            .default(default.http2_connections_max),
        http2_streams_max: s
            .field(
                "http2_streams_max",
                "Maximum concurrent requests on one HTTP/2 connection; a quarter of this opens another connection.",
            )
            .range(1..=10_000)
            .default(default.http2_streams_max),
        http2_stream_window: s
            .field(
                "http2_stream_window",
                "HTTP/2 flow-control window of a stream: bytes of a response body in transit or unread.",
            )
            .range(Bytes::from_kib(64)..=Bytes::from_kib(64 << 10))
            .default(default.http2_stream_window),
        http2_ping_interval: s
            .field(
                "http2_ping_interval",
                "Idle time after which an HTTP/2 connection with requests in progress is pinged.",
            )
            .at_least(Duration::from_ms(100))
            .default(default.http2_ping_interval),
        tcp_keepalive: s
            .field("tcp_keepalive", "Idle time after which TCP probes a connection.")
            .range(TCP_KEEPALIVE)
            .default(default.tcp_keepalive),
        ca_file: s
            .field("ca_file", "Trusted certificate authorities (PEM file); absent: the system's.")
            .optional(),
    };
    check_window(s, "http2_stream_window", "http2_streams_max", config.http2_connection_window());
    config
}

/// The largest flow-control window (RFC 9113, section 6.9.1).
const HTTP2_WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// A size as an HTTP/2 flow-control window; `check_window` has rejected larger ones.
pub(crate) fn http2_window(bytes: Bytes) -> u32 {
    u32::try_from(bytes.get()).unwrap_or(u32::MAX).min(HTTP2_WINDOW_BYTES_MAX)
}

/// Rejects stream windows whose sum exceeds the largest flow-control window of a connection.
pub(super) fn check_window(s: &mut Section<'_>, window: &str, streams: &str, all: Bytes) {
    if all.get() > u64::from(HTTP2_WINDOW_BYTES_MAX) {
        let text =
            format!("times {streams} is {all}: expected less than 2GiB, the limit of HTTP/2");
        s.mistake(window, text);
    }
}
