//! The timers of a client's connection, and its write timeout.

use crate::metrics::{ClientTimeout, ListenerMetrics};
use curtail_http::clock::Clock;
use curtail_http::progress::ProgressTimer;
use curtail_http::stream::ClientStream;
use curtail_http::timers::Timers;
use curtail_http::write_timeout::WriteTimeoutStream;
use curtail_units::Duration;
use std::sync::Arc;

/// The timers of a connection, and the counter of its write timeouts.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) timers: Arc<Timers>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<ListenerMetrics>,
}

impl Watch {
    pub(crate) fn timer(&self, timeout: Duration) -> ProgressTimer {
        ProgressTimer::new(&self.timers, self.clock, timeout)
    }

    /// A connection or stream whose write timeouts are counted.
    pub(crate) fn stream<S: ClientStream>(
        &self,
        stream: S,
        timeout: Duration,
    ) -> WriteTimeoutStream<impl Fn() + Unpin + use<S>, S> {
        let metrics = Arc::clone(&self.metrics);
        let on_timeout = move || metrics.timed_out.add(&ClientTimeout::Write, 1);
        WriteTimeoutStream::new(stream, self.timer(timeout), on_timeout)
    }
}
