//! Counters of the whole process and of its listeners.

use super::labels::{ClientTimeout, ProxyHeaderFailure};
use curtail_metrics::{Counter, CounterVec, ReloadResult};

curtail_metrics::counters! {
    pub(crate) ProcessMetrics, ProcessCounts {
        reloads: CounterVec<ReloadResult>,
        invariants_broken: Counter,
    }
}

curtail_metrics::counters! {
    pub(crate) ListenerMetrics, ListenerCounts {
        // Read first, so that a scrape never counts more connections closed than accepted.
        closed: Counter,
        accepted: Counter,
        /// Clients that had to wait, because `connections_max` clients were connected.
        waited: Counter,
        /// TLS handshakes that failed, apart from those that took too long.
        tls_failed: Counter,
        /// Connections closed for their PROXY header, apart from those that took too long.
        proxy_header_failed: CounterVec<ProxyHeaderFailure> = CounterVec::usually(&[]),
        unrouted: Counter,
        redirected: Counter,
        /// Requests that are malformed, or did not arrive in time.
        malformed: Counter,
        timed_out: CounterVec<ClientTimeout>,
    }
}
