//! Planted causes are found, and nothing is found where nothing was planted. `benches/planted.rs` has more runs.

#[path = "planted/world.rs"]
mod world;

use curtail_explain::{Explanation, Question, SlowTraces, Traces, explain};
use curtail_units::{Quantile, Rng};
use world::{Planted, add_traces};

fn explained(seed: u64, planted: &[Planted]) -> Explanation {
    let mut traces = Traces::default();
    add_traces(&mut traces, &mut Rng::new(seed), 6_000, planted);
    let slow = SlowTraces::AboveQuantile(Quantile::P99);
    explain(&traces, &Question { slow, period_ns: 3_600_000_000_000, seed }).expect("it has a tail")
}

#[test]
fn a_planted_cause_is_the_first_finding() {
    for (planted, cause, subject) in Planted::ALL {
        for seed in 1..=3 {
            let explanation = explained(seed, &[planted]);
            let first =
                explanation.findings.first().map(|first| (first.cause.name(), &*first.subject));
            let is_found = first.is_some_and(|(name, of)| name == cause && of.contains(subject));
            assert!(is_found, "{planted:?}, seed {seed}: {:#?}", explanation.findings);
        }
    }
}

#[test]
fn nothing_stands_out_where_nothing_is_planted() {
    let alarms: Vec<_> =
        (1..=40).filter(|seed| !explained(*seed, &[]).findings.is_empty()).collect();
    // Of 40 runs with at most 5 % false alarms, more than 5 have one in 1.4 % of all cases.
    assert!(alarms.len() <= 5, "seeds with findings: {alarms:?}");
}
