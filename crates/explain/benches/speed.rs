//! The time to reduce traces with all their attributes on one core, and to explain them on two.
//!
//! `cargo bench -p curtail-explain --bench speed [TRACES]`

#[path = "../tests/planted/world.rs"]
#[expect(dead_code, reason = "other benches and tests use the rest")]
mod world;

use curtail_explain::{Question, Side, SlowTraces, Traces, explain};
use curtail_units::{Quantile, Rng, Task, run_serially};
use std::time::{Duration, Instant};
use world::{Planted, with_trace};

fn main() {
    let of_argument = std::env::args().filter_map(|arg| arg.parse().ok()).next();
    let counts = of_argument.map_or_else(|| vec![100_000, 1_000_000], |count| vec![count]);
    println!(
        "{:>10} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "traces", "spans", "reduce", "explain", "a trace", "peak memory"
    );
    for count in counts {
        let (mut traces, rng) = (Traces::default(), Rng::new(1));
        let (mut spans, mut reduced) = (0, Duration::ZERO);
        for nth in 0..count {
            let of_trace = [(Planted::ALL[(nth % 3) as usize].0, 1.0)];
            with_trace(nth, &rng, &of_trace, |rows| {
                spans += rows.len();
                let start = Instant::now();
                traces.add(u128::from(nth) + 1, Side::Baseline, rows);
                reduced += start.elapsed();
            });
        }
        let start = Instant::now();
        let slow = SlowTraces::AboveQuantile(Quantile::P99);
        let question = Question { slow, period_ns: 3_600_000_000_000, seed: 1 };
        let explanation = explain(&traces, &question, on_two_threads).expect("it has a tail");
        let explained = start.elapsed();
        let each = (reduced + explained) / u32::try_from(count).expect("fewer");
        println!(
            "{count:>10} {spans:>10} {reduced:>10.2?} {explained:>10.2?} {each:>10.2?} {:>8} MiB",
            peak_mib()
        );
        println!("{}", curtail_explain::table(&explanation, 100));
    }
}

/// Runs half of the tasks on another thread.
fn on_two_threads(tasks: &mut [Task<'_>]) {
    let (some, others) = tasks.split_at_mut(tasks.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| run_serially(some));
        run_serially(others);
    });
}

/// The largest resident memory of this process so far.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}
