//! What a switchback states where a holdout is blind: hedges that slow everybody down.
//!
//! Simulated replicas execute one request at a time, in the order of arrival. A hedge goes to another replica after a
//! delay. The attempt that loses is executed as well, so hedges lengthen the queues. Each model runs for a day, with a
//! holdout of 10 % in one simulation, and a switchback of one half in another. The truths are two more simulations, all
//! without hedges and all with them.
//!
//! A run of a switchback holds the truth if all intervals of a percentile at all looks have it, on both sides; a look
//! every ten minutes. The shares are those of p50, p90 and p99. The verdicts are those at the end of the day, on one
//! percentile of each model.
//!
//! ```sh
//! cargo bench -p curtail-load --bench switchback            # 100 runs
//! cargo bench -p curtail-load --bench switchback -- 20      # fewer
//! ```

use curtail_load::holdout::{EffectVerdict, Holdout, PERCENTILES, PercentileEffect, Sides};
use curtail_load::switchback::{Switchback, is_off};
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Instant, Ratio, Rng};
use std::collections::VecDeque;

const RUNS: u64 = 100;
const REPLICAS: usize = 4;
const DAY_MS: f64 = 86_400e3;
const LOOK_MS: f64 = 600e3;
const SHARE: f64 = 0.5;
const HOLDOUT: f64 = 0.1;
/// The percentiles whose coverage is measured, as places in [`PERCENTILES`].
const MEASURED: [usize; 3] = [0, 1, 2];

#[derive(Clone, Copy)]
struct Model {
    name: &'static str,
    /// Requests a second.
    rate: f64,
    /// The mean of an exponential time of service, in milliseconds.
    service_ms: f64,
    /// Whether both attempts of a request take equally long, so that a hedge only avoids a queue.
    is_alike: bool,
    /// One in a hundred executions takes this much longer.
    hiccup_ms: f64,
    hedge_ms: f64,
    /// The place of the percentile of the verdicts.
    judged: usize,
}

const MODELS: [Model; 3] = [
    Model {
        name: "hiccups",
        rate: 20.0,
        service_ms: 20.0,
        is_alike: false,
        hiccup_ms: 300.0,
        hedge_ms: 80.0,
        judged: 2,
    },
    Model {
        name: "busy",
        rate: 37.0,
        service_ms: 50.0,
        is_alike: true,
        hiccup_ms: 0.0,
        hedge_ms: 150.0,
        judged: 1,
    },
    Model {
        name: "no effect",
        rate: 20.0,
        service_ms: 20.0,
        is_alike: false,
        hiccup_ms: 0.0,
        hedge_ms: 1e9,
        judged: 1,
    },
];

/// Who is hedged.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Nobody,
    Everybody,
    NotTheHoldout,
    Blocks,
}

/// A request that was sent to one replica, and that may be hedged.
struct Waiting {
    arrived_ms: f64,
    first: usize,
    work_ms: f64,
    /// When its first attempt ends.
    ends_ms: f64,
    is_hedged: bool,
    is_holdout: bool,
}

struct Service<'a> {
    model: &'a Model,
    free_ms: [f64; REPLICAS],
    rng: Rng,
}

impl Service<'_> {
    /// The work of an execution.
    fn work_ms(&mut self) -> f64 {
        let hiccup_ms = if self.rng.chance(0.01) { self.model.hiccup_ms } else { 0.0 };
        self.model.service_ms * self.rng.exponential() + hiccup_ms
    }

    /// Sends an attempt; returns when it ends.
    fn send(&mut self, now_ms: f64, replica: usize, work_ms: f64) -> f64 {
        self.free_ms[replica] = self.free_ms[replica].max(now_ms) + work_ms;
        self.free_ms[replica]
    }

    /// Ends a request after the delay of its hedge; returns its latency.
    fn end(&mut self, request: &Waiting) -> f64 {
        let now_ms = request.arrived_ms + self.model.hedge_ms;
        let mut ends_ms = request.ends_ms;
        if request.is_hedged && ends_ms > now_ms {
            let other = (request.first + 1 + self.rng.below(REPLICAS - 1)) % REPLICAS;
            let work_ms = if self.model.is_alike { request.work_ms } else { self.work_ms() };
            ends_ms = ends_ms.min(self.send(now_ms, other, work_ms));
        }
        ends_ms - request.arrived_ms
    }
}

/// Simulates a day: `each` gets the arrival, the latency and the side of each request.
fn simulate(model: &Model, who: Who, seed: u64, mut each: impl FnMut(f64, f64, bool)) {
    let rng = Rng::new(seed);
    let (mut arrivals, mut draws) = (rng.split("arrivals"), rng.split("draws"));
    let mut service = Service {
        model,
        free_ms: [0.0; REPLICAS],
        rng: rng.split(if who == Who::Nobody { "off" } else { "on" }),
    };
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let mut now_ms = 0.0;
    while now_ms < DAY_MS {
        now_ms += 1e3 / model.rate * arrivals.exponential();
        while let Some(request) =
            waiting.pop_front_if(|w| w.arrived_ms + model.hedge_ms <= now_ms || w.ends_ms <= now_ms)
        {
            let latency_ms = service.end(&request);
            each(request.arrived_ms, latency_ms, request.is_holdout);
        }
        let is_holdout = match who {
            Who::Nobody => true,
            Who::Everybody => false,
            Who::NotTheHoldout => draws.chance(HOLDOUT),
            Who::Blocks => is_off(share(), unix_ns(seed, now_ms)),
        };
        let first = service.rng.below(REPLICAS);
        let work_ms = service.work_ms();
        let ends_ms = service.send(now_ms, first, work_ms);
        waiting.push_back(Waiting {
            arrived_ms: now_ms,
            first,
            work_ms,
            ends_ms,
            is_hedged: !is_holdout,
            is_holdout,
        });
    }
}

fn share() -> Ratio {
    Ratio::new(SHARE).expect("a ratio")
}

/// Each run has a day of its own, and so blocks of its own.
fn unix_ns(seed: u64, now_ms: f64) -> u64 {
    (Duration::from_secs(86_400 * (20_000 + seed)) + Duration::from_ns_f64(now_ms * 1e6)).as_ns()
}

fn duration(ms: f64) -> Duration {
    Duration::from_ns_f64(ms * 1e6)
}

/// The truth: the latencies of all runs, all without hedges and all with them.
fn truth(model: &Model, seeds: u64) -> Sides<Histogram> {
    let of = |who| {
        let mut all = Histogram::new(Precision::FINE);
        (1..=seeds).for_each(|seed| {
            simulate(model, who, seed, |_, latency_ms, _| all.record(duration(latency_ms)));
        });
        all
    };
    Sides { without: of(Who::Nobody), with: of(Who::Everybody) }
}

/// What one run stated.
#[derive(Default)]
struct Run {
    misses: [bool; PERCENTILES.len()],
    verdict: Option<EffectVerdict>,
}

impl Run {
    fn look(&mut self, effects: &[PercentileEffect], judged: usize, truth: &Sides<Histogram>) {
        for effect in effects {
            let place = PERCENTILES.iter().position(|(name, _)| *name == effect.name);
            let place = place.expect("one of the list");
            let misses = |interval: curtail_load::sequence::Interval, truth: &Histogram| {
                !interval.contains(truth.quantile(effect.quantile).expect("there are requests"))
            };
            self.misses[place] |= misses(effect.interval.without, &truth.without)
                || misses(effect.interval.with, &truth.with);
            if place == judged {
                self.verdict = Some(effect.verdict());
            }
        }
    }
}

fn switchback(model: &Model, seed: u64, truth: &Sides<Histogram>) -> Run {
    let mut switchback = Switchback::new(share(), unix_ns(seed, 0.0));
    let (mut run, mut look_ms) = (Run::default(), LOOK_MS);
    simulate(model, Who::Blocks, seed, |arrived_ms, latency_ms, _| {
        let ended_ms = arrived_ms + latency_ms;
        let times = (unix_ns(seed, arrived_ms), unix_ns(seed, ended_ms));
        switchback.record(times, duration(latency_ms), 1);
        if arrived_ms >= look_ms && arrived_ms < DAY_MS - LOOK_MS {
            run.look(&switchback.effects().percentiles, model.judged, truth);
            look_ms += LOOK_MS;
        }
    });
    run
}

fn holdout(model: &Model, seed: u64, truth: &Sides<Histogram>) -> Run {
    let (mut holdout, mut run, mut look_ms) = (Holdout::new(), Run::default(), LOOK_MS);
    simulate(model, Who::NotTheHoldout, seed, |arrived_ms, latency_ms, is_holdout| {
        let now = Instant::ZERO + duration(arrived_ms);
        holdout.record(now, is_holdout, duration(latency_ms), 1);
        if arrived_ms >= look_ms && arrived_ms < DAY_MS - LOOK_MS {
            run.look(&holdout.effects()[1].percentiles, model.judged, truth);
            look_ms += LOOK_MS;
        }
    });
    run
}

fn main() {
    let runs = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(RUNS);
    println!("runs of a day with seeds 1 to {runs}, a look each ten minutes");
    println!(
        "{:<10} {:<11} {:>15} {:>8} {:>8} {:>10} {:>16}",
        "model", "by", "holds truth, %", "better", "worse", "undecided", "truth in ms"
    );
    for model in &MODELS {
        let truth = truth(model, runs);
        let (judged, quantile) = PERCENTILES[model.judged];
        let of =
            |histogram: &Histogram| histogram.quantile(quantile).map_or(0.0, Duration::as_ms_f64);
        let ms = format!("{judged} {:.0} → {:.0}", of(&truth.without), of(&truth.with));
        type Design = fn(&Model, u64, &Sides<Histogram>) -> Run;
        let designs: [(&str, Design); 2] = [("holdout", holdout), ("switchback", switchback)];
        for (name, design) in designs {
            let all: Vec<Run> = (1..=runs).map(|seed| design(model, seed, &truth)).collect();
            let share = |is: &dyn Fn(&&Run) -> bool| {
                100.0 * all.iter().filter(is).count() as f64 / runs as f64
            };
            let held = MEASURED.map(|place| format!("{:.0}", share(&|run| !run.misses[place])));
            let held = if name == "holdout" { "–".to_owned() } else { held.join(" ") };
            let verdict = |wanted| share(&|run| run.verdict == Some(wanted));
            println!(
                "{:<10} {name:<11} {held:>15} {:>6.0} % {:>6.0} % {:>8.0} % {ms:>16}",
                model.name,
                verdict(EffectVerdict::Better),
                verdict(EffectVerdict::Worse),
                verdict(EffectVerdict::Undecided),
            );
        }
    }
}
