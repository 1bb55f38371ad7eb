use super::{EJECTION, EJECTION_FAILURES, EJECTION_MAX, Replicas, SUSPECT_AGES};
use crate::ReplicaId;
use curtail_units::{Duration, Instant};

const ID: ReplicaId = ReplicaId(0);

fn fails(replicas: &mut Replicas, now: Instant, times: u32) {
    (0..times).for_each(|_| replicas.known(ID).failed(now));
}

/// How long the replica is left out from `now` on.
fn left_out(replicas: &Replicas, now: Instant) -> Duration {
    let until = replicas.get(ID).expect("present").ejected_until;
    assert_eq!(replicas.candidates(now, None, &[]).is_eligible(ID), until <= now);
    assert!(replicas.candidates(until, None, &[]).is_eligible(ID));
    until.since(now)
}

#[test]
fn failures_in_a_row_leave_a_replica_out_twice_as_long_each_time() {
    let mut replicas = Replicas::numbered(1);
    let mut now = Instant::from_ns(1);
    fails(&mut replicas, now, EJECTION_FAILURES - 1);
    assert_eq!(left_out(&replicas, now), Duration::ZERO);
    let mut expected = EJECTION;
    for _ in 0..20 {
        fails(&mut replicas, now, 1);
        assert_eq!(left_out(&replicas, now), expected);
        now = now + expected;
        expected = (expected + expected).min(EJECTION_MAX);
    }
    assert_eq!(expected, EJECTION_MAX);
}

#[test]
fn a_replica_whose_connections_are_full_is_avoided_for_a_time_or_until_it_responds() {
    let mut replicas = Replicas::numbered(2);
    let is_avoided = |replicas: &Replicas, now| replicas.candidates(now, None, &[]).is_avoided(ID);
    let at = |ms| Instant::ZERO + Duration::from_ms(ms);
    replicas.rejected(ID, at(1));
    assert_eq!(replicas.known(ID).full_for(at(51)), Duration::from_ms(50));
    assert!(is_avoided(&replicas, at(100)) && !is_avoided(&replicas, at(101)));
    replicas.known(ID).responded();
    assert!(!is_avoided(&replicas, at(1)));
}

#[test]
fn attempts_that_break_off_together_count_once() {
    let mut replicas = Replicas::numbered(1);
    let now = Instant::from_ns(1);
    fails(&mut replicas, now, 1_000);
    assert_eq!(left_out(&replicas, now), EJECTION);
}

#[test]
fn a_success_makes_good_for_all_failures() {
    let mut replicas = Replicas::numbered(1);
    let now = Instant::from_ns(1);
    fails(&mut replicas, now, EJECTION_FAILURES);
    replicas.known(ID).succeeded(now);
    assert_eq!(left_out(&replicas, now), Duration::ZERO);
    fails(&mut replicas, now, EJECTION_FAILURES - 1);
    assert_eq!(left_out(&replicas, now), Duration::ZERO);
}

#[test]
fn a_success_of_an_attempt_sent_before_a_failure_does_not_make_good_for_it() {
    let mut replicas = Replicas::numbered(1);
    let (sent, now) = (Instant::from_ns(1), Instant::from_ns(2));
    fails(&mut replicas, now, EJECTION_FAILURES);
    replicas.known(ID).succeeded(sent);
    assert_eq!(left_out(&replicas, now), EJECTION);
}

#[test]
fn an_overtaken_attempt_makes_its_replica_suspect_twice_as_long_each_time_until_it_responds() {
    let mut replicas = Replicas::numbered(1);
    let (mut now, age) = (Instant::from_ns(1), Duration::from_ms(10));
    for _ in 0..2 {
        let mut expected = Duration::from_ms(10 * SUSPECT_AGES);
        for _ in 0..20 {
            replicas.overtaken(ID, now, age);
            // What was sent before is no news, but still counts as in flight.
            replicas.overtaken(ID, now, age);
            assert_eq!(replicas.get(ID).expect("present").in_flight(now), 2);
            assert_eq!(replicas.known(ID).suspect_for(now), expected);
            let last = now + expected;
            assert_eq!(replicas.known(ID).suspect_for(last), Duration::ZERO);
            assert!(
                replicas.candidates(Instant::from_ns(last.as_ns() - 1), None, &[]).is_avoided(ID)
            );
            assert!(!replicas.candidates(last, None, &[]).is_avoided(ID));
            assert_eq!(replicas.get(ID).expect("present").in_flight(last), 0);
            now = last;
            expected = (expected + expected).min(EJECTION_MAX);
        }
        assert_eq!(expected, EJECTION_MAX);
        replicas.overtaken(ID, now, age);
        replicas.known(ID).responded();
        assert!(!replicas.candidates(now, None, &[]).is_avoided(ID));
        assert_eq!(replicas.get(ID).expect("present").in_flight(now), 0);
    }
}
