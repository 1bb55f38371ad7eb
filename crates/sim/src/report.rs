//! The report of a scenario: as values, as a table for people, and as JSON for programs.

mod json;
mod table;

pub(crate) use table::latency;

use crate::batches::difference::Difference;
use crate::batches::{Batches, Estimate};
use crate::model::Model;
use crate::world::{StopReason, World};
use curtail_units::{Duration, Quantile};

#[cfg(test)]
mod tests;

/// The results of a scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The number of events of all runs.
    pub events: u64,
    /// The results of each arm with each model.
    pub arms: Vec<ArmReport>,
}

/// The results of one model with one policy.
#[derive(Clone, Debug)]
pub struct ArmReport {
    /// The name of the model.
    pub variant: String,
    /// The name of the arm.
    pub arm: String,
    /// Requests that count: those after the warm-up.
    pub requests: u64,
    /// The mean latency of the requests that succeeded, in nanoseconds.
    pub mean_ns: Option<Estimate>,
    /// Quantiles of the latency, in nanoseconds; a request that failed is longer than all others.
    pub quantiles_ns: Vec<(Quantile, Option<Estimate>)>,
    /// The share of requests above each threshold.
    pub above: Vec<(Duration, Estimate)>,
    /// Requests that failed.
    pub errors: u64,
    /// Attempts beyond one for each call of a request, as a share of the calls of all tiers.
    pub extra_requests_ratio: f64,
    /// Executions beyond one for each call of a request, as a share of the calls of all tiers.
    pub extra_work_ratio: f64,
    /// Service time delivered, as a share of the capacity that is allocated to the servers of the first tier.
    pub utilization_ratio: f64,
    /// Retries of clients, as a share of the requests.
    pub client_retries_ratio: f64,
    /// Requests whose client got the responses of fewer calls than needed, because of a deadline.
    pub partial: u64,
    /// The requests of each type.
    pub types: Vec<TypeReport>,
    /// The latencies relative to those of the model's first arm that was not stopped; absent in that arm.
    pub comparison: Option<Comparison>,
    /// The reason why the run was stopped early; it then has no latencies.
    pub stopped: Option<StopReason>,
    /// Whether the run was in its steady state when counting began, remained in it, and was not stopped.
    pub settled: bool,
    /// A hash of everything that happened.
    pub log: u64,
}

/// The results of the requests of one type.
#[derive(Clone, Debug)]
pub struct TypeReport {
    /// The name of the type.
    pub name: String,
    /// Requests that count.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The mean latency of the requests that succeeded, in nanoseconds.
    pub mean_ns: Option<Estimate>,
    /// Quantiles of the latency, in nanoseconds.
    pub quantiles_ns: Vec<(Quantile, Option<Estimate>)>,
}

impl TypeReport {
    fn new(name: &str, batches: &Batches) -> Self {
        Self {
            name: name.to_owned(),
            requests: batches.len(),
            errors: batches.failed(),
            mean_ns: batches.mean_ns(),
            quantiles_ns: batches.quantiles_ns(&QUANTILES),
        }
    }

    /// The estimate of a quantile, in nanoseconds; [`None`] when the quantile is not reported, or is a failed request.
    #[must_use]
    pub fn quantile_ns(&self, quantile: Quantile) -> Option<Estimate> {
        estimate_of(&self.quantiles_ns, quantile)
    }
}

/// The ratios of an arm to another one that saw the same requests: 0.5 is half as long.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The name of the other arm.
    pub against: String,
    /// The ratio of the means.
    pub mean: Option<Estimate>,
    /// The ratios of the quantiles; [`None`] where the quantile of either arm is a failed request.
    pub quantiles: Vec<(Quantile, Option<Estimate>)>,
}

impl Comparison {
    /// The ratio of a reported quantile.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Option<Estimate> {
        estimate_of(&self.quantiles, quantile)
    }
}

const QUANTILES: [Quantile; 5] =
    [Quantile::P50, Quantile::P90, Quantile::P95, Quantile::P99, Quantile::P999];

impl Report {
    /// A table of at most 80 columns.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// The report as one JSON object; `seconds` is the CPU time of the simulation, which the caller measured.
    ///
    /// # Panics
    /// Never: all that is in a report can be written as JSON.
    #[must_use]
    pub fn json(&self, seconds: f64) -> String {
        json::render(self, seconds)
    }

    /// The results of an arm by the name of its model and its own name.
    #[must_use]
    pub fn arm(&self, variant: &str, arm: &str) -> Option<&ArmReport> {
        self.arms.iter().find(|report| report.variant == variant && report.arm == arm)
    }
}

impl ArmReport {
    pub(crate) fn new((variant, arm): (&str, &str), model: &Model, world: &mut World<'_>) -> Self {
        let counts = world.counts();
        let tally = world.tally();
        let batches = &tally.batches;
        let beyond_one = |count: u64| (count as f64 - counts.calls as f64) / counts.calls as f64;
        let capacity_ns = model.capacity() * counts.elapsed.as_ns_f64();
        let stopped = world.stopped();
        let whole = stopped.is_none();
        let quantiles = batches.quantiles_ns(&QUANTILES);
        let types = model.request_types.iter().zip(&tally.of_types).filter(|_| whole);
        Self {
            variant: variant.to_owned(),
            arm: arm.to_owned(),
            requests: batches.len(),
            mean_ns: batches.mean_ns().filter(|_| whole),
            quantiles_ns: if whole { quantiles } else { QUANTILES.map(|q| (q, None)).to_vec() },
            above: if whole { batches.above() } else { Vec::new() },
            client_retries_ratio: tally.client_retries as f64 / batches.len().max(1) as f64,
            partial: tally.partial,
            types: types.map(|(of, tally)| TypeReport::new(&of.name, &tally.batches)).collect(),
            comparison: None,
            stopped,
            errors: batches.failed(),
            extra_requests_ratio: beyond_one(counts.attempts),
            extra_work_ratio: beyond_one(counts.executions),
            utilization_ratio: counts.work_ns / capacity_ns,
            settled: whole && tally.settled && !(tally.has_warm_up() && batches.wanders()),
            log: world.log(),
        }
    }

    pub(crate) fn compare(&mut self, against: &str, other: &Batches, own: &Batches) {
        let difference = Difference::new(other, own);
        self.comparison = Some(Comparison {
            against: against.to_owned(),
            mean: difference.mean(),
            quantiles: QUANTILES.map(|q| (q, difference.quantile(q))).to_vec(),
        });
    }

    /// The name of the model and the name of the arm.
    #[must_use]
    pub fn name(&self) -> String {
        if self.variant.is_empty() {
            self.arm.clone()
        } else {
            format!("{}, {}", self.variant, self.arm)
        }
    }

    /// The estimate of a quantile, in nanoseconds; [`None`] when the quantile is not reported, or is a failed request.
    #[must_use]
    pub fn quantile_ns(&self, quantile: Quantile) -> Option<Estimate> {
        estimate_of(&self.quantiles_ns, quantile)
    }
}

fn estimate_of(quantiles: &[(Quantile, Option<Estimate>)], wanted: Quantile) -> Option<Estimate> {
    quantiles.iter().find(|(quantile, _)| *quantile == wanted).and_then(|(_, estimate)| *estimate)
}
