//! How often the planted cause is the first finding, how well the shares of three causes at once are known, and how often
//! something is found where nothing was planted.
//!
//! `cargo bench -p curtail-explain --bench planted [RUNS]`

#[path = "../tests/planted/world.rs"]
mod world;

use curtail_explain::{Explanation, Finding, Question, Side, SlowTraces, Traces, explain};
use curtail_units::{Quantile, Rng, run_serially, wilson_interval};
use std::time::Instant;
use world::{Planted, add_traces, with_trace};

/// The shares of the requests that each of three causes may meet.
const SHARES: [f64; 3] = [0.5, 0.3, 0.2];

/// The number of traces with three causes: about a thousand are slow, so that a share has an error of 1.5 points.
const TRACES_OF_THREE: u64 = 100_000;

/// The largest error of a share.
const ERROR_MAX: f64 = 0.05;

fn main() {
    let runs = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100);
    println!("{runs} runs, seeds 1001 to {}", 1_000 + runs);
    for (planted, cause, subject) in Planted::ALL {
        let is_first = |seed| {
            let explanation = explained(seed, &[(planted, 1.0)]);
            let is_first =
                explanation.findings.first().is_some_and(|first| is_of(first, cause, subject));
            if !is_first {
                print_findings(&format!("seed {seed}"), &explanation);
            }
            is_first
        };
        print_share(&format!("{planted:?} is first"), runs, is_first);
    }
    print_share("nothing planted, nothing found", runs, |seed| {
        explained(seed, &[]).findings.is_empty()
    });
    three_at_once(runs);
}

/// Each run has three causes of its own.
fn three_at_once(runs: u64) {
    let mut results: Vec<ThreeCauses> = Vec::new();
    print_share("three at once are the top three", runs, |seed| {
        results.push(ThreeCauses::of(seed));
        results.last().is_some_and(ThreeCauses::are_top)
    });
    let mut close = results.iter().map(ThreeCauses::are_close);
    print_share("and each share is within 5 points", runs, |_| close.next().unwrap_or(false));
    let errors: Vec<f64> = results.iter().flat_map(ThreeCauses::errors).collect();
    let root = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let points = 100.0;
    println!(
        "errors of shares: mean {:+.2} points, root mean square {:.2} points",
        mean * points,
        root * points
    );
}

/// Three causes: the true share of the slow traces that each delayed, and the share and the rank found.
struct ThreeCauses {
    of: Vec<(f64, Option<(usize, f64)>)>,
}

impl ThreeCauses {
    fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut all = Planted::ALL;
        for nth in 0..SHARES.len() {
            let other = nth + rng.below(all.len() - nth);
            all.swap(nth, other);
        }
        let three = &all[..SHARES.len()];
        let planted: Vec<_> = three.iter().map(|(planted, ..)| *planted).zip(SHARES).collect();
        let mut traces = Traces::default();
        let mut delayed: Vec<(i64, Vec<Planted>)> = Vec::new();
        for nth in 0..TRACES_OF_THREE {
            let mut duration_ns = 0;
            let by = with_trace(nth, &rng, &planted, |rows| {
                duration_ns = rows[0].span.duration_ns();
                traces.add(u128::from(nth) + 1, Side::Baseline, rows);
            });
            delayed.push((duration_ns, by));
        }
        delayed.sort_unstable_by_key(|(duration_ns, _)| std::cmp::Reverse(*duration_ns));
        delayed.truncate(delayed.len() / 100);
        let explanation = explained_traces(&traces, seed);
        let result = |(planted, cause, subject): &(Planted, &str, &str)| {
            let slow = delayed.iter().filter(|(_, by)| by.contains(planted)).count();
            let findings = explanation.findings.iter().enumerate();
            let mut found = findings.filter(|(_, finding)| is_of(finding, cause, subject));
            let found = found.next().map(|(rank, finding)| (rank, finding.share));
            (slow as f64 / delayed.len() as f64, found)
        };
        let this = Self { of: three.iter().map(result).collect() };
        if !this.are_close() {
            let names: Vec<_> = three.iter().map(|(planted, ..)| planted).collect();
            println!(
                "seed {seed}: {names:?}, true share and rank and share found: {:.3?}",
                this.of
            );
            for finding in &explanation.findings {
                println!("    {} {}: {:.3}", finding.cause.name(), finding.subject, finding.share);
            }
        }
        this
    }

    fn are_top(&self) -> bool {
        self.of.iter().all(|(_, found)| found.is_some_and(|(rank, _)| rank < SHARES.len()))
    }

    fn are_close(&self) -> bool {
        self.are_top() && self.errors().all(|error| error.abs() <= ERROR_MAX)
    }

    fn errors(&self) -> impl Iterator<Item = f64> {
        self.of.iter().filter_map(|(share, found)| found.map(|(_, found)| found - share))
    }
}

fn print_findings(title: &str, explanation: &Explanation) {
    println!("  {title}");
    for Finding { cause, subject, share, interval: (low, high), .. } in &explanation.findings {
        println!("    {}, {subject}: {share:.3} ({low:.3} to {high:.3})", cause.name());
    }
}

fn is_of(finding: &Finding, cause: &str, subject: &str) -> bool {
    finding.cause.name() == cause && finding.subject.contains(subject)
}

fn explained(seed: u64, planted: &[(Planted, f64)]) -> Explanation {
    let mut traces = Traces::default();
    add_traces(&mut traces, &Rng::new(seed), 6_000, planted);
    explained_traces(&traces, seed)
}

fn explained_traces(traces: &Traces, seed: u64) -> Explanation {
    let slow = SlowTraces::AboveQuantile(Quantile::P99);
    explain(traces, &Question { slow, period_ns: i64::MAX, seed }, run_serially)
        .expect("it has a tail")
}

/// Prints the share of runs with a property, and its interval.
fn print_share(name: &str, runs: u64, mut has: impl FnMut(u64) -> bool) {
    let start = Instant::now();
    let count = (1_001..=1_000 + runs).filter(|seed| has(*seed)).count() as f64;
    let n = runs as f64;
    let (low, high) = wilson_interval(count / n, n);
    let ms = start.elapsed().as_secs_f64() * 1e3 / n;
    let percent = 100.0;
    println!(
        "{name:36} {count:4} of {runs}: {:5.1} % ({:.1} to {:.1}), {ms:.0} ms a run",
        count / n * percent,
        low * percent,
        high * percent
    );
}
