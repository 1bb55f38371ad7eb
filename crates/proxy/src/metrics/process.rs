//! Counters of the whole process and of its listeners.

use super::labels::{ClientTimeout, CountBy, Read as _};
use curtail_metrics::{Counts, ReloadCounters};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct ProcessMetrics {
    pub(crate) reloads: ReloadCounters,
    invariants_broken: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    pub(super) reloads: [(&'static str, u64); 2],
    pub(crate) invariants_broken: u64,
}

impl ProcessMetrics {
    pub(crate) fn invariant_broken(&self) {
        self.invariants_broken.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> ProcessCounts {
        ProcessCounts {
            reloads: self.reloads.read(),
            invariants_broken: self.invariants_broken.load(Relaxed),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ListenerMetrics {
    accepted: AtomicU64,
    closed: AtomicU64,
    waited: AtomicU64,
    unrouted: AtomicU64,
    malformed: AtomicU64,
    timed_out: CountBy<ClientTimeout>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerCounts {
    pub(super) accepted: u64,
    pub(super) open: u64,
    pub(super) waited: u64,
    pub(super) unrouted: u64,
    pub(super) malformed: u64,
    pub(super) timed_out: Counts,
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
        self.timed_out.add(&what);
    }

    pub(crate) fn read(&self) -> ListenerCounts {
        let closed = self.closed.load(Relaxed);
        let accepted = self.accepted.load(Relaxed);
        ListenerCounts {
            accepted,
            open: accepted.saturating_sub(closed),
            waited: self.waited.load(Relaxed),
            unrouted: self.unrouted.load(Relaxed),
            malformed: self.malformed.load(Relaxed),
            timed_out: self.timed_out.read(),
        }
    }
}
