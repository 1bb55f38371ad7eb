//! Runs a scenario: each of its models with each of its arms, one after the other.

use crate::batches::Batches;
use crate::report::{ArmReport, Report};
use crate::scenario::{Scenario, Variant};
use crate::world::World;

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct SimulationProgress<'s> {
    /// The model that is being simulated.
    pub variant: &'s str,
    /// The arm that is being simulated.
    pub arm: &'s str,
    /// The number of runs that have ended.
    pub runs_done: usize,
    /// The number of all runs.
    pub runs: usize,
    /// The number of requests of this run that have ended.
    pub requests: u64,
    /// The maximum number of requests of this run.
    pub requests_max: u64,
    /// The number of events of all runs so far.
    pub events: u64,
}

/// The number of events between two progress reports: there are several reports a second.
const EVENTS_PER_REPORT: u64 = 1 << 20;

/// Simulates `scenario` with everything random drawn from `seed`; `watch` receives the progress.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    mut watch: impl FnMut(SimulationProgress<'_>),
) -> Report {
    let runs = scenario.variants.len() * scenario.arms.len();
    let mut report = Report { seed, events: 0, arms: Vec::with_capacity(runs) };
    for Variant { name: variant, model } in &scenario.variants {
        let mut first: Option<(&str, Batches)> = None;
        for arm in &scenario.arms {
            let mut world = World::new(model, arm, (scenario.stop, &scenario.above), seed);
            while world.run(EVENTS_PER_REPORT) {
                watch(SimulationProgress {
                    variant,
                    arm: &arm.name,
                    runs_done: report.arms.len(),
                    runs,
                    requests: world.tally().requests,
                    requests_max: scenario.stop.requests_max,
                    events: report.events + world.events(),
                });
            }
            report.events += world.events();
            let mut arm_report = ArmReport::new((variant, &arm.name), model, &mut world);
            if arm_report.stopped.is_none() {
                let batches = world.into_batches();
                match &first {
                    Some((name, first)) => arm_report.compare(name, first, &batches),
                    None => first = Some((&arm.name, batches)),
                }
            }
            report.arms.push(arm_report);
        }
    }
    report
}
