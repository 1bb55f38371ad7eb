//! How often the statements of a holdout are wrong, with a look after every block, where the truth is known.
//!
//! A simulated service has three replicas that stall now and then. Each request has two latencies: without a remedy,
//! and with a hedge to another replica after a delay. A draw decides which of the two is seen. `period` is the truth
//! about the requests of the run so far, all without against all with the hedge. `long run` is the truth about all
//! runs together. A run of one hour holds a truth if every interval of a percentile, on both sides and at all
//! looks, has it; the shares are those of p90, p99 and p99.9. A false verdict has the wrong sign, or any sign where the hedge changes nothing.
//! Detection is the time until the verdict on the first of p99 and p99.9 with a verdict, divided by the time that
//! [`time_to_state`] computes for that percentile.
//!
//! ```sh
//! cargo bench -p curtail-load --bench holdout            # 200 runs
//! cargo bench -p curtail-load --bench holdout -- 50      # fewer
//! ```

use curtail_load::holdout::{
    EffectVerdict, Holdout, PERCENTILES, PERIODS, PercentileEffect, Sides, time_to_state,
};
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Instant, Rng};

const RUNS: u64 = 200;
const REPLICAS: usize = 3;

/// Requests and stalls of a simulated service.
#[derive(Clone, Copy)]
struct Model {
    name: &'static str,
    /// Requests a second.
    rate: f64,
    share: f64,
    /// The mean time between stalls of a replica, and their mean length, in milliseconds.
    stall_every_ms: f64,
    stall_ms: f64,
    /// After this many milliseconds a request is hedged; absent: the hedge changes nothing.
    hedge_ms: Option<f64>,
}

const MODELS: [Model; 8] = [
    Model { name: "independent, 10 %", share: 0.1, stall_ms: 0.0, hedge_ms: Some(13.0), ..STALLS },
    Model { name: "stalls, 1 %", share: 0.01, ..STALLS },
    Model { name: "stalls, 10 %", share: 0.1, ..STALLS },
    Model { name: "stalls, 50 %", share: 0.5, ..STALLS },
    Model { name: "long stalls, 1 %", share: 0.01, stall_every_ms: 60e3, stall_ms: 1e3, ..STALLS },
    Model { name: "long stalls, 10 %", share: 0.1, stall_every_ms: 60e3, stall_ms: 1e3, ..STALLS },
    Model { name: "no effect, 1 %", share: 0.01, hedge_ms: None, ..STALLS },
    Model { name: "no effect, 10 %", share: 0.1, hedge_ms: None, ..STALLS },
];

const STALLS: Model = Model {
    name: "",
    rate: 1_000.0,
    share: 0.01,
    stall_every_ms: 10e3,
    stall_ms: 200.0,
    hedge_ms: Some(20.0),
};

/// A replica's stalls: when the next one begins, and when it ends.
#[derive(Clone, Copy)]
struct Stall {
    begins_ms: f64,
    ends_ms: f64,
}

impl Stall {
    fn after(model: &Model, now_ms: f64, rng: &mut Rng) -> Self {
        let begins_ms = now_ms + model.stall_every_ms * rng.exponential();
        Self { begins_ms, ends_ms: begins_ms + model.stall_ms * rng.exponential() }
    }
}

impl Model {
    /// The latency at a replica, in milliseconds, of a request that arrives at `now_ms`.
    fn latency_ms(&self, stalls: &[Stall], replica: usize, now_ms: f64, rng: &mut Rng) -> f64 {
        let Stall { begins_ms, ends_ms } = stalls[replica];
        let stalled_ms = if now_ms >= begins_ms { (ends_ms - now_ms).max(0.0) } else { 0.0 };
        // Lognormal with a median of 5 ms; one in fifty takes 8 times as long at this replica.
        let hiccup = if rng.chance(0.02) { 8.0 } else { 1.0 };
        stalled_ms + hiccup * 5.0 * (0.4 * rng.normal()).exp()
    }

    /// Both latencies of a request, in milliseconds.
    fn request(&self, stalls: &[Stall], now_ms: f64, rng: &mut Rng) -> Sides<f64> {
        let replica = rng.below(REPLICAS);
        let without = self.latency_ms(stalls, replica, now_ms, rng);
        let hedge = self.hedge_ms.filter(|hedge_ms| without > *hedge_ms).map(|hedge_ms| {
            let other = (replica + 1 + rng.below(REPLICAS - 1)) % REPLICAS;
            hedge_ms + self.latency_ms(stalls, other, now_ms + hedge_ms, rng)
        });
        Sides { without, with: hedge.map_or(without, |hedged| hedged.min(without)) }
    }
}

/// The truth about a set of requests.
type Population = Sides<Histogram>;

fn population() -> Population {
    let empty = || Histogram::new(Precision::FINE);
    Sides { without: empty(), with: empty() }
}

/// The percentiles whose coverage is measured, as places in [`PERCENTILES`]. The median never misses.
const MEASURED: [usize; 3] = [1, 2, 3];

#[derive(Default)]
struct Run {
    misses_period: [bool; PERCENTILES.len()],
    /// For each percentile and side, the highest lower end and the lowest upper end of all looks.
    ends: [Sides<(Duration, Option<Duration>)>; PERCENTILES.len()],
    /// Whether there was a verdict at any look, for each percentile: better, worse.
    verdicts: [(bool, bool); PERCENTILES.len()],
    /// The place of the percentile of the first verdict, and its time in seconds.
    detected: Option<(usize, f64)>,
}

impl Run {
    fn look(&mut self, place: usize, effect: &PercentileEffect, so_far: &Population, seconds: f64) {
        let quantile = effect.quantile;
        for (is_holdout, truth) in [(true, &so_far.without), (false, &so_far.with)] {
            let interval = *effect.interval.clone().get_mut(is_holdout);
            let truth = truth.quantile(quantile).expect("there are requests");
            self.misses_period[place] |= !interval.contains(truth);
            if let Some(interval) = effect.long_run.clone().get_mut(is_holdout) {
                let (low, high) = self.ends[place].get_mut(is_holdout);
                *low = interval.low.max(*low);
                *high = (*high).into_iter().chain(interval.high).min();
            }
        }
        match effect.verdict() {
            EffectVerdict::Better => self.verdicts[place].0 = true,
            EffectVerdict::Worse => self.verdicts[place].1 = true,
            EffectVerdict::Undecided => return,
        }
        if place >= 2 {
            self.detected.get_or_insert((place, seconds));
        }
    }

    /// Whether any interval of a percentile misses the truth.
    fn misses(&self, place: usize, truth: &Population) -> bool {
        let quantile = PERCENTILES[place].1;
        let is_missed = |(low, high): (Duration, Option<Duration>), truth: &Histogram| {
            let truth = truth.quantile(quantile).expect("there are requests");
            truth < low || high.is_some_and(|high| truth > high)
        };
        let Sides { without, with } = self.ends[place];
        is_missed(without, &truth.without) || is_missed(with, &truth.with)
    }
}

fn main() {
    let runs = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(RUNS);
    println!("runs of an hour with seeds 1 to {runs}, a look after each block");
    println!(
        "{:<20} {:>18} {:>18} {:>8} {:>20} {:>11}",
        "model", "holds period, %", "holds long run, %", "false", "detection (max)", "p99 in ms"
    );
    for model in &MODELS {
        row(model, runs);
    }
}

fn row(model: &Model, seeds: u64) {
    let mut long_run = population();
    let mut add = |seed| {
        let (run, population) = simulate(model, seed);
        long_run.without.merge(&population.without);
        long_run.with.merge(&population.with);
        run
    };
    let runs: Vec<Run> = (1..=seeds).map(&mut add).collect();
    let share = |count: usize| 100.0 * count as f64 / seeds as f64;
    let held = |is_missed: &dyn Fn(&Run, usize) -> bool| {
        let shares = MEASURED.map(|place| {
            let runs = runs.iter().filter(|run| !is_missed(run, place));
            format!("{:.1}", share(runs.count()))
        });
        shares.join(" ")
    };
    let period = held(&|run, place| run.misses_period[place]);
    let all = held(&|run, place| run.misses(place, &long_run));
    let is_false = |run: &&Run| {
        let verdicts = || MEASURED.into_iter().map(|place| run.verdicts[place]);
        verdicts().any(|(better, worse)| worse || better && model.hedge_ms.is_none())
    };
    let wrong = runs.iter().filter(is_false).count();
    let mut detected: Vec<f64> = runs
        .iter()
        .filter_map(|run| {
            let (place, seconds) = run.detected?;
            let needed = time_to_state(model.share, model.rate, PERCENTILES[place].1);
            Some(seconds / needed.as_secs_f64())
        })
        .collect();
    detected.sort_by(f64::total_cmp);
    let detection = match detected.as_slice() {
        [.., last] => format!(
            "{:.2} ({last:.2}), {:.0} %",
            detected[detected.len() / 2],
            share(detected.len())
        ),
        [] => "none".to_owned(),
    };
    let p99 = |histogram: &Histogram| {
        histogram.quantile(PERCENTILES[2].1).map_or(0.0, Duration::as_ms_f64)
    };
    println!(
        "{:<20} {:>18} {:>18} {:>6.1} % {:>20} {:>5.0} → {:.0}",
        model.name,
        period,
        all,
        share(wrong),
        detection,
        p99(&long_run.without),
        p99(&long_run.with),
    );
}

/// Simulates one hour.
fn simulate(model: &Model, seed: u64) -> (Run, Population) {
    let mut rng = Rng::new(seed);
    let mut draws = rng.split("draws");
    let mut stalls = [(); REPLICAS].map(|()| Stall::after(model, 0.0, &mut rng));
    let (mut run, mut holdout, mut so_far) = (Run::default(), Holdout::new(), population());
    let (length_ms, block_ms) = (PERIODS[0].1.as_ms_f64(), PERIODS[0].2.as_ms_f64());
    // The measurement begins with the first request.
    let (mut now_ms, mut look_ms) = (0.0, block_ms);
    holdout.advance(Instant::ZERO);
    while now_ms < length_ms - block_ms {
        now_ms += 1e3 / model.rate * rng.exponential();
        if now_ms >= look_ms {
            holdout.advance(Instant::ZERO + Duration::from_ns_f64(look_ms * 1e6));
            let hour = &holdout.effects()[0];
            for effect in &hour.percentiles {
                let of = PERCENTILES.iter().position(|(name, _)| *name == effect.name);
                let place = of.expect("one of the list");
                if MEASURED.contains(&place) {
                    run.look(place, effect, &so_far, look_ms / 1e3);
                }
            }
            look_ms += block_ms;
        }
        for stall in &mut stalls {
            if now_ms > stall.ends_ms {
                *stall = Stall::after(model, now_ms, &mut rng);
            }
        }
        let request = model.request(&stalls, now_ms, &mut rng);
        let latency = request.map(|ms| Duration::from_ns_f64(ms * 1e6));
        so_far.without.record(latency.without);
        so_far.with.record(latency.with);
        let is_holdout = draws.chance(model.share);
        let seen = if is_holdout { latency.without } else { latency.with };
        holdout.record(Instant::ZERO + Duration::from_ns_f64(now_ms * 1e6), is_holdout, seen, 1);
    }
    (run, so_far)
}
