//! The instants at which requests are to be sent. They are fixed ahead and never depend on responses.
//!
//! **Inputs**: phases, each with a rate over time and a duration, spaced evenly or at random (Poisson); or recorded
//! instants.
//! **Method**: arrivals at unit distance (0, 1, 2, … or sums of exponential numbers) pass through the inverse of the
//! cumulative rate. Ramps and bursts are therefore exact, and random arrivals are Poisson processes with that rate.
//! **Limits**: rates of at most [`RATE_MAX`], phases of at most [`LASTS_MAX`].
//! **Source**: Çinlar, "Introduction to stochastic processes" (1975), chapter 4.7.
//! **Hurts when** recorded arrivals are replayed faster than they came: their bursts become denser.

pub use curtail_model::Spacing;
use curtail_units::{Duration, Rng};
use std::sync::Arc;

mod read;
#[cfg(test)]
mod tests;

/// The highest rate of a phase, in requests a second.
pub const RATE_MAX: f64 = 10_000_000.0;

/// The longest phase: a day.
pub const LASTS_MAX: Duration = Duration::from_secs(86_400);

/// A part of a plan: every `of`th request, from number `nth` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of the first request, less than `of`.
    pub nth: usize,
    /// The number of parts, at least 1.
    pub of: usize,
}

impl Share {
    /// The whole plan.
    pub const ALL: Self = Self { nth: 0, of: 1 };

    /// Whether the part includes the request with this number.
    #[must_use]
    pub const fn includes(self, request: u64) -> bool {
        request % self.of as u64 == self.nth as u64
    }

    /// The `nth` of `of` equal parts of this part.
    #[must_use]
    pub const fn part(self, nth: usize, of: usize) -> Self {
        Self { nth: nth * self.of + self.nth, of: self.of * of }
    }
}

/// The rate over a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// The same rate throughout.
    Constant {
        /// Requests a second.
        rate: f64,
    },
    /// A rate that grows or falls in a straight line.
    Ramp {
        /// Requests a second at the start.
        from: f64,
        /// Requests a second at the end.
        to: f64,
    },
    /// Many requests at once, again and again, and some in between.
    Bursts {
        /// Requests a second between bursts.
        rate: f64,
        /// Requests in a burst.
        size: f64,
        /// The time from one burst to the next; the first burst is at the start.
        every: Duration,
    },
}

/// A part of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// The rate over the phase.
    pub shape: Shape,
    /// The length of the phase.
    pub lasts: Duration,
}

/// The plan of all requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// Requests at given rates.
    Phases {
        /// The phases, one after the other.
        phases: Vec<Phase>,
        /// The spacing of requests in all phases.
        spacing: Spacing,
    },
    /// Requests at recorded instants, in their order, counted from the start.
    Recorded(Vec<Duration>),
}

impl Shape {
    /// The number of requests of a phase that lasts `lasts`.
    fn wanted(self, lasts: Duration) -> f64 {
        let seconds = lasts.as_secs_f64();
        match self {
            Self::Constant { rate } => rate * seconds,
            Self::Ramp { from, to } => (from + to) / 2.0 * seconds,
            Self::Bursts { rate, size, every } => {
                // A burst at the very end is the next phase's.
                let bursts = lasts.as_ns().div_ceil(every.as_ns());
                rate * seconds + size * bursts as f64
            }
        }
    }

    /// The seconds from the start of a phase of `lasts` seconds until the rate has added up to `wanted` requests.
    fn second(self, wanted: f64, lasts: f64) -> f64 {
        match self {
            Self::Constant { rate } => wanted / rate,
            Self::Ramp { from, to } => {
                // The root of the cumulative rate, in the form that also holds where the rate hardly changes.
                let slope = (to - from) / lasts;
                2.0 * wanted / (from + libm::sqrt((from * from + 2.0 * slope * wanted).max(0.0)))
            }
            Self::Bursts { rate, size, every } => {
                let every = every.as_secs_f64();
                let a_period = rate * every + size;
                let period = libm::floor(wanted / a_period);
                let after_burst = wanted - period * a_period - size;
                let within = if after_burst > 0.0 { after_burst / rate } else { 0.0 };
                period * every + within
            }
        }
    }

    /// The highest rate; the rate of bursts is the mean over a period.
    fn rate_max(self) -> f64 {
        match self {
            Self::Constant { rate } => rate,
            Self::Ramp { from, to } => from.max(to),
            Self::Bursts { rate, size, every } => rate + size / every.as_secs_f64(),
        }
    }
}

impl Phase {
    /// The first `lasts` of the phase, or the whole phase when it is no longer.
    fn first(&self, lasts: Duration) -> Self {
        if lasts >= self.lasts {
            return *self;
        }
        let shape = match self.shape {
            Shape::Ramp { from, to } => {
                let share = lasts.as_secs_f64() / self.lasts.as_secs_f64();
                Shape::Ramp { from, to: from + (to - from) * share }
            }
            shape @ (Shape::Constant { .. } | Shape::Bursts { .. }) => shape,
        };
        Self { shape, lasts }
    }
}

impl Schedule {
    /// A schedule of one phase with a constant rate.
    #[must_use]
    pub fn constant(rate: f64, lasts: Duration, spacing: Spacing) -> Self {
        Self::Phases { phases: vec![Phase { shape: Shape::Constant { rate }, lasts }], spacing }
    }

    /// The duration of the schedule.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Phases { phases, .. } => {
                phases.iter().fold(Duration::ZERO, |sum, phase| sum + phase.lasts)
            }
            Self::Recorded(instants) => instants.last().copied().unwrap_or(Duration::ZERO),
        }
    }

    /// The first `lasts` of the schedule.
    #[must_use]
    pub fn first(&self, lasts: Duration) -> Self {
        match self {
            Self::Phases { phases, spacing } => {
                let mut left = lasts;
                let mut kept = Vec::new();
                for phase in phases {
                    if left > Duration::ZERO {
                        kept.push(phase.first(left));
                        left = left - phase.lasts.min(left);
                    }
                }
                Self::Phases { phases: kept, spacing: *spacing }
            }
            Self::Recorded(instants) => {
                Self::Recorded(instants.iter().copied().take_while(|at| *at < lasts).collect())
            }
        }
    }

    /// The highest rate of all phases; for recorded instants, their mean rate.
    #[must_use]
    pub fn rate_max(&self) -> f64 {
        match self {
            Self::Phases { phases, .. } => {
                phases.iter().map(|phase| phase.shape.rate_max()).fold(0.0, f64::max)
            }
            Self::Recorded(_) => self.rate_mean(),
        }
    }

    /// The average requests per second of the whole schedule.
    #[must_use]
    pub fn rate_mean(&self) -> f64 {
        let requests = match self {
            Self::Phases { phases, .. } => {
                phases.iter().map(|phase| phase.shape.wanted(phase.lasts)).sum()
            }
            Self::Recorded(instants) => instants.len() as f64,
        };
        requests / self.lasts().as_secs_f64().max(1e-9)
    }

    /// The instants, counted from the start; what is random follows from `rng`.
    #[must_use]
    pub fn instants(self: &Arc<Self>, rng: Rng) -> Instants {
        Instants {
            schedule: Arc::clone(self),
            rng,
            nth: 0,
            phase: 0,
            began: Duration::ZERO,
            wanted: 0.0,
        }
    }
}

/// The instants of a schedule, in order.
#[derive(Clone, Debug)]
pub struct Instants {
    schedule: Arc<Schedule>,
    rng: Rng,
    nth: usize,
    /// The phase that is being walked, and when it began.
    phase: usize,
    began: Duration,
    /// The number of requests of this phase up to the last instant; it has a fraction.
    wanted: f64,
}

impl Instants {
    /// The distance from one request to the next at a rate of one request a unit.
    fn distance(&mut self, spacing: Spacing) -> f64 {
        match spacing {
            // The very first is at the start.
            Spacing::Even if self.nth == 0 => 0.0,
            Spacing::Poisson | Spacing::Even => spacing.distance(&mut self.rng),
        }
    }

    fn next_of_phases(&mut self, phases: &[Phase], spacing: Spacing) -> Option<Duration> {
        let mut distance = self.distance(spacing);
        while let Some(Phase { shape, lasts }) = phases.get(self.phase) {
            let all = shape.wanted(*lasts);
            let wanted = self.wanted + distance;
            // Rounding must not lose the last of evenly spaced requests, nor give it twice.
            if wanted < all - 1e-6 {
                self.wanted = wanted;
                self.nth += 1;
                let second = shape.second(wanted, lasts.as_secs_f64());
                return Some(self.began + Duration::from_secs_f64(second));
            }
            distance = (wanted - all).max(0.0);
            self.began = self.began + *lasts;
            self.phase += 1;
            self.wanted = 0.0;
        }
        None
    }
}

impl Iterator for Instants {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        match &*Arc::clone(&self.schedule) {
            Schedule::Phases { phases, spacing } => self.next_of_phases(phases, *spacing),
            Schedule::Recorded(instants) => {
                let instant = instants.get(self.nth).copied()?;
                self.nth += 1;
                Some(instant)
            }
        }
    }
}
