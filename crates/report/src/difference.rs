//! Compares two arms: all requests, and those of each query, tenant and size of tenant.
//!
//! The statistics are [`curtail_load::compare`]'s. The first block of one arm forms a pair with the first of the other,
//! and so on; an incomplete pair of an interrupted run is left out.
//! **Many comparisons**: the significance level of one comparison is divided among all queries, and likewise among all
//! tenants and all sizes.

use super::parts::{self, PartKind};
use crate::Results;
use crate::results::{Block, State};
use curtail_load::compare::{self, Goal, Number, Numbers, Percentile, Rule};
use curtail_load::{Latencies, LatencyKind};
use curtail_text::numbers::{self, percent_to, percentile_name};
use curtail_units::Quantile;

/// A comparison of the arm `other` with the arm `base`.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub(crate) base: String,
    pub(crate) other: String,
    /// The part of the requests: its kind and name; [`None`] for all.
    pub(crate) of: Option<(PartKind, String)>,
    /// The differences of response times.
    pub(crate) percentiles: Vec<Percentile>,
    /// Numbers of blocks, each with its name; empty for a part of the requests.
    pub(crate) numbers: Vec<(&'static str, Number)>,
    /// The primary percentile, which is declared before the run; the only one that parts of the requests show.
    pub(crate) primary: Quantile,
    /// The confidence and the number of blocks, in words.
    pub(crate) method: String,
}

/// The reason not to compare two arms, if there is one: the figures of a void run give no verdict on the service.
pub(crate) fn no_verdict(results: &Results) -> Option<String> {
    let is_void = matches!(results.state, State::Void { .. }) && results.arms.len() == 2;
    is_void.then(|| "No verdict: the run is void.".to_owned())
}

/// The lowest percentile without a verdict in a run that is not void, and the reason: the generator was too late at
/// this percentile.
pub(super) fn no_verdict_from(results: &Results) -> Option<(Quantile, String)> {
    let late = results.excessive_lag().filter(|late| !late.is_void() && !results.is_sweep())?;
    let name = percentile_name(late.quantile);
    Some((late.quantile, format!("{name} AND BEYOND, DO NOT USE: {late}")))
}

/// The comparisons of the second arm with the first; empty without two arms that have a pair of blocks, or for a void
/// run.
///
/// The first comparison is that of all requests.
#[must_use]
pub fn all(results: &Results, rule: &Rule) -> Vec<Comparison> {
    let [base, other] = results.arms.as_slice() else { return Vec::new() };
    if no_verdict(results).is_some() {
        return Vec::new();
    }
    let of_arm = |arm: usize| -> Vec<&Block> {
        results.measured().filter(|block| block.arm == arm).collect()
    };
    let (mut a, mut b) = (of_arm(0), of_arm(1));
    let pairs = a.len().min(b.len());
    a.truncate(pairs);
    b.truncate(pairs);
    if pairs == 0 {
        return Vec::new();
    }
    let from = no_verdict_from(results).map(|(quantile, _)| quantile);
    let compared =
        |of: Option<(PartKind, String)>, rule: &Rule, merged: &dyn Fn(&Block) -> Latencies| {
            let of_blocks = |blocks: &[&Block]| -> Vec<Latencies> {
                blocks.iter().map(|block| merged(block)).collect()
            };
            let mut percentiles =
                compare::percentiles(&of_blocks(&a), &of_blocks(&b), LatencyKind::Response, rule);
            percentiles.retain(|each| from.is_none_or(|from| each.quantile < from));
            let level = percent_to(rule.level, 2);
            let method = format!("{pairs} pairs of blocks; at most {level} false alarms");
            Comparison {
                base: base.name.clone(),
                other: other.name.clone(),
                of,
                percentiles,
                numbers: Vec::new(),
                primary: rule.primary,
                method,
            }
        };
    let whole = compared(None, rule, &Block::merged);
    let mut comparisons = vec![Comparison { numbers: numbers(&a, &b, rule), ..whole }];
    for by in PartKind::ALL {
        let parts = parts::all(results, by);
        let shared = Rule { level: rule.level / parts.len().max(1) as f64, ..*rule };
        for part in parts {
            let merged = |block: &Block| part.of(&block.latencies);
            comparisons.push(compared(Some((by, part.name.clone())), &shared, &merged));
        }
    }
    comparisons
}

pub(super) fn of_parts(
    comparisons: &[Comparison],
    by: PartKind,
) -> impl Iterator<Item = (&str, &Comparison)> {
    comparisons.iter().filter_map(move |comparison| match &comparison.of {
        Some((kind, name)) if *kind == by => Some((name.as_str(), comparison)),
        _ => None,
    })
}

type BlockMetric = fn(&Block) -> Option<f64>;

/// The numbers that are compared, each with the direction that is better.
const NUMBERS: [(&str, BlockMetric, Goal); 3] = [
    ("responses/s", responses_per_second, Goal::More),
    ("failed", failed_ratio, Goal::Less),
    ("CPU each", servers_cpu, Goal::Less),
];

/// Throughput, failures, and what a request costs the servers where that was measured.
fn numbers(a: &[&Block], b: &[&Block], rule: &Rule) -> Vec<(&'static str, Number)> {
    let each = |of: BlockMetric, blocks: &[&Block]| -> Option<Vec<f64>> {
        blocks.iter().map(|block| of(block)).collect()
    };
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (name, of, goal) in NUMBERS {
        if let (Some(a), Some(b)) = (each(of, a), each(of, b)) {
            names.push(name);
            values.push((a, b, goal));
        }
    }
    let asked: Vec<Numbers<'_>> =
        values.iter().map(|(a, b, goal)| Numbers { a, b, goal: *goal }).collect();
    names.into_iter().zip(compare::numbers(&asked, rule)).collect()
}

fn responses_per_second(block: &Block) -> Option<f64> {
    let responded = sum(block, |latencies| latencies.response.count());
    Some(responded / block.lasted.as_secs_f64().max(1e-9))
}

fn failed_ratio(block: &Block) -> Option<f64> {
    let failed = sum(block, |latencies| latencies.failures.total());
    Some(failed / sum(block, Latencies::count).max(1.0))
}

fn servers_cpu(block: &Block) -> Option<f64> {
    Some(block.servers_cpu?.as_ns_f64() / sum(block, Latencies::count).max(1.0))
}

fn sum(block: &Block, count: fn(&Latencies) -> u64) -> f64 {
    block.latencies.iter().map(count).sum::<u64>() as f64
}

/// A ratio as a signed difference: `-20.0 %`.
pub(crate) fn change(ratio: f64) -> String {
    if ratio.is_nan() {
        "n/a".to_owned()
    } else if ratio.is_infinite() || ratio > 100.0 {
        "> +9,900 %".to_owned()
    } else {
        numbers::signed_percent(ratio - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{PartKind, all};
    use crate::sample;
    use curtail_load::compare::Rule;

    #[test]
    fn arms_are_compared_as_a_whole_and_by_query_and_tenant() {
        let mut run = sample::compared(1);
        let comparisons = all(&run, &Rule::default());
        let of: Vec<_> =
            comparisons.iter().filter_map(|comparison| comparison.of.clone()).collect();
        let expected = [
            (PartKind::Query, "term"),
            (PartKind::Query, "facet"),
            (PartKind::Tenant, "large, size 1,000,000"),
            (PartKind::Tenant, "medium, size 50,000"),
            (PartKind::Tenant, "small, size 1,000"),
        ];
        assert_eq!(of, expected.map(|(by, name)| (by, name.to_owned())));
        assert_eq!(comparisons.len(), of.len() + 1);
        let whole = &comparisons[0];
        assert_eq!((whole.base.as_str(), whole.other.as_str()), ("direct", "hedged"));
        let of_arm = |arm| {
            let merged = curtail_load::Latencies::merged(&run.of_arm(arm));
            merged.quantile(curtail_load::LatencyKind::Response, curtail_units::Quantile::P50)
        };
        assert_eq!((whole.percentiles[0].a, whole.percentiles[0].b), (of_arm(0), of_arm(1)));
        let numbers: Vec<&str> = whole.numbers.iter().map(|(name, _)| *name).collect();
        assert_eq!(numbers, ["responses/s", "failed", "CPU each"]);

        // Of one arm 1 request in 500 was sent 10 s late.
        let mut late = run.clone();
        for block in late.blocks.iter_mut().filter(|block| block.arm == 1) {
            let mut latencies = curtail_load::Latencies::new();
            for (count, lag_ms, ms) in [(5_000, 0, 10), (10, 10_000, 10_010)] {
                let [lag, latency] = [lag_ms, ms].map(curtail_units::Duration::from_ms);
                latencies.lag.record_n(lag, count);
                latencies.response.record_n(latency, count);
                latencies.service.record_n(latency - lag, count);
            }
            block.latencies.fill(latencies);
        }
        let judged = &all(&late, &Rule::default())[0];
        let names = judged.percentiles.iter().map(|percentile| percentile.name);
        assert_eq!(names.collect::<Vec<_>>(), ["p50", "p90", "p95", "p99"]);
        let text = crate::table::render(&late, &[]);
        let first = "p99.9 AND BEYOND, DO NOT USE: the generator was 10 s late at quantile 0.999";
        assert!(text.starts_with(first), "{text}");

        run.blocks[2].servers_cpu = None;
        assert_eq!(all(&run, &Rule::default())[0].numbers.len(), 2, "a block was not measured");
        run.arms.truncate(1);
        assert_eq!(all(&run, &Rule::default()), []);
    }
}
