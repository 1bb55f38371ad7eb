//! The instants of arrivals at a rate that changes.
//!
//! **Method**: arrivals at a mean distance of 1 pass through the inverse of the cumulative rate. Random arrivals are
//! therefore Poisson processes with exactly the present rate at each instant, also right after a change.
//! **Source**: Çinlar, "Introduction to stochastic processes" (1975), chapter 4.7.
//! **Invariant**: arrivals, bursts and curve have random numbers of their own, so bursts do not shift other draws.

use super::{Arrivals, Bursts, RateCurve, Spacing};
use curtail_units::{Duration, Instant, Rng};

/// The instants of arrivals, one after the other.
#[derive(Clone, Debug)]
pub struct ArrivalProcess {
    spacing: Spacing,
    /// The mean distance of arrivals where the factor is 1.
    gap_ns: f64,
    rng: Rng,
    /// The latest arrival.
    at: Instant,
    bursts: Option<BurstPhase>,
    curve: CurvePhase,
}

/// The present time in or between bursts.
#[derive(Clone, Debug)]
struct BurstPhase {
    bursts: Bursts,
    rng: Rng,
    is_burst: bool,
    until: Instant,
}

/// The present segment of a curve.
#[derive(Clone, Debug)]
struct CurvePhase {
    curve: RateCurve,
    /// The start of the present repetition.
    start: Instant,
    /// The number of changes in this repetition so far.
    changed: usize,
}

impl ArrivalProcess {
    /// The arrivals from [`Instant::ZERO`] on; `rng` is the generator of the run's seed.
    #[must_use]
    pub fn new(arrivals: &Arrivals, requests_per_second: f64, rng: &Rng) -> Self {
        let bursts = arrivals.bursts.as_ref();
        Self {
            spacing: arrivals.spacing,
            gap_ns: 1e9 / requests_per_second,
            rng: rng.split("arrivals"),
            at: Instant::ZERO,
            bursts: bursts.map(|bursts| BurstPhase::new(bursts, rng.split("bursts"))),
            curve: CurvePhase { curve: arrivals.curve.clone(), start: Instant::ZERO, changed: 0 },
        }
    }

    /// The instant of the next arrival; [`Instant::MAX`] if the rate remains zero.
    pub fn next_arrival(&mut self) -> Instant {
        let mut distance = self.spacing.distance(&mut self.rng);
        loop {
            let bursts = self.bursts.as_ref().map_or((1.0, Instant::MAX), BurstPhase::segment);
            let curve = self.curve.segment();
            let (factor, until) = (bursts.0 * curve.0, bursts.1.min(curve.1));
            let gap_ns = self.gap_ns / factor;
            let left_ns = until.since(self.at).as_ns_f64();
            if factor > 0.0 && distance * gap_ns < left_ns {
                self.at = self.at + Duration::from_ns_f64(gap_ns * distance);
                return self.at;
            }
            if until == Instant::MAX {
                self.at = until;
                return self.at;
            }
            distance = (distance - left_ns / gap_ns).max(0.0);
            self.at = until;
            self.change(until);
        }
    }

    /// Begins the next segment of what changes at `at`.
    fn change(&mut self, at: Instant) {
        if let Some(bursts) = self.bursts.as_mut().filter(|bursts| bursts.until == at) {
            bursts.is_burst = !bursts.is_burst;
            let Bursts { every, lasts, .. } = &bursts.bursts;
            let duration = if bursts.is_burst { lasts } else { every };
            bursts.until = at + duration.draw(&mut bursts.rng);
        }
        if self.curve.segment().1 == at {
            self.curve.change(at);
        }
    }
}

impl BurstPhase {
    /// A random point of a process that has been running for long.
    fn new(bursts: &Bursts, mut rng: Rng) -> Self {
        let is_burst = rng.chance(bursts.burst_share());
        let duration = if is_burst { &bursts.lasts } else { &bursts.every };
        let until = Instant::ZERO + duration.draw_rest(&mut rng);
        Self { bursts: bursts.clone(), rng, is_burst, until }
    }

    /// The factor of the present segment, and its end.
    fn segment(&self) -> (f64, Instant) {
        let outside = self.bursts.outside_factor();
        let factor = if self.is_burst { outside * self.bursts.rate_factor } else { outside };
        (factor, self.until)
    }
}

impl CurvePhase {
    /// The factor of the present segment, and its end.
    fn segment(&self) -> (f64, Instant) {
        let RateCurve { changes, repeats_every } = &self.curve;
        let factor = self.changed.checked_sub(1).map_or(1.0, |last| changes[last].factor);
        let end = changes.get(self.changed).map(|change| change.at).or(*repeats_every);
        (factor, end.map_or(Instant::MAX, |end| self.start + end))
    }

    fn change(&mut self, at: Instant) {
        self.changed += 1;
        if self.changed > self.curve.changes.len() {
            (self.changed, self.start) = (0, at);
        }
    }
}
