//! Serves one client over HTTP/2, on a connection with a write timeout.

use super::Serving;
use crate::metrics::ClientTimeout;
use bytes::BytesMut;
use curtail_http::drain::Drain;
use curtail_http::http2::{self, ConnectionError, Http2Limits, flow_control_window};
use curtail_http::stream::Stream;
use curtail_http::write_timeout::WriteTimeoutStream;
use std::sync::Arc;

/// Requests that a client may reset in a burst before it has their responses; more are an attack (Rapid Reset).
const CLIENT_RESETS_MAX: u32 = 200;

/// The same limit for roots at a leaf, where a reset cancels a hedge.
const ROOT_RESETS_MAX: u32 = 10_000;

impl Serving {
    /// Serves a connection whose first bytes, `prefix`, have already been read.
    pub(super) async fn http2(self, stream: Stream, prefix: BytesMut) {
        let (watch, limits) = (self.watch(), &self.limits);
        let resets_max =
            if self.client.leaf.is_some() { ROOT_RESETS_MAX } else { CLIENT_RESETS_MAX };
        let http2_limits = Http2Limits {
            head_bytes_max: limits.headers.as_len(),
            streams_max: limits.http2_streams_max,
            stream_window: flow_control_window(limits.http2_stream_window),
            connection_window: flow_control_window(limits.http2_connection_window()),
            resets_max,
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            write_timeout: limits.write_timeout,
        };
        let (client, timer) = (Arc::clone(&self.client), watch.timer(limits.write_timeout));
        let stream = WriteTimeoutStream::new(stream, timer, move || client.count_write_timeout());
        let drain = Drain::new(&self.drain);
        let timers = (&watch.timers, watch.clock);
        let service = Arc::new(self);
        let ended = http2::serve((stream, prefix), http2_limits, drain, timers, service).await;
        let Some(error) = ended else { return };
        if matches!(error, ConnectionError::HeaderTimeout) {
            watch.metrics.timed_out.add(&ClientTimeout::Header, 1);
        }
        tracing::debug!(%error, "client connection ended");
    }
}
