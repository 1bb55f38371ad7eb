//! The limit on the requests in flight to an upstream (`in_flight_max`), as a circuit breaker.
//!
//! Requests of clients and calls of fan-outs count until their responses end; hedges and retries do not. A request beyond
//! the limit reaches neither the machine nor a replica.

use super::Upstream;
use curtail_http::limit_breaker::{LimitBreaker, LimitCounts};
use curtail_metrics::{Gauge, GaugeGuard, Instrument as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The requests in flight to an upstream, if their number is limited.
#[derive(Debug)]
pub(crate) struct InFlightLimit {
    /// `usize::MAX`: no limit. A reload changes it.
    max: AtomicUsize,
    in_flight: Gauge,
    breaker: LimitBreaker,
}

/// The state of the limit for metrics and the state page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightSnapshot {
    pub(crate) in_flight: u64,
    pub(crate) max: u64,
    pub(crate) limit: LimitCounts,
}

/// As many requests are in flight as the limit allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamFull;

impl InFlightLimit {
    pub(super) fn new(max: Option<usize>) -> Self {
        let max = AtomicUsize::new(max.unwrap_or(usize::MAX));
        Self { max, in_flight: Gauge::default(), breaker: LimitBreaker::default() }
    }

    pub(super) fn set(&self, max: Option<usize>) {
        self.max.store(max.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// The state; [`None`] without a limit.
    pub(crate) fn read(&self) -> Option<InFlightSnapshot> {
        let max = self.max.load(Ordering::Relaxed);
        (max != usize::MAX).then(|| InFlightSnapshot {
            in_flight: self.in_flight.get(),
            max: max as u64,
            limit: self.breaker.read(),
        })
    }
}

impl Upstream {
    /// Counts a request as in flight until the guard is dropped; [`None`] without a limit.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn enter(&self) -> Result<Option<Arc<GaugeGuard>>, UpstreamFull> {
        let limit = &self.in_flight_limit;
        let max = limit.max.load(Ordering::Relaxed);
        if max == usize::MAX {
            return Ok(None);
        }
        if let Some(guard) = limit.in_flight.enter_below(max) {
            return Ok(Some(Arc::new(guard)));
        }
        if limit.breaker.reject() {
            tracing::warn!(upstream = %self.name, in_flight_max = max, "upstream is at its limit of requests in flight; further rejections are counted");
        }
        Err(UpstreamFull)
    }

    /// Closes the circuit breakers of limits that have rejected nothing since the last tick. One worker ticks.
    pub(super) fn tick_limits(&self) {
        let upstream = &self.name;
        if self.in_flight_limit.breaker.tick() {
            let rejected = self.in_flight_limit.breaker.read().rejected;
            tracing::info!(
                upstream,
                rejected,
                "upstream is below its limit of requests in flight again"
            );
        }
        for replica in self.replicas.load().values() {
            let counts = &replica.metrics;
            let limits =
                [("connections", &counts.connections_full), ("waiting", &counts.waiting_full)];
            for (limit, breaker) in limits {
                if breaker.tick() {
                    let (replica, rejected) = (&replica.address, breaker.read().rejected);
                    tracing::info!(
                        upstream,
                        replica,
                        limit,
                        rejected,
                        "limit of connections rejects no more requests"
                    );
                }
            }
        }
    }
}
