use super::{ATTEMPTS_MAX, Sent, Upstream, UpstreamConfig, UpstreamEvent};
use crate::group::{ESTIMATE_AGE_MAX, SAMPLES_MIN};
use crate::{
    AttemptId, BalanceConfig, Call, Choice, Circuit, CircuitChange, CircuitState, Effect,
    EjectionReason, Event, Failure, HedgeConfig, Load, Outcome, PrequalConfig, Reason, ReplicaId,
    Request, TieConfig, Weight,
};
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Quantile, Rng};

fn upstream(config: UpstreamConfig, replicas: usize) -> Upstream {
    Upstream::new(config, replicas, &Rng::new(1))
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

fn drain(upstream: &mut Upstream) -> Vec<(Effect, Reason)> {
    let effects = core::iter::from_fn(|| upstream.poll_effect());
    effects.map(|decided| (decided.effect, decided.reason)).collect()
}

/// A request arrives: where it goes and why, and who is probed.
fn arrive(upstream: &mut Upstream, now: Instant) -> (Call, ReplicaId, Choice, Vec<ReplicaId>) {
    let mut call = Call::new(Request::READ);
    call.handle(upstream, now, Event::Arrived);
    let mut effects = drain(upstream).into_iter();
    let Some((Effect::Send { replica, choice, .. }, _)) = effects.next() else {
        panic!("an attempt is sent first")
    };
    let probed = effects.map(|(effect, why)| {
        let Effect::Probe { replica } = effect else { panic!("only probes follow: {effect:?}") };
        assert_eq!(why, Reason::ProbeForRequest);
        replica
    });
    (call, replica, choice, probed.collect())
}

#[test]
fn the_hedge_delay_is_the_cap_until_enough_is_known_and_then_the_quantile() {
    let mut hedge = HedgeConfig::default();
    hedge.delay.min = Duration::ZERO;
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    let mut upstream = upstream(UpstreamConfig { hedge: Some(hedge), ..plain }, 2);
    for _ in 1..SAMPLES_MIN {
        upstream.latency_known(at(0), Duration::from_ms(40));
    }
    assert_eq!(upstream.hedge_delay(at(0)), Some(hedge.delay.max), "one is missing");
    upstream.latency_known(at(0), Duration::from_ms(40));
    let peeked = upstream.peek_hedge_delay(Instant::ZERO + ESTIMATE_AGE_MAX);
    assert_eq!(upstream.hedge_delay(at(1)), Some(hedge.delay.max), "not computed again yet");
    let known = upstream.hedge_delay(Instant::ZERO + ESTIMATE_AGE_MAX).expect("hedges are on");
    assert_eq!((known, peeked), (Duration::from_ms(40), Some(known)));
    assert_eq!(upstream.hedge_delay(at(30_000)), Some(hedge.delay.max), "all is forgotten");
}

#[test]
fn the_time_between_the_copies_of_a_tie_follows_the_message_delay() {
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    let mut learned = upstream(UpstreamConfig { tie: Some(TieConfig::default()), ..plain }, 2);
    assert_eq!(learned.tie().map(|(_, delay)| delay), Some(Duration::from_ms(1)));
    for _ in 0..1_000 {
        let one_way = Duration::from_us(50);
        learned.handle(at(0), UpstreamEvent::MessageTimed { one_way });
    }
    let (_, delay) = learned.tie().expect("ties are on");
    assert!((delay.as_ms_f64() - 0.1).abs() < 1e-4, "{delay}");
    let fixed = TieConfig { delay: Some(Duration::from_ms(7)), ..TieConfig::default() };
    let mut fixed = upstream(UpstreamConfig { tie: Some(fixed), ..plain }, 2);
    let one_way = Duration::from_ms(50);
    fixed.handle(at(0), UpstreamEvent::MessageTimed { one_way });
    let (first, second) = (fixed.tie().expect("on"), fixed.tie().expect("on"));
    assert_eq!((first.1, second.1), (Duration::from_ms(7), Duration::from_ms(7)));
    assert_ne!(first.0, second.0, "each tie has its own name");
}

#[test]
fn prequal_probes_for_a_request_and_chooses_by_the_replies() {
    let hot_quantile = Quantile::new(0.84).expect("a quantile");
    let balance =
        BalanceConfig::Prequal(PrequalConfig { hot_quantile, ..PrequalConfig::default() });
    let mut upstream = upstream(UpstreamConfig::plain(balance), 3);
    let (_, _, choice, probed) = arrive(&mut upstream, at(1));
    assert_eq!((choice, probed.len()), (Choice::PoolTooSmall { len: 0 }, 3));
    for replica in probed {
        let latency = Duration::from_ms(30 - 10 * u64::from(replica.0));
        let load = Load { in_flight: replica.0, latency };
        upstream.handle(at(2), UpstreamEvent::ProbeSucceeded { replica, load });
    }
    let (_, replica, choice, _) = arrive(&mut upstream, at(3));
    let latency = Duration::from_ms(20);
    let cold = Choice::ColdLowestLatency { latency, in_flight: 1, threshold: Some(2) };
    assert_eq!((replica, choice), (ReplicaId(1), cold), "the one with 2 in flight is hot");
    let idle = upstream.poll_timeout().expect("it is probed when idle");
    upstream.handle(idle, UpstreamEvent::Woke);
    let effects = drain(&mut upstream);
    assert!(matches!(effects[..], [(Effect::Probe { .. }, Reason::ProbeWhenIdle)]), "{effects:?}");
}

#[test]
fn a_replica_without_a_leaf_is_judged_by_what_its_calls_see() {
    let config = PrequalConfig { probes_per_request: 2.0, ..PrequalConfig::default() };
    let mut upstream = upstream(UpstreamConfig::plain(BalanceConfig::Prequal(config)), 2);
    for replica in arrive(&mut upstream, at(1)).3 {
        upstream.handle(at(1), UpstreamEvent::ProbeUnsupported { replica });
    }
    // One after another, so that nothing but the latency tells the two apart.
    let slow = ReplicaId(1);
    let (mut now, mut chosen) = (at(2), [0, 0]);
    for _ in 0..100 {
        let (mut call, replica, choice, probed) = arrive(&mut upstream, now);
        assert_eq!(probed, [], "no replica is probed");
        assert!(!matches!(choice, Choice::PoolTooSmall { .. }), "by the pool: {choice:?}");
        chosen[replica.index()] += 1;
        now = now + Duration::from_ms(if replica == slow { 20 } else { 1 });
        let attempt = AttemptId(0);
        call.handle(&mut upstream, now, Event::Responded { attempt, outcome: Outcome::Good });
        drain(&mut upstream);
        call.handle(&mut upstream, now, Event::Ended { attempt, whole: true });
    }
    assert!(chosen[1] > 0 && chosen[1] < 5, "tried, found slow, avoided: {chosen:?}");
}

#[test]
fn only_prequal_asks_to_be_woken() {
    for balance in [BalanceConfig::RoundRobin, BalanceConfig::Random, BalanceConfig::LEAST_REQUEST]
    {
        let mut upstream = upstream(UpstreamConfig::plain(balance), 3);
        assert_eq!(upstream.poll_timeout(), None);
        upstream.handle(at(1), UpstreamEvent::Woke);
        assert_eq!(drain(&mut upstream), []);
    }
}

#[test]
fn amplification_counts_what_every_technique_may_add() {
    let config = UpstreamConfig { tie: Some(TieConfig::default()), ..UpstreamConfig::default() };
    let amplification = config.amplification();
    assert_eq!(amplification.attempts_max, 1 + 2 + 1 + 2, "tie, hedge, retries");
    assert!((amplification.average_max - 2.02).abs() < 1e-12, "two copies and the budget");
    let plain = UpstreamConfig::plain(BalanceConfig::Random).amplification();
    assert_eq!((plain.attempts_max, plain.average_max), (1, 1.0));
}

#[test]
fn a_replica_is_ejected_after_failures_in_a_row_until_the_time_is_over_or_it_succeeds() {
    let (failing, other) = (ReplicaId(0), ReplicaId(1));
    let mut upstream = upstream(UpstreamConfig::plain(BalanceConfig::Random), 2);
    let fail = |upstream: &mut Upstream| {
        let sent = upstream.attempt_sent(failing, at(0));
        upstream.attempt_failed(sent, at(0), EjectionReason::Broken);
        upstream.attempt_ended(sent);
        sent
    };
    fail(&mut upstream);
    fail(&mut upstream);
    assert!(!upstream.is_ejected(failing, at(0)), "two failures");
    let sent = fail(&mut upstream);
    assert!(upstream.is_ejected(failing, at(0)) && !upstream.is_ejected(other, at(0)));
    assert!(upstream.is_ejected(failing, at(99)) && !upstream.is_ejected(failing, at(100)));
    upstream.attempt_succeeded(sent);
    assert!(!upstream.is_ejected(failing, at(0)));
}

#[test]
fn an_ejection_opens_the_circuit_until_a_success_closes_it() {
    let replica = ReplicaId(0);
    let mut upstream = upstream(UpstreamConfig::plain(BalanceConfig::Random), 2);
    let fail = |upstream: &mut Upstream, ms, reason| {
        let sent = upstream.attempt_sent(replica, at(ms));
        upstream.attempt_failed(sent, at(ms), reason);
        upstream.attempt_ended(sent);
        (upstream.poll_circuit_change(), upstream.circuit(replica, at(ms)).state)
    };
    let circuit =
        |state, failures, ms| Circuit { state, failures, open_for: Duration::from_ms(ms) };
    let opened = |reason, failures, ms| {
        let circuit = circuit(CircuitState::Open, failures, ms);
        Some(CircuitChange::Opened { replica, reason, circuit })
    };
    let (first, bad) = (EjectionReason::NotSent, EjectionReason::BadResponse);
    assert_eq!(fail(&mut upstream, 0, first), (None, CircuitState::Closed));
    assert_eq!(fail(&mut upstream, 0, first), (None, CircuitState::Closed));
    assert_eq!(fail(&mut upstream, 0, bad), (opened(bad, 3, 100), CircuitState::Open));
    assert_eq!(fail(&mut upstream, 50, bad), (None, CircuitState::Open), "ejected already");
    let half_open = circuit(CircuitState::HalfOpen, 3, 0);
    assert_eq!(upstream.circuit(replica, at(100)), half_open);
    let late = EjectionReason::TimedOut;
    assert_eq!(fail(&mut upstream, 100, late), (opened(late, 4, 200), CircuitState::Open));
    let sent = upstream.attempt_sent(replica, at(300));
    upstream.attempt_succeeded(sent);
    assert_eq!(upstream.poll_circuit_change(), Some(CircuitChange::Closed { replica }));
    assert_eq!(upstream.circuit(replica, at(300)), Circuit::default());
    upstream.attempt_succeeded(sent);
    assert_eq!(upstream.poll_circuit_change(), None);
    // A driver that polls no changes keeps few of them.
    for nth in 400..500 {
        (0..3).for_each(|_| upstream.attempt_failed(Sent { at: at(nth), ..sent }, at(nth), first));
        upstream.attempt_succeeded(Sent { at: at(nth), ..sent });
    }
    let left = core::iter::from_fn(|| upstream.poll_circuit_change()).count();
    assert_eq!(left, ATTEMPTS_MAX);
}

#[test]
fn replicas_join_and_leave_and_the_others_keep_what_was_learned() {
    let rules = [
        BalanceConfig::RoundRobin,
        BalanceConfig::Random,
        BalanceConfig::LEAST_REQUEST,
        BalanceConfig::PeakEwma { decay: Duration::from_secs(10) },
        BalanceConfig::Prequal(PrequalConfig::default()),
    ];
    let (failing, busy, leaving, joining) =
        (ReplicaId(0), ReplicaId(1), ReplicaId(2), ReplicaId(3));
    for rule in rules {
        let mut upstream = upstream(UpstreamConfig::plain(rule), 3);
        let (mut call, ..) = core::iter::from_fn(|| Some(arrive(&mut upstream, at(0))))
            .find(|(_, replica, ..)| *replica == leaving)
            .expect("each is chosen at some time");
        for _ in 0..3 {
            let sent = upstream.attempt_sent(failing, at(0));
            upstream.attempt_failed(sent, at(0), EjectionReason::Broken);
            upstream.attempt_ended(sent);
        }
        upstream.latency_known(at(0), Duration::from_ms(7));
        let before = upstream.in_flight(busy);

        upstream.handle(at(1), UpstreamEvent::ReplicaLeft { replica: leaving });
        upstream.handle(at(1), UpstreamEvent::ReplicaJoined { replica: joining });
        assert_eq!(drain(&mut upstream), [], "{rule:?}");
        assert!(upstream.is_ejected(failing, at(1)) && upstream.in_flight(busy) == before);
        assert!(upstream.latency(at(1), Quantile::P50).is_some(), "{rule:?}");
        let mut chosen = [0; 4];
        (0..50).for_each(|_| chosen[arrive(&mut upstream, at(1)).1.index()] += 1);
        assert!(chosen[0] == 0 && chosen[2] == 0 && chosen[3] > 0, "{rule:?}: {chosen:?}");

        // Its attempt ends like any other, and news of it changes nothing.
        let attempt = AttemptId(0);
        call.handle(&mut upstream, at(2), Event::Responded { attempt, outcome: Outcome::Good });
        let expected = (Effect::Respond { attempt }, Reason::FirstAccepted);
        assert_eq!(drain(&mut upstream), [expected], "{rule:?}");
        call.handle(&mut upstream, at(3), Event::Ended { attempt, whole: true });
        assert!(call.is_over());
        let load = Load { in_flight: 0, latency: Duration::ZERO };
        let late = UpstreamEvent::ProbeSucceeded { replica: leaving, load };
        upstream.handle(at(4), late);
        upstream.handle(at(4), UpstreamEvent::ReplicaJoined { replica: leaving });
        assert!(!upstream.has_replica(leaving), "a number is used once");
    }
}

#[test]
fn a_copy_is_not_sent_to_a_replica_that_has_left() {
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    let mut upstream = upstream(UpstreamConfig { tie: Some(TieConfig::default()), ..plain }, 2);
    let (mut call, first, ..) = arrive(&mut upstream, at(0));
    let other = ReplicaId(1 - first.0);
    upstream.handle(at(0), UpstreamEvent::ReplicaLeft { replica: other });
    call.handle(&mut upstream, at(5), Event::Woke);
    assert_eq!(drain(&mut upstream), [], "the first copy is alone");
    upstream.handle(at(6), UpstreamEvent::ReplicaLeft { replica: first });
    let (attempt, failure) = (AttemptId(0), Failure::NotSent);
    call.handle(&mut upstream, at(7), Event::Failed { attempt, failure });
    assert!(matches!(drain(&mut upstream)[..], [(Effect::Fail { .. }, _)]) && call.is_over());
    let mut late = Call::new(Request::READ);
    late.handle(&mut upstream, at(8), Event::Arrived);
    assert!(matches!(drain(&mut upstream)[..], [(Effect::Fail { .. }, Reason::NoReplica)]));
}

const ATTEMPTS: u32 = 60_000;

/// How often each of three replicas is chosen at `now`.
fn chosen(upstream: &mut Upstream, now: Instant, attempts: u32) -> [u32; 3] {
    let mut counts = [0; 3];
    for _ in 0..attempts {
        let (replica, _) = upstream.choose(now, None, &[]).expect("there is one");
        counts[replica.index()] += 1;
    }
    counts
}

#[test]
fn an_unhealthy_replica_is_chosen_only_if_all_are_unhealthy() {
    let mut upstream = upstream(UpstreamConfig::plain(BalanceConfig::RoundRobin), 3);
    let check = |upstream: &mut Upstream, replica, is_healthy| {
        let replica = ReplicaId(replica);
        upstream.handle(at(0), UpstreamEvent::HealthChecked { replica, is_healthy });
        assert_eq!(upstream.is_unhealthy(replica), !is_healthy);
    };
    check(&mut upstream, 1, false);
    assert_eq!(chosen(&mut upstream, at(0), 30), [15, 0, 15]);
    check(&mut upstream, 0, false);
    assert_eq!(chosen(&mut upstream, at(0), 30), [0, 0, 30]);
    check(&mut upstream, 2, false);
    assert_eq!(chosen(&mut upstream, at(0), 30), [10, 10, 10]);
    for replica in 0..3 {
        check(&mut upstream, replica, true);
    }
    assert_eq!(chosen(&mut upstream, at(0), 30), [10, 10, 10]);
    // One that has left.
    upstream.handle(at(0), UpstreamEvent::ReplicaLeft { replica: ReplicaId(1) });
    let unknown = UpstreamEvent::HealthChecked { replica: ReplicaId(1), is_healthy: false };
    upstream.handle(at(0), unknown);
    assert_eq!(chosen(&mut upstream, at(0), 30), [15, 0, 15]);
}

#[test]
fn a_further_attempt_goes_to_no_unhealthy_replica_while_another_is_healthy() {
    let mut upstream = upstream(UpstreamConfig::plain(BalanceConfig::RoundRobin), 3);
    for replica in [1, 2] {
        let replica = ReplicaId(replica);
        upstream.handle(at(0), UpstreamEvent::HealthChecked { replica, is_healthy: false });
    }
    // The first attempt was at the only healthy replica.
    let exclude = [ReplicaId(0)];
    assert!(!upstream.has_choice(at(0), None, &exclude));
    assert_eq!(upstream.choose(at(0), None, &exclude), None);
    // A call that is pinned to unhealthy replicas uses them.
    let pinned = [ReplicaId(1), ReplicaId(2)];
    assert!(upstream.has_choice(at(0), Some(&pinned), &exclude));
    // An ejected replica is better than an unhealthy one.
    for _ in 0..10 {
        let sent = upstream.attempt_sent(ReplicaId(0), at(0));
        upstream.attempt_failed(sent, at(0), EjectionReason::Broken);
    }
    assert!(upstream.is_ejected(ReplicaId(0), at(0)));
    assert_eq!(chosen(&mut upstream, at(0), 10), [10, 0, 0]);
}

#[test]
fn a_new_or_recovered_replica_gets_a_share_of_its_attempts_that_grows() {
    let slow_start = Some(Duration::from_secs(10));
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    let config = UpstreamConfig { slow_start, ..plain };
    for is_recovered in [false, true] {
        let mut upstream = upstream(config, if is_recovered { 3 } else { 2 });
        assert_eq!(upstream.warm_up_share(ReplicaId(0), at(0)), None, "it was there at the start");
        let replica = ReplicaId(2);
        let health = |is_healthy| UpstreamEvent::HealthChecked { replica, is_healthy };
        let events = match is_recovered {
            true => [health(false), health(true)],
            // A check that passes says nothing new.
            false => [UpstreamEvent::ReplicaJoined { replica }, health(true)],
        };
        events.into_iter().for_each(|event| upstream.handle(at(1_000), event));
        for (ms, share) in [(1_000, 0.1), (1_500, 0.1), (6_000, 0.5), (10_000, 0.9), (11_000, 1.0)]
        {
            let shown = upstream.warm_up_share(replica, at(ms)).unwrap_or(1.0);
            assert!((shown - share).abs() < 1e-9, "{shown}");
            let [.., warming] = chosen(&mut upstream, at(ms), ATTEMPTS);
            let expected = f64::from(ATTEMPTS) * share / (2.0 + share);
            // Five standard deviations of a binomial count.
            let limit = 5.0 * libm::sqrt(expected);
            assert!((f64::from(warming) - expected).abs() < limit, "{warming}: {expected}");
        }
    }
}

#[test]
fn a_weight_changes_joins_and_leaves_with_its_replica() {
    let mut upstream = upstream(UpstreamConfig::plain(BalanceConfig::RoundRobin), 2);
    let weigh = |upstream: &mut Upstream, replica, weight| {
        let (replica, weight) = (ReplicaId(replica), Weight::new(weight).expect("a weight"));
        upstream.handle(at(0), UpstreamEvent::WeightChanged { replica, weight });
    };
    weigh(&mut upstream, 1, 3.0);
    assert_eq!(chosen(&mut upstream, at(0), 40)[..2], [10, 30]);
    upstream.handle(at(0), UpstreamEvent::ReplicaJoined { replica: ReplicaId(2) });
    assert_eq!(upstream.weight(ReplicaId(2)), Some(Weight::ONE));
    assert_eq!(chosen(&mut upstream, at(0), 50), [10, 30, 10]);
    weigh(&mut upstream, 0, 0.0);
    assert_eq!(chosen(&mut upstream, at(0), 40), [0, 30, 10]);
    upstream.handle(at(0), UpstreamEvent::ReplicaLeft { replica: ReplicaId(1) });
    // One that has left.
    weigh(&mut upstream, 1, 9.0);
    assert_eq!(
        (upstream.weight(ReplicaId(1)), chosen(&mut upstream, at(0), 10)),
        (None, [0, 0, 10])
    );
}

#[test]
fn a_drained_replica_gets_no_attempt_unless_a_call_is_pinned_to_drained_ones() {
    let mut upstream = upstream(UpstreamConfig::plain(BalanceConfig::Random), 2);
    let (first, second) = (ReplicaId(0), ReplicaId(1));
    let drain = |upstream: &mut Upstream, replica| {
        upstream.handle(at(0), UpstreamEvent::WeightChanged { replica, weight: Weight::ZERO });
    };
    drain(&mut upstream, first);
    assert!(!upstream.has_choice(at(0), None, &[second]), "no retry either");
    let health = UpstreamEvent::HealthChecked { replica: second, is_healthy: false };
    upstream.handle(at(0), health);
    assert_eq!(upstream.choose(at(0), None, &[]).map(|(id, _)| id), Some(second), "unhealthy");
    for pinned in [&[first][..], &[first, ReplicaId(7)]] {
        let chosen = upstream.choose(at(0), Some(pinned), &[]);
        assert_eq!(chosen.map(|(id, _)| id), Some(first));
    }
    let both = upstream.choose(at(0), Some(&[first, second]), &[]);
    assert_eq!(both.map(|(id, _)| id), Some(second));
    drain(&mut upstream, second);
    assert!(!upstream.has_choice(at(0), None, &[]));
    assert_eq!(upstream.choose(at(0), None, &[]), None);
}

#[test]
fn replicas_that_all_warm_up_share_the_attempts() {
    let slow_start = Some(Duration::from_secs(10));
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    let mut upstream = upstream(UpstreamConfig { slow_start, ..plain }, 0);
    for replica in [0, 1, 2].map(ReplicaId) {
        upstream.handle(at(0), UpstreamEvent::ReplicaJoined { replica });
    }
    for count in chosen(&mut upstream, at(0), 30_000) {
        assert!(count.abs_diff(10_000) < 500, "{count}");
    }
}
