//! How often the planted cause is the first finding, and how often something is found where nothing was planted.
//!
//! `cargo bench -p curtail-explain --bench planted [RUNS]`

#[path = "../tests/planted/world.rs"]
mod world;

use curtail_explain::{Explanation, Question, SlowTraces, Traces, explain};
use curtail_units::{Quantile, Rng};
use std::time::Instant;
use world::{Planted, add_traces};

fn main() {
    let runs = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100);
    println!("{runs} runs of 6,000 traces, seeds 1001 to {}", 1_000 + runs);
    for (planted, cause, subject) in Planted::ALL {
        let is_first = |seed| {
            let explanation = explained(seed, &[planted]);
            let first = explanation.findings.first();
            first
                .is_some_and(|first| first.cause.name() == cause && first.subject.contains(subject))
        };
        print_share(&format!("{planted:?} is first"), runs, is_first);
    }
    print_share("nothing planted, nothing found", runs, |seed| {
        explained(seed, &[]).findings.is_empty()
    });
}

fn explained(seed: u64, planted: &[Planted]) -> Explanation {
    let mut traces = Traces::default();
    add_traces(&mut traces, &mut Rng::new(seed), 6_000, planted);
    let slow = SlowTraces::AboveQuantile(Quantile::P99);
    explain(&traces, &Question { slow, period_ns: 3_600_000_000_000, seed }).expect("it has a tail")
}

/// Prints the share of runs with a property, and its Wilson interval.
fn print_share(name: &str, runs: u64, has: impl Fn(u64) -> bool) {
    let start = Instant::now();
    let count = (1_001..=1_000 + runs).filter(|seed| has(*seed)).count() as f64;
    let (n, z) = (runs as f64, 1.96_f64);
    let (p, z2) = (count / n, z * z);
    let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let ms = start.elapsed().as_secs_f64() * 1e3 / n;
    println!(
        "{name:36} {count:4} of {runs}: {:5.1} % ({:.1} to {:.1}), {ms:.0} ms a run",
        p * 100.0,
        (middle - half) * 100.0,
        (middle + half) * 100.0
    );
}
