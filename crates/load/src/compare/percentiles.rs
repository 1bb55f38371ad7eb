//! Compares percentiles of two arms, with a verdict for each.

use super::arm::Arm;
use super::{
    BLOCKS_MIN, Difference, EXCEEDANCES_MIN, INDICATIVE_MIN, Rule, Test, Verdict, error_of_mean,
    holm, whole,
};
use crate::{Latencies, LatencyKind};
use curtail_units::{Duration, Quantile};

/// The compared percentiles: name and quantile.
pub const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// One percentile of both arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// The name: `p99.9`.
    pub name: &'static str,
    /// The quantile.
    pub quantile: Quantile,
    /// The latency in A; [`None`] when it is a failed request, or without requests.
    pub a: Option<Duration>,
    /// The latency in B; [`None`] as in A.
    pub b: Option<Duration>,
    /// The difference; [`None`] with fewer than [`INDICATIVE_MIN`] requests beyond, or fewer than two pairs.
    pub difference: Option<Difference>,
    /// The number of requests beyond the percentile, in the arm that has fewer.
    pub exceedances: u64,
    /// The number of blocks that reach the percentile, in the arm that has fewer.
    pub blocks: u64,
    /// The verdict on B.
    pub verdict: Verdict,
}

/// A percentile before the correction for many tests.
struct Seen {
    name: &'static str,
    quantile: Quantile,
    exceedances: u64,
    blocks: u64,
    test: Option<Test>,
    design_effect: f64,
}

impl Seen {
    fn is_enough(&self) -> bool {
        self.exceedances >= EXCEEDANCES_MIN && self.blocks >= BLOCKS_MIN && self.test.is_some()
    }
}

/// Compares block `i` of `a` with block `i` of `b`, at every one of [`PERCENTILES`]; a block without a partner is left
/// out.
pub fn percentiles(
    a: &[Latencies],
    b: &[Latencies],
    clock: LatencyKind,
    rule: &Rule,
) -> Vec<Percentile> {
    let pairs = a.len().min(b.len());
    percentiles_of((&Arm::new(&a[..pairs], clock), &Arm::new(&b[..pairs], clock)), rule)
}

/// Compares two arms with equally many blocks, at every one of [`PERCENTILES`].
pub(crate) fn percentiles_of(arms: (&Arm<'_>, &Arm<'_>), rule: &Rule) -> Vec<Percentile> {
    let seen = PERCENTILES.map(|(name, q)| {
        look(arms, name, Quantile::new(q).expect("each of the list is a quantile"))
    });
    let mut levels = levels(&seen, rule).into_iter();
    let verdicts = seen.iter().map(|seen| {
        let level = if seen.is_enough() { levels.next() } else { None };
        judge_percentile(arms, seen, level, rule)
    });
    verdicts.collect()
}

/// The level of each percentile with enough requests and blocks.
fn levels(seen: &[Seen], rule: &Rule) -> Vec<f64> {
    let tested: Vec<(&Seen, &Test)> = seen
        .iter()
        .filter(|seen| seen.is_enough())
        .filter_map(|seen| Some((seen, seen.test.as_ref()?)))
        .collect();
    let others = tested.len().saturating_sub(1).max(1) as f64;
    let weight = |seen: &Seen| if seen.quantile == rule.primary { others } else { 1.0 };
    let weights: Vec<f64> = tested.iter().map(|(seen, _)| weight(seen)).collect();
    let p_values: Vec<f64> = tested.iter().map(|(_, test)| test.p_value()).collect();
    holm::levels(&p_values, &weights, rule.level)
}

fn look((a, b): (&Arm<'_>, &Arm<'_>), name: &'static str, quantile: Quantile) -> Seen {
    let pairs = a.blocks.len();
    let requests = a.requests().min(b.requests());
    let mut seen = Seen {
        name,
        quantile,
        exceedances: a.exceedances(quantile).min(b.exceedances(quantile)),
        blocks: 0,
        test: None,
        design_effect: 1.0,
    };
    if requests == 0 {
        return seen;
    }
    let beyond = 1.0 - quantile.get();
    let reaching = (a.reaching(a.place_of(beyond)), b.reaching(b.place_of(beyond)));
    let blocks = |counts: &[u64]| counts.iter().filter(|count| **count > 0).count() as u64;
    seen.blocks = blocks(&reaching.0).min(blocks(&reaching.1));
    if pairs < 2 {
        return seen;
    }
    let residuals = a.residuals(&reaching.0).into_iter().zip(b.residuals(&reaching.1));
    let error = error_of_mean(&residuals.map(|(a, b)| b - a).collect::<Vec<f64>>());
    let place = place_of_both(a, b, beyond);
    let difference = b.share_beyond(place) - a.share_beyond(place);
    seen.test = Some(Test { difference, error, pairs });
    let independent =
        beyond * quantile.get() * (1.0 / a.requests() as f64 + 1.0 / b.requests() as f64);
    seen.design_effect = error * error / independent;
    seen
}

/// The place beyond which both arms together have the share `beyond`.
fn place_of_both(a: &Arm<'_>, b: &Arm<'_>, beyond: f64) -> f64 {
    let of_each = (a.place_of(beyond), b.place_of(beyond));
    let (mut low, mut high) = (of_each.0.min(of_each.1), of_each.0.max(of_each.1));
    // Each step halves what is left: 64 leave less than a nanosecond of centuries.
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if a.share_beyond(middle) + b.share_beyond(middle) > 2.0 * beyond {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

fn judge_percentile(
    arms: (&Arm<'_>, &Arm<'_>),
    seen: &Seen,
    level: Option<f64>,
    rule: &Rule,
) -> Percentile {
    let (a, b) = arms;
    let is_shown = seen.exceedances >= INDICATIVE_MIN;
    let test = seen.test.as_ref().filter(|_| is_shown);
    let difference = test.map(|test| differ(arms, seen, test, level.unwrap_or(rule.level)));
    let verdict = match (test, &difference, level) {
        (Some(_), Some(difference), Some(_)) if difference.ratio.is_nan() => Verdict::Failed,
        (Some(test), Some(difference), Some(level)) => test.verdict(difference, level, rule.margin),
        _ => lacking(arms, seen),
    };
    Percentile {
        name: seen.name,
        quantile: seen.quantile,
        a: a.quantile(seen.quantile),
        b: b.quantile(seen.quantile),
        difference,
        exceedances: seen.exceedances,
        blocks: seen.blocks,
        verdict,
    }
}

fn differ((a, b): (&Arm<'_>, &Arm<'_>), seen: &Seen, test: &Test, level: f64) -> Difference {
    let beyond = 1.0 - seen.quantile.get();
    let half = test.critical(level) * test.error / 2.0;
    let ratio = |a_beyond: f64, b_beyond: f64| b.latency_at(b_beyond) / a.latency_at(a_beyond);
    // Neither bound is known where both arms fail.
    let bound = |ratio: f64, unknown: f64| if ratio.is_nan() { unknown } else { ratio };
    Difference {
        ratio: ratio(beyond, beyond),
        interval: (
            bound(ratio(beyond - half, beyond + half), 0.0),
            bound(ratio(beyond + half, beyond - half), f64::INFINITY),
        ),
        confidence: 1.0 - level,
        p_value: test.p_value(),
        design_effect: seen.design_effect,
    }
}

/// The number of further blocks that each arm needs at the same arrival rate.
fn lacking((a, b): (&Arm<'_>, &Arm<'_>), seen: &Seen) -> Verdict {
    let requests = a.requests().min(b.requests());
    let blocks = a.blocks.len() as f64;
    // A hair less, so that what is exact in decimals is not rounded up for being inexact in binary.
    let for_exceedances = EXCEEDANCES_MIN as f64 / (1.0 - seen.quantile.get()) * (1.0 - 1e-9);
    let for_blocks = requests as f64 * BLOCKS_MIN as f64 / seen.blocks.max(1) as f64;
    let more = (for_exceedances.max(for_blocks) - requests as f64).max(1.0);
    let block_len = if requests == 0 { more / BLOCKS_MIN as f64 } else { requests as f64 / blocks };
    Verdict::NotEnough { blocks: whole(more / block_len) }
}
