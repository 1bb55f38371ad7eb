use super::{Limits, StopReason, World};
use crate::connections::ConnectionModel;
use crate::model::{Cancelled, Model};
use crate::report::ArmReport;
use crate::scenario::Arm;
use crate::tally::Stop;
use curtail_model::{
    Affected, Arrivals, Bursts, Cores, Distribution, Fault, FaultTimeline, Faults, Pace,
    PaceChange, Part, Rate, Recipe, ServerFactors, Spacing,
};
use curtail_policy::{
    BalanceConfig, BudgetConfig, HedgeConfig, LeafConfig, PrequalConfig, QuantileDelay,
    RetryConfig, TieConfig, UpstreamConfig,
};
use curtail_units::{Duration, Quantile, Ratio, Rng};

mod connections;
mod crash;
mod records;
mod remedy;

const SEED: u64 = 1;

const fn ms(n: u64) -> Duration {
    Duration::from_ms(n)
}

const fn constant(n: u64) -> Distribution {
    Distribution::Constant { value: ms(n) }
}

fn plain() -> UpstreamConfig {
    UpstreamConfig::plain(BalanceConfig::Random)
}

/// One hedge a request, always after `delay`.
const fn hedge_after(delay: Duration) -> HedgeConfig {
    let delay = QuantileDelay { quantile: Quantile::P99, min: delay, max: delay };
    HedgeConfig { delay, hedges_max: 1 }
}

fn stop(requests_max: u64) -> Stop {
    Stop { precision: None, requests_min: 0, requests_max, has_warm_up: true }
}

/// Runs to the end.
fn run(model: &Model, policy: &UpstreamConfig, requests_max: u64) -> ArmReport {
    let mut world =
        World::new(model, &Arm::new("", *policy), (stop(requests_max), &[ms(50)]), SEED);
    while world.run(1 << 20) {}
    ArmReport::new(("", ""), model, &mut world)
}

/// Servers with room for everything, so that no request waits; each request takes 10 ms.
fn roomy(servers: u32) -> Model {
    let mut model = Model::queue(servers, 0.5, constant(10));
    model.leaf.concurrency = u32::MAX;
    model.arrivals.rate = Rate::PerSecond(100.0);
    model
}

fn fault(recipe: Recipe) -> Fault {
    Fault { servers: Affected::Share(Ratio::ONE), recipe }
}

/// A model in which everything happens that can.
fn everything() -> (Model, UpstreamConfig) {
    let lognormal = |median, sigma| Distribution::Lognormal { median: ms(median), sigma };
    let exponential = |mean| Distribution::Exponential { mean: ms(mean) };
    let model = Model {
        clients: 3,
        fan_out: 4,
        shards: 5,
        replicas: 4,
        servers: 12,
        leaf: LeafConfig { concurrency: 6, queue_len_max: 20 },
        cores: Some(Cores { allocated: 2.0, machine: 4.0 }),
        request_factor: Distribution::Lognormal { median: 1.0, sigma: 0.3 },
        call_factor: Distribution::Uniform { low: 0.5, high: 1.5 },
        server_factors: ServerFactors::Listed(vec![1.0, 1.5]),
        message_delay: lognormal(1, 0.5),
        overhead: exponential(1),
        cancelled: Cancelled::RunsOn,
        gives_up_after: Some(ms(300)),
        faults: vec![
            fault(Recipe::Errors {
                broken: Ratio::new(0.01).expect("a ratio"),
                bad: Ratio::new(0.01).expect("a ratio"),
                silent: Ratio::new(0.001).expect("a ratio"),
            }),
            fault(Recipe::Stall { every: exponential(2_000), lasts: exponential(50) }),
            fault(Recipe::GarbageCollection { executions: 500, lasts: constant(20) }),
            fault(Recipe::BackgroundJob {
                every: ms(1_000),
                lasts: exponential(50),
                slowdown: 3.0,
                synchronized: true,
            }),
            fault(Recipe::NoisyNeighbor {
                per_second: 5.0,
                service: exponential(10),
                class: curtail_policy::Class::Background,
            }),
            fault(Recipe::Antagonist {
                cores_min: 0.0,
                cores_max: 4.0,
                cores_left_min: 1.0,
                every: exponential(500),
            }),
            Fault { servers: Affected::First(2), recipe: Recipe::SlowReplica { slowdown: 2.0 } },
            fault(Recipe::Crash { every: exponential(5_000), lasts: exponential(50) }),
        ],
        connection: Some(ConnectionModel { setup: exponential(1), idle_max: ms(100) }),
        ..Model::queue(20, 0.6, lognormal(5, 1.0))
    };
    let policy = UpstreamConfig {
        balance: BalanceConfig::Prequal(PrequalConfig::default()),
        tie: Some(TieConfig::default()),
        hedge: Some(HedgeConfig {
            delay: QuantileDelay { quantile: Quantile::P90, ..HedgeConfig::default().delay },
            hedges_max: 1,
        }),
        budget: BudgetConfig {
            ratio: Ratio::new(0.2).expect("a ratio"),
            ..BudgetConfig::default()
        },
        ..UpstreamConfig::default()
    };
    (model, policy)
}

#[test]
fn same_seed_same_log_and_another_seed_another() {
    let (model, policy) = everything();
    let log = |seed| {
        let mut world = World::new(&model, &Arm::new("", policy), (stop(20_000), &[]), seed);
        while world.run(1 << 20) {}
        (world.log(), world.events())
    };
    assert_eq!(log(1), log(1));
    assert_ne!(log(1), log(2));
}

#[test]
fn the_seed_decides_the_same_faults_as_in_a_testbed() {
    let (mut model, policy) = everything();
    // When garbage is collected depends on the executions.
    model.faults.retain(|fault| !matches!(fault.recipe, Recipe::GarbageCollection { .. }));
    let faults = Faults::new(&model.faults, model.servers, model.cores, &Rng::new(SEED));
    let mut world = World::new(&model, &Arm::new("", policy), (stop(20_000), &[]), SEED);
    let paces = |world: &World<'_>| -> Vec<Pace> {
        (0..model.servers).map(|server| world.faults[0].pace(server)).collect()
    };
    let mut last = paces(&world);
    let mut changes = vec![Vec::new(); last.len()];
    while world.run(1) {
        for (server, pace) in paces(&world).into_iter().enumerate() {
            if pace != last[server] {
                last[server] = pace;
                changes[server].push(PaceChange { at: world.now, pace });
            }
        }
    }
    for (server, changes) in (0..).zip(changes) {
        let timeline = FaultTimeline::new(&faults, server);
        let mut last = timeline.pace();
        let expected = timeline.pace_changes().filter(|change| {
            let previous = std::mem::replace(&mut last, change.pace);
            previous != change.pace
        });
        assert!(changes.len() > 20, "{} changes of server {server}", changes.len());
        assert!(expected.take(changes.len()).eq(changes), "server {server}, seed {SEED}");
    }
}

#[test]
fn attempts_end_and_their_places_are_used_again() {
    let (model, policy) = everything();
    let mut world = World::new(&model, &Arm::new("", policy), (stop(100_000), &[]), SEED);
    while world.run(1 << 20) {}
    let counts = world.counts();
    println!("seed {SEED}: {counts:?}");
    assert!(counts.attempts > 400_000, "the model made many attempts");
    // 20 leaf machines hold at most 26 attempts each, and some more are on their way.
    assert!(world.attempts.len() < 1_000, "{} attempts are still known", world.attempts.len());
    assert!(world.calls.len() < 1_000 && world.requests.len() < 1_000);
    assert!(world.twin_news.len() < 100 && world.probes.len() < 100);
}

#[test]
fn arms_see_the_same_arrivals_and_the_same_service_times() {
    let mut model = roomy(10);
    model.service = Distribution::Exponential { mean: ms(10) };
    let exponential = |mean| Distribution::Exponential { mean: ms(mean) };
    let (every, lasts) = (exponential(1_000), exponential(100));
    model.arrivals.bursts = Some(Bursts { every, lasts, rate_factor: 5.0 });
    let times_with = |balance| {
        let report = run(&model, &UpstreamConfig::plain(balance), 20_000);
        (report.mean_ns, report.quantiles_ns)
    };
    let random = times_with(BalanceConfig::Random);
    assert_eq!(random, times_with(BalanceConfig::RoundRobin));
    assert_eq!(random, times_with(BalanceConfig::Prequal(PrequalConfig::default())));
}

#[test]
fn messages_and_the_overhead_of_a_root_take_their_time() {
    let mut model = roomy(1);
    model.message_delay = constant(3);
    model.overhead = constant(7);
    let report = run(&model, &plain(), 2_000);
    let p50 = report.quantile_ns(Quantile::P50).expect("latencies").value;
    assert!((p50 / 23e6 - 1.0).abs() < 0.001, "{p50}");
}

#[test]
fn constant_arrivals_come_at_equal_intervals() {
    let mut model = Model::queue(1, 0.999, constant(10));
    model.arrivals = Arrivals { spacing: Spacing::Even, ..model.arrivals };
    let report = run(&model, &plain(), 5_000);
    let p999 = report.quantile_ns(Quantile::P999).expect("latencies").value;
    assert!((p999 / 10e6 - 1.0).abs() < 0.001, "no request waits: {p999}");
}

#[test]
fn a_stall_delays_requests_that_arrive_during_it() {
    let mut model = roomy(50);
    model.arrivals.rate = Rate::PerSecond(1_000.0);
    model.faults = vec![fault(Recipe::Stall { every: constant(900), lasts: constant(100) })];
    let report = run(&model, &plain(), 100_000);
    // Above 50 ms: who comes while more than 40 ms of a stall are left, which is 60 of each 1,000 ms, and
    // who is in service when it begins, which is 10.
    let share = report.above[0].1.value;
    assert!((share - 0.07).abs() < 0.002, "{share}");
    assert_eq!(report.errors, 0);
}

#[test]
fn garbage_is_collected_every_nth_execution() {
    let mut model = roomy(1);
    model.arrivals.rate = Rate::PerSecond(10.0);
    model.arrivals.spacing = Spacing::Even;
    model.faults = vec![fault(Recipe::GarbageCollection { executions: 50, lasts: constant(160) })];
    let report = run(&model, &plain(), 20_000);
    // The pause begins with the end of the 50th: of the next two, 100 and 200 ms later, one is late.
    let share = report.above[0].1.value;
    assert!((share - 0.02).abs() < 0.001, "{share}");
}

#[test]
fn background_work_hurts_a_fan_out_less_when_it_is_synchronized() {
    let slow = |synchronized| {
        let mut model = roomy(1);
        (model.shards, model.servers, model.fan_out) = (50, 50, 50);
        model.arrivals.rate = Rate::PerSecond(20.0);
        model.faults = vec![fault(Recipe::BackgroundJob {
            every: ms(10_000),
            lasts: constant(500),
            slowdown: 10.0,
            synchronized,
        })];
        run(&model, &plain(), 6_000).above[0].1.value
    };
    let (together, each) = (slow(true), slow(false));
    println!("seed {SEED}: slow together {together}, each on its own {each}");
    assert!((together - 0.05).abs() < 0.01, "5 % of the time: {together}");
    assert!((each - (1.0 - 0.95_f64.powi(50))).abs() < 0.05, "nearly always: {each}");
}

#[test]
fn slow_replicas_are_slow_for_their_share() {
    let mut model = roomy(20);
    let servers = Affected::Share(Ratio::new(0.25).expect("a ratio"));
    model.faults = vec![Fault { servers, recipe: Recipe::SlowReplica { slowdown: 8.0 } }];
    let report = run(&model, &plain(), 20_000);
    let share = report.above[0].1.value;
    assert!((share - 0.25).abs() < 0.02, "{share}");
}

#[test]
fn an_execution_that_was_cancelled_stops_or_runs_on() {
    let busy = |cancelled| {
        let mut model = roomy(2);
        model.cancelled = cancelled;
        model.service = Distribution::Mixture(vec![
            Part { weight: 0.9, distribution: constant(10) },
            Part { weight: 0.1, distribution: constant(1_000) },
        ]);
        model.leaf.concurrency = 1_000;
        let delay = ms(20);
        let hedge = hedge_after(delay);
        let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
        let policy = UpstreamConfig { hedge: Some(hedge), budget, ..plain() };
        let report = run(&model, &policy, 50_000);
        assert!((report.extra_requests_ratio - 0.1).abs() < 0.01);
        report.utilization_ratio * 2.0 * 1_000.0 / (100.0 * 0.001)
    };
    // In ms of work a request. A slow one is cancelled after 30 ms when its hedge is fast, and else both are
    // slow: the first response comes after 1,000 ms, 20 ms before the second.
    let stops = 0.9 * 10.0 + 0.1 * (0.9 * (30.0 + 10.0) + 0.1 * (1_000.0 + 980.0));
    let runs_on = 0.9 * 10.0 + 0.1 * (0.9 * (1_000.0 + 10.0) + 0.1 * 2_000.0);
    let (got, expected) = (busy(Cancelled::Stops), stops);
    assert!((got / expected - 1.0).abs() < 0.05, "stops: {got}, expected {expected}");
    let (got, expected) = (busy(Cancelled::RunsOn), runs_on);
    assert!((got / expected - 1.0).abs() < 0.05, "runs on: {got}, expected {expected}");
}

/// Two servers on which everything happens at whole milliseconds, so that they often finish at the same instant.
fn in_step(message_delay: Distribution) -> Model {
    let mut model = Model::queue(2, 0.7, constant(10));
    model.call_factor = sometimes(0.2, 3.0);
    model.arrivals = Arrivals::steady(Spacing::Even, Rate::PerSecond(1_000.0 / 9.0));
    // Gaps of 9 ms exactly: a rate would be rounded.
    model.message_delay = message_delay;
    model
}

#[test]
fn a_tie_does_not_run_in_lock_step_when_messages_take_no_time() {
    let tied = UpstreamConfig {
        tie: Some(TieConfig { delay: Some(ms(1)), ..TieConfig::default() }),
        ..plain()
    };
    let model = in_step(Distribution::ZERO);
    let (alone, twice) = (run(&model, &plain(), 60_000), run(&model, &tied, 60_000));
    let mean_ms = |report: &ArmReport| report.mean_ns.expect("latencies").value / 1e6;
    println!("seed {SEED}: {} ms, tied {} ms", mean_ms(&alone), mean_ms(&twice));
    assert!(mean_ms(&twice) < mean_ms(&alone), "a tie has the shorter of two waits");
    assert!(twice.extra_work_ratio < 0.01, "{} executed twice", twice.extra_work_ratio);
}

#[test]
fn equal_copies_on_two_servers_run_in_lock_step_when_messages_have_a_delay() {
    let tied = UpstreamConfig {
        tie: Some(TieConfig { delay: Some(ms(1)), ..TieConfig::default() }),
        ..plain()
    };
    let equal = in_step(Distribution::Constant { value: Duration::from_us(100) });
    let independent = Model {
        service: Distribution::Mixture(vec![
            Part { weight: 0.8, distribution: constant(10) },
            Part { weight: 0.2, distribution: constant(30) },
        ]),
        call_factor: Distribution::ONE,
        ..equal.clone()
    };
    let report = |model: &Model| run(model, &tied, 60_000);
    // Two copies of equal length that start within a message delay of each other also end within it. Both servers then
    // start the same next request.
    let (identical, independent) = (report(&equal), report(&independent));
    let twice = (identical.extra_work_ratio, independent.extra_work_ratio);
    println!("seed {SEED}: executed twice: equal {}, independent {}", twice.0, twice.1);
    assert!(twice.0 > 3.0 * twice.1, "{twice:?}");
}

#[test]
fn a_cancelled_queued_attempt_leaves_the_queue_or_is_executed() {
    // One slot and a hedge after 1 ms: the second copy of each request usually still waits when the first is done.
    let executed_twice = |cancelled| {
        let mut model = Model::queue(2, 0.4, constant(10));
        model.cancelled = cancelled;
        let hedge = hedge_after(ms(1));
        let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
        let policy = UpstreamConfig { hedge: Some(hedge), budget, ..plain() };
        let report = run(&model, &policy, 50_000);
        (report.extra_requests_ratio, report.extra_work_ratio)
    };
    let (sent, executed) = executed_twice(Cancelled::RunsOn);
    assert!(sent > 0.9, "nearly every request is hedged: {sent}");
    assert!((executed / sent - 1.0).abs() < 0.01, "each copy is executed: {executed} of {sent}");
    for cancelled in [Cancelled::LeavesQueue, Cancelled::Stops] {
        let (sent, executed) = executed_twice(cancelled);
        assert!(executed < 0.9 * sent, "{cancelled:?}: some left the queue: {executed} of {sent}");
    }
}

#[test]
fn retries_after_errors_have_their_closed_form() {
    let (share, requests) = (0.2, 100_000);
    let ratio = |share| Ratio::new(share).expect("a ratio");
    let retry =
        RetryConfig { retries_max: 2, backoff: ms(8), overdue: None, ..RetryConfig::default() };
    let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
    let policy = UpstreamConfig { retry: Some(retry), budget, ..plain() };
    // A request fails when three attempts fail. Each retry goes at once to an untried replica.
    let ends_after = [1.0 - share, share * (1.0 - share), share * share * (1.0 - share)];
    let mean_ms = ends_after[0] * 10.0 + ends_after[1] * 20.0 + ends_after[2] * 30.0;
    let mean_ms = mean_ms / ends_after.iter().sum::<f64>();
    for (broken, bad) in [(share, 0.0), (0.0, share), (share / 2.0, share / 2.0)] {
        let mut model = roomy(50);
        let silent = Ratio::ZERO;
        model.faults =
            vec![fault(Recipe::Errors { broken: ratio(broken), bad: ratio(bad), silent })];
        let report = run(&model, &policy, requests);
        let failed = report.errors as f64 / report.requests as f64;
        let got_ms = report.mean_ns.expect("latencies").value / 1e6;
        println!("seed {SEED}: {failed} failed, {} more, {got_ms} ms", report.extra_requests_ratio);
        // Four standard deviations of the share of independent failures.
        let deviation = (share.powi(3) / report.requests as f64).sqrt();
        assert!((failed - share.powi(3)).abs() < 4.0 * deviation, "{failed} failed");
        assert!((report.extra_requests_ratio - share - share * share).abs() < 0.01);
        assert!((got_ms / mean_ms - 1.0).abs() < 0.01, "{got_ms}, expected {mean_ms}");
        let mut once = model;
        once.repeatable = false;
        let report = run(&once, &policy, 20_000);
        let failed = report.errors as f64 / report.requests as f64;
        assert!(
            (failed - share).abs() < 0.02,
            "a request that is not repeatable is not retried: {failed}"
        );
    }
}

#[test]
fn an_execution_without_a_response_ends_with_the_timeout_of_its_request() {
    let mut model = roomy(2);
    let silent = Ratio::new(0.1).expect("a ratio");
    model.faults = vec![fault(Recipe::Errors { broken: Ratio::ZERO, bad: Ratio::ZERO, silent })];
    let policy = UpstreamConfig { timeout: ms(500), ..plain() };
    let report = run(&model, &policy, 20_000);
    let failed = report.errors as f64 / report.requests as f64;
    assert!((failed - 0.1).abs() < 0.01, "{failed} failed");
    assert!((report.extra_work_ratio).abs() < 0.001, "each request was executed");
}

#[test]
fn clients_that_give_up_fail_and_their_work_stops() {
    let mut model = roomy(1);
    model.service = Distribution::Exponential { mean: ms(10) };
    model.gives_up_after = Some(ms(15));
    let report = run(&model, &plain(), 50_000);
    let patience = (-1.5_f64).exp();
    let failed = report.errors as f64 / report.requests as f64;
    assert!((failed - patience).abs() < 0.01, "{failed} abandoned, expected {patience}");
    // At 100 a second an execution takes 10 ms · (1 − e^−1.5) on average, and nothing queues.
    let busy = report.utilization_ratio * f64::from(u32::MAX);
    assert!((busy - (1.0 - patience)).abs() < 0.02, "{busy} in service on average");
    model.cancelled = Cancelled::RunsOn;
    let busy = run(&model, &plain(), 50_000).utilization_ratio * f64::from(u32::MAX);
    assert!((busy - 1.0).abs() < 0.02, "{busy}: no execution stops");
}

/// A factor of `factor` for a share of the requests, else 1.
fn sometimes(share: f64, factor: f64) -> Distribution<f64> {
    let part = |weight, value| Part { weight, distribution: Distribution::Constant { value } };
    Distribution::Mixture(vec![part(1.0 - share, 1.0), part(share, factor)])
}

#[test]
fn a_heavy_request_takes_the_gain_from_a_hedge_and_a_hiccup_does_not() {
    let p99 = |model: Model| {
        let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
        let policy = UpstreamConfig { hedge: Some(hedge_after(ms(20))), budget, ..plain() };
        run(&model, &policy, 20_000).quantile_ns(Quantile::P99).expect("latencies").value / 1e6
    };
    let hiccups = Distribution::Mixture(vec![
        Part { weight: 0.95, distribution: constant(10) },
        Part { weight: 0.05, distribution: constant(500) },
    ]);
    assert!((p99(Model { service: hiccups, ..roomy(2) }) - 30.0).abs() < 0.1, "a fast hedge");
    let heavy = || sometimes(0.05, 50.0);
    for model in
        [Model { request_factor: heavy(), ..roomy(2) }, Model { call_factor: heavy(), ..roomy(2) }]
    {
        assert!((p99(model) - 500.0).abs() < 1.0, "the hedge is as slow");
    }
}

#[test]
fn an_overload_is_stopped_and_reported() {
    let model = Model::queue(1, 100.0, constant(10));
    let limits = Limits { in_flight_max: 10_000, idle_events_max: 1_000 };
    let stopped = |model: &Model| {
        let mut world =
            World::new(model, &Arm::new("", plain()), (stop(1_000_000), &[ms(50)]), SEED)
                .with_limits(limits);
        while world.run(1 << 20) {}
        let report = ArmReport::new(("", ""), model, &mut world);
        assert_eq!((report.mean_ns, report.above.len()), (None, 0), "a stopped run has no figures");
        assert!(!report.settled);
        report
    };
    let report = stopped(&model);
    assert_eq!(report.stopped, Some(StopReason::TooManyInFlight { max: 10_000 }));
    let table = crate::Report { seed: SEED, events: 0, arms: vec![report] }.table();
    let words: Vec<&str> = table.split_whitespace().collect();
    assert!(
        words.join(" ").contains("the servers cannot keep up with this load; lower the arrivals"),
        "{table}"
    );
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let mut rare = roomy(1);
    rare.arrivals.rate = Rate::PerSecond(0.001);
    rare.faults = vec![fault(Recipe::Stall { every: constant(1), lasts: constant(1) })];
    assert_eq!(stopped(&rare).stopped, Some(StopReason::NoRequestEnds { max: 1_000 }));
}

#[test]
fn a_load_above_the_capacity_fails_by_timeouts_and_never_settles() {
    let mut model = Model::queue(1, 1.5, constant(10));
    model.leaf.queue_len_max = 1_000;
    let policy = UpstreamConfig { timeout: ms(2_000), ..plain() };
    let report = run(&model, &policy, 60_000);
    let share = report.errors as f64 / report.requests as f64;
    assert!(share > 0.3, "{share} failed");
    assert_eq!(report.quantile_ns(Quantile::P90), None, "it lies among the failures");
}
