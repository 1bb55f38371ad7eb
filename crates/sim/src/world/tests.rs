use super::World;
use crate::distribution::Distribution;
use crate::fault::{Affected, Fault, Recipe};
use crate::model::{Arrivals, Cancelled, Cores, Model, Process, Rate};
use crate::report::ArmReport;
use crate::tally::Stop;
use curtail_policy::{
    BalanceConfig, BudgetConfig, HedgeConfig, LeafConfig, PrequalConfig, TieConfig, UpstreamConfig,
};
use curtail_units::{Duration, Quantile, Ratio};

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

fn stop(requests_max: u64) -> Stop {
    Stop { precision: None, requests_min: 0, requests_max }
}

/// Runs to the end.
fn run(model: &Model, policy: &UpstreamConfig, requests_max: u64) -> ArmReport {
    let mut world = World::new(model, policy, (stop(requests_max), &[ms(50)]), SEED);
    while world.run(1 << 20) {}
    ArmReport::new(("", ""), model, &mut world)
}

/// Servers with room for everything, so that nobody waits for others; each request takes 10 ms.
fn roomy(servers: u32) -> Model {
    let mut model = Model::queue(servers, 0.5, constant(10));
    model.leaf.slots = u32::MAX;
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
        leaf: LeafConfig { slots: 6, queue_len_max: 20 },
        cores: Some(Cores { allocated: 2.0, machine: 4.0 }),
        copies_alike: Ratio::new(0.3).expect("a ratio"),
        message_delay: lognormal(1, 0.5),
        overhead: exponential(1),
        cancelled: Cancelled::RunsOn,
        faults: vec![
            fault(Recipe::Stall { every: exponential(2_000), lasts: exponential(50) }),
            fault(Recipe::GarbageCollection { executions: 500, lasts: constant(20) }),
            fault(Recipe::BackgroundJob {
                every: ms(1_000),
                lasts: exponential(50),
                slowdown: 3.0,
                synchronised: true,
            }),
            fault(Recipe::Neighbours {
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
        ],
        ..Model::queue(20, 0.6, lognormal(5, 1.0))
    };
    let policy = UpstreamConfig {
        balance: BalanceConfig::Prequal(PrequalConfig::default()),
        tie: Some(TieConfig::default()),
        hedge: Some(HedgeConfig { quantile: Quantile::P90, ..HedgeConfig::default() }),
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
        let mut world = World::new(&model, &policy, (stop(20_000), &[]), seed);
        while world.run(1 << 20) {}
        (world.log(), world.events())
    };
    assert_eq!(log(1), log(1));
    assert_ne!(log(1), log(2));
}

#[test]
fn attempts_end_and_their_places_are_used_again() {
    let (model, policy) = everything();
    let mut world = World::new(&model, &policy, (stop(100_000), &[]), SEED);
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
    let of = |balance| {
        let report = run(&model, &UpstreamConfig::plain(balance), 20_000);
        (report.mean_ns, report.quantiles_ns)
    };
    let random = of(BalanceConfig::Random);
    assert_eq!(random, of(BalanceConfig::RoundRobin));
    assert_eq!(random, of(BalanceConfig::Prequal(PrequalConfig::default())));
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
    model.arrivals = Arrivals { process: Process::Constant, ..model.arrivals };
    let report = run(&model, &plain(), 5_000);
    let p999 = report.quantile_ns(Quantile::P999).expect("latencies").value;
    assert!((p999 / 10e6 - 1.0).abs() < 0.001, "nobody waits: {p999}");
}

#[test]
fn a_stall_delays_those_who_come_during_it() {
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
fn garbage_is_collected_after_so_many_executions() {
    let mut model = roomy(1);
    model.arrivals.rate = Rate::PerSecond(10.0);
    model.arrivals.process = Process::Constant;
    model.faults = vec![fault(Recipe::GarbageCollection { executions: 50, lasts: constant(160) })];
    let report = run(&model, &plain(), 20_000);
    // The pause begins with the end of the 50th: of the next two, 100 and 200 ms later, one is late.
    let share = report.above[0].1.value;
    assert!((share - 0.02).abs() < 0.001, "{share}");
}

#[test]
fn background_work_hurts_a_fan_out_less_when_it_is_synchronised() {
    let slow = |synchronised| {
        let mut model = roomy(1);
        (model.shards, model.servers, model.fan_out) = (50, 50, 50);
        model.arrivals.rate = Rate::PerSecond(20.0);
        model.faults = vec![fault(Recipe::BackgroundJob {
            every: ms(10_000),
            lasts: constant(500),
            slowdown: 10.0,
            synchronised,
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
            crate::Part { weight: 0.9, distribution: constant(10) },
            crate::Part { weight: 0.1, distribution: constant(1_000) },
        ]);
        model.leaf.slots = 1_000;
        let delay = ms(20);
        let hedge = HedgeConfig { delay_min: delay, delay_max: delay, ..HedgeConfig::default() };
        let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
        let policy = UpstreamConfig { hedge: Some(hedge), budget, ..plain() };
        let report = run(&model, &policy, 50_000);
        assert!((report.extra_requests_ratio - 0.1).abs() < 0.01);
        report.utilisation_ratio * 2.0 * 1_000.0 / (100.0 * 0.001)
    };
    // In ms of work a request. A slow one is cancelled after 30 ms when its hedge is fast, and else both are
    // slow: the first is answered after 1,000 ms, 20 ms before the second.
    let stops = 0.9 * 10.0 + 0.1 * (0.9 * (30.0 + 10.0) + 0.1 * (1_000.0 + 980.0));
    let runs_on = 0.9 * 10.0 + 0.1 * (0.9 * (1_000.0 + 10.0) + 0.1 * 2_000.0);
    let (got, expected) = (busy(Cancelled::Stops), stops);
    assert!((got / expected - 1.0).abs() < 0.05, "stops: {got}, expected {expected}");
    let (got, expected) = (busy(Cancelled::RunsOn), runs_on);
    assert!((got / expected - 1.0).abs() < 0.05, "runs on: {got}, expected {expected}");
}

#[test]
fn copies_that_are_alike_take_the_gain_from_a_hedge() {
    let p99 = |alike: f64| {
        let mut model = roomy(2);
        model.service = Distribution::Mixture(vec![
            crate::Part { weight: 0.95, distribution: constant(10) },
            crate::Part { weight: 0.05, distribution: constant(500) },
        ]);
        model.copies_alike = Ratio::new(alike).expect("a ratio");
        let delay = ms(20);
        let hedge = HedgeConfig { delay_min: delay, delay_max: delay, ..HedgeConfig::default() };
        let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
        let policy = UpstreamConfig { hedge: Some(hedge), budget, ..plain() };
        run(&model, &policy, 20_000).quantile_ns(Quantile::P99).expect("latencies").value / 1e6
    };
    assert!((p99(0.0) - 30.0).abs() < 0.1, "the hedge is fast");
    assert!((p99(1.0) - 500.0).abs() < 1.0, "the hedge is as slow");
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
