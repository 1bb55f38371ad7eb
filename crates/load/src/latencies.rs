//! Latencies of requests on two clocks, the lag of the generator, and failures.
//!
//! A request has three instants: **intended**, which the plan defines; **sent**; and **ended** with its response. A
//! clock that begins at the sending misses the wait of requests that a slow server held back (coordinated omission).
//!
//! | clock | from | to | measures |
//! |---|---|---|---|
//! | response | intended | ended | the wait of a user |
//! | service | sent | ended | the time of the server |
//! | lag | intended | ready to send | the delay of the generator itself |
//!
//! A request that waits for a free connection is ready and not sent: the wait is part of its response time, not of the
//! lag.
//! **Invariant**: every request counts once, as a response or as a failure; merging loses nothing.
//! **Source**: Tene, "How not to measure latency" (2013), for the two clocks; wrk2's README.

use crate::{Failure, Failures};
use curtail_sketch::{Histogram, Precision, rank};
use curtail_units::{Duration, Instant, Quantile};

/// Where a latency begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LatencyKind {
    /// Response time, from the intended time to the end.
    Response,
    /// Service time, from the send time to the end.
    Service,
}

/// The instants of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The intended send time.
    pub intended: Instant,
    /// The time at which the generator was ready to send the request.
    pub ready: Instant,
    /// The send time of the request's first byte.
    pub sent: Instant,
    /// The end of the response, or the time of the failure.
    pub ended: Instant,
}

/// The recording of many requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// Response times of successful requests.
    pub response: Histogram,
    /// Service times of successful requests.
    pub service: Histogram,
    /// Lags of all requests; coarse, because they are not compared.
    pub lag: Histogram,
    /// Failures by reason.
    pub failures: Failures,
}

impl Latencies {
    /// An empty recording.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            response: Histogram::new(Precision::FINE),
            service: Histogram::new(Precision::FINE),
            lag: Histogram::new(Precision::COARSE),
            failures: Failures::NONE,
        }
    }

    /// The recordings of all `parts` together.
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::new();
        for part in parts {
            all.merge(part);
        }
        all
    }

    /// Records one request.
    pub fn record(&mut self, timing: &Timing, failure: Option<Failure>) {
        self.lag.record(timing.ready.since(timing.intended));
        if let Some(failure) = failure {
            self.failures.add(failure);
            return;
        }
        self.response.record(timing.ended.since(timing.intended));
        self.service.record(timing.ended.since(timing.sent));
    }

    /// The responses on one of the clocks.
    #[must_use]
    pub const fn responses(&self, clock: LatencyKind) -> &Histogram {
        match clock {
            LatencyKind::Response => &self.response,
            LatencyKind::Service => &self.service,
        }
    }

    /// The number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.response.count().saturating_add(self.failures.total())
    }

    /// The latency at `quantile` of all requests, where a failed request is longer than all others; [`None`] when it is
    /// a failed request, or there are no requests.
    #[must_use]
    pub fn quantile(&self, clock: LatencyKind, quantile: Quantile) -> Option<Duration> {
        let responses = self.responses(clock);
        let rank = rank(quantile, self.count());
        if rank == 0 || rank > responses.count() {
            return None;
        }
        responses.at_rank(rank)
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.lag.merge(&other.lag);
        self.failures.merge(&other.failures);
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Latencies, LatencyKind, Timing};
    use crate::Failure;
    use curtail_units::{Duration, Instant, Quantile};

    fn timing(intended_ms: u64, ready_ms: u64, sent_ms: u64, ended_ms: u64) -> Timing {
        let at = |ms| Instant::ZERO + Duration::from_ms(ms);
        Timing {
            intended: at(intended_ms),
            ready: at(ready_ms),
            sent: at(sent_ms),
            ended: at(ended_ms),
        }
    }

    #[test]
    fn each_clock_has_its_own_start() {
        let mut latencies = Latencies::new();
        latencies.record(&timing(10, 11, 15, 20), None);
        assert_eq!(
            latencies.quantile(LatencyKind::Response, Quantile::P50),
            Some(Duration::from_ms(10))
        );
        assert_eq!(
            latencies.quantile(LatencyKind::Service, Quantile::P50),
            Some(Duration::from_ms(5))
        );
        assert_eq!(latencies.lag.max(), Some(Duration::from_ms(1)));
    }

    #[test]
    fn failures_are_longer_than_every_response() {
        let mut latencies = Latencies::new();
        for ms in 1..=98 {
            latencies.record(&timing(0, 0, 0, ms), None);
        }
        for _ in 0..2 {
            latencies.record(&timing(0, 0, 0, 1), Some(Failure::Closed));
        }
        let at =
            |q| latencies.quantile(LatencyKind::Response, Quantile::new(q).expect("a quantile"));
        assert_eq!(latencies.count(), 100);
        assert_eq!(at(0.0), Some(Duration::from_ms(1)));
        assert_eq!(at(0.98), Some(Duration::from_ms(98)));
        assert_eq!(at(0.99), None);
        assert_eq!(Latencies::new().quantile(LatencyKind::Response, Quantile::P50), None);
    }

    #[test]
    fn ten_generators_merged_equal_one() {
        let mut one = Latencies::new();
        let mut ten = vec![Latencies::new(); 10];
        for nth in 0..10_000_u64 {
            let timing = timing(nth, nth + nth % 3, nth + nth % 5, nth + 5 + nth * nth % 977);
            let failure =
                (nth % 91 == 0).then_some(Failure::ALL[usize::try_from(nth % 8).expect("small")]);
            one.record(&timing, failure);
            ten[usize::try_from(nth % 10).expect("small")].record(&timing, failure);
        }
        let merged = Latencies::merged(&ten);
        assert_eq!(merged, one);
        let buckets = |of: &Latencies| of.response.buckets().collect::<Vec<_>>();
        assert_eq!(buckets(&merged), buckets(&one));
    }
}
