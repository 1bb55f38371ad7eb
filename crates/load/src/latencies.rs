//! What was seen of many requests: their latencies on both clocks, how late the generator was, and what failed.
//!
//! A request has three instants: when it was **intended** to be sent, which a plan says ahead of the run; when it was
//! **sent**; and when its response had **ended**. Who counts from the sending alone does not see the requests that a
//! slow server held back from being sent, and finds the server quick (coordinated omission).
//!
//! | clock | from | to | says |
//! |---|---|---|---|
//! | response | intended | ended | what a user of the service waits |
//! | service | sent | ended | what the server took for what it was sent |
//! | lag | intended | ready to send | how late the generator itself was; it should be nothing |
//!
//! A request that waits for a free connection is ready and not sent: that wait is part of its response time and no
//! fault of the generator's.
//! **Invariant**: every request counts once, as a response or as a failure; merging loses nothing.
//! **Source**: Tene, "How not to measure latency" (2013), for the two clocks; wrk2's README.

use crate::{Failure, Failures};
use curtail_sketch::{Histogram, Precision, rank};
use curtail_units::{Duration, Instant, Quantile};

/// Which of a request's two latencies is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// From when the request was intended to be sent.
    Response,
    /// From when it was sent.
    Service,
}

/// The instants of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// When it was to be sent.
    pub intended: Instant,
    /// When the generator turned to it.
    pub ready: Instant,
    /// When its first byte was handed to the system.
    pub sent: Instant,
    /// When its response, or the failure, was complete.
    pub ended: Instant,
}

/// What was seen of many requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// From intended to ended, of those successful ones.
    pub response: Histogram,
    /// From sent to ended, of those successful ones.
    pub service: Histogram,
    /// From intended to ready, of all. Coarse: it is held against bounds, not compared.
    pub lag: Histogram,
    /// Those that failed.
    pub failures: Failures,
}

impl Latencies {
    /// Nothing so far.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            response: Histogram::new(Precision::FINE),
            service: Histogram::new(Precision::FINE),
            lag: Histogram::new(Precision::COARSE),
            failures: Failures::NONE,
        }
    }

    /// All of `parts` together.
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
    pub const fn responses(&self, clock: Clock) -> &Histogram {
        match clock {
            Clock::Response => &self.response,
            Clock::Service => &self.service,
        }
    }

    /// How many requests there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.response.count().saturating_add(self.failures.total())
    }

    /// The latency at `quantile` of all requests, failed ones included as longer than all others; nothing when it is
    /// among those that failed, or there is no request.
    #[must_use]
    pub fn quantile(&self, clock: Clock, quantile: Quantile) -> Option<Duration> {
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
    use super::{Clock, Latencies, Timing};
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
        assert_eq!(latencies.quantile(Clock::Response, Quantile::P50), Some(Duration::from_ms(10)));
        assert_eq!(latencies.quantile(Clock::Service, Quantile::P50), Some(Duration::from_ms(5)));
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
        let at = |q| latencies.quantile(Clock::Response, Quantile::new(q).expect("a quantile"));
        assert_eq!(latencies.count(), 100);
        assert_eq!(at(0.0), Some(Duration::from_ms(1)));
        assert_eq!(at(0.98), Some(Duration::from_ms(98)));
        assert_eq!(at(0.99), None);
        assert_eq!(Latencies::new().quantile(Clock::Response, Quantile::P50), None);
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
