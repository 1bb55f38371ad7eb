//! What recording a duration and asking for a quantile cost, in nanoseconds: the median of many rounds.
//!
//! Durations are lognormal with a median of 5 ms and one in a hundred from a Pareto tail, so that
//! branches and caches meet what they meet in service; one request comes every 10 µs.
//!
//! ```sh
//! cargo bench -p curtail-sketch
//! ```

use core::hint::black_box;
use curtail_sketch::{AtomicHistogram, Histogram, Precision, Window};
use curtail_units::{Duration, Instant, Quantile, Rng};

const ROUNDS: usize = 201;
const DURATIONS: usize = 1 << 16;
const SEED: u64 = 1;

fn main() {
    let durations = durations();
    println!("{DURATIONS} durations, seed {SEED}, median of {ROUNDS} rounds");
    for (name, precision) in [("coarse", Precision::COARSE), ("fine", Precision::FINE)] {
        histogram(name, precision, &durations);
        window(name, precision, &durations);
        atomic(name, precision, &durations);
    }
}

fn durations() -> Vec<Duration> {
    let mut rng = Rng::new(SEED);
    let mut draw = || {
        let body_ms = 5.0 * libm::exp(0.5 * rng.normal());
        let tail = if rng.chance(0.01) { 4.0 * libm::exp(rng.exponential() / 1.5) } else { 1.0 };
        Duration::from_ns_f64(body_ms * tail * 1e6)
    };
    (0..DURATIONS).map(|_| draw()).collect()
}

fn histogram(name: &str, precision: Precision, durations: &[Duration]) {
    let mut histogram = Histogram::new(precision);
    report(&format!("Histogram {name} record"), durations.len(), || {
        for &duration in durations {
            histogram.record(duration);
        }
    });
    report(&format!("Histogram {name} quantile p99"), 100, || {
        for _ in 0..100 {
            black_box(black_box(&histogram).quantile(Quantile::P99));
        }
    });
    let mut merged = Histogram::new(precision);
    report(&format!("Histogram {name} merge"), 10, || {
        for _ in 0..10 {
            merged.merge(black_box(&histogram));
        }
    });
}

fn window(name: &str, precision: Precision, durations: &[Duration]) {
    let mut window = Window::new(precision, Duration::from_secs(10), 10);
    let mut now = Instant::ZERO;
    let gap = Duration::from_us(10);
    report(&format!("Window {name} record, slots passing"), durations.len(), || {
        for &duration in durations {
            now = now + gap;
            window.record(now, duration);
        }
    });
    report(&format!("Window {name} quantile p99"), 100, || {
        for _ in 0..100 {
            black_box(black_box(&mut window).quantile(now, Quantile::P99));
        }
    });
    let moving_on = median(|| {
        for &duration in durations {
            window.record(now, duration);
        }
        now = now + Duration::from_secs(1);
        timed(|| window.record(now, durations[0]))
    });
    print(&format!("Window {name} moving on by a slot"), moving_on, 1);
}

fn atomic(name: &str, precision: Precision, durations: &[Duration]) {
    let histogram = AtomicHistogram::new(precision);
    report(&format!("AtomicHistogram {name} record"), durations.len(), || {
        for &duration in durations {
            histogram.record(duration);
        }
    });
    report(&format!("AtomicHistogram {name} record, 2 threads each"), durations.len(), || {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| durations.iter().for_each(|&duration| histogram.record(duration)));
            }
        });
    });
    report(&format!("AtomicHistogram {name} snapshot"), 1, || {
        black_box(histogram.snapshot());
    });
}

/// Prints what one of the `operations` operations of `round` takes.
fn report(what: &str, operations: usize, mut round: impl FnMut()) {
    round();
    print(what, median(|| timed(&mut round)), operations);
}

fn print(what: &str, took: std::time::Duration, operations: usize) {
    println!("{what:<48} {:>12.2} ns", took.as_nanos() as f64 / operations as f64);
}

fn median(mut round: impl FnMut() -> std::time::Duration) -> std::time::Duration {
    let mut took: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    took.sort_unstable();
    took[ROUNDS / 2]
}

fn timed(work: impl FnOnce()) -> std::time::Duration {
    let began = std::time::Instant::now();
    work();
    began.elapsed()
}
