//! The keys of `connect`: connections to replicas.

use curtail_config::{Section, certificate_files};
use curtail_http::connect::{ConnectConfig, Protocol};
use curtail_http::http2::WINDOW_BYTES_MAX;
use curtail_http::proxy_protocol::ProxyProtocol;
use curtail_http::stream::TCP_KEEPALIVE;
use curtail_units::{Bytes, Duration};

pub(super) fn read(s: &mut Section<'_>) -> ConnectConfig {
    let default = ConnectConfig::default();
    let config = ConnectConfig {
        protocol: s
            .choice(
                "protocol",
                "HTTP version; auto: the version that TLS negotiates, and HTTP/1.1 without TLS.",
                &[("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)],
            )
            .default(default.protocol),
        timeout: s
            .field("timeout", "Maximum time of a connection attempt, including DNS lookup and TLS handshake.")
            .default(default.timeout),
        idle_timeout: s
            .field("idle_timeout", "Idle time after which a connection is closed.")
            .default(default.idle_timeout),
        idle_min: s
            .field("idle_min", "Idle HTTP/1.1 connections per replica and worker that the proxy opens ahead of requests, and again when they close; with HTTP/2, one connection if this is not 0.")
            .range(0..=1_000)
            .default(default.idle_min),
        idle_max: s
            .field("idle_max", "Maximum idle HTTP/1.1 connections per replica and worker.")
            .default(default.idle_max),
        connections_max: s
            .field("connections_max", "Maximum HTTP/1.1 connections per replica and worker, including upgraded ones (WebSockets). At most half of them wait for the rest of a request body.")
            .at_least(1)
            .default(default.connections_max),
        waiting_max: s
            .field("waiting_max", "Maximum number of requests that wait for a connection attempt, per replica and worker; absent: no limit.")
            .at_least(1)
            .optional(),
        http2_connections_max: s
            .field(
                "http2_connections_max",
                "Maximum HTTP/2 connections per replica and worker. At most half of their streams wait for the rest of a request body and have no response yet.",
            )
            .range(1..=64)
            .default(default.http2_connections_max),
        http2_streams_max: http2_streams_max(s, default.http2_streams_max),
        http2_stream_window: s
            .field(
                "http2_stream_window",
                "HTTP/2 flow-control window of a stream: maximum bytes of a response body in transit or unread.",
            )
            .range(Bytes::from_kib(64)..=Bytes::from_kib(64 << 10))
            .default(default.http2_stream_window),
        http2_ping_interval: s
            .field(
                "http2_ping_interval",
                "Idle time after which the proxy pings an HTTP/2 connection with requests in progress.",
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
        client_certificate: s.optional_section(
            "client_certificate",
            "Certificate of the proxy, for replicas that request client certificates; absent: none.",
            certificate_files,
        ),
        proxy_protocol: default.proxy_protocol,
    };
    s.check_order(("idle_min", config.idle_min), ("idle_max", config.idle_max));
    s.check_order(("idle_min", config.idle_min), ("connections_max", config.connections_max));
    check_window(s, "http2_stream_window", "http2_streams_max", config.http2_connection_window());
    config
}

fn http2_streams_max(s: &mut Section<'_>, default: usize) -> usize {
    s.field(
        "http2_streams_max",
        "Maximum concurrent requests and WebSockets on one HTTP/2 connection. When all connections have a quarter of this number, the proxy opens another connection.",
    )
    .range(1..=10_000)
    .default(default)
}

/// The keys of an upstream. Those of a leaf have no client.
pub(super) fn read_for_clients(s: &mut Section<'_>) -> ConnectConfig {
    let config = read(s);
    let proxy_protocol = s
        .choice(
            "proxy_protocol",
            "Version of the PROXY header, which tells a replica the address of the client. Each client then has connections of its own. Absent: no header.",
            &[("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)],
        )
        .optional();
    if proxy_protocol.is_some() && config.idle_min > 0 {
        let text = "no client could use these connections: with `proxy_protocol` each client has connections of its own; expected 0";
        s.conflict("idle_min", &["proxy_protocol"], text);
    }
    ConnectConfig { proxy_protocol, ..config }
}

/// Rejects stream windows whose sum exceeds the largest flow-control window of a connection.
pub(super) fn check_window(s: &mut Section<'_>, window: &str, streams: &str, all: Bytes) {
    if all.get() > u64::from(WINDOW_BYTES_MAX) {
        let text =
            format!("times {streams} is {all}: expected less than 2GiB, the limit of HTTP/2");
        s.conflict(window, &[streams], text);
    }
}
