//! Counters of the whole process and of its listeners.

use super::labels::ClientTimeout;
use curtail_metrics::{Count, CounterVec, ReloadResult};

curtail_metrics::counters! {
    pub(crate) ProcessMetrics, ProcessCounts {
        reloads: CounterVec<ReloadResult> = CounterVec::default(),
        invariants_broken: Count = Count::default(),
    }
}

curtail_metrics::counters! {
    pub(crate) ListenerMetrics, ListenerCounts {
        // Read first, so that a scrape never counts more connections closed than accepted.
        closed: Count = Count::default(),
        accepted: Count = Count::default(),
        /// Clients that had to wait, because `connections_max` clients were connected.
        waited: Count = Count::default(),
        unrouted: Count = Count::default(),
        /// Requests that are malformed, or did not arrive in time.
        malformed: Count = Count::default(),
        timed_out: CounterVec<ClientTimeout> = CounterVec::default(),
    }
}
