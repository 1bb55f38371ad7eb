//! Coverage of the simulator's 95 % intervals for models with a closed form: how often an interval holds the true
//! value.
//!
//! Every row is a model and a length of its runs. Every cell counts, over all seeds, the printed intervals and the
//! share that holds the true value; in brackets, the intervals without an upper end. A run prints an interval if it
//! counted enough requests. Its warm-up decides how many count, so some rows print intervals in a part of their runs.
//!
//! ```sh
//! cargo bench -p curtail-sim --bench coverage            # 1,000 seeds
//! cargo bench -p curtail-sim --bench coverage -- 100     # fewer
//! cargo bench -p curtail-sim --bench coverage -- 1000 "M/M/1 at 0.8 25000"    # rows that contain the text
//! ```

use curtail_model::{Affected, Distribution, Fault, Rate, Recipe};
use curtail_policy::{BalanceConfig, UpstreamConfig};
use curtail_sim::{Arm, Estimate, Model, Scenario, Stop, Variant, run};
use curtail_units::{Duration, Quantile};

/// The number of seeds of each row, from 1.
const SEEDS: u64 = 1_000;

/// Requests of a run, including its warm-up.
const LENGTHS: [u64; 3] = [25_000, 40_000, 220_000];

const MS: Duration = Duration::from_ms(1);

/// A model with its true mean, p99 and p99.9 in milliseconds.
struct Truth {
    name: &'static str,
    model: Model,
    latencies_ms: [f64; 3],
}

fn main() {
    let seeds = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(SEEDS);
    println!("seeds 1 to {seeds}; of 95 % intervals, the share that holds the truth");
    println!("{:<26} {:>8} {:>20} {:>20} {:>20}", "model", "requests", "mean", "p99", "p99.9");
    let parts: Vec<String> = std::env::args().skip(2).filter(|arg| arg != "--bench").collect();
    for truth in [mm1(0.5), mm1(0.8), hyperexponential(0.7), stalls()] {
        for requests in LENGTHS {
            let name = format!("{} {requests}", truth.name);
            if parts.is_empty() || parts.iter().any(|part| name.contains(part)) {
                row(&truth, requests, seeds);
            }
        }
    }
}

/// One server with exponential service: the latency is exponential with mean 1 / (1 − load).
fn mm1(load: f64) -> Truth {
    let model = Model::queue(1, load, Distribution::Exponential { mean: MS });
    let quantile = |share: f64| -share.ln() / (1.0 - load);
    let name = if load < 0.6 { "M/M/1 at 0.5" } else { "M/M/1 at 0.8" };
    Truth { name, model, latencies_ms: [1.0 / (1.0 - load), quantile(0.01), quantile(0.001)] }
}

/// One server whose service is short or, once in ten times, long: two exponential phases. The waiting time is then 0 or
/// a mixture of two exponentials (Pollaczek and Khinchine's transform has two poles).
fn hyperexponential(load: f64) -> Truth {
    let phases = [(0.9, 0.5), (0.1, 5.5)];
    let service = Distribution::hyperexponential(
        &phases.map(|(weight, mean_ms): (f64, f64)| (weight, Duration::from_ns_f64(mean_ms * 1e6))),
    );
    let rates = phases.map(|(_, mean)| 1.0 / mean);
    // The poles −r solve r² − r (m1 + m2 − load) + m1 · m2 · (1 − load) = 0.
    let (sum, product) = (rates[0] + rates[1] - load, rates[0] * rates[1] * (1.0 - load));
    let root = (sum * sum - 4.0 * product).sqrt();
    let poles = [(sum - root) / 2.0, (sum + root) / 2.0];
    // W*(s) = (1 − load)(s + m1)(s + m2) / ((s + r1)(s + r2)): the weight of each pole.
    let weight = |pole: f64, other: f64| {
        (1.0 - load) * (rates[0] - pole) * (rates[1] - pole) / (other - pole) / pole
    };
    let waits = [(weight(poles[0], poles[1]), poles[0]), (weight(poles[1], poles[0]), poles[1])];
    // P(wait + service > t), with the atom of requests that do not wait.
    let tail = |t: f64| {
        let alone: f64 = phases.iter().map(|(w, mean)| w * (-t / mean).exp()).sum();
        let with_wait = |(w, r): (f64, f64)| -> f64 {
            let both = |(p, mean): &(f64, f64)| {
                let m = 1.0 / mean;
                p * (m * (-r * t).exp() - r * (-m * t).exp()) / (m - r)
            };
            w * phases.iter().map(both).sum::<f64>()
        };
        let waiting: f64 = waits.iter().map(|(w, _)| w).sum();
        (1.0 - waiting) * alone + waits.into_iter().map(with_wait).sum::<f64>()
    };
    let mean_of_square: f64 = phases.iter().map(|(w, mean)| w * 2.0 * mean * mean).sum();
    let mean = 1.0 + load * mean_of_square / (2.0 * (1.0 - load));
    let model = Model::queue(1, load, service);
    let name = "M/G/1 at 0.7, two phases";
    Truth { name, model, latencies_ms: [mean, invert(&tail, 0.01), invert(&tail, 0.001)] }
}

/// A server without a queue that stalls every 2.46 s for 40 ms, on average, at 1,000 requests a second: 40 requests in
/// a row wait for the rest of a stall, which is exponential again.
fn stalls() -> Truth {
    const SERVICE_MS: f64 = 0.001;
    let (every, lasts) = (2_460.0, 40.0);
    let exponential = |ms: f64| Distribution::Exponential { mean: Duration::from_ns_f64(ms * 1e6) };
    let service = Duration::from_ns_f64(SERVICE_MS * 1e6);
    let mut model = Model::queue(1, 0.5, Distribution::Constant { value: service });
    model.leaf.concurrency = u32::MAX;
    model.arrivals.rate = Rate::PerSecond(1_000.0);
    model.faults.push(Fault {
        servers: Affected::First(1),
        recipe: Recipe::Stall { every: exponential(every), lasts: exponential(lasts) },
    });
    let stopped = lasts / (every + lasts);
    let quantile = |share: f64| SERVICE_MS + lasts * (stopped / share).ln();
    let latencies_ms = [SERVICE_MS + stopped * lasts, quantile(0.01), quantile(0.001)];
    Truth { name: "stalls of 40 ms in 2.5 s", model, latencies_ms }
}

/// The point at which the decreasing `tail` equals `share`.
fn invert(tail: &impl Fn(f64) -> f64, share: f64) -> f64 {
    let (mut low, mut high) = (0.0, 10_000.0);
    while high - low > 1e-9 {
        let middle = f64::midpoint(low, high);
        if tail(middle) > share { low = middle } else { high = middle }
    }
    low
}

/// The number of intervals of one statistic: printed, open above, and covering the truth.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    printed: u64,
    open: u64,
    covered: u64,
}

impl Count {
    fn add(&mut self, estimate: Option<Estimate>, truth_ms: f64) {
        let Some(estimate) = estimate else { return };
        let Some((_, high)) = estimate.interval else { return };
        self.printed += 1;
        self.open += u64::from(high.is_infinite());
        self.covered += u64::from(estimate.contains(truth_ms * 1e6));
    }

    fn cell(&self) -> String {
        let Self { printed, open, covered } = *self;
        if printed == 0 {
            return "–".to_owned();
        }
        let percent = covered as f64 / printed as f64 * 100.0;
        format!("{percent:.1} % of {printed} ({open})")
    }
}

fn row(truth: &Truth, requests_max: u64, seeds: u64) {
    let policy = UpstreamConfig::plain(BalanceConfig::Random);
    let scenario = Scenario {
        variants: vec![Variant { name: String::new(), model: truth.model.clone() }],
        arms: vec![Arm::new("", policy)],
        above: Vec::new(),
        stop: Stop { precision: None, requests_min: 0, requests_max, has_warm_up: true },
    };
    let mut counts = [Count::default(); 3];
    for seed in 1..=seeds {
        let arm = run(&scenario, seed, |_| {}).arms.remove(0);
        let estimates =
            [arm.mean_ns, arm.quantile_ns(Quantile::P99), arm.quantile_ns(Quantile::P999)];
        for ((count, estimate), truth) in counts.iter_mut().zip(estimates).zip(truth.latencies_ms) {
            count.add(estimate, truth);
        }
    }
    let [mean, p99, p999] = counts.map(|count| count.cell());
    println!("{:<26} {requests_max:>8} {mean:>20} {p99:>20} {p999:>20}", truth.name);
}
