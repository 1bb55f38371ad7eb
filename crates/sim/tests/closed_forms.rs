//! The simulator against closed forms of queueing theory.
//!
//! Each test runs [`RUNS`] times, with seeds counted from 1, and asks of the simulator's own 95 % intervals
//! that they hold the true value: of 20 at least 15, since fewer would come about by chance three times
//! in ten thousand. So both the estimates and the intervals are tested. Only mean-field results, which hold for
//! infinitely many servers, are given a margin, and it is stated.

use curtail_model::{
    Affected, Bursts, Cores, Distribution, Fault, Part, Rate, Recipe, ServerFactors,
};
use curtail_policy::{
    BalanceConfig, BudgetConfig, Class, HedgeConfig, QuantileDelay, UpstreamConfig,
};
use curtail_sim::{Arm, ArmReport, Estimate, Model, Scenario, Stop, Variant, run};
use curtail_units::{Duration, Quantile, Ratio};

/// Independent runs of each model.
const RUNS: u64 = 20;

/// Intervals of [`RUNS`] that must hold the truth.
const HITS_MIN: usize = 15;

/// Requests of one run, unless a model needs more or fewer.
const REQUESTS: u64 = 100_000;

/// The mean service time: with 1 ms, latencies in milliseconds are in units of it.
const SERVICE: Duration = Duration::from_ms(1);

fn simulate(model: &Model, policy: UpstreamConfig) -> Vec<ArmReport> {
    simulate_for(REQUESTS, model, policy)
}

fn simulate_for(requests_max: u64, model: &Model, policy: UpstreamConfig) -> Vec<ArmReport> {
    let scenario = Scenario {
        variants: vec![Variant { name: String::new(), model: model.clone() }],
        arms: vec![Arm::new("", policy)],
        above: Vec::new(),
        stop: Stop { precision: None, requests_min: 0, requests_max, has_warm_up: true },
    };
    (1..=RUNS).map(|seed| run(&scenario, seed, |_| {}).arms.remove(0)).collect()
}

fn plain() -> UpstreamConfig {
    UpstreamConfig::plain(BalanceConfig::Random)
}

/// Asserts that enough intervals hold `expected_ms`, and that they are narrow: the median half width is at most a
/// seventh of the value.
fn assert_hits(
    what: &str,
    reports: &[ArmReport],
    estimate: impl Fn(&ArmReport) -> Option<Estimate>,
    expected_ms: f64,
) {
    let estimates: Vec<Estimate> =
        reports.iter().map(|report| estimate(report).expect("there are latencies")).collect();
    let hits = estimates.iter().filter(|estimate| estimate.contains(expected_ms * 1e6)).count();
    let value_ms = estimates.iter().map(|e| e.value).sum::<f64>() / RUNS as f64 / 1e6;
    let mut errors: Vec<f64> = estimates.iter().map(Estimate::relative_error).collect();
    errors.sort_unstable_by(f64::total_cmp);
    let error = errors[errors.len() / 2];
    println!("{what}: {value_ms:.4} ms ± {error:.4}, expected {expected_ms:.4}: {hits} hits");
    assert!(error < 0.15, "{what}: intervals of ± {error} say little");
    assert!(
        hits >= HITS_MIN,
        "{what}: {hits} of {RUNS} intervals hold {expected_ms} ms, seeds 1 to {RUNS}: {estimates:?}"
    );
}

#[test]
fn m_m_1_has_the_mean_and_the_quantiles_of_theory() {
    for load in [0.5, 0.8] {
        let service = Distribution::Exponential { mean: SERVICE };
        let reports = simulate(&Model::queue(1, load, service), plain());
        let what = format!("M/M/1 at {load}");
        assert_hits(&format!("{what}, mean"), &reports, |r| r.mean_ns, 1.0 / (1.0 - load));
        for quantile in [Quantile::P50, Quantile::P90, Quantile::P99] {
            let expected = -(1.0 - quantile.get()).ln() / (1.0 - load);
            let what = format!("{what}, {quantile}");
            assert_hits(&what, &reports, |report| report.quantile_ns(quantile), expected);
        }
        for report in &reports {
            assert!(report.settled);
            assert!((report.utilization_ratio / load - 1.0).abs() < 0.01);
            assert_eq!((report.errors, report.extra_requests_ratio), (0, 0.0));
        }
    }
}

/// Mean 1 ms, mean of the square 6.5 ms²: most are short, one in ten is long.
fn hyperexponential() -> Distribution {
    Distribution::hyperexponential(&[
        (0.9, Duration::from_us(500)),
        (0.1, Duration::from_us(5_500)),
    ])
}

#[test]
fn one_server_waits_as_pollaczek_and_khinchine_say() {
    let load = 0.7;
    let shapes = [
        ("deterministic", Distribution::Constant { value: SERVICE }, 1.0),
        ("exponential", Distribution::Exponential { mean: SERVICE }, 2.0),
        ("hyperexponential", hyperexponential(), 6.5),
    ];
    let models =
        shapes.map(|(what, service, of_square)| (what, Model::queue(1, load, service), of_square));
    // Of a product of independent factors, the mean square is the product of the mean squares.
    let product = Model { request_factor: sometimes_heavy(), ..Model::queue(1, load, light()) };
    for (what, model, mean_of_square) in
        models.into_iter().chain([("request × noise", product, 6.5)])
    {
        let reports = simulate(&model, plain());
        let wait = load * mean_of_square / (2.0 * (1.0 - load));
        assert_hits(what, &reports, |report| report.mean_ns, 1.0 + wait);
    }
}

/// The noise and the factor of requests whose product has the distribution of [`hyperexponential`].
fn light() -> Distribution {
    Distribution::Exponential { mean: Duration::from_us(500) }
}

fn sometimes_heavy() -> Distribution<f64> {
    let part = |weight, value| Part { weight, distribution: Distribution::Constant { value } };
    Distribution::Mixture(vec![part(0.9, 1.0), part(0.1, 11.0)])
}

#[test]
fn a_slower_server_is_the_same_queue_in_slow_motion() {
    let (load, factor) = (0.7, 3.0);
    let server_factors = ServerFactors::Listed(vec![factor]);
    let service = Distribution::Exponential { mean: SERVICE };
    let model = Model { server_factors, ..Model::queue(1, load, service) };
    let reports = simulate(&model, plain());
    assert_hits("slower M/M/1", &reports, |report| report.mean_ns, factor / (1.0 - load));
    assert!(reports.iter().all(|report| (report.utilization_ratio / load - 1.0).abs() < 0.02));
}

#[test]
fn many_servers_wait_as_erlang_says() {
    let (concurrency, load) = (10_u32, 0.8);
    let mut model = Model::queue(1, load, Distribution::Exponential { mean: SERVICE });
    model.leaf.concurrency = concurrency;
    let offered = f64::from(concurrency) * load;
    let blocked = (1..=concurrency).fold(1.0, |b, i| offered * b / (f64::from(i) + offered * b));
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    let wait = waits / (f64::from(concurrency) * (1.0 - load));
    assert!((wait - 0.2046).abs() < 0.0001, "Erlang C for 10 servers at 0.8");
    let reports = simulate(&model, plain());
    assert_hits("M/M/10", &reports, |report| report.mean_ns, 1.0 + wait);
}

#[test]
fn a_server_without_a_queue_refuses_as_many_as_erlang_says() {
    let (concurrency, offered) = (5_u32, 4.0);
    let mut model = Model::queue(1, 1.0, Distribution::Exponential { mean: SERVICE });
    (model.leaf.concurrency, model.leaf.queue_len_max) = (concurrency, 0);
    model.arrivals.rate = Rate::PerSecond(offered * 1_000.0);
    let blocked = (1..=concurrency).fold(1.0, |b, i| offered * b / (f64::from(i) + offered * b));
    let reports = simulate(&model, plain());
    let error_count: u64 = reports.iter().map(|report| report.errors).sum();
    let requests: u64 = reports.iter().map(|report| report.requests).sum();
    let share = error_count as f64 / requests as f64;
    println!("refused {share:.5} of {requests}, expected {blocked:.5}");
    // Refusals come in bunches of a few: four standard errors of independent ones are 1 % of the share.
    assert!((share / blocked - 1.0).abs() < 0.01, "{share}, expected {blocked}");
}

#[test]
fn a_shared_core_is_insensitive_to_the_shape_of_service() {
    let load = 0.7;
    for service in [Distribution::Constant { value: SERVICE }, hyperexponential()] {
        let mut model = Model::queue(1, load, service);
        model.leaf.concurrency = u32::MAX;
        model.cores = Some(Cores { allocated: 1.0, machine: 1.0 });
        let reports = simulate(&model, plain());
        assert_hits("M/G/1-PS", &reports, |report| report.mean_ns, 1.0 / (1.0 - load));
    }
}

#[test]
fn urgent_requests_wait_for_the_others_only_as_cobham_says() {
    let (own, others) = (0.4, 0.4);
    let mut model = Model::queue(1, own, Distribution::Exponential { mean: SERVICE });
    model.faults.push(Fault {
        servers: Affected::First(1),
        recipe: Recipe::NoisyNeighbor {
            per_second: others * 1_000.0,
            service: Distribution::Exponential { mean: SERVICE },
            class: Class::Background,
        },
    });
    // What is left of the execution in service is (own + others) · E[S²] / 2, and E[S²] is 2.
    let urgent = (own + others) / (1.0 - own);
    let reports = simulate(&model, plain());
    assert_hits("interactive", &reports, |report| report.mean_ns, 1.0 + urgent);
    model.class = Class::Batch;
    model.faults[0].recipe = Recipe::NoisyNeighbor {
        per_second: others * 1_000.0,
        service: Distribution::Exponential { mean: SERVICE },
        class: Class::Interactive,
    };
    let patient = urgent / (1.0 - own - others);
    let reports = simulate(&model, plain());
    assert_hits("batch", &reports, |report| report.mean_ns, 1.0 + patient);
}

#[test]
fn two_choices_come_close_to_the_mean_field_from_above() {
    // The limit is for infinitely many servers; of 200 the mean lies above it, by 1 % at these loads.
    for (load, margin) in [(0.7, 0.01), (0.9, 0.015)] {
        let limit: f64 = (1..12).map(|i| f64::powf(load, f64::exp2(f64::from(i)) - 2.0)).sum();
        let model = Model::queue(200, load, Distribution::Exponential { mean: SERVICE });
        let two_choices = UpstreamConfig::plain(BalanceConfig::LeastRequest);
        let reports = simulate_for(300_000, &model, two_choices);
        let means = reports.iter().map(|report| report.mean_ns.expect("there are latencies"));
        let mean_ms = means.map(|mean| mean.value / 1e6).sum::<f64>() / reports.len() as f64;
        println!("SQ(2) at {load}: {mean_ms:.4} ms, limit {limit:.4}, seeds 1 to {RUNS}");
        assert!(mean_ms > limit && mean_ms < limit * (1.0 + margin), "{mean_ms}, limit {limit}");
    }
}

#[test]
fn a_fan_out_is_as_slow_as_its_slowest_leaf() {
    const LEAVES: u32 = 10;
    let mut model = Model::queue(1, 0.1, Distribution::Exponential { mean: SERVICE });
    (model.shards, model.servers, model.fan_out) = (LEAVES, LEAVES, LEAVES);
    // Nobody waits: only the order statistics of independent leaves are left.
    model.leaf.concurrency = u32::MAX;
    model.arrivals.rate = Rate::PerSecond(100.0);
    let reports = simulate_for(50_000, &model, plain());
    let harmonic: f64 = (1..=LEAVES).map(|n| 1.0 / f64::from(n)).sum();
    assert_hits("mean of the slowest", &reports, |report| report.mean_ns, harmonic);
    for quantile in [Quantile::P50, Quantile::P99] {
        let of_each = quantile.get().powf(1.0 / f64::from(LEAVES));
        let expected = -(1.0 - of_each).ln();
        let what = format!("{quantile} of the slowest");
        assert_hits(&what, &reports, |report| report.quantile_ns(quantile), expected);
    }
}

#[test]
fn a_heavy_request_is_heavy_on_all_leaves_of_a_fan_out() {
    const LEAVES: u32 = 10;
    let mut model = Model::queue(1, 0.1, light());
    (model.shards, model.servers, model.fan_out) = (LEAVES, LEAVES, LEAVES);
    model.leaf.concurrency = u32::MAX;
    model.arrivals.rate = Rate::PerSecond(100.0);
    let slowest = |ms: f64, mean_ms: f64| (1.0 - (-ms / mean_ms).exp()).powi(10);
    let of_request = |ms: f64| 1.0 - 0.9 * slowest(ms, 0.5) - 0.1 * slowest(ms, 5.5);
    let tail = |ms: f64| 0.9 * (-ms / 0.5).exp() + 0.1 * (-ms / 5.5).exp();
    let of_calls = |ms: f64| 1.0 - (1.0 - tail(ms)).powi(10);
    let by_request = Model { request_factor: sometimes_heavy(), ..model.clone() };
    let by_call = Model { call_factor: sometimes_heavy(), ..model };
    assert_tail(
        "heavy requests",
        &simulate_for(30_000, &by_request, plain()),
        [Quantile::P50, Quantile::P99],
        of_request,
    );
    assert_tail(
        "heavy calls",
        &simulate_for(30_000, &by_call, plain()),
        [Quantile::P50, Quantile::P99],
        of_calls,
    );
}

/// Asserts that the quantiles are where `tail`, of latencies in milliseconds, says.
fn assert_tail(
    what: &str,
    reports: &[ArmReport],
    quantiles: [Quantile; 2],
    tail: impl Fn(f64) -> f64,
) {
    for quantile in quantiles {
        let expected = invert(&tail, 1.0 - quantile.get());
        let what = format!("{what}, {quantile}");
        assert_hits(&what, reports, |report| report.quantile_ns(quantile), expected);
    }
}

/// A hedge after `delay_ms` of every request that has no response by then.
fn hedge_after(delay_ms: f64) -> UpstreamConfig {
    let delay = Duration::from_ns_f64(delay_ms * 1e6);
    UpstreamConfig {
        hedge: Some(HedgeConfig {
            delay: QuantileDelay { quantile: Quantile::P99, min: delay, max: delay },
            hedges_max: 1,
        }),
        budget: BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() },
        ..plain()
    }
}

/// Two servers at which nobody waits, so that hedges add no load that could be felt.
fn two_without_waiting(service: Distribution) -> Model {
    let mut model = Model::queue(2, 0.1, service);
    model.leaf.concurrency = u32::MAX;
    model.arrivals.rate = Rate::PerSecond(1_000.0);
    model
}

#[test]
fn a_hedge_of_independent_copies_multiplies_their_tails() {
    const DELAY_MS: f64 = 3.0;
    let tail = |ms: f64| 0.9 * (-ms / 0.5).exp() + 0.1 * (-ms / 5.5).exp();
    let hedged = |ms: f64| if ms < DELAY_MS { tail(ms) } else { tail(ms) * tail(ms - DELAY_MS) };
    let model = two_without_waiting(hyperexponential());
    // 200 counted requests must lie beyond the p99.9.
    let requests = 220_000;
    let reports = simulate_for(requests, &model, hedge_after(DELAY_MS));
    for quantile in [Quantile::P90, Quantile::P99, Quantile::P999] {
        let expected = invert(hedged, 1.0 - quantile.get());
        let what = format!("{quantile}, hedged");
        assert_hits(&what, &reports, |report| report.quantile_ns(quantile), expected);
    }
    let sent = reports.iter().map(|report| report.extra_requests_ratio).sum::<f64>() / RUNS as f64;
    // The standard error of a share of that many requests.
    let error = (tail(DELAY_MS) / (RUNS * requests) as f64).sqrt();
    assert!((sent - tail(DELAY_MS)).abs() < 4.0 * error, "{sent}, expected {}", tail(DELAY_MS));
}

#[test]
fn a_hedge_helps_a_heavy_request_and_one_at_a_slow_server_as_their_products_say() {
    const DELAY_MS: f64 = 3.0;
    let copies = |ms: f64, first_ms: f64, second_ms: f64| {
        (-ms / first_ms).exp() * (-(ms - DELAY_MS).max(0.0) / second_ms).exp()
    };
    let heavy = Model { request_factor: sometimes_heavy(), ..two_without_waiting(light()) };
    let reports = simulate_for(60_000, &heavy, hedge_after(DELAY_MS));
    let of_heavy = |ms| 0.9 * copies(ms, 0.5, 0.5) + 0.1 * copies(ms, 5.5, 5.5);
    assert_tail("heavy requests, hedged", &reports, [Quantile::P90, Quantile::P99], of_heavy);
    let server_factors = ServerFactors::Listed(vec![1.0, 11.0]);
    let unequal = Model { server_factors, ..two_without_waiting(light()) };
    let reports = simulate_for(60_000, &unequal, hedge_after(DELAY_MS));
    // The hedge goes to the other server.
    let of_unequal = |ms| 0.5 * copies(ms, 0.5, 5.5) + 0.5 * copies(ms, 5.5, 0.5);
    assert_tail("unequal servers, hedged", &reports, [Quantile::P90, Quantile::P99], of_unequal);
}

#[test]
fn a_hedge_helps_only_the_calls_whose_attempts_differ() {
    const DELAY_MS: f64 = 3.0;
    let tail = |ms: f64| 0.9 * (-ms / 0.5).exp() + 0.1 * (-ms / 5.5).exp();
    let copies_alike = Ratio::new(0.4).expect("a ratio");
    let model = Model { copies_alike, ..two_without_waiting(hyperexponential()) };
    let hedged =
        |ms: f64| tail(ms) * (0.4 + 0.6 * if ms < DELAY_MS { 1.0 } else { tail(ms - DELAY_MS) });
    let reports = simulate_for(60_000, &model, hedge_after(DELAY_MS));
    assert_tail("alike attempts, hedged", &reports, [Quantile::P90, Quantile::P99], hedged);
}

/// Where `tail`, which falls, reaches `share`.
fn invert(tail: impl Fn(f64) -> f64, share: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1_000.0);
    while high - low > 1e-9 {
        let middle = f64::midpoint(low, high);
        if tail(middle) > share { low = middle } else { high = middle }
    }
    low
}

type Matrix = [[f64; 2]; 2];

fn product(a: Matrix, b: Matrix) -> Matrix {
    [0, 1].map(|row| [0, 1].map(|column| a[row][0] * b[0][column] + a[row][1] * b[1][column]))
}

fn sum(a: Matrix, b: Matrix) -> Matrix {
    [0, 1].map(|row| [0, 1].map(|column| a[row][column] + b[row][column]))
}

fn inverse([[a, b], [c, d]]: Matrix) -> Matrix {
    let determinant = a * d - b * c;
    [[d, -b], [-c, a]].map(|row| row.map(|value| value / determinant))
}

fn diagonal([a, b]: [f64; 2]) -> Matrix {
    [[a, 0.0], [0.0, b]]
}

/// The mean number of requests in an M/M/1 queue whose arrival rate switches between two values, and the probability
/// that it is empty, by the matrix-geometric method (Neuts, "Matrix-geometric solutions in stochastic models", 1981).
/// `switches` has the rates from the first to the second state and back.
fn switching_queue(arrives: [f64; 2], switches: [f64; 2], serves: f64) -> (f64, f64) {
    let generator = [[-switches[0], switches[0]], [switches[1], -switches[1]]];
    let idle = sum(generator, diagonal(arrives.map(|rate| -rate)));
    let busy = inverse(sum(idle, diagonal([-serves; 2])));
    // The minimal solution of A0 + R A1 + R² A2 = 0: from n to n + 1 requests, the solution is multiplied by R.
    let mut ratio = diagonal([0.0; 2]);
    for _ in 0..100_000 {
        let next = sum(diagonal(arrives), product(product(ratio, ratio), diagonal([serves; 2])));
        ratio = product(next, busy).map(|row| row.map(|value| -value));
    }
    let rest = inverse(sum(diagonal([1.0; 2]), ratio.map(|row| row.map(|value| -value))));
    // The empty states balance each other: x (idle + R serves) = 0.
    let balance = sum(idle, product(ratio, diagonal([serves; 2])));
    let empty = [balance[1][0], -balance[0][0]];
    let times = |x: [f64; 2], m: Matrix| [0, 1].map(|c| x[0] * m[0][c] + x[1] * m[1][c]);
    let all: f64 = times(empty, rest).iter().sum();
    let requests: f64 = times(empty, product(ratio, product(rest, rest))).iter().sum();
    (requests / all, empty.iter().sum::<f64>() / all)
}

#[test]
fn a_queue_with_bursts_is_that_of_a_switching_arrival_rate() {
    // Of 4 parts of the time, 3 have a third of the capacity, and 1 all of it.
    let (load, [every, lasts], factor) = (0.5, [90.0, 30.0], 3.0);
    let low = load / 1.5;
    let (mean_count, empty) = switching_queue([low, low * factor], [1.0 / every, 1.0 / lasts], 1.0);
    assert!((empty - (1.0 - load)).abs() < 1e-9, "the server is idle for the rest of the time");
    let exponential = |services| Distribution::Exponential { mean: SERVICE.mul_f64(services) };
    let mut model = Model::queue(1, load, exponential(1.0));
    model.arrivals.bursts =
        Some(Bursts { every: exponential(every), lasts: exponential(lasts), rate_factor: factor });
    let reports = simulate_for(300_000, &model, plain());
    // Little's law. Without bursts, the mean would be 2 ms.
    let expected = mean_count / load;
    assert!(expected > 3.0, "bursts matter: {expected}");
    assert_hits("MMPP/M/1", &reports, |report| report.mean_ns, expected);
    assert!(reports.iter().all(|report| (report.utilization_ratio / load - 1.0).abs() < 0.05));
}
