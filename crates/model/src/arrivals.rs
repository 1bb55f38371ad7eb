//! Open arrivals: rate and spacing of requests that do not wait for responses.
//!
//! The rate may change: in random [`Bursts`], and at fixed times of a [`RateCurve`]. [`ArrivalProcess`] draws the
//! instants.

mod process;
mod read;
#[cfg(test)]
mod tests;

pub use process::ArrivalProcess;

use crate::distribution::Distribution;
use curtail_config::Section;
use curtail_units::{Duration, Rng};
use std::ops::RangeInclusive;

/// The arrivals of requests, over all clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// The spacing of the arrivals.
    pub spacing: Spacing,
    /// The rate of the arrivals.
    pub rate: Rate,
    /// Bursts, which leave the mean rate unchanged; absent: there are none.
    pub bursts: Option<Bursts>,
    /// Factors on the rate at fixed times.
    pub curve: RateCurve,
}

/// Random times with a higher rate. With exponential distributions, Poisson arrivals are a Markov-modulated Poisson
/// process with two states.
#[derive(Clone, Debug, PartialEq)]
pub struct Bursts {
    /// The time from the end of a burst to the next one.
    pub every: Distribution,
    /// The duration of a burst.
    pub lasts: Distribution,
    /// The rate in a burst, divided by the rate outside of bursts.
    pub rate_factor: f64,
}

/// A factor on the rate that is constant between its changes; it begins with 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateCurve {
    /// The changes, in the order of their times.
    pub changes: Vec<RateChange>,
    /// The time after which the curve begins again, later than all changes; absent: the last factor remains.
    pub repeats_every: Option<Duration>,
}

/// A change of the factor on the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateChange {
    /// The time since the start of the curve.
    pub at: Duration,
    /// The factor from then on.
    pub factor: f64,
}

/// The rate of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Requests per second, on average.
    PerSecond(f64),
    /// The rate that uses this share of the servers' capacity when nothing is sent twice; above 1, they are overloaded.
    Load(f64),
}

/// The spacing of requests at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Requests arrive at random, independently of each other, as those of many users.
    Poisson,
    /// Requests arrive at equal distances.
    Even,
}

/// The valid rates, in requests per second: from one in eleven days to one in each nanosecond, the clock's resolution.
pub const RATES: RangeInclusive<f64> = 1e-6..=1e9;

impl Spacing {
    /// Reads the key `spacing`.
    pub fn read(s: &mut Section<'_>, default: Self) -> Self {
        s.choice(
            "spacing",
            "Times between requests. `poisson`: random, as from many independent users. `even`: all equal.",
            &[("poisson", Self::Poisson), ("even", Self::Even)],
        )
        .default(default)
    }

    /// The distance to the next arrival, where the mean distance is 1.
    pub fn distance(self, rng: &mut Rng) -> f64 {
        match self {
            Self::Poisson => rng.exponential(),
            Self::Even => 1.0,
        }
    }

    /// The time until the next arrival.
    pub fn gap(self, mean_ns: f64, rng: &mut Rng) -> Duration {
        Duration::from_ns_f64(mean_ns * self.distance(rng))
    }
}

impl Arrivals {
    /// Arrivals whose rate does not change.
    #[must_use]
    pub const fn steady(spacing: Spacing, rate: Rate) -> Self {
        let curve = RateCurve { changes: Vec::new(), repeats_every: None };
        Self { spacing, rate, bursts: None, curve }
    }

    /// The lowest rate above zero and the highest rate, as factors on the mean rate without the curve.
    #[must_use]
    pub fn factor_range(&self) -> (f64, f64) {
        let outside = self.bursts.as_ref().map_or(1.0, Bursts::outside_factor);
        let inside = self.bursts.as_ref().map_or(1.0, |bursts| outside * bursts.rate_factor);
        let factors = self.curve.segments().map(|(_, factor)| factor);
        let range = factors
            .filter(|factor| *factor > 0.0)
            .fold((f64::INFINITY, 0.0), |range, factor| (factor.min(range.0), factor.max(range.1)));
        (outside * range.0, inside * range.1)
    }

    /// The mean number of changes of the rate from one request to the next.
    #[must_use]
    pub fn changes_per_request(&self, requests_per_second: f64) -> f64 {
        let of_bursts = self.bursts.as_ref().map_or(0.0, |bursts| 2.0 / bursts.cycle_ns());
        let of_curve = self
            .curve
            .repeats_every
            .map_or(0.0, |period| (self.curve.changes.len() + 1) as f64 / period.as_ns_f64());
        (of_bursts + of_curve) * 1e9 / (requests_per_second * self.curve.mean_factor())
    }
}

impl Arrivals {
    /// The mean number of changes of bursts while no request arrives: in the longest time at rate zero, or from one request
    /// to the next at the lowest rate.
    #[must_use]
    pub fn changes_without_request(&self, requests_per_second: f64) -> f64 {
        let Some(bursts) = &self.bursts else { return 0.0 };
        let changes_per_ns = 2.0 / bursts.cycle_ns();
        let ends =
            self.curve.changes.iter().map(|change| change.at).chain(self.curve.repeats_every);
        let at_zero = self.curve.segments().zip(ends).filter(|((_, factor), _)| *factor <= 0.0);
        let longest_ns = at_zero.map(|((from, _), to)| (to - from).as_ns_f64()).fold(0.0, f64::max);
        let gap_ns = 1e9 / (requests_per_second * self.factor_range().0);
        changes_per_ns * longest_ns.max(gap_ns)
    }
}

impl Bursts {
    /// The rate outside of bursts, divided by the mean rate.
    fn outside_factor(&self) -> f64 {
        let burst_share = self.burst_share();
        1.0 / (1.0 - burst_share + burst_share * self.rate_factor)
    }

    /// The share of time in bursts.
    fn burst_share(&self) -> f64 {
        self.lasts.mean_ns() / self.cycle_ns()
    }

    /// The mean time from the start of a burst to the start of the next.
    fn cycle_ns(&self) -> f64 {
        self.every.mean_ns() + self.lasts.mean_ns()
    }
}

impl RateCurve {
    /// The mean factor; without a repetition, the last factor.
    #[must_use]
    pub fn mean_factor(&self) -> f64 {
        let Some(lasts) = self.repeats_every else {
            return self.changes.last().map_or(1.0, |change| change.factor);
        };
        let ends = self.changes.iter().map(|change| change.at).chain([lasts]);
        let area = self.segments().zip(ends);
        area.map(|((from, factor), to)| factor * (to - from).as_ns_f64()).sum::<f64>()
            / lasts.as_ns_f64()
    }

    /// The segments of the curve: the start and the factor of each. The first is empty if a change is at zero.
    fn segments(&self) -> impl Iterator<Item = (Duration, f64)> {
        let first = self.changes.first().is_none_or(|change| change.at > Duration::ZERO);
        let start = (Duration::ZERO, if first { 1.0 } else { 0.0 });
        [start].into_iter().chain(self.changes.iter().map(|change| (change.at, change.factor)))
    }
}
