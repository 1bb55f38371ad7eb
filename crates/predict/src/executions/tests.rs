use super::Executions;
use crate::lab::Lab;
use crate::recording::{AttemptEnd, UNKNOWN};
use curtail_units::{Duration, Rng};

fn lab(seed: u64, concurrency: usize, per_second: f64, work_ms: fn(&mut Rng) -> f64) -> Lab {
    Lab {
        seed,
        requests: 20_000,
        per_second,
        replicas: 3,
        concurrency,
        work_ms,
        periods: Vec::new(),
    }
}

#[test]
fn waiting_is_separated_from_service_to_the_nanosecond() {
    for (seed, concurrency) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        // A load of 0.8: three replicas, `concurrency` at once each, 10 ms of work.
        let per_second = 240.0 * concurrency as f64;
        let recording =
            lab(seed, concurrency, per_second, |rng| 1.0 + 9.0 * rng.exponential()).record();
        let executions = Executions::infer(&recording);
        assert_eq!(executions.concurrency, u32::try_from(concurrency).ok(), "seed {seed}");
        // The lab draws the work in the order of the requests: 1 ms and an exponential time.
        let all = executions.of_replica.iter().flatten();
        let mean = all.clone().map(|e| e.lasted().as_ms_f64()).sum::<f64>() / 20_000.0;
        let min = all.map(|e| e.lasted().as_ms_f64()).fold(f64::INFINITY, f64::min);
        assert!((mean - 10.0).abs() < 0.25, "seed {seed}: {mean}");
        assert!((1.0..1.01).contains(&min), "seed {seed}: {min}");
    }
}

#[test]
fn a_concurrency_that_no_attempt_waits_for_is_unknown() {
    let recording = lab(1, 1_000, 300.0, |rng| 10.0 * rng.exponential()).record();
    let executions = Executions::infer(&recording);
    assert_eq!(executions.concurrency, None);
}

#[test]
fn an_attempt_to_an_unknown_replica_is_of_none_of_the_named_ones() {
    let mut recording = lab(1, 4, 240.0, |rng| 10.0 * rng.exponential()).record();
    let of_first = |executions: &Executions| executions.of_replica[0].len();
    let all = of_first(&Executions::infer(&recording));
    // Unknown replicas hold these attempts for an hour.
    for attempt in recording.attempts.iter_mut().filter(|attempt| attempt.replica == 1) {
        (attempt.replica, attempt.lasted) = (UNKNOWN, Duration::from_secs(3_600));
    }
    let executions = Executions::infer(&recording);
    assert_eq!((of_first(&executions), executions.of_replica[1].len()), (all, 0));
    recording.replicas.clear();
    for attempt in &mut recording.attempts {
        attempt.replica = UNKNOWN;
    }
    assert_eq!(of_first(&Executions::infer(&recording)), recording.attempts.len());
}

#[test]
fn an_attempt_that_was_cancelled_before_its_service_is_no_execution() {
    let mut recording = lab(1, 4, 240.0, |rng| 10.0 * rng.exponential()).record();
    let count = |executions: &Executions| executions.of_replica.iter().map(Vec::len).sum::<usize>();
    let all = count(&Executions::infer(&recording));
    for attempt in recording.attempts.iter_mut().take(100) {
        (attempt.end, attempt.service) = (AttemptEnd::Cancelled, Some(Duration::ZERO));
    }
    assert_eq!(count(&Executions::infer(&recording)), all - 100);
}

/// In short stalls, a few attempts wait for a concurrency that is too small, and none of them overtakes by chance.
#[test]
fn a_concurrency_that_few_attempts_would_wait_for_is_not_too_small() {
    let mut found = Vec::new();
    for seed in 1..=20 {
        let recording = Lab {
            requests: 14_000,
            periods: Lab::periods((seed, 3), 1.0, 80, f64::INFINITY, 240.0),
            ..lab(seed, 8, 60.0, |rng| 20.0 * (0.4 * rng.normal()).exp())
        }
        .record();
        found.push(Executions::infer(&recording).concurrency);
    }
    assert!(found.iter().all(|found| found.is_none_or(|found| found >= 8)), "{found:?}");
}
