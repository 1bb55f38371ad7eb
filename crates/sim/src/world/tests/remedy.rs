//! `remedy: auto` on four services: stalls, a tail of the requests themselves, a saturated service, stalls that stop.

use super::super::World;
use super::super::remedy::RemedyStep;
use super::stop;
use crate::model::Model;
use crate::recorded::{RecordedSlowPeriod, RecordedTimeline};
use crate::scenario::Arm;
use curtail_model::{Distribution, Part, Rate};
use curtail_policy::{RemedyMode, RemedyState, UpstreamConfig};
use curtail_units::{Duration, Instant, Rng};
use std::sync::Arc;

const RATE: f64 = 1_000.0;
const REPLICAS: u32 = 4;
/// The time that each decision may take.
const WITHIN: Duration = Duration::from_secs(120);

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

/// Replicas with room for everything, and a light tail.
fn service() -> Model {
    let service = Distribution::Lognormal { median: Duration::from_ms(5), sigma: 0.4 };
    let mut model = Model::queue(REPLICAS, 0.5, service);
    model.leaf.concurrency = u32::MAX;
    model.arrivals.rate = Rate::PerSecond(RATE);
    model
}

/// A timeline in which each replica stops for 200 ms every 4 s on average, until `stalls_end`.
fn timeline(seed: u64, seconds: f64, stalls_end: f64) -> Arc<RecordedTimeline> {
    let mut rng = Rng::new(seed);
    let (mut arrivals, mut slow_periods, mut now) = (Vec::new(), Vec::new(), 0.0);
    while now < seconds {
        now += rng.exponential() / RATE;
        arrivals.push(at(now));
    }
    for server in 0..REPLICAS {
        let mut from = 4.0 * rng.exponential();
        while from < stalls_end {
            let to = from + 0.2;
            let slowdown = f64::INFINITY;
            slow_periods.push(RecordedSlowPeriod { server, from: at(from), to: at(to), slowdown });
            from = to + 4.0 * rng.exponential();
        }
    }
    Arc::new(RecordedTimeline {
        arrivals,
        works: Vec::new(),
        slow_periods,
        lasts: Duration::from_secs_f64(seconds),
    })
}

fn steps(model: &Model, seed: u64, seconds: f64) -> Vec<RemedyStep> {
    let policy = UpstreamConfig { remedy: RemedyMode::Auto, ..UpstreamConfig::default() };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
    let requests = (seconds * RATE) as u64;
    let mut world = World::new(model, &Arm::new("", policy), (stop(requests), &[]), seed);
    while world.run(1 << 20) {}
    world.remedy_steps
}

fn text(steps: &[RemedyStep]) -> String {
    let line = |step: &RemedyStep| {
        let RemedyStep { at, state, reason } = step;
        format!("{}: {} {}: {reason}\n", at.since(Instant::ZERO), state.name(), reason.name())
    };
    steps.iter().map(line).collect()
}

/// The state at an instant.
fn state_at(steps: &[RemedyStep], now: Instant) -> RemedyState {
    steps.iter().rev().find(|step| step.at <= now).map_or(RemedyState::DryRun, |step| step.state)
}

#[test]
fn stalls_switch_it_on_and_it_is_off_again_after_they_stop() {
    for seed in 1..=3 {
        let model = Model { timeline: Some(timeline(seed, 400.0, 240.0)), ..service() };
        let steps = steps(&model, seed, 390.0);
        let text = text(&steps);
        let on = steps.iter().find(|step| step.state == RemedyState::On).expect("it goes on");
        assert!(on.at < Instant::ZERO + WITHIN, "seed {seed}\n{text}");
        assert_eq!(state_at(&steps, at(240.0)), RemedyState::On, "seed {seed}\n{text}");
        let stopped = at(240.0) + WITHIN;
        let is_off = |state| matches!(state, RemedyState::Off | RemedyState::DryRun);
        assert!(is_off(state_at(&steps, stopped)), "seed {seed}\n{text}");
    }
}

#[test]
fn a_tail_of_the_requests_themselves_is_never_on() {
    for seed in 1..=3 {
        let part = |weight, value| Part { weight, distribution: Distribution::Constant { value } };
        let request_factor = Distribution::Mixture(vec![part(0.99, 1.0), part(0.01, 20.0)]);
        let model = Model { request_factor, ..service() };
        let steps = steps(&model, seed, 300.0);
        assert!(steps.iter().all(|step| step.state != RemedyState::On), "{}", text(&steps));
    }
}

#[test]
fn a_saturated_service_is_never_on() {
    for seed in 1..=3 {
        let service = Distribution::Exponential { mean: Duration::from_us(3_880) };
        let model = Model::queue(REPLICAS, 0.97, service);
        let steps = steps(&model, seed, 300.0);
        assert!(steps.iter().all(|step| step.state != RemedyState::On), "{}", text(&steps));
    }
}
