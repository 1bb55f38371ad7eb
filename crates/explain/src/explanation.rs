//! The result: where the time went, what slow traces have in common, and how sure that is.

use crate::cause::Cause;
use crate::counterfactual::{Counterfactual, attributable_fractions};
use crate::dominant_delays::find_dominant_delays;
use crate::excess::{Charge, Excess};
use crate::factors::Factors;
use crate::json;
use crate::long_traces::find_long_traces;
use crate::populations::{Populations, SlowTraces};
use crate::slower_components::find_slower_components;
use crate::tenants::Tenants;
use crate::traces::{Side, Traces, UnusedTraces};
use crate::writer::{Attribution, Writer};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use curtail_units::{Quantile, Rng, RunTasks};
use serde::Serialize;

/// The version of the shape of an [`Explanation`] in JSON.
pub const SCHEMA: &str = "curtail.explain/1";

/// What to explain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// The slow traces.
    pub slow: SlowTraces,
    /// Traces of the same period are compared with each other; the length of a period.
    pub period_ns: i64,
    /// The seed of resampling and of random labels.
    pub seed: u64,
}

/// Why there is nothing to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExplained {
    /// No trace has a root.
    NoTraces,
    /// One of two populations has no traces.
    EmptySide,
    /// The populations have no root operation in common.
    NoCommonOperation,
    /// There are too few traces for a tail.
    TooFew {
        /// The number of traces.
        traces: usize,
    },
    /// All traces take equally long, or none exceeds the objective.
    NoneSlow,
    /// No root operation has enough traces for one above the quantile.
    TooFewForQuantile,
}

impl fmt::Display for NotExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTraces => f.write_str("no trace has a root span: there is nothing to compare"),
            Self::EmptySide => f.write_str("one of the two populations has no trace with a root span"),
            Self::NoCommonOperation => {
                f.write_str("the two populations have no operation in common: expected root spans with the same service and name")
            }
            Self::TooFew { traces } => write!(
                f,
                "too few traces for a tail: expected at least {TRACES_MIN} of one operation, found {traces}"
            ),
            Self::NoneSlow => f.write_str(
                "no trace is slow: all durations are equal, or none exceeds the objective",
            ),
            Self::TooFewForQuantile => f.write_str(
                "too few traces for this quantile: expected a lower quantile, or more traces of one operation",
            ),
        }
    }
}

impl core::error::Error for NotExplained {}

/// The smallest number of traces of a root operation with a tail.
pub const TRACES_MIN: usize = 50;

/// One of the two populations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PopulationSummary {
    /// The number of traces.
    pub traces: usize,
    /// The mean duration; of the baseline, with the strata in the shares of the slow traces.
    #[serde(rename = "mean_ms", serialize_with = "json::ms")]
    pub mean_ns: f64,
}

/// The excess of one component.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComponentShare {
    /// The name, as `frontend: GET /` or `frontend -> cart GetCart`.
    pub component: String,
    /// The time added to a slow trace because each visit takes longer.
    #[serde(rename = "longer_ms", serialize_with = "json::ms")]
    pub longer_ns: f64,
    /// The time added because there are more visits.
    #[serde(rename = "more_ms", serialize_with = "json::ms")]
    pub more_ns: f64,
    /// The mean time of a visit, in the baseline and in slow traces.
    #[serde(rename = "visit_ms", serialize_with = "json::pair_ms")]
    pub visit_ns: (f64, f64),
    /// The mean number of visits of a trace, in the baseline and in slow traces.
    pub visits: (f64, f64),
}

/// The share of one service in the time that slow traces take longer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceShare {
    /// The service.
    pub service: String,
    /// The component of the service with the largest excess.
    pub component: String,
    /// The share of the excess; absent if slow traces do not take longer. All shares sum to 1.
    pub share: Option<f64>,
    /// The interval of the share; all intervals hold together with 95 %.
    pub interval: Option<(f64, f64)>,
    /// The excess a slow trace.
    #[serde(rename = "excess_ms", serialize_with = "json::ms")]
    pub excess_ns: f64,
    /// The components with the largest excess.
    pub components: Vec<ComponentShare>,
}

/// A cause of slow requests, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The cause.
    #[serde(serialize_with = "json::cause")]
    pub cause: Cause,
    /// A sentence.
    pub text: String,
    /// The service.
    pub service: String,
    /// The attribute and its condition, as `k8s.pod.name = pod-3`; or the component.
    pub subject: String,
    /// The share of slow traces that would not be slow (average attributable fraction), or of the excess.
    pub share: f64,
    /// The 95 % interval around `share`. The division of joint effects among findings is taken as known: an attribute has
    /// the standard error of its attributable fraction by itself, a dominant delay that of a share of the slow traces.
    pub interval: (f64, f64),
    /// The probability of so strong a contrast by chance; absent for dominant delays, which contrast nothing.
    pub p_value: Option<f64>,
    /// The number of slow and of all traces concerned.
    pub traces: (u64, u64),
    /// The time that the finding adds to the quantile, if the cause is a property of some traces.
    #[serde(rename = "quantile_ms", serialize_with = "json::optional_ms")]
    pub quantile_ns: Option<f64>,
    /// Other properties of nearly the same traces.
    pub same_as: Vec<String>,
    /// IDs of slow traces with the cause, the slowest first.
    #[serde(serialize_with = "json::trace_ids")]
    pub examples: Vec<u128>,
}

/// A quantile, and its value without all causes found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QuantileEffect {
    /// The quantile.
    #[serde(serialize_with = "json::quantile")]
    pub quantile: Quantile,
    /// Its value.
    #[serde(rename = "with_ms", serialize_with = "json::ms")]
    pub with_ns: f64,
    /// Its value if the traces with a cause behaved like the others.
    #[serde(rename = "without_ms", serialize_with = "json::ms")]
    pub without_ns: f64,
}

/// The explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The version of this shape.
    pub schema: &'static str,
    /// The slow traces.
    pub slow: PopulationSummary,
    /// The quantile of its operation and period that a slow trace reaches; null: another condition.
    #[serde(serialize_with = "json::optional_quantile")]
    pub slow_quantile: Option<Quantile>,
    /// The traces to compare with.
    pub baseline: PopulationSummary,
    /// The root operations of the slow traces with the number of these, most first.
    #[serde(serialize_with = "json::operations")]
    pub operations: Vec<(String, u64)>,
    /// Where the time went, the largest share first.
    pub ranking: Vec<ServiceShare>,
    /// The time added because traces make other calls, which is no service's share when two populations are compared.
    #[serde(rename = "more_calls_ms", serialize_with = "json::ms")]
    pub more_calls_ns: f64,
    /// What the slow traces have in common; empty: nothing stands out.
    pub findings: Vec<Finding>,
    /// The share of slow traces, or of the excess, that no finding explains.
    pub unexplained_ratio: f64,
    /// The lower bound of the share that the best finding of random labels has in one of twenty labelings.
    pub null_share: f64,
    /// The number of contrasts tested.
    pub tested: usize,
    /// The effect of all causes on a quantile.
    pub quantile: Option<QuantileEffect>,
    /// Traces that were left out.
    pub unused: UnusedTraces,
    /// Percentiles by tenant, if the caller adds them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Tenants>,
}

impl Explanation {
    /// Removes the findings that explain nothing besides the others. The shares still add up to 1.
    fn remove_without_share(&mut self) {
        let removed: f64 = self
            .findings
            .extract_if(.., |finding| finding.share <= 0.0)
            .map(|finding| finding.share)
            .sum();
        self.unexplained_ratio = (self.unexplained_ratio + removed).max(0.0);
    }
}

/// Explains why traces are slow. `run_tasks` may use several processors; the result does not depend on it.
///
/// # Errors
/// When there are no two populations to compare.
pub fn explain(
    traces: &Traces,
    question: &Question,
    run_tasks: RunTasks,
) -> Result<Explanation, NotExplained> {
    if traces.is_empty() {
        return Err(NotExplained::NoTraces);
    }
    if question.slow != SlowTraces::OfSide {
        let most = largest_trace_count(traces);
        if most < TRACES_MIN {
            return Err(NotExplained::TooFew { traces: most });
        }
    }
    let populations = Populations::of(traces, question.slow, question.period_ns);
    if populations.slow.is_empty() || populations.baseline.is_empty() {
        return Err(why_empty(traces, &populations, question.slow));
    }
    let rng = Rng::new(question.seed);
    let charge = match question.slow {
        SlowTraces::OfSide => Charge::LongerVisits,
        SlowTraces::AboveQuantile(_) | SlowTraces::LongerThan { .. } => Charge::AllTime,
    };
    let excess = Excess::of(traces, &populations, charge, &rng);
    let (slow_ns, baseline_ns) = populations.mean_durations_ns(traces);
    let writer = Writer { traces, populations: &populations, excess: &excess, charge };
    let mut explanation = Explanation {
        schema: SCHEMA,
        slow: PopulationSummary { traces: populations.slow.len(), mean_ns: slow_ns },
        slow_quantile: match question.slow {
            SlowTraces::AboveQuantile(quantile) => Some(quantile),
            SlowTraces::LongerThan { .. } | SlowTraces::OfSide => None,
        },
        baseline: PopulationSummary { traces: populations.baseline.len(), mean_ns: baseline_ns },
        operations: writer.operations(),
        ranking: writer.ranking(),
        more_calls_ns: excess.more_ns,
        findings: Vec::new(),
        unexplained_ratio: 1.0,
        null_share: 0.0,
        tested: excess.components.len(),
        quantile: None,
        unused: UnusedTraces {
            too_rare: populations.too_rare,
            unmatched: populations.unmatched,
            ..traces.unused()
        },
        tenants: None,
    };
    if charge == Charge::LongerVisits {
        let slower_components = find_slower_components(traces, &populations, &excess, baseline_ns);
        explanation.findings = writer.slower_component_findings(&slower_components);
        let explained: f64 = explanation.findings.iter().map(|finding| finding.share).sum();
        explanation.unexplained_ratio = (1.0 - explained).clamp(0.0, 1.0);
        return Ok(explanation);
    }
    let is_long = find_long_traces(traces, &populations);
    let mut factors = Factors::find(traces, &populations, &is_long, (&rng, run_tasks));
    let delays = find_dominant_delays(traces, &populations, (&excess, &is_long), &mut factors);
    let quantile = explanation.slow_quantile.unwrap_or(Quantile::P99);
    let causes = (&*factors.masks, factors.found.len() + delays.len());
    let effect = Counterfactual::of(traces, &populations, causes, quantile);
    let (fractions, unexplained_ratio) = attributable_fractions(&populations, causes);
    let attribution = Attribution { masks: &factors.masks, fractions: &fractions, effect: &effect };
    explanation.findings = writer.tail_findings(&factors.found, &delays, &attribution);
    explanation.unexplained_ratio = unexplained_ratio;
    explanation.remove_without_share();
    explanation.null_share = factors.null_fraction;
    explanation.tested += factors.tested;
    explanation.quantile =
        Some(QuantileEffect { quantile, with_ns: effect.with_ns, without_ns: effect.without_ns });
    Ok(explanation)
}

/// The number of traces of the root operation with the most traces.
fn largest_trace_count(traces: &Traces) -> usize {
    let mut counts = vec![0; traces.operations.len()];
    traces.rows.iter().for_each(|row| counts[row.root_operation as usize] += 1);
    counts.into_iter().max().unwrap_or(0)
}

fn why_empty(traces: &Traces, populations: &Populations, slow: SlowTraces) -> NotExplained {
    match slow {
        SlowTraces::OfSide => {
            let is_empty = |side| traces.rows.iter().all(|row| row.side != side);
            if [Side::Baseline, Side::Slow].into_iter().any(is_empty) {
                NotExplained::EmptySide
            } else {
                NotExplained::NoCommonOperation
            }
        }
        SlowTraces::AboveQuantile(_) if populations.too_rare == traces.len() as u64 => {
            NotExplained::TooFewForQuantile
        }
        SlowTraces::AboveQuantile(_) | SlowTraces::LongerThan { .. } => NotExplained::NoneSlow,
    }
}
