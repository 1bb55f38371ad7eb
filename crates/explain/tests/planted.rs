//! Planted causes are found, and nothing is found where nothing was planted. `benches/planted.rs` has more runs.

#[path = "planted/world.rs"]
mod world;

use curtail_explain::{Explanation, Question, Side, SlowTraces, Traces, explain};
use curtail_units::{Quantile, Rng};
use std::collections::BTreeSet;
use world::{Planted, add_traces, with_trace};

fn explained(seed: u64, planted: &[Planted]) -> Explanation {
    let mut traces = Traces::default();
    add_traces(&mut traces, &mut Rng::new(seed), 6_000, planted);
    of(&traces, seed)
}

fn of(traces: &Traces, seed: u64) -> Explanation {
    let slow = SlowTraces::AboveQuantile(Quantile::P99);
    explain(traces, &Question { slow, period_ns: 3_600_000_000_000, seed }).expect("it has a tail")
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
fn three_causes_at_once_are_the_three_findings() {
    let three = [Planted::LargePayload, Planted::Retries, Planted::SlowReplica];
    for seed in 1..=3 {
        let (mut traces, mut rng) = (Traces::default(), Rng::new(seed));
        // Each cause meets a third of the requests.
        for nth in 0..100_000_u32 {
            let planted = [three[nth as usize % 3]];
            with_trace(nth.into(), &mut rng, &planted, |rows| {
                traces.add(u128::from(nth) + 1, Side::Baseline, rows);
            });
        }
        let findings = of(&traces, seed).findings;
        let causes: BTreeSet<_> = findings.iter().map(|of| of.cause.name()).collect();
        assert_eq!(findings.len(), 3, "seed {seed}: {findings:#?}");
        let names = ["large_payload", "retries", "slow_replica"];
        assert_eq!(causes, BTreeSet::from(names), "seed {seed}: {findings:#?}");
    }
}

#[test]
fn nothing_stands_out_where_nothing_is_planted() {
    let alarms: Vec<_> =
        (1..=40).filter(|seed| !explained(*seed, &[]).findings.is_empty()).collect();
    // Of 40 runs with at most 5 % false alarms, more than 5 have one in 1.4 % of all cases.
    assert!(alarms.len() <= 5, "seeds with findings: {alarms:?}");
}
