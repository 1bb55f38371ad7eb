//! Connections that take time to open.

use super::{SEED, fault, ms, plain, roomy, stop};
use crate::connections::ConnectionModel;
use crate::model::Model;
use crate::record::AttemptRecord;
use crate::scenario::Arm;
use crate::world::World;
use curtail_model::{Distribution, Rate, Recipe, Spacing};
use curtail_policy::{BudgetConfig, UpstreamConfig};
use curtail_units::{Duration, Ratio};

fn connection(setup: Duration, idle_max: Duration) -> Option<ConnectionModel> {
    Some(ConnectionModel { setup: Distribution::Constant { value: setup }, idle_max })
}

fn attempts(model: &Model, policy: &UpstreamConfig, requests: u64) -> Vec<AttemptRecord> {
    let arm = Arm::new("", *policy);
    let mut world = World::new(model, &arm, (stop(requests), &[]), SEED).recording(u64::MAX);
    while world.run(1 << 20) {}
    let requests = world.take_records();
    requests.into_iter().flat_map(|r| r.calls).flat_map(|c| c.attempts).collect()
}

/// The share of attempts that opened a connection. Messages take no time.
fn opened_ratio(model: &Model, policy: &UpstreamConfig, requests: u64) -> f64 {
    let attempts = attempts(model, policy, requests);
    let opened = |a: &&AttemptRecord| a.arrived.is_some_and(|arrived| arrived > a.sent);
    attempts.iter().filter(opened).count() as f64 / attempts.len() as f64
}

/// A request every 100 ms that takes 10 ms, and another 1 ms with a new connection.
fn every_100_ms(idle_max: Duration) -> Model {
    let mut model = roomy(1);
    model.arrivals.spacing = Spacing::Even;
    model.arrivals.rate = Rate::PerSecond(10.0);
    model.connection = connection(ms(1), idle_max);
    model
}

#[test]
fn a_connection_that_was_idle_for_too_long_is_opened_again() {
    let ratio = |idle_max| opened_ratio(&every_100_ms(idle_max), &plain(), 2_000);
    assert_eq!(ratio(ms(88)), 1.0);
    assert_eq!(ratio(ms(90)), 0.0, "the first requests do not count");
    // A new connection is idle for 89 ms, and one that was used again for 90 ms.
    let alternating = ratio(Duration::from_us(89_500));
    assert!((alternating - 0.5).abs() < 0.001, "{alternating}");
    let p50 = |idle_max| {
        let report = super::run(&every_100_ms(idle_max), &plain(), 2_000);
        report.quantile_ns(curtail_units::Quantile::P50).expect("latencies").value / 1e6
    };
    assert!((p50(ms(88)) - 11.0).abs() < 0.01 && (p50(ms(90)) - 10.0).abs() < 0.01);
}

#[test]
fn attempts_at_once_need_connections_of_their_own() {
    let with_fan_out = |idle_max| Model { fan_out: 3, ..every_100_ms(idle_max) };
    assert_eq!(opened_ratio(&with_fan_out(ms(88)), &plain(), 2_000), 1.0);
    assert_eq!(opened_ratio(&with_fan_out(ms(90)), &plain(), 2_000), 0.0);
    // Each of ten clients sends every tenth request on average, to each of four replicas every fortieth.
    let many = Model { clients: 10, replicas: 4, servers: 4, ..every_100_ms(ms(4_000)) };
    let mut poisson = many;
    poisson.arrivals.spacing = Spacing::Poisson;
    let (ratio, expected) = (opened_ratio(&poisson, &plain(), 50_000), (-1.0_f64).exp());
    assert!((ratio - expected).abs() < 0.012, "{ratio}, expected {expected}");
}

/// The probability that a birth-and-death chain of `n` requests in flight stays below `n` for `time`, from `n - 1` on.
/// By uniformization (Jensen, 1953).
fn stays_below(n: usize, (arrives, ends): (f64, f64), time: f64) -> f64 {
    let step = arrives + n as f64 * ends;
    let mut states = vec![0.0; n];
    states[n - 1] = 1.0;
    let (mut weight, mut sum) = ((-step * time).exp(), 0.0);
    for nth in 1..1_000 {
        sum += weight * states.iter().sum::<f64>();
        weight *= step * time / f64::from(nth);
        let after = |state: usize| {
            let stays = 1.0 - (arrives + state as f64 * ends) / step;
            let from_below = state.checked_sub(1).map_or(0.0, |below| states[below] * arrives);
            let from_above = states.get(state + 1).map_or(0.0, |s| s * (state + 1) as f64 * ends);
            states[state] * stays + (from_below + from_above) / step
        };
        states = (0..n).map(after).collect();
    }
    sum
}

#[test]
fn random_requests_open_connections_as_a_birth_and_death_chain_says() {
    // Two requests are in flight on average. The connection used last is used first, so the nth connection is idle while
    // fewer than n requests are in flight, from the end of a request that was one of n to the next such request.
    let (per_second, mean) = (200.0, ms(10));
    let rates = (per_second, 1.0 / mean.as_secs_f64());
    for idle_max in [ms(5), ms(20), ms(100)] {
        let mut model = roomy(1);
        model.service = Distribution::Exponential { mean };
        model.arrivals.rate = Rate::PerSecond(per_second);
        model.connection = connection(Duration::from_us(1), idle_max);
        let (mut expected, mut in_flight) = (0.0, (-2.0_f64).exp());
        for n in 1..30 {
            expected += in_flight * stays_below(n, rates, idle_max.as_secs_f64());
            in_flight *= 2.0 / n as f64;
        }
        let ratio = opened_ratio(&model, &plain(), 100_000);
        println!("seed {SEED}: {ratio:.4} opened, expected {expected:.4}");
        // Five standard errors of independent attempts; these depend on each other a little.
        assert!((ratio - expected).abs() < 0.008, "idle_max {idle_max}: {ratio}, not {expected}");
    }
}

#[test]
fn cancelled_attempts_and_crashes_close_connections() {
    let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
    let hedged = UpstreamConfig { hedge: Some(super::hedge_after(ms(5))), budget, ..plain() };
    let mut model = Model { replicas: 2, servers: 2, ..every_100_ms(ms(1_000)) };
    // Each request is hedged after 5 ms, and each hedge is cancelled.
    let ratio = opened_ratio(&model, &hedged, 4_000);
    assert!(ratio > 0.2, "{ratio}: the connections of hedges are closed");
    let steady = opened_ratio(&model, &plain(), 4_000);
    assert!(steady < 0.01, "{steady}");
    let every = Distribution::Constant { value: ms(2_030) };
    let lasts = Distribution::Constant { value: ms(20) };
    model = Model { replicas: 1, servers: 1, ..every_100_ms(ms(1_000)) };
    model.faults = vec![fault(Recipe::Crash { every, lasts })];
    // One of 20.5 requests is the first after a crash.
    let ratio = opened_ratio(&model, &plain(), 4_000);
    assert!((ratio - 1.0 / 20.5).abs() < 0.002, "{ratio}");
}
