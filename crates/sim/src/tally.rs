//! The tally of one run: the requests that count, and the end of the run.
//!
//! A request counts if it arrives between the warm-up (if there is one) and the end of counting. Counting ends after
//! [`Stop::requests_max`] arrivals, or when the interval of the chosen statistic is narrow enough, but not before
//! [`COUNTED_PER_WARM_UP`] times the requests of the warm-up. The run ends when all counted requests have ended, because
//! the last ones in flight are slow and would be missing.
//! **Hurts when** the interval is checked often: a run that stops as soon as its interval is narrow enough reports a
//! slightly too narrow interval. A run checks once a batch, a few dozen times while its length doubles.

use crate::batches::Batches;
use crate::warm_up::{WarmUp, Warmth};
use curtail_units::{Duration, Quantile};

/// Minimum number of counted requests before a run is precise, divided by the requests of the warm-up. The warm-up lasts
/// about as long as requests depend on each other, and the batches of a shorter run all depend on each other.
const COUNTED_PER_WARM_UP: u64 = 4;

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// The precision at which the run ends; absent: it ends at `requests_max`.
    pub precision: Option<Precision>,
    /// Minimum number of requests, however precise the run seems: short batches depend on each other.
    pub requests_min: u64,
    /// Maximum number of requests, the warm-up included.
    pub requests_max: u64,
    /// Whether the requests up to the steady state are dropped. A recorded timeline has no warm-up: all of its requests
    /// count.
    pub has_warm_up: bool,
}

/// The precision at which a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// The quantile; absent: the mean.
    pub quantile: Option<Quantile>,
    /// Half of the 95 % interval, as a share of the value.
    pub ratio: f64,
}

/// The counts of a world, apart from latencies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// The number of calls, of all tiers and of all tries of clients.
    pub(crate) calls: u64,
    pub(crate) attempts: u64,
    /// The number of attempts that a server began to execute.
    pub(crate) executions: u64,
    /// Service time delivered, over all servers.
    pub(crate) work_ns: f64,
    pub(crate) elapsed: Duration,
}

impl Counts {
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            calls: self.calls - earlier.calls,
            attempts: self.attempts - earlier.attempts,
            executions: self.executions - earlier.executions,
            work_ns: self.work_ns - earlier.work_ns,
            elapsed: self.elapsed - earlier.elapsed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tallied {
    Nothing,
    /// The warm-up is over: counting begins.
    WarmUpOver,
    Done,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequest {
    pub(crate) number: u64,
    /// Its type, and its number among those of the type.
    pub(crate) of_type: Option<(usize, u64)>,
    /// Absent: it has failed.
    pub(crate) latency: Option<Duration>,
    pub(crate) age: Duration,
    /// The number of times that its client sent it again.
    pub(crate) retries: u32,
    /// Whether it has the responses of fewer calls than needed.
    pub(crate) is_partial: bool,
}

/// The requests of one type that count.
#[derive(Clone, Debug)]
pub(crate) struct TypeTally {
    pub(crate) batches: Batches,
    arrived: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Tally {
    stop: Stop,
    warm_up: Option<WarmUp>,
    pub(crate) settled: bool,
    pub(crate) batches: Batches,
    /// Requests that have ended, including the warm-up.
    pub(crate) requests: u64,
    arrived: u64,
    /// The retries of clients, and the partial responses, of the requests that count.
    pub(crate) client_retries: u64,
    pub(crate) partial: u64,
    /// The requests of each type.
    pub(crate) of_types: Vec<TypeTally>,
    /// The numbers of the counted requests: the first, and the first one after them.
    counted: (u64, u64),
}

impl Tally {
    pub(crate) fn new(
        stop: Stop,
        thresholds: &[Duration],
        types: usize,
        calls_per_server: f64,
    ) -> Self {
        let of_type = TypeTally { batches: Batches::new(&[], 0), arrived: 0 };
        Self {
            client_retries: 0,
            partial: 0,
            of_types: vec![of_type; types],
            stop,
            warm_up: stop.has_warm_up.then(|| WarmUp::new(stop.requests_max, calls_per_server)),
            settled: true,
            batches: Batches::new(thresholds, 0),
            requests: 0,
            arrived: 0,
            counted: (0, stop.requests_max),
        }
    }

    /// Whether the requests up to the steady state are dropped.
    pub(crate) const fn has_warm_up(&self) -> bool {
        self.stop.has_warm_up
    }

    /// Counts an arrival; returns the request's number, from 0.
    pub(crate) const fn arrived(&mut self) -> u64 {
        self.arrived += 1;
        self.arrived - 1
    }

    /// Counts an arrival of a type; returns the request's number among those of the type, from 0.
    pub(crate) fn arrived_of_type(&mut self, of_type: usize) -> u64 {
        let arrived = &mut self.of_types[of_type].arrived;
        *arrived += 1;
        *arrived - 1
    }

    /// Whether the request with this number counts, as far as is known at its arrival.
    pub(crate) fn counts(&self, number: u64) -> bool {
        self.warm_up.is_none() && (self.counted.0..self.counted.1).contains(&number)
    }

    /// Counts the end of a request.
    pub(crate) fn ended(&mut self, request: EndedRequest) -> Tallied {
        let EndedRequest { number, of_type, latency, age, retries, is_partial } = request;
        self.requests += 1;
        if let Some(warm_up) = &mut self.warm_up {
            let warmth = warm_up.record(age.as_ns_f64());
            // At too high a load few requests end, so arrivals bound the warm-up.
            if warmth == Warmth::Cold && self.arrived < self.stop.requests_max / 2 {
                return Tallied::Nothing;
            }
            self.settled = warmth == Warmth::Warm;
            self.warm_up = None;
            self.counted.0 = self.arrived;
            // All of them may have arrived before the first one ended.
            self.counted.1 = self.counted.1.max(self.arrived + self.stop.requests_max / 2);
            self.batches = self.batches.beginning_at(self.arrived);
            for of_type in &mut self.of_types {
                of_type.batches = of_type.batches.beginning_at(of_type.arrived);
            }
            return Tallied::WarmUpOver;
        }
        let (first, last) = self.counted;
        if !(first..last).contains(&number) {
            return Tallied::Nothing;
        }
        self.client_retries += u64::from(retries);
        self.partial += u64::from(is_partial);
        if let Some((of_type, number)) = of_type {
            self.of_types[of_type].batches.record(number, latency);
        }
        let filled = self.batches.record(number, latency);
        if filled && self.is_precise() {
            // The run waits for every request that has arrived.
            self.counted.1 = last.min(self.arrived);
        }
        if self.batches.len() >= self.counted.1 - first { Tallied::Done } else { Tallied::Nothing }
    }

    fn is_precise(&self) -> bool {
        let Some(Precision { quantile, ratio }) = self.stop.precision else { return false };
        let counted_min = COUNTED_PER_WARM_UP * self.counted.0;
        if self.requests < self.stop.requests_min || self.batches.len() < counted_min {
            return false;
        }
        let estimate = match quantile {
            Some(quantile) => self.batches.quantile_ns(quantile),
            None => self.batches.mean_ns(),
        };
        estimate.is_some_and(|estimate| estimate.relative_error() <= ratio)
    }
}
