//! Distributions of durations: service times, the times between stalls, how long they last.
//!
//! **Written** with the words of the scenarios of `curtail simulate` ({shape: lognormal, median: 1ms, …}).
//! **Inputs**: parameters that are durations, and a generator.
//! **Limits**: lognormal and exponential draws have no longest; whoever uses one for work bounds it
//! ([`WORK_MAX`]).

use curtail_config::Section;
use curtail_units::{Duration, Rng};

/// The longest piece of work and the longest stall: no seed can hang a server for good.
pub(crate) const WORK_MAX: Duration = Duration::from_secs(60);

/// How a duration is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Constant {
        /// That duration.
        value: Duration,
    },
    /// Everything between two durations alike.
    Uniform {
        /// The shortest.
        low: Duration,
        /// The longest.
        high: Duration,
    },
    /// Without memory: what has taken long is no nearer to its end.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// Many factors multiplied: most are near the median, a few far above it.
    Lognormal {
        /// The median.
        median: Duration,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl Distribution {
    pub(crate) fn read(s: &mut Section<'_>) -> Self {
        s.cases("shape", "How durations are drawn.").required(|c| {
            c.case("constant", "All are the same.", |s| Self::Constant {
                value: duration(s, "value", "The duration."),
            });
            c.case("uniform", "Each from `low` to `high` is equally likely.", |s| {
                let low = duration(s, "low", "The shortest.");
                let high = duration(s, "high", "The longest.");
                if low > high {
                    s.mistake("high", format!("{high} is shorter than low, {low}"));
                }
                Self::Uniform { low, high }
            });
            c.case("exponential", "Without memory.", |s| Self::Exponential {
                mean: duration(s, "mean", "The mean."),
            });
            c.case("lognormal", "Most near the median, a few far above it.", |s| Self::Lognormal {
                median: duration(s, "median", "The median."),
                sigma: s
                    .field("sigma", "The standard deviation of the natural logarithm.")
                    .range(0.0..=4.0)
                    .required(),
            });
        })
    }

    /// A duration.
    #[must_use]
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        match *self {
            Self::Constant { value } => value,
            Self::Uniform { low, high } => low + (high - low).mul_f64(rng.unit()),
            Self::Exponential { mean } => mean.mul_f64(rng.exponential()),
            Self::Lognormal { median, sigma } => median.mul_f64((sigma * rng.normal()).exp()),
        }
    }

    /// How long a piece of work, or a stall, takes.
    pub(crate) fn draw_work(&self, rng: &mut Rng) -> Duration {
        self.draw(rng).min(WORK_MAX)
    }
}

fn duration(s: &mut Section<'_>, key: &'static str, doc: &'static str) -> Duration {
    s.field(key, doc).required()
}
