//! Faults as a client sees them, against what was configured and what the seed planned.

use crate::client::{Client, Stay, Version, request, start};
use curtail_model::{FaultTimeline, Faults};
use curtail_testbed::Running;
use curtail_units::{Duration, Instant, Rng};
use std::sync::Arc;

/// A time in which a server is stopped.
#[derive(Clone, Copy, Debug)]
struct Spell {
    from: Instant,
    to: Instant,
}

/// The spells of a server with one fault that begin before `until`.
fn spells(testbed: &Running, replica: usize, until: Instant) -> Vec<Spell> {
    let mut changes = testbed.pace_changes(0, replica).map(|change| change.at);
    let mut spells = Vec::new();
    while let (Some(from), Some(to)) = (changes.next(), changes.next()) {
        if from >= until {
            break;
        }
        spells.push(Spell { from, to });
    }
    spells
}

/// One request after the other until `until`, and at least one.
async fn read_until(testbed: &Arc<Running>, replica: usize, until: Instant) -> Vec<Stay> {
    let mut client = Client::connect(testbed.address(0, replica), Version::Http1).await;
    let mut stays = Vec::new();
    loop {
        stays.push(client.read(testbed).await.0);
        if testbed.now() >= until {
            return stays;
        }
    }
}

/// The part of `stay` that lies outside all `spells`.
fn outside(stay: Stay, spells: &[Spell]) -> Duration {
    let within = spells.iter().fold(Duration::ZERO, |sum, spell| {
        sum + spell.to.min(stay.responded).since(spell.from.max(stay.sent))
    });
    stay.responded.since(stay.sent) - within
}

#[tokio::test]
async fn a_request_takes_its_service_time_outside_of_stalls() {
    let yaml = "
name: stalling
replicas: 4
server: {service: {shape: constant, value: 1ms}}
faults:
  - recipe: stall
    every: {shape: exponential, mean: 150ms}
    lasts: {shape: uniform, low: 20ms, high: 100ms}
";
    let seed = 41;
    let testbed = start(yaml, seed);
    let until = testbed.now() + Duration::from_ms(1_500);
    let (a, b, c, d) = tokio::join!(
        read_until(&testbed, 0, until),
        read_until(&testbed, 1, until),
        read_until(&testbed, 2, until),
        read_until(&testbed, 3, until),
    );
    for (replica, stays) in [a, b, c, d].into_iter().enumerate() {
        let last = stays.last().expect("at least one").responded;
        let planned = spells(&testbed, replica, last);
        for stay in &stays {
            let outside = outside(*stay, &planned);
            assert!(outside >= Duration::from_ms(1), "{stay:?} within {planned:?}, seed {seed}");
        }
    }
}

#[tokio::test]
async fn health_gets_no_response_in_a_stall() {
    let yaml = "
name: stalling
replicas: 1
server: {service: {shape: constant, value: 0ms}}
faults:
  - recipe: stall
    every: {shape: constant, value: 20ms}
    lasts: {shape: constant, value: 20ms}
";
    let testbed = start(yaml, 1);
    let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
    for _ in 0..50 {
        let sent = testbed.now();
        assert_eq!(client.get("/healthz").await.body, "ok\n");
        let responded = testbed.now();
        for stall in spells(&testbed, 0, sent) {
            let is_during = (stall.from..stall.to).contains(&sent);
            assert!(!is_during || responded >= stall.to, "sent at {sent:?} in {stall:?}");
        }
    }
}

#[tokio::test]
async fn executions_of_noisy_neighbors_are_not_counted() {
    let yaml = "
name: shared
replicas: 1
server: {concurrency: 1, service: {shape: constant, value: 1ms}}
faults:
  - {recipe: noisy_neighbor, requests_per_second: 150, service: {shape: constant, value: 6ms}}
";
    let testbed = start(yaml, 8);
    let reads = read_until(&testbed, 0, Instant::ZERO + Duration::from_ms(300)).await;
    assert_eq!(testbed.executions(), reads.len() as u64);
}

#[test]
fn the_seed_decides_what_is_wrong() {
    let yaml = "
name: seeded
shards: 5
replicas: 2
server: {service: {shape: constant, value: 1ms}}
faults:
  - recipe: stall
    every: {shape: exponential, mean: 30m}
    lasts: {shape: constant, value: 1s}
  - {recipe: background_job, every: 60s, lasts: {shape: constant, value: 2s}, slowdown: 3}
";
    let plan = |seed| {
        let testbed = start(yaml, seed);
        let servers = (0..5).flat_map(|shard| [(shard, 0), (shard, 1)]);
        let changes =
            servers.flat_map(|(shard, replica)| testbed.pace_changes(shard, replica).take(6));
        changes.map(|change| change.at).collect::<Vec<_>>()
    };
    assert_eq!(plan(1), plan(1));
    assert_ne!(plan(1), plan(2));
    let mut distinct = plan(1);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 5 * 2 * 6, "no two servers share a plan");
}

#[test]
fn the_seed_decides_the_same_faults_as_in_a_simulation() {
    let yaml = "
name: seeded
shards: 2
replicas: 3
server: {cores: {allocated: 2, machine: 8}, service: {shape: constant, value: 1ms}}
faults:
  - {recipe: stall, servers_ratio: 0.5, every: {shape: exponential, mean: 1s}, lasts: {shape: exponential, mean: 1s}}
  - {recipe: antagonist, cores_max: 8, cores_left_min: 1, every: {shape: exponential, mean: 1s}}
";
    let seed = 11;
    let testbed = start(yaml, seed);
    let config = testbed.config();
    // A test of curtail-sim holds simulated servers against these as well.
    let faults = Faults::new(&config.faults, 6, config.server.cores, &Rng::new(seed));
    for (number, (shard, replica)) in (0..).zip([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]) {
        let expected = FaultTimeline::new(&faults, number).pace_changes();
        assert!(testbed.pace_changes(shard, replica).take(50).eq(expected.take(50)), "{number}");
    }
}

#[tokio::test]
async fn errors_are_bad_responses_broken_connections_and_silence() {
    let testbed = |kind: &str| {
        start(
            &format!(
                "
name: failing
replicas: 1
server: {{service: {{shape: constant, value: 1ms}}}}
faults:
  - {{recipe: errors, {kind}_ratio: 1}}
"
            ),
            1,
        )
    };
    let bad = testbed("bad");
    for version in [Version::Http1, Version::Http2] {
        let mut client = Client::connect(bad.address(0, 0), version).await;
        assert_eq!(client.get("/shard/0/keys?k=a").await.status, 503);
        let broken = testbed("broken");
        let mut client = Client::connect(broken.address(0, 0), version).await;
        assert!(client.try_send(request("GET", "/shard/0/keys?k=a")).await.is_err());
        assert_eq!(broken.executions(), 1);
    }
    let silent = testbed("silent");
    let mut client = Client::connect(silent.address(0, 0), Version::Http1).await;
    let mut health = Client::connect(silent.address(0, 0), Version::Http1).await;
    tokio::select! {
        biased;
        _ = client.get("/shard/0/keys?k=a") => panic!("a response"),
        () = async {
            while silent.now() < Instant::ZERO + Duration::from_ms(200) {
                health.get("/healthz").await;
            }
        } => {}
    }
    assert_eq!(silent.executions(), 1);
}

#[tokio::test]
async fn an_antagonist_leaves_less_cores_to_the_requests_in_service() {
    let yaml = "
name: robbed
replicas: 1
server: {cores: {allocated: 1, machine: 4}, service: {shape: constant, value: 10ms}}
faults:
  - {recipe: antagonist, cores_min: 4, cores_max: 4, cores_left_min: 0.5, every: {shape: constant, value: 1s}}
";
    let testbed = start(yaml, 1);
    let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
    let (_, response) = client.read(&testbed).await;
    let [queue, service, fault] = response.spent;
    assert_eq!([queue, service, fault], [0, 10, 10].map(Duration::from_ms));
}
