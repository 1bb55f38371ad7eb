//! What a comparison has to say of two arms, as reports show it. How it comes about is the matter of `curtail-load`.

use curtail_units::Quantile;

/// One arm held against another.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The arm that is compared with.
    pub base: String,
    /// The arm that is compared.
    pub other: String,
    /// One for each percentile, rising.
    pub differences: Vec<Difference>,
    /// How sure the intervals are, and how many blocks they come from, in words.
    pub method: String,
}

/// How much longer one percentile is than that of the other arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Which percentile.
    pub quantile: Quantile,
    /// The compared arm's latency as a multiple of the base's: 0.8 is a fifth less.
    pub ratio: f64,
    /// Where the interval of the ratio begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// What that means.
    pub verdict: Verdict,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The latency is lower, surely.
    Better,
    /// It is higher, surely.
    Worse,
    /// It is the same, within the margin that was asked for.
    Equivalent,
    /// It cannot be said.
    Undecided {
        /// About how many more blocks would tell, where that can be said.
        more_blocks: Option<u64>,
    },
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Better => f.write_str("better"),
            Self::Worse => f.write_str("worse"),
            Self::Equivalent => f.write_str("equivalent"),
            Self::Undecided { more_blocks: None } => f.write_str("undecided"),
            Self::Undecided { more_blocks: Some(blocks) } => {
                write!(f, "undecided, about {blocks} more blocks")
            }
        }
    }
}

/// How people call a quantile: `p99.9`.
#[must_use]
pub fn percentile_name(quantile: Quantile) -> String {
    // Six digits take off what a float is more than the decimal that was meant.
    let percent = format!("{:.6}", 100.0 * quantile.get());
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// A ratio as people say it: `-20.0 %`.
#[must_use]
pub fn change(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}
