//! Counts of connections to servers, from their opening until they are dropped.

use crate::limit_breaker::LimitBreaker;
use curtail_metrics::{Counter, GaugeGuard};
use curtail_units::Duration;
use std::sync::Arc;

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
        closed: Counter,
        /// Opened connections.
        opened: Counter,
        /// Connection attempts that failed.
        failed: Counter,
        /// Name lookups.
        lookup_ns: Counter,
        /// TCP handshakes.
        tcp_ns: Counter,
        /// TLS handshakes.
        tls_ns: Counter,
        /// Requests that found all connections in use.
        connections_full: LimitBreaker,
        /// Requests that found too many others waiting for a connection.
        waiting_full: LimitBreaker,
    }
}

impl ConnectionCounters {
    /// Counts an opened connection.
    pub fn connected(&self, phases: &ConnectPhases) {
        self.opened.add(1);
        self.lookup_ns.add(phases.lookup.as_ns());
        self.tcp_ns.add(phases.tcp.as_ns());
        self.tls_ns.add(phases.tls.as_ns());
    }
}

/// A connection to a server; counted as open until dropped.
#[derive(Debug)]
pub struct CountedConnection {
    pub(crate) counters: Arc<ConnectionCounters>,
    /// The count as an HTTP/1.1 connection.
    pub(crate) open_count: Option<GaugeGuard>,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.counters.closed.add(1);
    }
}
