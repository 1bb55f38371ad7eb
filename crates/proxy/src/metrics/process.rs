//! Counters of the whole process and of its listeners.

use super::labels::ClientTimeout;
use curtail_metrics::{CounterVec, ReloadResult};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

curtail_metrics::counters! {
    pub(crate) ProcessMetrics, ProcessCounts {
        reloads: CounterVec<ReloadResult> = CounterVec::default(),
        invariants_broken: AtomicU64 = AtomicU64::new(0),
    }
}

impl ProcessMetrics {
    pub(crate) fn reloaded(&self, result: ReloadResult) {
        self.reloads.add(&result, 1);
    }

    pub(crate) fn invariant_broken(&self) {
        self.invariants_broken.fetch_add(1, Relaxed);
    }
}

curtail_metrics::counters! {
    pub(crate) ListenerMetrics, ListenerCounts {
        // Read first: a connection that opens and closes meanwhile must not close before it opened.
        closed: AtomicU64 = AtomicU64::new(0),
        accepted: AtomicU64 = AtomicU64::new(0),
        waited: AtomicU64 = AtomicU64::new(0),
        unrouted: AtomicU64 = AtomicU64::new(0),
        malformed: AtomicU64 = AtomicU64::new(0),
        timed_out: CounterVec<ClientTimeout> = CounterVec::default(),
    }
}

impl ListenerMetrics {
    pub(crate) fn accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// A client has to wait, because as many are connected as may be.
    pub(crate) fn waited(&self) {
        self.waited.fetch_add(1, Relaxed);
    }

    pub(crate) fn unrouted(&self) {
        self.unrouted.fetch_add(1, Relaxed);
    }

    /// Counts a request that is malformed or does not arrive in time.
    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Relaxed);
    }

    pub(crate) fn timed_out(&self, what: ClientTimeout) {
        self.timed_out.add(&what, 1);
    }
}
