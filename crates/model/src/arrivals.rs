//! Open arrivals: rate and spacing of requests that do not wait for responses.

use curtail_config::Section;
use curtail_units::{Duration, Rng};
use std::ops::RangeInclusive;

/// The arrivals of requests, over all clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// The spacing of the arrivals.
    pub spacing: Spacing,
    /// The rate of the arrivals.
    pub rate: Rate,
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
    /// Reads the keys of arrivals; absent keys have the values of `base`, if there is one.
    pub fn read(s: &mut Section<'_>, base: Option<Self>) -> Self {
        let spacing = Spacing::read(s, base.map_or(Spacing::Poisson, |base| base.spacing));
        let load = s
            .field("load_ratio", "Load as a share of the servers' capacity; may exceed 1.")
            .range(0.0001..=100.0)
            .optional();
        let rate = s
            .field("requests_per_second", "Requests per second, on average.")
            .range(RATES)
            .optional();
        let rate = match (load, rate) {
            (Some(load), None) => Rate::Load(load),
            (None, Some(rate)) => Rate::PerSecond(rate),
            (None, None) if base.is_some() => base.map_or(Rate::Load(1.0), |base| base.rate),
            _ => {
                s.error("load_ratio", "expected either this or requests_per_second");
                Rate::Load(1.0)
            }
        };
        Self { spacing, rate }
    }
}
