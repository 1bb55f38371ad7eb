//! The intrinsic ratio: how alike two attempts of the same request are.
//!
//! A request that is heavy is slow on every replica, so a second attempt cannot help. The ratio α is the share of
//! requests whose attempts all take equally long; the attempts of other requests are independent. If one attempt
//! is slow (its work is above a threshold that a share p exceeds), another one is slow with the probability
//! q = α + (1 − α)·p, so α = (q − p) / (1 − p).
//! **Evidence**, the best there is: a second attempt of a slow request at another replica (its latency may be cut short:
//! Kaplan & Meier, 1958); otherwise another request of the same kind. Without either, α may be anything from 0 to 1.
//! **Inputs**: work, which is free of the slow periods of replicas.
//! **Hurts when** requests of one kind still differ: then α is too small.

use curtail_units::{Quantile, Rng, wilson_interval};
use std::collections::BTreeMap;

/// Minimum number of slow requests with a second attempt, or with another request of their kind.
const PAIRS_MIN: usize = 30;

/// The quantiles of work that may be the threshold of slowness: the highest one with enough evidence.
const THRESHOLDS: [f64; 2] = [0.95, 0.9];

/// How alike two attempts of the same request are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intrinsic {
    /// The most likely ratio; 0 without evidence.
    pub ratio: f64,
    /// The ends of its 95 % interval; 0 and 1 without evidence.
    pub interval: (f64, f64),
    /// The evidence.
    pub evidence: Evidence,
}

/// The evidence for an intrinsic ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The second attempts of slow requests.
    Attempts {
        /// Slow requests with a second attempt.
        pairs: usize,
    },
    /// Other requests of the kinds of slow requests.
    Kinds {
        /// Slow requests of kinds with several requests.
        pairs: usize,
    },
    /// The caller states the ratio.
    Given,
    /// Nothing in the recording.
    Nothing,
}

impl Intrinsic {
    /// Nothing is known.
    pub const UNKNOWN: Self =
        Self { ratio: 0.0, interval: (0.0, 1.0), evidence: Evidence::Nothing };

    /// A ratio that the caller knows.
    #[must_use]
    pub const fn given(ratio: f64) -> Self {
        Self { ratio, interval: (ratio, ratio), evidence: Evidence::Given }
    }

    /// The ratio, or with `anew` one that is as likely given its interval.
    pub(crate) fn draw(&self, rng: &mut Rng, anew: bool) -> f64 {
        let deviation = (self.interval.1 - self.interval.0) / 3.92;
        let error = if anew { deviation * rng.normal() } else { 0.0 };
        (self.ratio + error).clamp(0.0, 1.0)
    }

    /// Whether the recording tells anything.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.evidence != Evidence::Nothing
    }
}

/// The work of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) request: u32,
    pub(crate) nth: u32,
    pub(crate) kind: u32,
    pub(crate) ns: f64,
    /// Whether it is complete; otherwise it would have been more.
    pub(crate) is_whole: bool,
}

/// Estimates the intrinsic ratio from the work of all attempts.
pub(crate) fn estimate(works: &[Work]) -> Intrinsic {
    let mut whole: Vec<f64> = works.iter().filter(|work| work.is_whole).map(|w| w.ns).collect();
    whole.sort_unstable_by(f64::total_cmp);
    for quantile in THRESHOLDS {
        let threshold = at(&whole, quantile);
        if let Some(found) = from_attempts(works, threshold, 1.0 - quantile) {
            return found;
        }
    }
    for quantile in THRESHOLDS {
        let threshold = at(&whole, quantile);
        if let Some(found) = from_kinds(works, threshold, 1.0 - quantile) {
            return found;
        }
    }
    Intrinsic::UNKNOWN
}

fn at(sorted: &[f64], quantile: f64) -> f64 {
    let quantile = Quantile::new(quantile).expect("a constant from 0 to 1");
    let rank = curtail_sketch::rank(quantile, sorted.len() as u64);
    let nth = usize::try_from(rank.max(1) - 1).unwrap_or(0);
    sorted.get(nth).copied().unwrap_or(f64::INFINITY)
}

fn from_attempts(works: &[Work], threshold: f64, share: f64) -> Option<Intrinsic> {
    let slow_firsts = works.iter().filter(|work| work.nth == 0 && work.ns > threshold);
    let slow: BTreeMap<u32, ()> = slow_firsts.map(|work| (work.request, ())).collect();
    let seconds = works.iter().filter(|work| work.nth == 1 && slow.contains_key(&work.request));
    let mut seconds: Vec<(f64, bool)> = seconds.map(|work| (work.ns, work.is_whole)).collect();
    if seconds.len() < PAIRS_MIN {
        return None;
    }
    seconds.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // The product-limit estimate of the share above the threshold, with Greenwood's variance.
    let (mut above, mut greenwood) = (1.0, 0.0);
    for (nth, (ns, is_whole)) in seconds.iter().enumerate() {
        if *ns > threshold {
            break;
        }
        if *is_whole {
            let at_risk = (seconds.len() - nth) as f64;
            above *= 1.0 - 1.0 / at_risk;
            greenwood += 1.0 / (at_risk * (at_risk - 1.0).max(1.0));
        }
    }
    // As many independent pairs as would have this variance.
    let pairs = seconds.len();
    let variance = above * above * greenwood;
    let effective = if variance > 0.0 { above * (1.0 - above) / variance } else { pairs as f64 };
    Some(intrinsic(above, effective.min(pairs as f64), share, Evidence::Attempts { pairs }))
}

fn from_kinds(works: &[Work], threshold: f64, share: f64) -> Option<Intrinsic> {
    let mut kinds: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for work in works.iter().filter(|work| work.nth == 0 && work.is_whole) {
        let (slow, all) = kinds.entry(work.kind).or_default();
        *slow += f64::from(u8::from(work.ns > threshold));
        *all += 1.0;
    }
    let several = kinds.values().filter(|(_, all)| *all >= 2.0);
    let (mut pairs, mut both) = (0.0, 0.0);
    for (slow, all) in several {
        pairs += slow;
        both += slow * (slow - 1.0) / (all - 1.0);
    }
    if kinds.len() < 2 || pairs < PAIRS_MIN as f64 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of requests, as a float"
    )]
    let evidence = Evidence::Kinds { pairs: pairs as usize };
    Some(intrinsic(both / pairs, pairs, share, evidence))
}

/// The ratio and its interval, from the share `q` of `pairs` whose other attempt is slow too.
fn intrinsic(q: f64, pairs: f64, p: f64, evidence: Evidence) -> Intrinsic {
    let ratio = |q: f64| ((q - p) / (1.0 - p)).clamp(0.0, 1.0);
    let (low, high) = wilson_interval(q, pairs);
    Intrinsic { ratio: ratio(q), interval: (ratio(low), ratio(high)), evidence }
}

#[cfg(test)]
mod tests;
