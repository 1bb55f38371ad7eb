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
    let [server] = servers(keys, faults);
    server
}

/// The replicas of a shard with these keys and faults, and when the pace of each changes.
fn servers<const COUNT: usize>(
    keys: &str,
    faults: &str,
) -> [(ServerMachine, Vec<PaceChange>); COUNT] {
    let yaml = format!("name: test\nreplicas: {COUNT}\nserver: {{{keys}}}\nfaults: [{faults}]\n");
    let config = TestbedConfig::from_yaml("test.yaml", &yaml).expect("no errors");
    let rng = Rng::new(SEED);
    let count = u32::try_from(COUNT).expect("a few");
    let faults = Faults::new(&config.faults, count, config.server.cores, &rng);
    std::array::from_fn(|server| {
        let timeline = FaultTimeline::new(&faults, u32::try_from(server).expect("a few"));
        let changes = timeline.clone().pace_changes().take(50).collect();
        (ServerMachine::new(&config.server, timeline, &rng), changes)
    })
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

/// Sends a request at `sent` and waits for its end.
fn read(machine: &mut ServerMachine, sent: Instant) -> Times {
    let request = machine.arrive(sent, Class::Interactive);
    loop {
        let due = machine.poll_timeout().expect("the request is in flight");
        machine.advance(due);
        // Requests of noisy neighbors end as well.
        if let Some((_, times)) = ended(machine).into_iter().find(|(ended, _)| *ended == request) {
            return times;
        }
    }
}

/// Sends `count` requests, each when the one before has ended; returns when each was sent, and its times.
fn read_in_turn(machine: &mut ServerMachine, count: usize) -> Vec<(Instant, Times)> {
    let mut now = Instant::ZERO;
    let reads = (0..count).map(|_| {
        let sent = now;
        let times = read(machine, sent);
        now = sent + latency(times);
        (sent, times)
    });
    reads.collect()
}

fn latency(times: Times) -> Duration {
    times.queue + times.service + times.fault
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
fn nothing_gets_done_in_a_stall_and_everything_after_it() {
    let stalls = "{recipe: stall, every: {shape: exponential, mean: 150ms}, lasts: {shape: uniform, low: 20ms, high: 100ms}}";
    let (mut machine, changes) = server("service: {shape: constant, value: 1ms}", stalls);
    let mut delayed = 0;
    for (sent, times) in read_in_turn(&mut machine, 2_000) {
        let ended = sent + latency(times);
        let is_stall = |stall: &&[PaceChange]| stall[0].at < ended && stall[1].at > sent;
        let stalls = changes.chunks_exact(2).filter(is_stall);
        let stopped = stalls
            .fold(Duration::ZERO, |sum, stall| sum + stall[1].at.since(stall[0].at.max(sent)));
        assert_eq!(times.fault, stopped, "sent at {sent:?}, seed {SEED}");
        delayed += usize::from(stopped > Duration::ZERO);
    }
    assert!(delayed >= 10, "{delayed} requests met a stall, seed {SEED}");
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
fn garbage_is_collected_every_nth_execution() {
    let collections =
        "{recipe: garbage_collection, executions: 10, lasts: {shape: constant, value: 100ms}}";
    let (mut machine, _) = server("service: {shape: constant, value: 1ms}", collections);
    let reads = read_in_turn(&mut machine, 40);
    let faults: Vec<Duration> = reads.into_iter().map(|(_, times)| times.fault).collect();
    // The seed decides the first collection.
    let first = faults.iter().position(|fault| *fault > Duration::ZERO).expect("a collection");
    assert!((1..=10).contains(&first), "the first collection is before read {first}, seed {SEED}");
    for (nth, fault) in faults.into_iter().enumerate() {
        let is_after_collection = nth >= first && (nth - first).is_multiple_of(10);
        let expected = Duration::from_ms(if is_after_collection { 100 } else { 0 });
        assert_eq!(fault, expected, "read {nth}, seed {SEED}");
    }
}

#[test]
fn a_background_job_slows_all_servers_at_once_when_synchronized() {
    let jobs = "{recipe: background_job, every: 100ms, lasts: {shape: constant, value: 50ms}, slowdown: 5, synchronized: true}";
    let servers: [_; 2] = servers("service: {shape: constant, value: 1ms}", jobs);
    let of_first = servers[0].1.clone();
    for (mut machine, changes) in servers {
        assert_eq!(changes, of_first);
        for job in changes.chunks_exact(2) {
            let during = read(&mut machine, job[0].at + Duration::from_ms(1)).fault;
            let after = read(&mut machine, job[1].at + Duration::from_ms(1)).fault;
            assert_eq!([during, after], [4, 0].map(Duration::from_ms), "{job:?}, seed {SEED}");
        }
    }
}

#[test]
fn noisy_neighbors_fill_the_queue() {
    // 150 a second of 6 ms each keep the only slot busy nine tenths of the time.
    let keys = "concurrency: 1, service: {shape: constant, value: 1ms}";
    let neighbors = "{recipe: noisy_neighbor, requests_per_second: 150, service: {shape: constant, value: 6ms}}";
    let (mut machine, _) = server(keys, neighbors);
    let reads = read_in_turn(&mut machine, 10_000);
    let of_all = |part: fn(Times) -> Duration| {
        reads.iter().map(|(_, times)| part(*times)).fold(Duration::ZERO, |sum, time| sum + time)
    };
    let waited = of_all(|times| times.queue).as_secs_f64() / of_all(latency).as_secs_f64();
    assert!((waited - 0.9).abs() < 0.03, "waited {waited} of the time, seed {SEED}");
}

#[test]
fn a_slow_replica_is_slower_by_its_factor_and_the_others_are_not() {
    let slow = "{recipe: slow_replica, servers_ratio: 0.25, slowdown: 4}";
    let servers: [_; 4] = servers("service: {shape: constant, value: 5ms}", slow);
    let mut faults = servers.map(|(mut machine, _)| read(&mut machine, at(1)).fault);
    faults.sort_unstable();
    assert_eq!(faults, [0, 0, 0, 15].map(Duration::from_ms), "seed {SEED}");
}

#[test]
fn a_machine_polled_seldom_behaves_like_one_polled_often() {
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
            latencies_ms.push(if is_good { latency(times).as_ms_f64() } else { f64::INFINITY });
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
