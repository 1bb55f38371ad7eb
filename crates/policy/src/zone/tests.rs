use crate::{
    AttemptId, BalanceConfig, Call, Choice, Effect, Event, Load, Outcome, PrequalConfig, ReplicaId,
    Request, Upstream, UpstreamConfig, UpstreamEvent, Weight,
};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use curtail_units::{Duration, Instant, Rng};

const SEED: u64 = 41;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

/// An upstream whose replicas from `near` on are far.
fn upstream(balance: BalanceConfig, (near, far): (u32, u32)) -> Upstream {
    let config = UpstreamConfig::plain(balance);
    let mut upstream = Upstream::new(config, (near + far) as usize, &Rng::new(1));
    for replica in (near..near + far).map(ReplicaId) {
        upstream.handle(at(0), UpstreamEvent::ZoneChanged { replica, is_far: true });
    }
    upstream
}

fn load(upstream: &mut Upstream, replica: u32, attempts: u32) {
    for _ in 0..attempts {
        upstream.attempt_sent(ReplicaId(replica), at(0));
    }
}

/// Makes a latency known.
fn latency(upstream: &mut Upstream, replica: u32, ms: u64, now: Instant) {
    let sent = upstream.attempt_sent(ReplicaId(replica), now);
    upstream.latency_observed(sent, now + Duration::from_ms(ms));
    upstream.attempt_ended(sent);
}

fn chosen(upstream: &mut Upstream, now: Instant) -> (u32, Choice) {
    let (replica, choice) = upstream.choose(now, None, &[]).expect("there is one");
    (replica.0, choice)
}

const RULES: [BalanceConfig; 4] = [
    BalanceConfig::RoundRobin,
    BalanceConfig::Random,
    BalanceConfig::LEAST_REQUEST,
    BalanceConfig::PEAK_EWMA,
];

#[test]
fn first_attempts_stay_near_while_a_near_replica_carries_them() {
    for balance in RULES {
        let mut upstream = upstream(balance, (2, 4));
        for _ in 0..100 {
            assert!(chosen(&mut upstream, at(0)).0 < 2, "{balance}");
        }
        // Twice as many as a far one with none, one added to each.
        (0..2).for_each(|near| load(&mut upstream, near, 1));
        assert!((0..100).all(|_| chosen(&mut upstream, at(0)).0 < 2), "{balance}");
        (0..2).for_each(|near| load(&mut upstream, near, 1));
        for _ in 0..100 {
            let (replica, choice) = chosen(&mut upstream, at(0));
            assert!(replica >= 2, "{balance}");
            assert_eq!(choice, Choice::OtherZone { in_flight: 0, near: 2 });
        }
        // The far replicas are busy as well.
        (2..6).for_each(|far| load(&mut upstream, far, 1));
        assert!((0..100).all(|_| chosen(&mut upstream, at(0)).0 < 2), "{balance}");
    }
}

#[test]
fn a_far_replica_of_less_weight_counts_as_busier() {
    let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (1, 1));
    let weight = Weight::new(4.0).expect("a weight");
    upstream.handle(at(0), UpstreamEvent::WeightChanged { replica: ReplicaId(0), weight });
    load(&mut upstream, 0, 4);
    load(&mut upstream, 1, 1);
    assert_eq!(chosen(&mut upstream, at(0)).0, 0, "5 attempts of weight 4 against 1 of weight 1");
}

#[test]
fn load_does_not_leave_the_zone_while_near_replicas_are_faster() {
    let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (1, 2));
    load(&mut upstream, 0, 50);
    let is_near = |upstream: &mut Upstream, now| chosen(upstream, now).0 == 0;
    assert!(!is_near(&mut upstream, at(0)), "nothing is known");
    latency(&mut upstream, 0, 10, at(0));
    assert!(!is_near(&mut upstream, at(10)), "far ones may be faster");
    latency(&mut upstream, 1, 11, at(0));
    assert!(is_near(&mut upstream, at(11)), "near ones respond");
    latency(&mut upstream, 0, 5_000, at(11));
    assert!(!is_near(&mut upstream, at(5_011)), "near ones are overloaded");
    latency(&mut upstream, 2, 9_000, at(11));
    assert!(is_near(&mut upstream, at(9_011)), "far ones are worse");
    assert!(!is_near(&mut upstream, at(60_000)), "all is forgotten");
}

#[test]
fn attempts_leave_near_replicas_that_stall_and_come_back() {
    let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (1, 2));
    let stall = 1_000..6_000;
    let mut waiting = Vec::new();
    // One attempt a millisecond. Near ones take 3 ms, far ones 4.
    let mut near_share = |ms: core::ops::Range<u64>| {
        let mut near = 0;
        for now in ms.clone() {
            let has_ended = |(end, _): &mut (u64, _)| *end <= now;
            for (_, sent) in waiting.extract_if(.., has_ended) {
                upstream.latency_observed(sent, at(now));
                upstream.attempt_ended(sent);
            }
            let (replica, _) = chosen(&mut upstream, at(now));
            let end = now + if replica == 0 { 3 } else { 4 };
            let is_late = replica == 0 && stall.contains(&end);
            let sent = upstream.attempt_sent(ReplicaId(replica), at(now));
            waiting.push((if is_late { stall.end } else { end }, sent));
            near += u64::from(replica == 0);
        }
        near as f64 / (ms.end - ms.start) as f64
    };
    // Far replicas get a few at the start, before their latency is known.
    let times = [0..100, 100..1_000, 1_000..1_020, 1_020..6_000, 6_000..17_000, 17_000..20_000];
    let shares = times.map(&mut near_share);
    assert!(shares[0] > 0.9 && shares[1] > 0.99, "{shares:?}");
    assert!(shares[3] < 0.02, "{shares:?}: it stalls");
    assert!(shares[5] > 0.99, "{shares:?}: they have come back");
}

#[test]
fn one_slow_response_does_not_rule_the_mean() {
    let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (1, 2));
    let is_near = |upstream: &mut Upstream, now| chosen(upstream, at(now)).0 == 0;
    assert!(is_near(&mut upstream, 0));
    // The first request finds a cold server.
    latency(&mut upstream, 0, 2_000, at(0));
    for now in 2_000..12_000 {
        latency(&mut upstream, 1, 3, at(now - 3));
        assert!(now == 2_000 || !is_near(&mut upstream, now), "{now} ms");
    }
    for now in 12_000..30_000 {
        latency(&mut upstream, 1, 3, at(now - 3));
        assert!(is_near(&mut upstream, now), "{now} ms");
        latency(&mut upstream, 0, 3, at(now - 3));
    }
    // Another one after a quiet time.
    latency(&mut upstream, 1, 3, at(34_997));
    latency(&mut upstream, 0, 2_000, at(33_000));
    assert!(is_near(&mut upstream, 35_000));
}

#[test]
fn attempts_leave_the_zone_if_all_its_replicas_are_suspect_or_full() {
    for end in [Upstream::attempt_overtaken, Upstream::attempt_rejected] {
        let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (2, 2));
        let end_attempt = |upstream: &mut Upstream, replica| {
            let sent = upstream.attempt_sent(ReplicaId(replica), at(0));
            end(upstream, sent, at(100));
            upstream.attempt_ended(sent);
            sent
        };
        let sent = end_attempt(&mut upstream, 0);
        assert!((0..100).all(|_| chosen(&mut upstream, at(100)).0 == 1), "the other one is fine");
        end_attempt(&mut upstream, 1);
        assert!((0..100).all(|_| chosen(&mut upstream, at(100)).0 >= 2));
        upstream.response_begun(sent);
        assert!((0..100).all(|_| chosen(&mut upstream, at(100)).0 == 0), "it responds again");
    }
}

#[test]
fn attempts_leave_the_zone_if_only_a_light_replica_is_not_suspect() {
    let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (2, 1));
    for replica in [0, 2].map(ReplicaId) {
        let weight = Weight::new(99.0).expect("a weight");
        upstream.handle(at(0), UpstreamEvent::WeightChanged { replica, weight });
    }
    let sent = upstream.attempt_sent(ReplicaId(0), at(0));
    upstream.attempt_overtaken(sent, at(100));
    upstream.attempt_ended(sent);
    let mut counts = [0; 3];
    (0..1_000).for_each(|_| counts[chosen(&mut upstream, at(100)).0 as usize] += 1);
    assert!(counts[0] == 0 && counts[1] < 40 && counts[2] > 960, "{counts:?}");
}

#[test]
fn an_idle_near_replica_is_left_if_its_zone_is_more_than_twice_as_slow() {
    for (ms, stays) in [(5, true), (20, true), (21, false)] {
        let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (1, 2));
        assert_eq!(chosen(&mut upstream, at(0)).0, 0, "nothing is known");
        latency(&mut upstream, 1, 10, at(0));
        latency(&mut upstream, 0, ms, at(10));
        assert_eq!(chosen(&mut upstream, at(10 + ms)).0 == 0, stays, "{ms} ms");
    }
}

#[test]
fn further_attempts_and_attempts_without_a_usable_near_replica_go_anywhere() {
    for balance in RULES {
        let mut upstream = upstream(balance, (2, 2));
        let mut others = [0; 4];
        for _ in 0..400 {
            let further = upstream.choose(at(0), None, &[ReplicaId(0)]).expect("three are left");
            others[further.0.index()] += 1;
        }
        assert!(others[0] == 0 && others[1..].iter().all(|count| *count > 50), "{others:?}");
        for replica in [0, 1].map(ReplicaId) {
            let event = UpstreamEvent::HealthChecked { replica, is_healthy: false };
            upstream.handle(at(0), event);
        }
        assert!((0..100).all(|_| chosen(&mut upstream, at(0)).0 >= 2), "{balance}");
        // A call that is pinned to a far replica.
        let pinned = [ReplicaId(3)];
        assert_eq!(upstream.choose(at(0), Some(&pinned), &[]).map(|(id, _)| id.0), Some(3));
    }
}

#[test]
fn without_far_replicas_nothing_changes() {
    let choices = |has_events: bool| {
        let mut upstream = upstream(BalanceConfig::LEAST_REQUEST, (4, 0));
        if has_events {
            let (replica, is_far) = (ReplicaId(2), true);
            upstream.handle(at(0), UpstreamEvent::ZoneChanged { replica, is_far });
            upstream.handle(at(0), UpstreamEvent::ZoneChanged { replica, is_far: false });
        }
        load(&mut upstream, 1, 9);
        (0..50).map(|_| chosen(&mut upstream, at(0))).collect::<Vec<_>>()
    };
    assert_eq!(choices(false), choices(true));
}

#[test]
fn prequal_takes_a_far_replica_only_if_all_near_ones_are_hot() {
    let balance = BalanceConfig::Prequal(PrequalConfig::default());
    let mut upstream = upstream(balance, (2, 2));
    let probe = |upstream: &mut Upstream, replica, in_flight, ms| {
        let load = Load { in_flight, latency: Duration::from_ms(ms) };
        upstream.handle(at(0), UpstreamEvent::ProbeSucceeded { replica: ReplicaId(replica), load });
        while upstream.poll_effect().is_some() {}
    };
    for (replica, in_flight, ms) in [(0, 9, 1), (1, 1, 8), (2, 9, 5), (3, 1, 2)] {
        probe(&mut upstream, replica, in_flight, ms);
    }
    assert_eq!(chosen(&mut upstream, at(0)).0, 1, "cold and near, though slower");
    probe(&mut upstream, 1, 9, 8);
    assert_eq!(chosen(&mut upstream, at(0)).0, 3, "no cold one is near");
}

/// The requests of many roots, each of which sees only its own attempts. Each replica is a queue of its own.
struct World {
    /// Each with its zone.
    roots: Vec<(u32, Upstream)>,
    calls: Vec<(usize, Call)>,
    /// When each replica has done all its work.
    free_at: Vec<Instant>,
    ends: BinaryHeap<Reverse<(Instant, usize)>>,
    rng: Rng,
}

/// Replicas of each of the three zones.
const OF_ZONE: u32 = 4;
const WORK: Duration = Duration::from_ms(10);
/// The time of a message to another zone.
const WAY: Duration = Duration::from_us(500);

impl World {
    fn new(balance: BalanceConfig, zones: &[u32]) -> Self {
        let root = |zone: &u32| {
            let config = UpstreamConfig::plain(balance);
            let mut upstream = Upstream::new(config, 3 * OF_ZONE as usize, &Rng::new(1));
            for replica in (0..3 * OF_ZONE).map(ReplicaId) {
                let is_far = replica.0 / OF_ZONE != *zone;
                upstream.handle(at(0), UpstreamEvent::ZoneChanged { replica, is_far });
            }
            (*zone, upstream)
        };
        Self {
            roots: zones.iter().map(root).collect(),
            calls: Vec::new(),
            free_at: alloc::vec![Instant::ZERO; 3 * OF_ZONE as usize],
            ends: BinaryHeap::new(),
            rng: Rng::new(SEED),
        }
    }

    /// Sends 40,000 requests, `interval` apart on average, and returns the share of those that stay in their zone, and the
    /// mean latencies in ms of those that stay and of those that leave.
    fn run(&mut self, interval: Duration) -> (f64, [f64; 2]) {
        let (mut now, mut counts, mut sums) = (Instant::ZERO, [0.0; 2], [0.0; 2]);
        for _ in 0..40_000 {
            now = now + interval.mul_f64(self.rng.exponential());
            self.end_attempts(now);
            let nth = self.rng.below(self.roots.len());
            let (zone, upstream) = &mut self.roots[nth];
            let mut call = Call::new(Request::READ);
            call.handle(upstream, now, Event::Arrived);
            let sent = upstream.poll_effect().map(|decided| decided.effect);
            let Some(Effect::Send { replica, .. }) = sent else { panic!("it is sent at once") };
            let is_far = replica.0 / OF_ZONE != *zone;
            let way = if is_far { WAY } else { Duration::ZERO };
            let free_at = &mut self.free_at[replica.index()];
            *free_at = (*free_at).max(now + way) + WORK.mul_f64(self.rng.exponential());
            let end = *free_at + way;
            counts[usize::from(is_far)] += 1.0;
            sums[usize::from(is_far)] += end.since(now).as_ms_f64();
            self.calls.push((nth, call));
            self.ends.push(Reverse((end, self.calls.len() - 1)));
        }
        let mean = |side: usize| sums[side] / f64::max(counts[side], 1.0);
        (counts[0] / (counts[0] + counts[1]), [mean(0), mean(1)])
    }

    fn end_attempts(&mut self, now: Instant) {
        while let Some(Reverse((end, nth))) = self.ends.peek().copied()
            && end <= now
        {
            self.ends.pop();
            let (root, call) = &mut self.calls[nth];
            let attempt = AttemptId(0);
            let responded = Event::Responded { attempt, outcome: Outcome::Good };
            for event in [responded, Event::Ended { attempt, whole: true }] {
                call.handle(&mut self.roots[*root].1, end, event);
                while self.roots[*root].1.poll_effect().is_some() {}
            }
        }
    }
}

#[test]
fn requests_stay_in_a_zone_that_carries_its_share_and_leave_one_that_does_not() {
    for balance in RULES {
        for roots in [3_u32, 30] {
            // Each zone gets 200 requests a second, of 400 that its replicas can do.
            let even: Vec<u32> = (0..roots).map(|root| root % 3).collect();
            let (stay, latencies) = World::new(balance, &even).run(Duration::from_us(1_667));
            let case = alloc::format!("seed {SEED}, {balance}, {roots} roots");
            // These two do not compare the near replicas.
            let min = match balance.name() {
                "random" => 0.65,
                "round_robin" => 0.8,
                _ => 0.9,
            };
            assert!(stay > min, "{case}: {stay} stay, {latencies:?} ms");
            // All of them arise in one zone.
            let one: Vec<u32> = (0..roots).map(|_| 0).collect();
            let (stay, [near, far]) = World::new(balance, &one).run(Duration::from_us(1_667));
            assert!((0.34..0.66).contains(&stay), "{case}: {stay} stay");
            assert!(near < 3.0 * far, "{case}: {near} ms near, {far} ms far");
        }
    }
}
