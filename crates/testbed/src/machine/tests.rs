use super::{ServerEffect, ServerMachine, Times};
use crate::config::TestbedConfig;
use curtail_model::{ExecutionOutcome, FaultTimeline, Faults, PaceChange, Spacing};
use curtail_policy::Class;
use curtail_units::{Duration, Instant, Rng};
use std::collections::BTreeSet;

#[path = "../../benches/recipes/rows.rs"]
mod rows;

const SEED: u64 = 9;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

/// One server with these keys and faults, and when its pace changes.
fn server(keys: &str, faults: &str) -> (ServerMachine, Vec<PaceChange>) {
    let yaml = format!("name: test\nreplicas: 1\nserver: {{{keys}}}\nfaults: [{faults}]\n");
    let config = TestbedConfig::from_yaml("test.yaml", &yaml).expect("no errors");
    let rng = Rng::new(SEED);
    let faults = Faults::new(&config.faults, 1, config.server.cores, &rng);
    let timeline = FaultTimeline::new(&faults, 0);
    let changes = timeline.clone().pace_changes().take(50).collect();
    (ServerMachine::new(&config.server, timeline, &rng), changes)
}

fn effects(machine: &mut ServerMachine) -> Vec<ServerEffect> {
    std::iter::from_fn(|| machine.poll_effect()).collect()
}

fn ended(machine: &mut ServerMachine) -> Vec<(u64, Times)> {
    let effects = effects(machine).into_iter();
    let ended = effects.filter_map(|effect| match effect {
        ServerEffect::Ended { request, times, .. } => Some((request, times)),
        ServerEffect::Began { .. } | ServerEffect::Rejected { .. } | ServerEffect::Resumed => None,
    });
    ended.collect()
}

const STALLS: &str = "{recipe: stall, every: {shape: constant, value: 100ms}, lasts: {shape: constant, value: 30ms}}";

#[test]
fn a_stall_delays_what_is_half_done_by_its_length() {
    let (mut machine, changes) = server("service: {shape: constant, value: 10ms}", STALLS);
    let arrives = Instant::ZERO + (changes[2].at.since(Instant::ZERO) - Duration::from_ms(4));
    machine.arrive(arrives, Class::Interactive);
    machine.advance(arrives + Duration::from_ms(39));
    assert_eq!(ended(&mut machine), []);
    machine.advance(arrives + Duration::from_ms(40));
    let times = Times {
        queue: Duration::ZERO,
        service: Duration::from_ms(10),
        fault: Duration::from_ms(30),
    };
    assert_eq!(ended(&mut machine), [(0, times)]);
}

#[test]
fn an_execution_counts_from_when_it_progresses() {
    let (mut machine, changes) = server("service: {shape: constant, value: 10ms}", STALLS);
    let stall = changes[0].at;
    assert!(!machine.is_stopped());
    let cancelled = machine.arrive(stall + Duration::from_ms(1), Class::Interactive);
    let patient = machine.arrive(stall + Duration::from_ms(2), Class::Interactive);
    assert!(machine.is_stopped());
    machine.cancel(stall + Duration::from_ms(29), cancelled);
    assert_eq!(effects(&mut machine), []);
    machine.advance(stall + Duration::from_ms(30));
    assert_eq!(
        effects(&mut machine),
        [ServerEffect::Resumed, ServerEffect::Began { request: patient }]
    );
}

#[test]
fn a_machine_that_is_asked_seldom_does_the_same_as_one_that_is_asked_often() {
    let keys = "concurrency: 2, cores: {allocated: 1}, service: {shape: exponential, mean: 8ms}";
    let faults = "
        {recipe: stall, every: {shape: exponential, mean: 100ms}, lasts: {shape: constant, value: 20ms}},
        {recipe: background_job, every: 200ms, lasts: {shape: constant, value: 50ms}, slowdown: 3},
        {recipe: antagonist, cores_max: 1, cores_left_min: 0.5, every: {shape: exponential, mean: 50ms}},
        {recipe: garbage_collection, executions: 20, lasts: {shape: constant, value: 15ms}},
        {recipe: errors, bad_ratio: 0.1},
        {recipe: noisy_neighbor, requests_per_second: 20, service: {shape: constant, value: 4ms}}";
    let (mut often, _) = server(keys, faults);
    let (mut seldom, _) = server(keys, faults);
    let mut ended = 0;
    for ms in 0..20_000 {
        often.advance(at(ms));
        if ms % 25 == 0 {
            often.arrive(at(ms), Class::Interactive);
            seldom.arrive(at(ms), Class::Interactive);
            let effects = effects(&mut often);
            assert_eq!(effects, self::effects(&mut seldom), "at {ms} ms, seed {SEED}");
            let is_end = |effect: &&ServerEffect| matches!(effect, ServerEffect::Ended { .. });
            ended += effects.iter().filter(is_end).count();
        }
    }
    assert!(ended > 1_000, "{ended} executions ended, seed {SEED}");
}

#[test]
fn executions_share_the_cores() {
    let keys = "cores: {allocated: 1}, service: {shape: constant, value: 10ms}";
    let (mut machine, _) = server(keys, "");
    machine.arrive(at(0), Class::Interactive);
    machine.arrive(at(0), Class::Interactive);
    machine.advance(at(19));
    assert_eq!(ended(&mut machine), []);
    machine.advance(at(20));
    assert_eq!(ended(&mut machine).len(), 2);
}

#[test]
fn the_most_urgent_class_starts_first_and_a_full_queue_rejects_the_least_urgent() {
    let keys = "concurrency: 1, queue_len_max: 1, service: {shape: constant, value: 10ms}";
    let (mut machine, _) = server(keys, "");
    let running = machine.arrive(at(0), Class::Batch);
    let batch = machine.arrive(at(1), Class::Batch);
    let interactive = machine.arrive(at(2), Class::Interactive);
    machine.advance(at(20));
    let requests: Vec<u64> = ended(&mut machine).into_iter().map(|(request, _)| request).collect();
    assert_eq!((requests, batch), (vec![running, interactive], 1));
}

#[test]
fn executions_fail_as_configured() {
    let keys = "service: {shape: constant, value: 10ms}";
    let (mut machine, _) = server(keys, "{recipe: errors, broken_ratio: 1}");
    machine.arrive(at(0), Class::Interactive);
    machine.advance(at(10));
    let is_broken = |effect: &ServerEffect| {
        matches!(effect, ServerEffect::Ended { outcome: ExecutionOutcome::BrokenConnection, .. })
    };
    assert!(effects(&mut machine).iter().any(is_broken));
}

/// The latencies of `count` requests to the servers of a row, in virtual time.
fn latencies_ms(config: &TestbedConfig, count: u32) -> Vec<f64> {
    let root = Rng::new(SEED);
    let servers = u32::try_from(rows::SERVERS).expect("a few");
    let faults = Faults::new(&config.faults, servers, config.server.cores, &root);
    let machine = |server: u32| {
        let rng = root.split("server").split_index(u64::from(server));
        ServerMachine::new(&config.server, FaultTimeline::new(&faults, server), &rng)
    };
    let mut machines: Vec<ServerMachine> = (0..servers).map(machine).collect();
    let (mut arrivals, mut choice) = (root.split("arrivals"), root.split("choice"));
    let mut now = Instant::ZERO;
    let mut requests = BTreeSet::new();
    for _ in 0..count {
        now = now + Spacing::Poisson.gap(1e9 / rows::REQUESTS_PER_SECOND, &mut arrivals);
        let server = choice.below(rows::SERVERS);
        requests.insert((server, machines[server].arrive(now, Class::Interactive)));
    }
    let mut latencies_ms = Vec::new();
    for (server, machine) in machines.iter_mut().enumerate() {
        machine.advance(now + Duration::from_secs(10));
        for effect in effects(machine) {
            let ServerEffect::Ended { request, outcome, times } = effect else { continue };
            if !requests.contains(&(server, request)) {
                // A noisy neighbor's.
                continue;
            }
            let is_good = outcome == ExecutionOutcome::Success;
            let latency = times.queue + times.service + times.fault;
            latencies_ms.push(if is_good { latency.as_ms_f64() } else { f64::INFINITY });
        }
    }
    latencies_ms
}

#[test]
fn every_recipe_has_the_percentiles_of_its_simulation() {
    for (name, keys, fault) in rows::ROWS {
        let simulated = rows::simulate(keys, fault, SEED, 60_000);
        let yaml = rows::testbed_yaml(keys, fault);
        let config = TestbedConfig::from_yaml("recipes", &yaml).expect("no errors");
        let measured = rows::percentiles(latencies_ms(&config, 60_000));
        assert!(
            rows::is_within(&simulated, &measured),
            "{name}: simulated {simulated:?}, servers {measured:?}, seed {SEED}"
        );
    }
}
