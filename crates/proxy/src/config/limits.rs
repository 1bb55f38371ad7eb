//! What clients may ask of the proxy: the keys of `limits`.

use curtail_config::Section;
use curtail_units::{Bytes, Duration};

/// What clients may ask of us; beyond it they get an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The head of one request: over HTTP/1.1 with its first line, over HTTP/2 names and values.
    pub headers: Bytes,
    /// A request whose head takes longer to arrive is refused.
    pub header_timeout: Duration,
    /// An HTTP/1.1 connection is kept for so long without a request, one of HTTP/2 without an answer to a ping.
    pub idle_timeout: Duration,
    /// A client that pauses for longer within a request body is refused, until the response has begun.
    pub body_timeout: Duration,
    /// A client that takes none of the bytes there are for it for so long is cut off.
    pub write_timeout: Duration,
    /// A stream without a byte in either direction for so long is ended; absent: it may be silent for ever.
    pub stream_idle_timeout: Option<Duration>,
    /// A connection that is silent for so long is probed by TCP.
    pub tcp_keepalive: Duration,
    /// Requests in progress on one HTTP/2 connection.
    pub http2_streams_max: u32,
    /// Bytes of one request body that a client may send over HTTP/2 before a replica takes any.
    pub http2_stream_window: Bytes,
    /// A request body up to this size is kept so that it can be sent again.
    pub replay: Bytes,
    /// An answer up to this size is taken whole before it is given, so that one that breaks off can
    /// still be replaced by another.
    pub answer_held: Bytes,
    /// Client connections at once, for each listener.
    pub connections_max: usize,
    /// Requests in progress are given this long when the proxy is told to stop.
    pub drain: Duration,
}

impl Limits {
    /// The flow-control window of one HTTP/2 connection: as towards replicas, all streams fit in it.
    #[must_use]
    pub fn http2_connection_window(&self) -> Bytes {
        let streams = u64::from(self.http2_streams_max);
        Bytes::new(self.http2_stream_window.get().saturating_mul(streams))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            headers: Bytes::from_kib(64),
            header_timeout: Duration::from_secs(10),
            // Longer than most clients keep it: they close first, and no request meets a closing connection.
            idle_timeout: Duration::from_secs(120),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            stream_idle_timeout: None,
            tcp_keepalive: Duration::from_secs(60),
            // A quarter of `connect.connections_max`: no client takes all connections to a replica.
            http2_streams_max: 256,
            http2_stream_window: Bytes::from_kib(256),
            replay: Bytes::from_kib(64),
            answer_held: Bytes::from_kib(64),
            connections_max: 16_384,
            drain: Duration::from_secs(10),
        }
    }
}

/// Reads the section.
pub(super) fn read(s: &mut Section<'_>) -> Limits {
    let default = Limits::default();
    let limits = Limits {
        headers: s
            .field("headers", "The head of a request, all its fields together.")
            .range(Bytes::from_kib(8)..=Bytes::from_kib(1024))
            .default(default.headers),
        header_timeout: s
            .field("header_timeout", "A request whose head takes longer to arrive is refused.")
            .default(default.header_timeout),
        idle_timeout: s
            .field(
                "idle_timeout",
                "A client's connection is kept so long without a request; HTTP/2: without a pong.",
            )
            .default(default.idle_timeout),
        body_timeout: s
            .field(
                "body_timeout",
                "Maximum pause of a client within a request body, until the response has begun.",
            )
            .default(default.body_timeout),
        write_timeout: s
            .field(
                "write_timeout",
                "Maximum time in which a client reads none of the bytes that wait for it; then it is cut off.",
            )
            .at_least(Duration::from_ms(1))
            .default(default.write_timeout),
        stream_idle_timeout: s
            .field(
                "stream_idle_timeout",
                "Maximum time without a byte in either direction on a response or an upgraded connection; absent: no limit.",
            )
            .at_least(Duration::from_ms(1))
            .optional(),
        tcp_keepalive: s
            .field("tcp_keepalive", "Idle time after which TCP probes a client connection.")
            .range(super::TCP_KEEPALIVE)
            .default(default.tcp_keepalive),
        http2_streams_max: s
            .field("http2_streams_max", "Maximum concurrent requests on one HTTP/2 connection of a client.")
            .range(1..=10_000)
            .default(default.http2_streams_max),
        http2_stream_window: s
            .field(
                "http2_stream_window",
                "HTTP/2 flow-control window of a stream: bytes of a request body in transit or unread.",
            )
            .range(Bytes::from_kib(64)..=Bytes::from_kib(64 << 10))
            .default(default.http2_stream_window),
        replay: s
            .field("replay", "A request body up to this size is kept to be sent again.")
            .default(default.replay),
        answer_held: s
            .field("answer_held", "An answer up to this size is taken whole before it is given.")
            .default(default.answer_held),
        connections_max: s
            .field("connections_max", "Client connections at once, for each listener.")
            .at_least(1)
            .default(default.connections_max),
        drain: s
            .field("drain", "Requests in progress are given this long to end when the proxy stops.")
            .default(default.drain),
    };
    let all = limits.http2_connection_window();
    super::connect::check_window(s, "http2_stream_window", "http2_streams_max", all);
    limits
}
