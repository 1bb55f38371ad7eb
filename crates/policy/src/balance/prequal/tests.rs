use super::{LEAF_ASKED_AGAIN_AFTER, POOL_LEN_MIN, Prequal, PrequalConfig, Rate};
use crate::balance::Rule;
use crate::replica::Replicas;
use crate::{Choice, Load, Reason, ReplicaId};
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Quantile, Rng};

/// A root with `replicas` replicas whose leaves respond to every probe at once.
struct World {
    prequal: Prequal,
    replicas: Replicas,
    rng: Rng,
    now: Instant,
}

impl World {
    fn new(config: PrequalConfig, replicas: usize, seed: u64) -> Self {
        let rng = Rng::new(seed);
        let mut prequal = Prequal::new(config, &rng);
        (0..replicas).for_each(|index| prequal.replica_joined(ReplicaId::at(index)));
        Self { prequal, replicas: Replicas::numbered(replicas), rng, now: Instant::from_ns(1) }
    }

    fn report_load(&mut self, replica: u32, in_flight: u32, latency_ms: u64) {
        let load = Load { in_flight, latency: Duration::from_ms(latency_ms) };
        self.prequal.probe_succeeded(&self.replicas, (ReplicaId(replica), load), self.now);
    }

    fn choose(&mut self, exclude: &[ReplicaId]) -> (u32, Choice) {
        let Self { prequal, replicas, rng, now } = self;
        let (id, choice) = prequal
            .choose(replicas.candidates(*now, None, exclude), rng)
            .expect("a replica is left");
        (id.0, choice)
    }

    /// The rest of a request after the choice: the replicas probed.
    fn request_sent(&mut self) -> Vec<ReplicaId> {
        self.prequal.request_sent(&self.replicas, self.now);
        core::iter::from_fn(|| self.prequal.poll_probe()).map(|(replica, _)| replica).collect()
    }
}

fn hot_from(quantile: f64) -> PrequalConfig {
    let hot_quantile = Quantile::new(quantile).expect("a quantile");
    PrequalConfig { hot_quantile, ..PrequalConfig::default() }
}

fn chosen_from_a_pool(quantile: f64, pool: [(u32, u64); 4]) -> (u32, Choice) {
    let mut world = World::new(hot_from(quantile), 4, 1);
    for (replica, (in_flight, latency_ms)) in (0..).zip(pool) {
        world.report_load(replica, in_flight, latency_ms);
    }
    world.choose(&[])
}

#[test]
fn requests_in_flight_count_relative_to_weights() {
    let mut world = World::new(hot_from(0.5), 2, 1);
    let weight = crate::Weight::new(4.0).expect("a weight");
    world.replicas.set_weight(ReplicaId(0), weight);
    world.replicas.compare_weights();
    world.report_load(0, 9, 10);
    world.report_load(1, 2, 10);
    let choices: Vec<(u32, Choice)> = (0..60).map(|_| world.choose(&[])).collect();
    // The light one begins with as much load as 8 requests of the other one, and each attempt adds 4.
    let expected = |nth: u32| Choice::AllHotFewestInFlight { in_flight: 8 + 4 * nth, threshold: 8 };
    let light: Vec<Choice> =
        choices.iter().filter(|(replica, _)| *replica == 1).map(|(_, choice)| *choice).collect();
    assert!((8..=16).contains(&light.len()), "{choices:?}");
    assert!((0..).zip(light).all(|(nth, choice)| choice == expected(nth)), "{choices:?}");
    world.replicas.set_weight(ReplicaId(1), crate::Weight::ZERO);
    world.replicas.compare_weights();
    world.report_load(1, 0, 1);
    assert_eq!(world.choose(&[]).0, 0, "a drained replica");
}

#[test]
fn the_cold_one_with_the_lowest_latency_is_chosen() {
    let pool = [(1, 30), (9, 5), (2, 20), (3, 10)];
    let latency = Duration::from_ms(10);
    let cold = Choice::ColdLowestLatency { latency, in_flight: 3, threshold: Some(9) };
    assert_eq!(chosen_from_a_pool(0.84, pool), (3, cold), "the one with 9 in flight is hot");
}

#[test]
fn when_all_are_hot_the_one_with_the_fewest_in_flight_is_chosen() {
    let pool = [(8, 5), (9, 1), (7, 30), (7, 20)];
    let hot = Choice::AllHotFewestInFlight { in_flight: 7, threshold: 7 };
    assert_eq!(chosen_from_a_pool(0.0, pool), (3, hot), "of two equal the one with less latency");
}

#[test]
fn at_quantile_one_latency_alone_decides() {
    let pool = [(1, 30), (900, 5), (2, 20), (3, 10)];
    let latency = Duration::from_ms(5);
    let cold = Choice::ColdLowestLatency { latency, in_flight: 900, threshold: None };
    assert_eq!(chosen_from_a_pool(1.0, pool), (1, cold));
}

#[test]
fn a_use_adds_one_in_flight_and_a_pool_of_one_is_too_small() {
    let mut world = World::new(hot_from(0.0), 4, 1);
    world.report_load(2, 5, 10);
    assert_eq!(world.choose(&[]).1, Choice::PoolTooSmall { len: 1 });
    world.report_load(2, 5, 10);
    world.report_load(3, 6, 10);
    let choices: Vec<u32> = (0..5).map(|_| world.choose(&[]).0).collect();
    assert_eq!(choices, [2, 2, 3, 2, 3], "5 and 6 in flight; of equals the older result");
}

#[test]
fn a_probe_is_too_old_after_a_second() {
    let mut world = World::new(hot_from(0.84), 4, 1);
    world.report_load(0, 1, 10);
    world.now = world.now + Duration::from_ms(1);
    world.report_load(1, 1, 20);
    world.report_load(2, 1, 20);
    world.now = world.now + Duration::from_ms(999);
    assert_eq!(world.choose(&[]).0, 0, "it is a second old");
    world.now = world.now + Duration::from_ns(1);
    assert_ne!(world.choose(&[]).0, 0, "older");
}

#[test]
fn excluded_is_never_chosen_and_a_failing_replica_only_when_all_fail() {
    let mut world = World::new(PrequalConfig::default(), 6, 1);
    for _ in 0..3 {
        world.replicas.known(ReplicaId(0)).failed(world.now);
    }
    for round in 0..1_000 {
        // The failing replica looks the best, as one that refuses everything does.
        (0..6).for_each(|replica| world.report_load(replica, replica, 10));
        let exclude = [ReplicaId(1), ReplicaId(4)];
        let (chosen, _) = world.choose(&exclude[..round % 3]);
        assert!(!exclude[..round % 3].contains(&ReplicaId(chosen)) && chosen != 0, "{chosen}");
    }
    for replica in 1..6 {
        (0..3).for_each(|_| world.replicas.known(ReplicaId(replica)).failed(world.now));
    }
    assert_eq!(world.choose(&[]).1, Choice::PoolTooSmall { len: 0 });
}

#[test]
fn the_reuse_budget_is_the_papers_and_unbounded_where_its_formula_has_no_value() {
    let paper = PrequalConfig::default();
    let budget = paper.reuse_budget(100).expect("the paper's own case");
    assert!((budget - 2.0 / 1.52).abs() < 1e-12, "{budget}");
    assert_eq!(paper.reuse_budget(16), None, "the pool holds all replicas");
    assert_eq!(paper.reuse_budget(4), None);
    assert_eq!(paper.reuse_budget(24), None, "a third of three probes is new, one is removed");
    let fast = PrequalConfig { probes_per_request: 9.0, ..paper };
    assert_eq!(fast.reuse_budget(1_000), Some(1.0), "each result is used once at least");
    let slow = PrequalConfig { probes_per_request: 1.0, ..paper };
    assert_eq!(slow.reuse_budget(1_000), None);
}

#[test]
fn probes_are_used_as_often_as_the_budget_says_on_average() {
    let seed = 21;
    // By latency alone, so that the attempts in flight that a use adds do not matter.
    let mut world = World::new(hot_from(1.0), 100, seed);
    let n = 100_000_u32;
    let mut uses = 0_u32;
    for _ in 0..n {
        // One of two results is always better: it is used until it leaves, then the pool is too small.
        world.report_load(1, 0, 1);
        world.report_load(2, 0, 1_000);
        let by_pool = |(_, choice)| !matches!(choice, Choice::PoolTooSmall { .. });
        let used = (0..9).take_while(|_| by_pool(world.choose(&[]))).count();
        assert!((1..=2).contains(&used), "seed {seed}: a budget of 1.32 is 1 or 2, was {used}");
        uses += u32::try_from(used).expect("at most 9");
        world.now = world.now + Duration::from_secs(2);
    }
    let (mean, expected) = (f64::from(uses) / f64::from(n), 2.0 / 1.52);
    let sigma = libm::sqrt((expected - 1.0) * (2.0 - expected) / f64::from(n));
    assert!((mean - expected).abs() < 5.0 * sigma, "seed {seed}: {mean}, expected {expected}");
}

#[test]
fn rates_are_exact() {
    for per_request in [0.0, 0.1, 0.37, 1.0, 1.0 / 3.0, 2.9, 3.0, core::f64::consts::PI] {
        let mut rate = Rate { per_request, owed: 0.0 };
        let mut taken = 0;
        for n in 1..=1_000_000_u32 {
            taken += rate.take();
            let owed = f64::from(n) * per_request - taken as f64;
            assert!((-1e-6..1.0 + 1e-6).contains(&owed), "{per_request} x {n}: {taken}");
        }
    }
    assert_eq!(Rate { per_request: -1.0, owed: 0.0 }.take(), 0);
    assert_eq!(Rate { per_request: f64::NAN, owed: 0.0 }.take(), 0);
}

#[test]
fn probes_are_drawn_uniformly_without_replacement() {
    let seed = 22;
    let (replicas, probes, requests) = (7, 2.5, 70_000);
    let config = PrequalConfig { probes_per_request: probes, ..PrequalConfig::default() };
    let mut world = World::new(config, replicas, seed);
    let mut counts = [0_u32; 7];
    let mut pairs = [[0_u32; 7]; 7];
    for _ in 0..requests {
        let probed = world.request_sent();
        for (nth, replica) in probed.iter().enumerate() {
            assert!(!probed[..nth].contains(replica), "seed {seed}: {probed:?}");
            counts[replica.index()] += 1;
        }
        pairs[probed[0].index()][probed[1].index()] += 1;
    }
    let close = |count: u32, probability: f64| {
        let expected = f64::from(requests) * probability;
        let sigma = libm::sqrt(expected * (1.0 - probability));
        (f64::from(count) - expected).abs() < 5.0 * sigma
    };
    assert_eq!(counts.iter().sum::<u32>(), 175_000, "2.5 for each request");
    // Half of the requests probe two, half three of seven.
    assert!(counts.iter().all(|&count| close(count, 2.5 / 7.0)), "seed {seed}: {counts:?}");
    for (first, row) in pairs.iter().enumerate() {
        for (second, &count) in row.iter().enumerate().filter(|(second, _)| *second != first) {
            assert!(close(count, 1.0 / 42.0), "seed {seed}: {first} then {second}: {count}");
        }
    }
}

/// Requests one after another over 50 replicas whose latency is given and whose load is what was sent to
/// them among the last 50: the share that each replica got.
fn shares(latency_ms: impl Fn(u32) -> u64, seed: u64) -> Vec<f64> {
    let (replicas, requests) = (50, 200_000);
    let mut world = World::new(hot_from(0.84), replicas, seed);
    let mut counts = alloc::vec![0_u32; replicas];
    let mut in_flight: alloc::collections::VecDeque<u32> = alloc::collections::VecDeque::new();
    for _ in 0..requests {
        world.now = world.now + Duration::from_us(100);
        let (chosen, _) = world.choose(&[]);
        counts[chosen as usize] += 1;
        in_flight.push_back(chosen);
        if in_flight.len() > 50 {
            in_flight.pop_front();
        }
        for replica in world.request_sent() {
            let sent = in_flight.iter().filter(|id| **id == replica.0).count();
            let sent = u32::try_from(sent).expect("at most 50");
            world.report_load(replica.0, sent, latency_ms(replica.0));
        }
        assert!(world.prequal.pool.len() >= POOL_LEN_MIN, "seed {seed}");
    }
    counts.iter().map(|&count| f64::from(count) / f64::from(requests)).collect()
}

#[test]
fn equal_replicas_get_equal_shares() {
    let seed = 23;
    for share in shares(|_| 10, seed) {
        // The choice prefers the less loaded, so the counts vary less than those of fair dice would.
        let sigma = libm::sqrt(0.02 * 0.98 / 200_000.0);
        assert!((share - 0.02).abs() < 5.0 * sigma, "seed {seed}: {share}");
    }
}

#[test]
fn slow_replicas_get_little_and_fast_ones_more_but_not_everything() {
    let seed = 24;
    let latency = |replica| match replica {
        0 => 100,
        1..=9 => 5,
        _ => 10,
    };
    let shares = shares(latency, seed);
    assert!(shares[0] < 0.002, "seed {seed}: a slow replica got {}", shares[0]);
    let fast = shares[1..=9].iter().sum::<f64>() / 9.0;
    assert!(fast > 0.025 && fast < 0.04, "seed {seed}: instead of 0.02 a fast one got {fast}");
}

#[test]
fn removal_takes_the_oldest_and_the_worst_in_turn_and_leaves_two() {
    let config = PrequalConfig { probes_per_request: 0.0, ..hot_from(0.84) };
    let mut world = World::new(config, 100, 1);
    for (replica, in_flight, latency_ms) in
        [(0, 1, 10), (1, 99, 1), (2, 1, 50), (3, 98, 1), (4, 2, 10), (5, 2, 40)]
    {
        world.report_load(replica, in_flight, latency_ms);
    }
    let ids_in_pool = |world: &World| -> Vec<usize> {
        let all = (0..6).filter(|&id| world.prequal.pool.holds(ReplicaId::at(id)));
        all.collect()
    };
    let mut steps = Vec::new();
    for _ in 0..6 {
        world.request_sent();
        steps.push(ids_in_pool(&world));
    }
    // θ is 99 throughout: 84 % of six reports, rounded up, is all six.
    let expected: [&[usize]; 6] =
        [&[1, 2, 3, 4, 5], &[2, 3, 4, 5], &[3, 4, 5], &[3, 4], &[3, 4], &[3, 4]];
    assert_eq!(steps, expected, "oldest 0, hot 1, oldest 2, slowest cold 5, and then two are left");
}

#[test]
fn one_entry_a_replica_and_the_oldest_leaves_a_full_pool() {
    let mut world = World::new(PrequalConfig::default(), 100, 1);
    (0..16).for_each(|replica| world.report_load(replica, 1, 10));
    world.report_load(0, 7, 70);
    assert_eq!(world.prequal.pool.len(), 16, "the newer result of 0 replaces the older");
    world.report_load(16, 1, 10);
    assert_eq!(world.prequal.pool.len(), 16);
    assert!(!world.prequal.pool.holds(ReplicaId(1)), "1 has become the oldest");
    assert!(world.prequal.pool.holds(ReplicaId(0)));
}

#[test]
fn a_replica_without_a_leaf_is_judged_from_the_root_and_probed_again_later() {
    let config = PrequalConfig { probes_per_request: 2.0, ..hot_from(0.84) };
    let mut world = World::new(config, 2, 1);
    let (with, without) = (ReplicaId(0), ReplicaId(1));
    assert_eq!(world.request_sent().len(), 2, "both are probed");
    let begin = world.now;
    world.prequal.probe_unsupported(&world.replicas, without, begin);
    assert!(world.prequal.is_without_leaf(without) && !world.prequal.is_without_leaf(with));

    let load = &mut world.replicas.known(without).load;
    let in_flight_on_arrival = load.arrived();
    load.observe(begin, in_flight_on_arrival, Duration::from_ms(7));
    assert_eq!(world.request_sent(), [with], "the other's entry is made here");
    world.report_load(with.0, 5, 10);
    let (latency, in_flight, threshold) = (Duration::from_ms(7), 1, Some(5));
    let expected = Choice::ColdLowestLatency { latency, in_flight, threshold };
    assert_eq!(world.choose(&[]), (without.0, expected), "one in flight, 7 ms, as the root sees");

    world.now = begin + LEAF_ASKED_AGAIN_AFTER;
    assert_eq!(world.request_sent().len(), 2, "probed again");
    world.report_load(without.0, 0, 1);
    assert!(!world.prequal.is_without_leaf(without), "now it has one");
}

#[test]
fn drained_replicas_are_not_probed() {
    let config = PrequalConfig { probes_per_request: 2.0, ..PrequalConfig::default() };
    let mut world = World::new(config, 4, 1);
    let drain = |world: &mut World, replica| {
        world.replicas.set_weight(ReplicaId(replica), crate::Weight::ZERO);
        world.replicas.compare_weights();
    };
    drain(&mut world, 1);
    for _ in 0..100 {
        let mut probed = world.request_sent();
        assert!(!probed.contains(&ReplicaId(1)), "{probed:?}");
        probed.dedup();
        assert_eq!(probed.len(), 2, "the rate stays exact");
    }
    (2..4).for_each(|replica| drain(&mut world, replica));
    assert_eq!(world.request_sent(), [], "one is left");
    world.now = world.prequal.poll_timeout().expect("four replicas");
    world.prequal.woke(&world.replicas, world.now);
    assert_eq!(world.prequal.poll_probe(), None);
    assert!(world.prequal.poll_timeout() > Some(world.now), "the driver does not spin");
}

#[test]
fn an_idle_upstream_is_probed_now_and_then_but_never_probed_alone() {
    let mut world = World::new(PrequalConfig::default(), 3, 1);
    let mut probed = [0_u32; 3];
    for _ in 0..3_000 {
        let at = world.prequal.poll_timeout().expect("two replicas or more");
        assert_eq!(at.since(world.now).as_ns().div_ceil(1_000_000), 250);
        world.now = at;
        world.prequal.woke(&world.replicas, world.now);
        let (replica, why) = world.prequal.poll_probe().expect("one each interval");
        assert_eq!((why, world.prequal.poll_probe()), (Reason::ProbeWhenIdle, None));
        probed[replica.index()] += 1;
        world.prequal.woke(&world.replicas, world.now);
        assert_eq!(world.prequal.poll_probe(), None, "woken too early");
    }
    assert!(probed.iter().all(|&count| count.abs_diff(1_000) < 130), "{probed:?}");

    let mut alone = World::new(PrequalConfig::default(), 1, 1);
    assert_eq!(alone.prequal.poll_timeout(), None);
    assert_eq!(alone.request_sent(), []);
}
