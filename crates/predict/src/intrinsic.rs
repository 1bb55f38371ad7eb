//! The intrinsic ratio: the share of requests whose attempts all take equally long.
//!
//! A request that is heavy is slow on every replica, so a second attempt cannot help. α is the intrinsic ratio; the
//! attempts of other requests are independent. If one attempt
//! is slow (its work is above a threshold that a share p exceeds), another one is slow with the probability
//! q = α + (1 − α)·p, so α = (q − p) / (1 − p).
//! **Evidence**, the best there is: a second attempt of a slow request at another replica; otherwise another request of
//! the same kind. Without either, α may be anything from 0 to 1.
//! **Second attempts** are incomplete in two ways. The response of the first attempt cuts a second one short (Kaplan &
//! Meier, 1958). A second attempt that responds early cuts the first one short before it is slow, so the pair is not
//! seen: a second attempt counts from the work on at which its first attempt was slow in any case (Lynden-Bell, 1971).
//! **Kinds**: the requests of one kind are a cluster, so the interval comes from leaving out one kind at a time
//! (jackknife: Tukey, 1958).
//! **Inputs**: work, which is free of the slow periods of replicas.
//! **Hurts when** requests of one kind still differ: then α is too small.

use curtail_load::compare::student;
use curtail_units::{Instant, Quantile, Rng, wilson_interval};
use std::collections::BTreeMap;

/// Minimum number of slow requests with a second attempt, or with another request of their kind.
const PAIRS_MIN: usize = 30;

/// The share of the slow requests from which on one kind stands for nearly all of them.
const ONE_KIND_RATIO: f64 = 0.9;

/// The quantiles of work that may be the threshold of slowness: the highest one with enough evidence. Second attempts
/// after a short delay are evidence for the lower ones only.
const ATTEMPT_THRESHOLDS: [f64; 6] = [0.95, 0.9, 0.8, 0.7, 0.6, 0.5];
/// Those for kinds: the one that gives the largest ratio. A kind of 2 % of the requests may be all of the slowest 2 %, and is
/// at most a fifth of the slowest 10 %.
const KIND_THRESHOLDS: [f64; 4] = [0.99, 0.98, 0.95, 0.9];

/// The width of a 95 % interval of a normal distribution, in standard deviations.
const INTERVAL_DEVIATIONS: f64 = 3.92;

/// The share of requests whose attempts all take equally long.
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
        /// Whether nearly all of them are of one kind: they then count as independent.
        is_one_kind: bool,
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
        let deviation = (self.interval.1 - self.interval.0) / INTERVAL_DEVIATIONS;
        let error = if anew { deviation * rng.normal() } else { 0.0 };
        (self.ratio + error).clamp(0.0, 1.0)
    }

    /// Whether there is evidence, or the caller gave the ratio.
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
    pub(crate) started: Instant,
    pub(crate) ns: f64,
    /// Whether it is complete; otherwise it would have been more.
    pub(crate) is_whole: bool,
}

/// Estimates the intrinsic ratio from the work of all attempts.
pub(crate) fn estimate(works: &[Work]) -> Intrinsic {
    let mut whole: Vec<f64> = works.iter().filter(|work| work.is_whole).map(|w| w.ns).collect();
    whole.sort_unstable_by(f64::total_cmp);
    let from_attempts = |quantile| from_attempts(works, at(&whole, quantile));
    let from_kinds = |quantile| from_kinds(works, at(&whole, quantile));
    let found = ATTEMPT_THRESHOLDS.into_iter().find_map(from_attempts);
    let of_kinds = || KIND_THRESHOLDS.into_iter().filter_map(from_kinds);
    let found = found.or_else(|| of_kinds().max_by(|one, other| one.ratio.total_cmp(&other.ratio)));
    found.unwrap_or(Intrinsic::UNKNOWN)
}

fn at(sorted: &[f64], quantile: f64) -> f64 {
    let quantile = Quantile::new(quantile).expect("a constant from 0 to 1");
    let rank = curtail_sketch::rank(quantile, sorted.len() as u64);
    let nth = usize::try_from(rank.max(1) - 1).unwrap_or(0);
    sorted.get(nth).copied().unwrap_or(f64::INFINITY)
}

/// A work that may be incomplete.
#[derive(Clone, Copy, Debug)]
struct Observed {
    /// It would not be known if it had been at most this.
    above_ns: f64,
    ns: f64,
    is_whole: bool,
}

impl Observed {
    const fn of(work: &Work) -> Self {
        Self { above_ns: f64::NEG_INFINITY, ns: work.ns, is_whole: work.is_whole }
    }
}

fn from_attempts(works: &[Work], threshold: f64) -> Option<Intrinsic> {
    let firsts = works.iter().filter(|work| work.nth == 0);
    let slow = firsts.clone().filter(|work| work.ns > threshold);
    let started: BTreeMap<u32, Instant> = slow.map(|work| (work.request, work.started)).collect();
    let seconds = works.iter().filter(|work| work.nth == 1).filter_map(|work| {
        let first_started = started.get(&work.request)?;
        let delay_ns = work.started.as_ns() as f64 - first_started.as_ns() as f64;
        let above_ns = Some(threshold - delay_ns).filter(|ns| *ns > 0.0);
        let above_ns = above_ns.unwrap_or(f64::NEG_INFINITY);
        Some(Observed { above_ns, ..Observed::of(work) })
    });
    let seconds: Vec<Observed> = seconds.collect();
    let pairs = seconds.len();
    let (both, effective) = share_above(seconds, threshold)?;
    let (low, high) = wilson_interval(both, effective);
    let (share, _) = share_above(firsts.map(Observed::of).collect(), threshold)?;
    if share >= 1.0 {
        return None;
    }
    let ratio = |q: f64| ((q - share) / (1.0 - share)).clamp(0.0, 1.0);
    Some(Intrinsic {
        ratio: ratio(both),
        interval: (ratio(low), ratio(high)),
        evidence: Evidence::Attempts { pairs },
    })
}

/// The product-limit estimate of the share above a threshold, and the number of independent works that would have its
/// variance (Greenwood's); [`None`] if fewer than [`PAIRS_MIN`] are at risk at any point up to the threshold.
fn share_above(mut works: Vec<Observed>, threshold: f64) -> Option<(f64, f64)> {
    works.retain(|work| work.above_ns < work.ns);
    works.sort_unstable_by(|a, b| a.ns.total_cmp(&b.ns).then(b.is_whole.cmp(&a.is_whole)));
    let mut entries: Vec<f64> = works.iter().map(|work| work.above_ns).collect();
    entries.sort_unstable_by(f64::total_cmp);
    let at_risk = |ns: f64, ended: usize| {
        let count = entries.partition_point(|above_ns| *above_ns < ns) - ended;
        Some(count).filter(|count| *count >= PAIRS_MIN)
    };
    at_risk(0.0, 0)?;
    let ended = works.partition_point(|work| work.ns <= threshold);
    let (mut above, mut greenwood) = (1.0, 0.0);
    for (nth, work) in works[..ended].iter().enumerate().filter(|(_, work)| work.is_whole) {
        let count = at_risk(work.ns, nth)? as f64;
        above *= 1.0 - 1.0 / count;
        greenwood += 1.0 / (count * (count - 1.0));
    }
    let followed = at_risk(threshold, ended)? as f64;
    let variance = above * above * greenwood;
    // Without an end below the threshold, only those that are followed up to it count.
    let effective = if variance > 0.0 { above * (1.0 - above) / variance } else { followed };
    Some((above, effective.min(works.len() as f64)))
}

/// Counts over some kinds.
#[derive(Clone, Copy, Debug, Default)]
struct KindCounts {
    /// Slow requests, and all.
    slow: f64,
    all: f64,
    /// Slow requests with another request of their kind, and those whose other request is slow too.
    pairs: f64,
    both: f64,
}

impl KindCounts {
    fn of(slow: f64, all: f64) -> Self {
        if all < 2.0 {
            return Self { slow, all, pairs: 0.0, both: 0.0 };
        }
        Self { slow, all, pairs: slow, both: slow * (slow - 1.0) / (all - 1.0) }
    }

    /// These counts and `factor` times the others.
    fn plus(self, factor: f64, other: &Self) -> Self {
        Self {
            slow: self.slow + factor * other.slow,
            all: self.all + factor * other.all,
            pairs: self.pairs + factor * other.pairs,
            both: self.both + factor * other.both,
        }
    }

    /// The ratio if the share `q` of other requests is slow too.
    fn ratio_at(&self, q: f64) -> f64 {
        let p = self.slow / self.all;
        (q - p) / (1.0 - p)
    }

    fn ratio(&self) -> f64 {
        self.ratio_at(self.both / self.pairs)
    }
}

fn from_kinds(works: &[Work], threshold: f64) -> Option<Intrinsic> {
    let mut kinds: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for work in works.iter().filter(|work| work.nth == 0 && work.is_whole) {
        let (slow, all) = kinds.entry(work.kind).or_default();
        *slow += f64::from(u8::from(work.ns > threshold));
        *all += 1.0;
    }
    let kinds: Vec<KindCounts> =
        kinds.values().map(|(slow, all)| KindCounts::of(*slow, *all)).collect();
    let sum = kinds.iter().fold(KindCounts::default(), |sum, kind| sum.plus(1.0, kind));
    if kinds.len() < 2 || sum.pairs < PAIRS_MIN as f64 {
        return None;
    }
    let without = kinds.iter().filter(|kind| kind.pairs > 0.0).map(|kind| sum.plus(-1.0, kind));
    let rest_min = (PAIRS_MIN as f64).max((1.0 - ONE_KIND_RATIO) * sum.pairs);
    let is_one_kind = without.clone().any(|rest| rest.pairs < rest_min);
    let ratios: Vec<f64> = without.map(|rest| rest.ratio()).collect();
    // Without one of few kinds, all requests may be slow: the others do not show how much the ratio varies.
    let is_one_kind = is_one_kind || !ratios.iter().all(|ratio| ratio.is_finite());
    let (low, high) = if is_one_kind {
        let (low, high) = wilson_interval(sum.both / sum.pairs, sum.pairs);
        (sum.ratio_at(low), sum.ratio_at(high))
    } else {
        let half = jackknife_half_width(&ratios);
        (sum.ratio() - half, sum.ratio() + half)
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of requests, as a float"
    )]
    let pairs = sum.pairs as usize;
    Some(Intrinsic {
        ratio: sum.ratio().clamp(0.0, 1.0),
        interval: (low.clamp(0.0, 1.0), high.clamp(0.0, 1.0)),
        evidence: Evidence::Kinds { pairs, is_one_kind },
    })
}

/// Half of the 95 % interval of an estimate, from the estimates without one cluster each.
fn jackknife_half_width(without_one: &[f64]) -> f64 {
    let count = without_one.len() as f64;
    let mean = without_one.iter().sum::<f64>() / count;
    let squares = without_one.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    student::critical(0.05, count - 1.0) * ((count - 1.0) / count * squares).sqrt()
}

#[cfg(test)]
mod tests;
