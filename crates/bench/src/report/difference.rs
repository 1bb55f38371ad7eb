//! One arm held against another: of all requests, and of each query and each tenant alone.
//!
//! The statistics are [`curtail_load::compare`]'s. Blocks are in pairs: the first of one arm with the first of the
//! other, and so on; a pair that an interrupted run has left incomplete is left out.
//! **Many at once**: what is said of queries and tenants shares the level among them, so that one false alarm among
//! all queries is as rare as one of a single comparison.

use crate::Results;
use crate::results::{Block, Series};
use curtail_load::compare::{self, Goal, Number, Numbers, Percentile, Rule};
use curtail_load::{Clock, Latencies};
use curtail_units::Quantile;

/// One arm held against another.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The arm that is compared with.
    pub base: String,
    /// The arm that is compared.
    pub other: String,
    /// Which requests, in words; empty for all.
    pub of: String,
    /// Response times.
    pub percentiles: Vec<Percentile>,
    /// Numbers of blocks, each with its name; only where it is about all requests.
    pub numbers: Vec<(&'static str, Number)>,
    /// The percentile that is declared beforehand, and shown of parts of the requests.
    pub primary: Quantile,
    /// How sure the intervals are, and how many blocks they come from, in words.
    pub method: String,
}

/// What `results` say of their second arm against the first; nothing unless there are two arms with a pair of blocks.
///
/// The first is about all requests.
#[must_use]
pub fn all(results: &Results, rule: &Rule) -> Vec<Comparison> {
    let [base, other] = results.arms.as_slice() else { return Vec::new() };
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
    let compared = |of: String, rule: &Rule, is_of: &dyn Fn(&Series) -> bool| {
        let of_blocks = |blocks: &[&Block]| -> Vec<Latencies> {
            blocks.iter().map(|block| of_series(results, block, is_of)).collect()
        };
        let percentiles =
            compare::percentiles(&of_blocks(&a), &of_blocks(&b), Clock::Response, rule);
        let percent = 100.0 * rule.level;
        let method = format!("{pairs} pairs of blocks; at most {percent:.2} % false alarms");
        Comparison {
            base: base.name.clone(),
            other: other.name.clone(),
            of,
            percentiles: percentiles.unwrap_or_default(),
            numbers: Vec::new(),
            primary: rule.primary,
            method,
        }
    };
    let mut comparisons = vec![Comparison {
        numbers: numbers(&a, &b, rule),
        ..compared(String::new(), rule, &|_| true)
    }];
    for (kind, key) in [("query", query as fn(&Series) -> &str), ("tenant", tenant)] {
        let mut names: Vec<(u64, &str)> = Vec::new();
        for series in &results.series {
            if !names.iter().any(|(_, name)| *name == key(series)) {
                names.push((series.tenant_size, key(series)));
            }
        }
        if names.len() < 2 {
            continue;
        }
        if kind == "tenant" {
            names.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        }
        let shared = Rule { level: rule.level / names.len() as f64, ..*rule };
        for (_, name) in names {
            comparisons
                .push(compared(format!("{kind} {name}"), &shared, &|series| key(series) == name));
        }
    }
    comparisons
}

fn query(series: &Series) -> &str {
    &series.query
}

fn tenant(series: &Series) -> &str {
    &series.tenant
}

fn of_series(results: &Results, block: &Block, is_of: &dyn Fn(&Series) -> bool) -> Latencies {
    let all = results.series.iter().zip(&block.latencies);
    Latencies::merged(all.filter(|(series, _)| is_of(series)).map(|(_, latencies)| latencies))
}

/// A number that a block has.
type OfBlock = fn(&Block) -> Option<f64>;

/// The numbers that are compared, each with the way that is better.
const NUMBERS: [(&str, OfBlock, Goal); 3] = [
    ("answers_per_second", answers_per_second, Goal::More),
    ("failed_ratio", failed_ratio, Goal::Less),
    ("servers_cpu_ns_per_request", servers_cpu, Goal::Less),
];

/// Throughput, failures, and what a request costs the servers where that was measured.
fn numbers(a: &[&Block], b: &[&Block], rule: &Rule) -> Vec<(&'static str, Number)> {
    let each = |of: OfBlock, blocks: &[&Block]| -> Option<Vec<f64>> {
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
    names.into_iter().zip(compare::numbers(&asked, rule).unwrap_or_default()).collect()
}

fn answers_per_second(block: &Block) -> Option<f64> {
    let answered = block.merged().response.count() as f64;
    Some(answered / block.lasted.as_secs_f64().max(1e-9))
}

fn failed_ratio(block: &Block) -> Option<f64> {
    let all = block.merged();
    Some(all.failures.total() as f64 / (all.count() as f64).max(1.0))
}

fn servers_cpu(block: &Block) -> Option<f64> {
    Some(block.servers_cpu?.as_ns_f64() / (block.merged().count() as f64).max(1.0))
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
    if ratio.is_nan() {
        "n/a".to_owned()
    } else if ratio.is_infinite() || ratio > 100.0 {
        "> +9,900 %".to_owned()
    } else {
        format!("{:+.1} %", 100.0 * (ratio - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::report::sample;
    use curtail_load::compare::Rule;

    #[test]
    fn arms_are_compared_as_a_whole_and_by_query_and_tenant() {
        let mut run = sample::compared(1);
        let comparisons = all(&run, &Rule::default());
        let of: Vec<&str> = comparisons.iter().map(|comparison| comparison.of.as_str()).collect();
        let expected =
            ["", "query term", "query facet", "tenant large", "tenant medium", "tenant small"];
        assert_eq!(of, expected);
        let whole = &comparisons[0];
        assert_eq!((whole.base.as_str(), whole.other.as_str()), ("direct", "hedged"));
        let of_arm = |arm| {
            let merged = curtail_load::Latencies::merged(&run.of_arm(arm));
            merged.quantile(curtail_load::Clock::Response, curtail_units::Quantile::P50)
        };
        assert_eq!((whole.percentiles[0].a, whole.percentiles[0].b), (of_arm(0), of_arm(1)));
        let numbers: Vec<&str> = whole.numbers.iter().map(|(name, _)| *name).collect();
        assert_eq!(numbers, ["answers_per_second", "failed_ratio", "servers_cpu_ns_per_request"]);

        run.blocks[2].servers_cpu = None;
        assert_eq!(all(&run, &Rule::default())[0].numbers.len(), 2, "a block was not measured");
        run.arms.truncate(1);
        assert_eq!(all(&run, &Rule::default()), []);
    }
}
