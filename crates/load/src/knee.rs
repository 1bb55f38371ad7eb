//! The knee: the highest rate that a service bears.
//!
//! A service bears a rate when at most [`FAILED_MAX`] of the requests fail and a quantile stays within a bound: a
//! multiple of that quantile at the first rate, or a given latency. The search doubles the rate while the service bears
//! it. Then it halves the gap, by ratio, until the rates on both sides differ by at most the factor [`PRECISION`].
//! **Limits**: at most [`RATES_MAX`] rates. A quantile decides only with [`INDICATIVE_MIN`] requests beyond it.
//! **Hurts when** a measurement is short: one stall makes a rate look unbearable.

use crate::compare::INDICATIVE_MIN;
use crate::{Latencies, LatencyKind};
use curtail_sketch::rank;
use curtail_units::{Duration, Quantile};

/// The final ratio of the rates on both sides of the knee.
pub const PRECISION: f64 = 1.05;

/// Maximum number of rates that are measured.
pub const RATES_MAX: usize = 40;

/// The largest share of requests that may fail.
pub const FAILED_MAX: f64 = 0.01;

/// The bound on the quantile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The maximum ratio of the quantile to that at the first rate.
    Times(f64),
    /// The maximum of the quantile.
    Latency(Duration),
}

/// The reason why the service does not bear a rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum Unbearable {
    /// Too many requests failed: this share of all.
    #[error("{:.1} % of the requests failed", 100.0 * .0)]
    Failed(f64),
    /// The quantile is too long.
    #[error("quantile {quantile} was {was}, where {bound} is allowed")]
    Slow { quantile: Quantile, was: Duration, bound: Duration },
}

/// The requests at one rate are too few for the quantile.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("requests beyond quantile {quantile}: {beyond}, expected at least {INDICATIVE_MIN}")]
pub struct TooFewRequests {
    /// The quantile.
    pub quantile: Quantile,
    /// The number of requests beyond the quantile.
    pub beyond: u64,
}

/// The search for the knee.
#[derive(Clone, Debug)]
pub struct Search {
    quantile: Quantile,
    bound: Bound,
    /// The maximum of the quantile, once it is known.
    longest: Option<Duration>,
    next: f64,
    rate_max: f64,
    measured: usize,
    borne: Option<f64>,
    refused: Option<(f64, Unbearable)>,
}

/// The knee.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// The highest rate that the service bears, in requests a second; [`None`] when it does not bear the first rate.
    pub borne: Option<f64>,
    /// The lowest rate that the service does not bear, and the reason; [`None`] when it bears every measured rate.
    pub refused: Option<(f64, Unbearable)>,
}

impl Search {
    /// A search from the rate `from` to at most `rate_max`, both in requests a second.
    #[must_use]
    pub const fn new(quantile: Quantile, bound: Bound, from: f64, rate_max: f64) -> Self {
        Self {
            quantile,
            bound,
            longest: None,
            next: from,
            rate_max,
            measured: 0,
            borne: None,
            refused: None,
        }
    }

    /// The rate to measure next; [`None`] at the end of the search.
    #[must_use]
    pub fn next(&self) -> Option<f64> {
        let is_known = match (self.borne, self.refused) {
            (Some(borne), Some((refused, _))) => refused <= borne * PRECISION,
            (None, Some(_)) => true,
            (Some(borne), None) => borne >= self.rate_max,
            (None, None) => false,
        };
        (!is_known && self.measured < RATES_MAX).then_some(self.next)
    }

    /// Checks that `requests` are enough for the quantile.
    ///
    /// # Errors
    /// When the requests are too few.
    pub fn check_count(&self, requests: u64) -> Result<(), TooFewRequests> {
        let beyond = requests - rank(self.quantile, requests);
        if beyond < INDICATIVE_MIN {
            return Err(TooFewRequests { quantile: self.quantile, beyond });
        }
        Ok(())
    }

    /// Records the latencies that were measured at the rate [`Self::next`].
    ///
    /// # Errors
    /// When the requests are too few to decide; the search then stays as it is.
    pub fn measured(&mut self, latencies: &Latencies) -> Result<(), TooFewRequests> {
        let rate = self.next;
        match self.judge(latencies)? {
            None => self.borne = Some(rate),
            Some(why) => self.refused = Some((rate, why)),
        }
        self.measured += 1;
        self.next = match (self.borne, self.refused) {
            (Some(borne), Some((refused, _))) => libm::sqrt(borne * refused),
            _ => (2.0 * rate).min(self.rate_max),
        };
        Ok(())
    }

    /// The reason why the service does not bear the rate; [`None`] if it does.
    fn judge(&mut self, latencies: &Latencies) -> Result<Option<Unbearable>, TooFewRequests> {
        let failed = latencies.failures.total() as f64 / (latencies.count() as f64).max(1.0);
        if failed > FAILED_MAX {
            return Ok(Some(Unbearable::Failed(failed)));
        }
        self.check_count(latencies.count())?;
        // A percentile among the failures, few as they are, is as long as can be.
        let was = latencies.quantile(LatencyKind::Response, self.quantile).unwrap_or(Duration::MAX);
        let bound = *self.longest.get_or_insert(match self.bound {
            Bound::Times(times) => was.mul_f64(times),
            Bound::Latency(latency) => latency,
        });
        Ok((was > bound).then_some(Unbearable::Slow { quantile: self.quantile, was, bound }))
    }

    /// The knee as far as it is known.
    #[must_use]
    pub const fn knee(&self) -> Knee {
        Knee { borne: self.borne, refused: self.refused }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Knee, PRECISION, Search, TooFewRequests, Unbearable};
    use crate::{Failure, Latencies, Timing};
    use curtail_units::{Duration, Instant, Quantile};

    /// 1,000 requests of so long, of which some fail.
    fn seen(ms: f64, failed: usize) -> Latencies {
        seen_of(1_000, ms, failed)
    }

    fn seen_of(count: usize, ms: f64, failed: usize) -> Latencies {
        let mut latencies = Latencies::new();
        let ended = Instant::ZERO + Duration::from_ns_f64(ms * 1e6);
        let timing =
            Timing { intended: Instant::ZERO, ready: Instant::ZERO, sent: Instant::ZERO, ended };
        for nth in 0..count {
            latencies.record(&timing, (nth < failed).then_some(Failure::Status));
        }
        latencies
    }

    /// The knee of a service with one server: 1 / (capacity - rate).
    fn of_queue(capacity: f64, bound: Bound, from: f64, rate_max: f64) -> (Knee, Vec<f64>) {
        let mut search = Search::new(Quantile::P99, bound, from, rate_max);
        let mut rates = Vec::new();
        while let Some(rate) = search.next() {
            rates.push(rate);
            let seen =
                if rate < capacity { seen(1e3 / (capacity - rate), 0) } else { seen(1.0, 500) };
            search.measured(&seen).expect("10 of 1,000 are beyond p99");
        }
        (search.knee(), rates)
    }

    #[test]
    fn the_knee_of_a_queue_is_found_by_halving() {
        // Three times as long as at 100: where 1000 - rate is a third of 900.
        let (knee, rates) = of_queue(1_000.0, Bound::Times(3.0), 100.0, 1e6);
        let (borne, refused) =
            (knee.borne.expect("100 is borne"), knee.refused.expect("1600 is not").0);
        assert!(borne <= 700.0 && 700.0 < refused && refused <= borne * PRECISION, "{knee:?}");
        assert_eq!(rates[..4], [100.0, 200.0, 400.0, 800.0]);
        assert!(rates.len() < 12, "{rates:?}");
    }

    #[test]
    fn a_bound_may_be_given() {
        let (knee, _) = of_queue(1_000.0, Bound::Latency(Duration::from_ms(10)), 100.0, 1e6);
        assert!(knee.borne.is_some_and(|borne| (850.0..=900.0).contains(&borne)), "{knee:?}");
    }

    #[test]
    fn a_service_that_bears_all_or_nothing_is_reported() {
        let (knee, rates) = of_queue(1e9, Bound::Times(3.0), 100.0, 1_000.0);
        assert_eq!((knee.borne, knee.refused), (Some(1_000.0), None));
        assert_eq!(rates, [100.0, 200.0, 400.0, 800.0, 1_000.0]);
        let (knee, rates) = of_queue(50.0, Bound::Times(3.0), 100.0, 1_000.0);
        assert_eq!(knee, Knee { borne: None, refused: Some((100.0, Unbearable::Failed(0.5))) });
        assert_eq!(rates, [100.0]);
    }

    #[test]
    fn a_quantile_with_fewer_than_ten_requests_beyond_it_decides_nothing() {
        let bound = Bound::Latency(Duration::from_ms(10));
        let mut search = Search::new(Quantile::P99, bound, 50.0, 1e6);
        let too_few = TooFewRequests { quantile: Quantile::P99, beyond: 1 };
        assert_eq!(search.measured(&seen_of(150, 440.0, 0)), Err(too_few));
        assert_eq!(too_few.to_string(), "requests beyond quantile 0.99: 1, expected at least 10");
        assert_eq!(search.knee(), Knee { borne: None, refused: None });
        assert_eq!(search.check_count(999).map_err(|few| few.beyond), Err(9));
        assert_eq!(search.check_count(1_000), Ok(()));
        // A share of failures needs no quantile.
        assert_eq!(search.measured(&seen_of(150, 1.0, 75)), Ok(()));
        assert_eq!(search.knee().refused, Some((50.0, Unbearable::Failed(0.5))));
    }
}
