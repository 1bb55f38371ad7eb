//! Faults as a client sees them, against what was configured and what the seed planned.

use crate::client::{Client, Stay, Version, median, request, start};
use curtail_model::{FaultTimeline, Faults};
use curtail_testbed::Running;
use curtail_units::{Duration, Instant, Rng};
use std::sync::Arc;

/// A time in which a server is stopped or slow.
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

/// One request after the other until `until`.
async fn read_until(testbed: &Arc<Running>, replica: usize, until: Instant) -> Vec<Stay> {
    let mut client = Client::connect(testbed.address(0, replica), Version::Http1).await;
    let mut stays = Vec::new();
    while testbed.now() < until {
        stays.push(client.read(testbed).await.0);
    }
    stays
}

/// The part of `stay` that lies in none of `spells`.
fn outside(stay: Stay, spells: &[Spell]) -> Duration {
    let within = spells.iter().fold(Duration::ZERO, |sum, spell| {
        sum + spell.to.min(stay.answered).since(spell.from.max(stay.sent))
    });
    stay.answered.since(stay.sent) - within
}

#[tokio::test]
async fn nothing_gets_done_in_a_stall_and_everything_after_it() {
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
    let mut held = 0;
    let mut worked = Vec::new();
    for (replica, stays) in [a, b, c, d].into_iter().enumerate() {
        let last = stays.last().expect("at least one").answered;
        let planned = spells(&testbed, replica, last);
        for stay in &stays {
            let outside = outside(*stay, &planned);
            assert!(outside >= Duration::from_ms(1), "{stay:?} within {planned:?}, seed {seed}");
            worked.push(outside);
        }
        let seen = |spell: &&Spell| spell.from > stays[0].sent && spell.to < last;
        for spell in planned.iter().filter(seen) {
            let held_by = stays.iter().filter(|s| s.sent < spell.to && s.answered >= spell.to);
            assert_eq!(held_by.count(), 1, "nobody waited for the end of {spell:?}, seed {seed}");
            held += 1;
        }
    }
    assert!(held >= 10, "{held} stalls in 1.5 s on 4 servers, seed {seed}");
    // A stall that lasted longer than planned would show as time outside of it.
    let median = median(worked);
    assert!(median < Duration::from_ms(3), "1 ms of work took {median}, seed {seed}");
}

#[tokio::test]
async fn health_is_not_answered_in_a_stall() {
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
        let answered = testbed.now();
        for stall in spells(&testbed, 0, sent) {
            let is_during = (stall.from..stall.to).contains(&sent);
            assert!(!is_during || answered >= stall.to, "sent at {sent:?} in {stall:?}");
        }
    }
}

#[tokio::test]
async fn garbage_is_collected_every_so_many_executions() {
    let yaml = "
name: collecting
replicas: 1
server: {service: {shape: constant, value: 1ms}}
faults:
  - {recipe: garbage_collection, executions: 10, lasts: {shape: constant, value: 100ms}}
";
    let testbed = start(yaml, 1);
    let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
    let mut delayed = Vec::new();
    for nth in 0..40 {
        let (_, answer) = client.read(&testbed).await;
        let [_, _, fault] = answer.spent;
        // The pause begins with the end of an execution, so the next request waits for nearly all of it.
        if fault > Duration::from_ms(50) {
            delayed.push(nth);
        }
    }
    assert!(
        delayed.len() >= 3 && delayed.windows(2).all(|pair| pair[1] - pair[0] == 10),
        "{delayed:?}"
    );
}

#[tokio::test]
async fn a_slow_replica_is_slower_by_its_factor_and_the_others_are_not() {
    let yaml = "
name: uneven
replicas: 4
server: {service: {shape: constant, value: 5ms}}
faults:
  - {recipe: slow_replica, servers_ratio: 0.25, slowdown: 4}
";
    let seed = 7;
    let testbed = start(yaml, seed);
    let mut medians = Vec::new();
    for replica in 0..4 {
        let mut client = Client::connect(testbed.address(0, replica), Version::Http1).await;
        let mut latencies = Vec::new();
        for _ in 0..15 {
            let (stay, _) = client.read(&testbed).await;
            latencies.push(stay.answered.since(stay.sent));
        }
        medians.push(median(latencies));
    }
    medians.sort_unstable();
    assert!(medians[2] < Duration::from_ms(10), "{medians:?}, seed {seed}");
    assert!(medians[3] >= Duration::from_ms(20), "{medians:?}, seed {seed}");
}

#[tokio::test]
async fn a_background_job_slows_all_servers_at_once_when_synchronized() {
    let yaml = "
name: jobs
replicas: 2
server: {service: {shape: constant, value: 1ms}}
faults:
  - {recipe: background_job, every: 100ms, lasts: {shape: constant, value: 50ms}, slowdown: 5, synchronized: true}
";
    let testbed = start(yaml, 1);
    let until = testbed.now() + Duration::from_ms(1_000);
    let (a, b) = tokio::join!(read_until(&testbed, 0, until), read_until(&testbed, 1, until));
    let jobs = spells(&testbed, 0, until);
    for stays in [a, b] {
        let job_at = |at: Instant| jobs.iter().any(|job| (job.from..job.to).contains(&at));
        let during = stays.iter().filter(|stay| job_at(stay.sent) && job_at(stay.answered));
        let inside = |stay: &&Stay| stay.answered.since(stay.sent) < Duration::from_ms(50);
        let during: Vec<Duration> =
            during.filter(inside).map(|stay| stay.answered.since(stay.sent)).collect();
        assert!(during.len() > 20, "{} requests while a job ran", during.len());
        assert!(during.iter().all(|latency| *latency >= Duration::from_ms(5)), "{during:?}");
        let rest = stays.iter().filter(|stay| !job_at(stay.sent) && !job_at(stay.answered));
        let rest: Vec<Duration> = rest.map(|stay| stay.answered.since(stay.sent)).collect();
        assert!(median(rest) < Duration::from_ms(4));
    }
}

#[tokio::test]
async fn noisy_neighbors_fill_the_queue_and_are_not_counted() {
    // 150 a second of 6 ms each keep the one slot busy nine tenths of the time.
    let yaml = "
name: shared
replicas: 1
server: {concurrency: 1, service: {shape: constant, value: 1ms}}
faults:
  - {recipe: noisy_neighbor, requests_per_second: 150, service: {shape: constant, value: 6ms}}
";
    let seed = 8;
    let testbed = start(yaml, seed);
    let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
    let mut waited = Duration::ZERO;
    let mut reads = 0;
    while testbed.now() < Instant::ZERO + Duration::from_secs(1) {
        let (_, answer) = client.read(&testbed).await;
        waited = waited + answer.spent[0];
        reads += 1;
    }
    assert!(waited > Duration::from_ms(500), "waited {waited} of a second, seed {seed}");
    assert_eq!(testbed.executions(), reads);
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
    let (_, answer) = client.read(&testbed).await;
    let [queue, service, fault] = answer.spent;
    assert_eq!([queue, service, fault], [0, 10, 10].map(Duration::from_ms));
}
