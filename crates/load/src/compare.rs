//! Compares arm B with arm A: percentiles of latency, and figures that each block has, such as throughput.
//!
//! A run has **blocks** in time, A and B interleaved (ABBA). Block `i` of A is compared with block `i` of B. One stall
//! slows dozens of requests in a row, so requests of a block depend on each other. The tests therefore treat a block as
//! one observation. `curtail bench calibrate` measures the false alarms of tests that take requests as independent.
//!
//! **The ratio of a percentile.** Each arm's percentile is that of its merged histograms. A block contributes the
//! difference between its share of requests beyond the arm's percentile and the arm's share. The paired differences of the
//! contributions have a standard error `s`. Let `x` be the quantile q of the requests of both arms together. The shares
//! of the two arms beyond `x` differ by `D`. Student's distribution tests `D / s`, with as many degrees of freedom as
//! pairs, minus 1. The interval of B/A inverts the same test (Woodruff): from `QB(q − h/2) / QA(q + h/2)` to
//! `QB(q + h/2) / QA(q − h/2)`, with `h = t · s` and the arms' quantiles `QA` and `QB`. Test and interval therefore
//! agree.
//! **The ratio of a figure** is the ratio of the arms' means. Its test is the paired t-test, its interval Fieller's.
//! **Several percentiles**: Holm's procedure limits the false alarms. Half of the significance level is for the primary
//! percentile.
//! **Verdict**: better or worse when the test finds a difference; equivalent when the whole interval lies within the
//! margin; otherwise undecided, with an estimate of the further blocks that a verdict needs.
//!
//! **Why** the test uses shares, and not the logarithms of the blocks' percentiles: percentiles are noisy in short
//! blocks. In 100 simulated comparisons with a difference of 10 % in p99, the test of shares finds 74 differences, and a
//! test of the blocks' percentiles 57 ([`crate::stalls`], 40 pairs, level of 5 %; test
//! `shares_find_more_than_percentiles_of_blocks`).
//!
//! **Invariant**: failed requests count as longer than every response. No percentile is averaged or extrapolated. A
//! verdict needs [`EXCEEDANCES_MIN`] requests beyond a percentile, and [`BLOCKS_MIN`] blocks with such a request.
//! **Source**: Woodruff, "Confidence intervals for medians and other position measures" (1952); Fieller, "Some problems
//! in interval estimation" (1954); Schuirmann (1987) for equivalence; benchstat for interleaving and a fixed length.
//! **Hurts when** blocks depend on each other (a long stall, a drift), or when a user stops a run at a welcome verdict.

pub(crate) mod arm;
mod holm;
mod numbers;
mod percentiles;
pub mod student;
#[cfg(test)]
mod tests;

pub use numbers::{Goal, Number, Numbers, numbers};
pub(crate) use percentiles::percentiles_of;
pub use percentiles::{PERCENTILES, Percentile, percentiles};

use curtail_units::Quantile;
use std::fmt;

/// Number of blocks of one arm that finds a shift of p99 by 10 % in four of five comparisons, if a block has some 15,000
/// requests and half a dozen stalls.
///
/// With blocks of 15 s at 1,000 requests a second, two interleaved arms take 40 minutes.
pub const BLOCKS_DEFAULT: usize = 80;

/// Minimum number of requests beyond a percentile, in each arm, for a verdict.
pub const EXCEEDANCES_MIN: u64 = 100;

/// Minimum number of requests beyond a percentile, in each arm, for an interval.
pub const INDICATIVE_MIN: u64 = 10;

/// Minimum number of pairs of blocks, and of blocks of each arm that reach a percentile, for a verdict.
pub const BLOCKS_MIN: u64 = 10;

/// Maximum number of further blocks that is computed.
const MORE_BLOCKS_MAX: f64 = 1e6;

/// Maximum number of further blocks that is printed exactly.
const BLOCKS_SHOWN_MAX: u64 = 1_000;

/// The normal deviation below which four of five values lie: an effect is then found in four runs of five.
const POWER_DEVIATION: f64 = 0.841_621;

/// The rule of a verdict. It is declared before the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Maximum probability of a false alarm at any percentile of a comparison: in (0, 1).
    pub level: f64,
    /// Differences up to this share, either way, do not matter: above 0.
    pub margin: f64,
    /// The percentile that has half of the level for itself.
    pub primary: Quantile,
}

impl Default for Rule {
    fn default() -> Self {
        Self { level: 0.05, margin: 0.05, primary: Quantile::P99 }
    }
}

/// The verdict on B, compared with A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// Any difference is smaller than the margin.
    Equivalent,
    /// The test finds no difference, and the interval is not within the margin.
    Undecided {
        /// The approximate number of further blocks of each arm with which a new run decides in four cases of five.
        blocks: u64,
    },
    /// The recording is too short for a verdict.
    NotEnough {
        /// The minimum of missing blocks of each arm.
        blocks: u64,
    },
    /// In both arms the percentile is a failed request: compare the numbers of failed requests.
    Failed,
}

impl Verdict {
    /// The name in reports and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equivalent => "equivalent",
            Self::Undecided { .. } => "undecided",
            Self::NotEnough { .. } => "not enough",
            Self::Failed => "failed",
        }
    }

    /// Whether the verdict is a difference.
    #[must_use]
    pub const fn is_difference(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Better | Self::Worse | Self::Equivalent | Self::Failed => f.write_str(name),
            Self::Undecided { blocks } | Self::NotEnough { blocks }
                if *blocks > BLOCKS_SHOWN_MAX =>
            {
                write!(f, "{name}: over 1,000 more blocks")
            }
            Self::Undecided { blocks } => write!(f, "{name}: about {blocks} more blocks"),
            Self::NotEnough { blocks } => write!(f, "{name}: {blocks} more blocks"),
        }
    }
}

/// The ratio B/A and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// B/A; infinite when the percentile is a failed request in B only, and not a number when it is one in both arms.
    pub ratio: f64,
    /// The interval that contains the true ratio with this confidence. It begins at 0, or ends at infinity, where the
    /// blocks do not bound the ratio.
    pub interval: (f64, f64),
    /// 1 minus the level at which the difference was tested, after Holm's procedure.
    pub confidence: f64,
    /// The probability of at least so large a difference by chance (paired t).
    pub p_value: f64,
    /// The ratio of the variance to that of independent requests; 1 for numbers.
    pub design_effect: f64,
}

/// The result of one test, before Holm's correction.
#[derive(Clone, Copy, Debug)]
struct Test {
    /// B minus A; above 0 when B is the larger.
    difference: f64,
    /// The standard error of the difference.
    error: f64,
    pairs: usize,
}

impl Test {
    fn freedom(&self) -> f64 {
        self.pairs.saturating_sub(1).max(1) as f64
    }

    /// The probability of at least so large a difference by chance; 0 if the pairs do not vary.
    fn p_value(&self) -> f64 {
        if self.difference == 0.0 {
            return 1.0;
        }
        student::two_sided(self.difference.abs() / self.error, self.freedom())
    }

    fn critical(&self, level: f64) -> f64 {
        student::critical(level, self.freedom())
    }

    /// The verdict of this test at `level`, given the ratio and its interval. The verdict is "worse" where B is larger.
    fn verdict(&self, found: &Difference, level: f64, margin: f64) -> Verdict {
        let (low, high) = found.interval;
        if found.p_value <= level {
            return if self.difference > 0.0 { Verdict::Worse } else { Verdict::Better };
        }
        if low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin {
            return Verdict::Equivalent;
        }
        Verdict::Undecided { blocks: self.more_blocks(found, level, margin) }
    }

    /// The number of further pairs that probably suffice: either to confirm the present difference, or for an interval
    /// within the margin, whichever needs fewer. The standard error falls with the root of the number of pairs.
    fn more_blocks(&self, found: &Difference, level: f64, margin: f64) -> u64 {
        let critical = self.critical(level);
        let wanted = critical + POWER_DEVIATION;
        let times_to_differ = (wanted * self.error / self.difference.abs()).powi(2);
        let (low, high) = found.interval;
        let log_error = libm::log(high / low) / 2.0 / critical;
        let room = libm::log1p(margin) - libm::log(found.ratio).abs();
        let times_to_be_equivalent =
            if room > 0.0 { (wanted * log_error / room).powi(2) } else { f64::INFINITY };
        // A comparison with what is not a number picks the other.
        let times = times_to_differ.min(times_to_be_equivalent);
        whole((self.pairs as f64 * (times - 1.0)).clamp(1.0, MORE_BLOCKS_MAX))
    }
}

/// The standard error of the mean of independent `values`.
fn error_of_mean(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

/// `value`, which is not negative, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float to integer saturates"
)]
fn whole(value: f64) -> u64 {
    libm::ceil(value) as u64
}
