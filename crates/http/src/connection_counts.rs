//! Counts of connections to servers, from their opening until they are dropped.

use curtail_units::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The time of each phase of a connection attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectPhases {
    /// The DNS lookup; zero for an address.
    pub lookup: Duration,
    /// The TCP handshake.
    pub tcp: Duration,
    /// The TLS handshake; zero in clear text.
    pub tls: Duration,
}

curtail_metrics::counters! {
    /// The counters of the connections to one server. Times are sums over the opened connections.
    pub ConnectionCounters, ConnectionCounts {
        /// Closed connections. Read first: a connection that opens and closes meanwhile must not close before it opened.
        closed: AtomicU64 = AtomicU64::new(0),
        /// Opened connections.
        opened: AtomicU64 = AtomicU64::new(0),
        /// Connection attempts that failed.
        failed: AtomicU64 = AtomicU64::new(0),
        /// Name lookups.
        lookup_ns: AtomicU64 = AtomicU64::new(0),
        /// TCP handshakes.
        tcp_ns: AtomicU64 = AtomicU64::new(0),
        /// TLS handshakes.
        tls_ns: AtomicU64 = AtomicU64::new(0),
    }
}

impl ConnectionCounters {
    /// Counts an opened connection.
    pub fn connected(&self, phases: &ConnectPhases) {
        self.opened.fetch_add(1, Relaxed);
        self.lookup_ns.fetch_add(phases.lookup.as_ns(), Relaxed);
        self.tcp_ns.fetch_add(phases.tcp.as_ns(), Relaxed);
        self.tls_ns.fetch_add(phases.tls.as_ns(), Relaxed);
    }

    /// Counts a failed connection attempt.
    pub fn connect_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// Counts `connections` closed connections.
    pub fn closed(&self, connections: usize) {
        self.closed.fetch_add(connections as u64, Relaxed);
    }
}

/// One open connection of a pool; counted until dropped.
#[derive(Debug)]
pub struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    /// Counts one more connection; [`None`] if there are already `max`.
    pub fn new(open: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let counted = Self(Arc::clone(open));
        (open.fetch_add(1, Relaxed) < max).then_some(counted)
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A connection to a server; counted as open until dropped.
#[derive(Debug)]
pub struct CountedConnection {
    pub(crate) counters: Arc<ConnectionCounters>,
    /// The count as an HTTP/1.1 connection.
    pub(crate) open_count: Option<OpenCount>,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.counters.closed(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_up_to_a_bound_until_they_are_dropped() {
        let open = Arc::default();
        let (first, second) = (OpenCount::new(&open, 2), OpenCount::new(&open, 2));
        assert!(first.is_some() && second.is_some());
        assert!(OpenCount::new(&open, 2).is_none());
        drop(first);
        assert!(OpenCount::new(&open, 2).is_some(), "the one that was refused does not count");
        drop(second);
        assert_eq!(open.load(Relaxed), 0);
    }
}
