//! Compares numbers of blocks: throughput, the share of errors, the cost of a request.
//!
//! The result is the ratio B/A of the means. The test is the paired t. The interval holds every ratio `r` for which the
//! paired t of `b − r · a` finds no difference (Fieller). It has no upper end when A's mean may be 0.
//! **Inputs**: numbers from 0 on, of any one unit; each block has the same weight.
//! **Many numbers** share the level equally, by Holm's procedure.

use super::{BLOCKS_MIN, Difference, Rule, Test, Verdict, error_of_mean, holm};

/// The direction that is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Less is better: errors and cost.
    Less,
    /// More is better: throughput.
    More,
}

/// The numbers of both arms to compare, one for each block.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    /// The numbers of A's blocks.
    pub a: &'a [f64],
    /// The numbers of B's blocks, in the same order.
    pub b: &'a [f64],
    /// The direction that is better.
    pub goal: Goal,
}

/// The comparison of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The mean of A's blocks; nothing without blocks.
    pub a: Option<f64>,
    /// The mean of B's blocks; nothing without blocks.
    pub b: Option<f64>,
    /// The difference of B from A; [`None`] with fewer than two pairs.
    pub difference: Option<Difference>,
    /// The verdict on B.
    pub verdict: Verdict,
}

/// Compares numbers block by block; all of `family` are one family of tests.
pub fn numbers(family: &[Numbers<'_>], rule: &Rule) -> Vec<Number> {
    let tests: Vec<Option<Test>> = family.iter().map(test).collect();
    let p_values: Vec<f64> = tests.iter().flatten().map(Test::p_value).collect();
    let mut levels = holm::levels(&p_values, &vec![1.0; p_values.len()], rule.level).into_iter();
    let verdicts = family.iter().zip(&tests).map(|(numbers, test)| {
        let tested = test.as_ref().zip(test.and_then(|_| levels.next()));
        judge_number(numbers, tested, rule)
    });
    verdicts.collect()
}

fn differences(numbers: &Numbers<'_>) -> Vec<f64> {
    numbers.a.iter().zip(numbers.b).map(|(a, b)| b - a).collect()
}

/// The test; [`None`] with fewer than two pairs.
fn test(numbers: &Numbers<'_>) -> Option<Test> {
    let differences = differences(numbers);
    (differences.len() >= 2).then(|| Test {
        difference: mean(&differences).unwrap_or(0.0),
        error: error_of_mean(&differences),
        pairs: differences.len(),
    })
}

fn judge_number(numbers: &Numbers<'_>, tested: Option<(&Test, f64)>, rule: &Rule) -> Number {
    let difference = tested.map(|(test, level)| differ(numbers, test, level));
    let pairs = numbers.a.len() as u64;
    let verdict = match (tested, &difference) {
        (Some((test, level)), Some(difference)) if pairs >= BLOCKS_MIN => {
            for_goal(test.verdict(difference, level, rule.margin), numbers.goal)
        }
        _ => Verdict::NotEnough { blocks: BLOCKS_MIN.saturating_sub(pairs) },
    };
    Number { a: mean(numbers.a), b: mean(numbers.b), difference, verdict }
}

/// Swaps better and worse when more is better.
const fn for_goal(verdict: Verdict, goal: Goal) -> Verdict {
    match (goal, verdict) {
        (Goal::More, Verdict::Better) => Verdict::Worse,
        (Goal::More, Verdict::Worse) => Verdict::Better,
        _ => verdict,
    }
}

fn differ(numbers: &Numbers<'_>, test: &Test, level: f64) -> Difference {
    let (a, b) = (mean(numbers.a).unwrap_or(0.0), mean(numbers.b).unwrap_or(0.0));
    // Nothing on both sides is the same on both sides.
    let ratio = if a == b { 1.0 } else { b / a };
    Difference {
        ratio,
        interval: fieller(numbers, ratio, test.critical(level)),
        confidence: 1.0 - level,
        p_value: test.p_value(),
        design_effect: 1.0,
    }
}

/// Every ratio `r` with `mean(b − r·a)² ≤ t² · error(b − r·a)²`: a quadratic in `r`.
fn fieller(numbers: &Numbers<'_>, ratio: f64, critical: f64) -> (f64, f64) {
    let (a, b) = (numbers.a, numbers.b);
    let t2 = critical * critical;
    let (mean_a, mean_b) = (mean(a).unwrap_or(0.0), mean(b).unwrap_or(0.0));
    let squares = mean_a * mean_a - t2 * covariance_of_means(a, a);
    let mixed = mean_a * mean_b - t2 * covariance_of_means(a, b);
    let constant = mean_b * mean_b - t2 * covariance_of_means(b, b);
    let root = (mixed * mixed - squares * constant).max(0.0).sqrt();
    if mean_a == mean_b && differences(numbers).iter().all(|d| *d == 0.0) {
        return (1.0, 1.0);
    }
    if mean_a == 0.0 {
        // No ratio explains any of B: either all are ruled out, or none is.
        return if constant > 0.0 { (f64::INFINITY, f64::INFINITY) } else { (0.0, f64::INFINITY) };
    }
    if squares > 0.0 {
        return (((mixed - root) / squares).max(0.0), (mixed + root) / squares);
    }
    // A's mean may be 0: the ratios between the two roots are ruled out, if any, and those on the far side of them.
    let (low, high) = ((mixed + root) / squares, (mixed - root) / squares);
    if root == 0.0 || high <= 0.0 {
        (0.0, f64::INFINITY)
    } else if ratio >= high {
        (high, f64::INFINITY)
    } else {
        (0.0, low.max(0.0))
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn covariance_of_means(a: &[f64], b: &[f64]) -> f64 {
    let count = a.len() as f64;
    let (mean_a, mean_b) = (mean(a).unwrap_or(0.0), mean(b).unwrap_or(0.0));
    let products: f64 = a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum();
    products / (count - 1.0) / count
}
