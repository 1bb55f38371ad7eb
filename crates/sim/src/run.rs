//! Runs a scenario: each of its models with each of its arms, one after the other.

use crate::batches::Batches;
use crate::record::RequestRecord;
use crate::report::{ArmReport, Report};
use crate::scenario::{Arm, Scenario, Variant};
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

/// The same for a recorded run: its records are handed over before they take much memory.
const EVENTS_PER_REPORT_RECORDED: u64 = 1 << 14;

/// Receives the records of requests, see [`run_recorded`].
#[expect(missing_debug_implementations, reason = "a function has none")]
pub struct Recording<'r> {
    /// The maximum number of requests of each run to record, from the end of the warm-up on.
    pub requests_max: u64,
    /// Receives each record, with the model and the arm of the run. The order is that in which the last attempts of the
    /// requests ended.
    pub record: &'r mut dyn FnMut(&Variant, &Arm, RequestRecord),
}

/// Simulates `scenario` with everything random drawn from `seed`; `watch` receives the progress.
pub fn run(scenario: &Scenario, seed: u64, watch: impl FnMut(SimulationProgress<'_>)) -> Report {
    simulate(scenario, seed, watch, None)
}

/// Simulates `scenario` as [`run`] does, and records requests that count.
pub fn run_recorded(
    scenario: &Scenario,
    seed: u64,
    watch: impl FnMut(SimulationProgress<'_>),
    recording: Recording<'_>,
) -> Report {
    simulate(scenario, seed, watch, Some(recording))
}

fn simulate(
    scenario: &Scenario,
    seed: u64,
    mut watch: impl FnMut(SimulationProgress<'_>),
    mut recording: Option<Recording<'_>>,
) -> Report {
    let runs = scenario.variants.len() * scenario.arms.len();
    let events_per_report =
        if recording.is_some() { EVENTS_PER_REPORT_RECORDED } else { EVENTS_PER_REPORT };
    let mut report = Report { seed, events: 0, arms: Vec::with_capacity(runs) };
    for variant in &scenario.variants {
        let model = &variant.model;
        let mut first: Option<(&str, Batches)> = None;
        for arm in &scenario.arms {
            let mut world = World::new(model, arm, (scenario.stop, &scenario.above), seed);
            if let Some(recording) = &recording {
                world = world.recording(recording.requests_max);
            }
            loop {
                let runs_on = world.run(events_per_report);
                if let Some(recording) = &mut recording {
                    for record in world.take_records() {
                        (recording.record)(variant, arm, record);
                    }
                }
                if !runs_on {
                    break;
                }
                watch(SimulationProgress {
                    variant: &variant.name,
                    arm: &arm.name,
                    runs_done: report.arms.len(),
                    runs,
                    requests: world.tally().requests,
                    requests_max: scenario.stop.requests_max,
                    events: report.events + world.events(),
                });
            }
            report.events += world.events();
            let mut arm_report = ArmReport::new((&variant.name, &arm.name), model, &mut world);
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
