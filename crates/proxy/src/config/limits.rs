//! The keys of `limits`: what the proxy accepts from clients.

use curtail_config::Section;
use curtail_units::{Bytes, Duration};

/// Limits on clients; the proxy rejects what exceeds them.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Maximum size of a request's headers: with the request line over HTTP/1.1, names and values over HTTP/2.
    pub headers: Bytes,
    /// Maximum time until the headers of a request are complete.
    pub header_timeout: Duration,
    /// Idle time after which a connection is closed; over HTTP/2, maximum time without a response to a ping.
    pub idle_timeout: Duration,
    /// Maximum pause of a client within a request body, until the response has begun.
    pub body_timeout: Duration,
    /// Maximum time in which a client reads none of the bytes that wait for it.
    pub write_timeout: Duration,
    /// Maximum time without a byte in either direction on a stream; absent: no limit.
    pub stream_idle_timeout: Option<Duration>,
    /// Idle time after which TCP probes a client connection.
    pub tcp_keepalive: Duration,
    /// Maximum concurrent requests on one HTTP/2 connection of a client.
    pub http2_streams_max: u32,
    /// HTTP/2 flow-control window of a stream: maximum bytes of a request body in transit or unread.
    pub http2_stream_window: Bytes,
    /// Maximum size of the replay buffer, from which further attempts get the request body.
    pub replay: Bytes,
    /// Maximum size of the response buffer. A response whose `content-length` fits and that breaks off can still be
    /// replaced by that of another attempt.
    pub response_buffer: Bytes,
    /// Maximum client connections per listener.
    pub connections_max: usize,
    /// Maximum time for requests in progress to end when the proxy stops.
    pub drain: Duration,
}

impl Limits {
    /// The flow-control window of one HTTP/2 connection: the sum of its stream windows, as towards replicas.
    #[must_use]
    pub fn http2_connection_window(&self) -> Bytes {
        let streams = u64::from(self.http2_streams_max);
        Bytes::new(self.http2_stream_window.get().saturating_mul(streams))
    }
}

pub(super) fn read(s: &mut Section<'_>) -> Limits {
    let limits = Limits {
        headers: s
            .field("headers", "Maximum total size of the headers of a request.")
            .range(Bytes::from_kib(8)..=Bytes::from_kib(1024))
            .default(Bytes::from_kib(64)),
        header_timeout: s
            .field("header_timeout", "Maximum time from the start of a request to the end of its headers.")
            .default(Duration::from_secs(10)),
        // Longer than most clients: they close first, so that no request meets a closing connection.
        idle_timeout: s
            .field(
                "idle_timeout",
                "Idle time after which the proxy closes a client connection. For HTTP/2 also the maximum time until a client responds to a ping.",
            )
            .default(Duration::from_secs(120)),
        body_timeout: s
            .field(
                "body_timeout",
                "Maximum pause of a client within a request body, until the response has begun.",
            )
            .default(Duration::from_secs(30)),
        write_timeout: s
            .field(
                "write_timeout",
                "Maximum time for which a client reads nothing of its response. The proxy then disconnects the client.",
            )
            .at_least(Duration::from_ms(1))
            .default(Duration::from_secs(60)),
        stream_idle_timeout: s
            .field(
                "stream_idle_timeout",
                "Maximum time without a byte in either direction on a response or an upgraded connection; absent: no limit.",
            )
            .at_least(Duration::from_ms(1))
            .optional(),
        tcp_keepalive: s
            .field("tcp_keepalive", "Idle time after which TCP probes a client connection.")
            .range(curtail_http::stream::TCP_KEEPALIVE)
            .default(Duration::from_secs(60)),
        // A quarter of `connect.connections_max`, so that no client takes all connections to a replica.
        http2_streams_max: s
            .field("http2_streams_max", "Maximum concurrent requests on one HTTP/2 connection of a client.")
            .range(1..=10_000)
            .default(256),
        http2_stream_window: s
            .field(
                "http2_stream_window",
                "HTTP/2 flow-control window of a stream: maximum bytes of a request body in transit or unread.",
            )
            .range(Bytes::from_kib(64)..=Bytes::from_kib(64 << 10))
            .default(Bytes::from_kib(256)),
        replay: s
            .field("replay", "Maximum size of a buffered request body. The proxy sends a larger body only once, without hedges and retries.")
            .default(Bytes::from_kib(64)),
        response_buffer: s
            .field("response_buffer", "Maximum content-length of a buffered response, which the proxy reads completely \
                before it forwards any part.")
            .default(Bytes::from_kib(64)),
        connections_max: s
            .field("connections_max", "Maximum client connections per listener.")
            .at_least(1)
            .default(16_384),
        drain: s
            .field("drain", "Maximum time for requests in progress to end when the proxy stops.")
            .default(Duration::from_secs(10)),
    };
    let all = limits.http2_connection_window();
    super::connect::check_window(s, "http2_stream_window", "http2_streams_max", all);
    limits
}
