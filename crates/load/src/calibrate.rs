//! The error rates of comparisons: A against A for false alarms, A against A shifted for missed differences.
//!
//! Both arms of a comparison come from the model ([`on_model`]), or from recorded blocks of one arm ([`on_recorded`]). Of
//! two adjacent recorded blocks, a coin decides which one belongs to A.
//!
//! | counted | where |
//! |---|---|
//! | false alarms of the verdicts: better or worse, although both arms are alike | each percentile, and any of them |
//! | false alarms of the test alone, without the correction for many percentiles | each percentile |
//! | false alarms of tests that take requests as independent (module `usual`) | each percentile; Mann–Whitney once |
//! | planted shifts that are found, in the right direction | each percentile |
//!
//! **Invariant**: everything random follows from the seed; each rate has an interval (Wilson, 95 %).
//! **Limits**: all comparisons use the same recorded blocks, so the interval covers the chance of the coins, but not
//! that of the recording. Coins make pairs independent, so a dependence between pairs does not show.
//! **Source**: Wilson, "Probable inference, the law of succession, and statistical inference" (1927).

#[cfg(test)]
mod tests;
mod usual;

use crate::compare::arm::Arm;
use crate::compare::{self, Percentile, Rule, Verdict};
use crate::stalls::Stalls;
use crate::{Latencies, LatencyKind};
use curtail_sketch::Histogram;
use curtail_units::{Duration, Rng, wilson_interval};

/// The comparisons to try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The number of comparisons.
    pub comparisons: u32,
    /// The number of blocks of each arm; on recorded blocks, half of their number instead.
    pub blocks: usize,
    /// The seed.
    pub seed: u64,
    /// The factor on all latencies of B where a difference is planted.
    pub shift: f64,
    /// The rule of the verdicts.
    pub rule: Rule,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            comparisons: 200,
            blocks: compare::BLOCKS_DEFAULT,
            seed: 1,
            shift: 1.1,
            rule: Rule::default(),
        }
    }
}

/// A count of hits, and of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// The number of hits.
    pub hits: u32,
    /// The number of trials.
    pub of: u32,
}

impl Rate {
    fn count(&mut self, is_hit: bool) {
        self.hits += u32::from(is_hit);
        self.of += 1;
    }

    /// The share of hits; [`None`] without trials.
    #[must_use]
    pub fn ratio(self) -> Option<f64> {
        (self.of > 0).then(|| f64::from(self.hits) / f64::from(self.of))
    }

    /// The 95 % interval of the true share (Wilson); [`None`] without trials.
    #[must_use]
    pub fn interval(self) -> Option<(f64, f64)> {
        self.ratio().map(|share| wilson_interval(share, f64::from(self.of)))
    }
}

/// The results of all comparisons at one percentile. Comparisons with too few requests do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// The percentile's name.
    pub name: &'static str,
    /// False alarms of the verdicts.
    pub alarms: Rate,
    /// False alarms of the test alone, at the full level, as if this percentile were the only one.
    pub alarms_alone: Rate,
    /// False alarms of a bootstrap of all requests, at the full level.
    pub alarms_bootstrap: Rate,
    /// Planted shifts that were found, in the right direction.
    pub found: Rate,
    /// Mean ratio of the variance to that of independent requests.
    pub design_effect: f64,
}

/// The results of all comparisons.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The plan, with the real number of blocks.
    pub plan: Plan,
    /// The results of each percentile.
    pub rows: Vec<Row>,
    /// Comparisons with a false alarm at one percentile or more.
    pub any_alarm: Rate,
    /// False alarms of Mann and Whitney's test on all requests, at the full level.
    pub alarms_mann_whitney: Rate,
}

/// The blocks of A and of B.
type Arms = (Vec<Latencies>, Vec<Latencies>);

/// Compares arms drawn from the model; calls `progress` with the number of comparisons done.
#[must_use]
pub fn on_model(model: &Stalls, plan: &Plan, progress: impl FnMut(u32)) -> Calibration {
    let root = Rng::new(plan.seed).split("stalls");
    let draw = |nth: u32| {
        let mut rng = root.split_index(u64::from(nth));
        (model.blocks(&mut rng, plan.blocks), model.blocks(&mut rng, plan.blocks))
    };
    calibrate(plan, draw, LatencyKind::Response, progress)
}

/// Compares recorded blocks of one arm, in the order of their time, with each other; the last of an odd number is left
/// out. Calls `progress` with the number of comparisons done.
#[must_use]
pub fn on_recorded(
    recorded: &[Latencies],
    clock: LatencyKind,
    plan: &Plan,
    progress: impl FnMut(u32),
) -> Calibration {
    let root = Rng::new(plan.seed).split("recorded");
    let draw = |nth: u32| {
        let mut rng = root.split_index(u64::from(nth));
        let pairs = recorded.chunks_exact(2);
        let tossed = pairs.map(|pair| {
            let (a, b) = if rng.chance(0.5) { (0, 1) } else { (1, 0) };
            (pair[a].clone(), pair[b].clone())
        });
        tossed.unzip()
    };
    let plan = Plan { blocks: recorded.len() / 2, ..*plan };
    calibrate(&plan, draw, clock, progress)
}

/// The requests of `block`: on both clocks, every response takes `shift` times as long as on `clock`, exact to a
/// bucket. Every quantile is therefore `shift` times as long.
pub(crate) fn planted(block: &Latencies, clock: LatencyKind, shift: f64) -> Latencies {
    let responses = block.responses(clock);
    let mut longer = Histogram::new(responses.precision());
    for bucket in responses.buckets() {
        let middle = f64::midpoint(bucket.lower.as_ns_f64(), bucket.upper.as_ns_f64());
        longer.record_n(Duration::from_ns_f64(middle * shift), bucket.count);
    }
    Latencies {
        response: longer.clone(),
        service: longer,
        lag: Histogram::new(responses.precision()),
        failures: block.failures,
    }
}

fn calibrate(
    plan: &Plan,
    draw: impl Fn(u32) -> Arms,
    clock: LatencyKind,
    mut progress: impl FnMut(u32),
) -> Calibration {
    let row = |(name, _)| Row { name, ..Row::default() };
    let mut calibration = Calibration {
        plan: *plan,
        rows: compare::PERCENTILES.map(row).to_vec(),
        any_alarm: Rate::default(),
        alarms_mann_whitney: Rate::default(),
    };
    let bootstraps = Rng::new(plan.seed).split("bootstrap");
    for nth in 0..plan.comparisons {
        let arms = draw(nth);
        calibration.count(&arms, clock, &mut bootstraps.split_index(u64::from(nth)));
        progress(nth + 1);
    }
    for row in &mut calibration.rows {
        row.design_effect /= f64::from(row.alarms.of.max(1));
    }
    calibration
}

impl Calibration {
    fn count(&mut self, arms: &Arms, clock: LatencyKind, rng: &mut Rng) {
        let rule = &self.plan.rule;
        let shifted: Vec<Latencies> =
            arms.1.iter().map(|block| planted(block, clock, self.plan.shift)).collect();
        let arm = |blocks| Arm::new(blocks, clock);
        let (a, b, shifted) = (arm(&arms.0), arm(&arms.1), arm(&shifted));
        let same = compare::percentiles_of((&a, &b), rule);
        let planted = compare::percentiles_of((&a, &shifted), rule);
        let mann_whitney = usual::mann_whitney((&a, &b));
        let is_alarm = |percentile: &Percentile| percentile.verdict.is_difference();
        self.any_alarm.count(same.iter().any(is_alarm));
        self.alarms_mann_whitney.count(mann_whitney <= rule.level);
        let direction = if self.plan.shift < 1.0 { Verdict::Better } else { Verdict::Worse };
        for ((row, same), planted) in self.rows.iter_mut().zip(&same).zip(&planted) {
            let Some(difference) = same.difference.filter(|_| has_verdict(same)) else {
                continue;
            };
            row.alarms.count(is_alarm(same));
            row.alarms_alone.count(difference.p_value <= rule.level);
            let bootstrap = usual::bootstrap_differs((&a, &b), same.quantile, rule.level, rng);
            row.alarms_bootstrap.count(bootstrap);
            row.design_effect += difference.design_effect;
            if has_verdict(planted) {
                row.found.count(planted.verdict == direction);
            }
        }
    }
}

const fn has_verdict(percentile: &Percentile) -> bool {
    !matches!(percentile.verdict, Verdict::NotEnough { .. } | Verdict::Failed)
}
