use super::{LimitRejection, RateLimit, RequestLimit, RequestLimiter};
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Rng};

const SECOND: Duration = Duration::from_secs(1);

fn rate(rate: f64, burst: u32) -> RequestLimit {
    RequestLimit { rate: Some(RateLimit::new(rate, burst)), in_flight_max: None }
}

fn in_flight(max: u32) -> RequestLimit {
    RequestLimit { in_flight_max: Some(max), rate: None }
}

/// Starts a request if the limiter lets it.
fn request(
    limiter: &mut RequestLimiter,
    limit: &RequestLimit,
    now: Instant,
) -> Result<(), LimitRejection> {
    limiter.check(limit, now)?;
    limiter.start(limit, now);
    Ok(())
}

#[test]
fn a_bucket_has_its_burst_and_then_a_token_for_each_interval() {
    let limit = rate(10.0, 3);
    let mut limiter = RequestLimiter::default();
    let start = Instant::from_ns(5);
    for _ in 0..3 {
        assert_eq!(request(&mut limiter, &limit, start), Ok(()));
    }
    let wait = Duration::from_ms(100);
    assert_eq!(request(&mut limiter, &limit, start), Err(LimitRejection::Rate { wait }));
    let almost = start + Duration::from_ms(99);
    let rest = LimitRejection::Rate { wait: Duration::from_ms(1) };
    assert_eq!(request(&mut limiter, &limit, almost), Err(rest));
    assert_eq!(request(&mut limiter, &limit, start + wait), Ok(()), "the wait is true");
    assert!(request(&mut limiter, &limit, start + wait).is_err());
    assert!(!limiter.is_idle(start + wait));
    let full = start + Duration::from_ms(400);
    assert!(limiter.is_idle(full));
    let started = (0..5).filter(|_| request(&mut limiter, &limit, full).is_ok()).count();
    assert_eq!(started, 3, "a full bucket has no more than its burst, however long it was full");
}

#[test]
fn requests_in_flight_are_limited_until_they_end() {
    let limit = in_flight(2);
    let mut limiter = RequestLimiter::default();
    let (first, second, later) =
        (Instant::from_ns(1), Instant::from_ns(2), Instant::from_ns(2) + SECOND);
    assert_eq!(request(&mut limiter, &limit, first), Ok(()));
    assert_eq!(request(&mut limiter, &limit, second), Ok(()));
    let full = LimitRejection::InFlight { full_for: SECOND };
    assert_eq!(request(&mut limiter, &limit, later), Err(full));
    assert_eq!(limiter.in_flight(), 2);
    limiter.end();
    assert_eq!(request(&mut limiter, &limit, later), Ok(()));
    limiter.end();
    limiter.end();
    limiter.end();
    assert_eq!(limiter.in_flight(), 0, "one end too many changes nothing");
    assert!(limiter.is_idle(Instant::ZERO));
}

#[test]
fn a_rejected_request_takes_no_token_and_no_place() {
    let limit = RequestLimit { in_flight_max: Some(1), ..rate(1.0, 2) };
    let mut limiter = RequestLimiter::default();
    let now = Instant::from_ns(1);
    assert_eq!(request(&mut limiter, &limit, now), Ok(()));
    for _ in 0..10 {
        assert!(matches!(request(&mut limiter, &limit, now), Err(LimitRejection::InFlight { .. })));
    }
    limiter.end();
    assert_eq!(request(&mut limiter, &limit, now), Ok(()), "the second token is still there");
    limiter.end();
    for _ in 0..10 {
        assert!(matches!(request(&mut limiter, &limit, now), Err(LimitRejection::Rate { .. })));
    }
    assert_eq!(limiter.in_flight(), 0);
    assert_eq!(request(&mut limiter, &limit, now + SECOND), Ok(()));
}

#[test]
fn a_lower_limit_applies_to_what_was_counted_before() {
    let mut limiter = RequestLimiter::default();
    let now = Instant::from_ns(1);
    let before = rate(0.001, 1_000);
    (0..1_000).for_each(|_| request(&mut limiter, &before, now).expect("a token"));
    let limit = RequestLimit { in_flight_max: Some(1), ..rate(1.0, 1) };
    let wait = LimitRejection::Rate { wait: SECOND };
    assert_eq!(request(&mut limiter, &limit, now), Err(wait), "an empty bucket, no debt");
    assert_eq!(request(&mut limiter, &limit, now + SECOND), Ok(()));
}

/// Random traffic: in no window do more requests start than the burst and the rate allow, and each wait is true.
#[test]
fn rate_within_burst_in_every_window() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let per_second = [0.5, 3.0, 7.0, 100.0, 12_345.0, 999_999.0][rng.below(6)];
        let burst = u32::try_from(1 + rng.below(20)).expect("small");
        let limit = rate(per_second, burst);
        let mut limiter = RequestLimiter::default();
        let mut now = Instant::from_ns(rng.next_u64() >> 20);
        let mut started: Vec<Instant> = Vec::new();
        for _ in 0..2_000 {
            // Bursts, and pauses of up to some intervals.
            if rng.chance(0.5) {
                let pause = rng.exponential() * 2e9 / per_second;
                now = now + Duration::from_ns_f64(pause);
            }
            match request(&mut limiter, &limit, now) {
                Ok(()) => started.push(now),
                Err(LimitRejection::Rate { wait }) => {
                    let before = now + (wait - Duration::from_ns(1));
                    assert!(limiter.check(&limit, before).is_err(), "seed {seed}: too long a wait");
                    assert!(limiter.check(&limit, now + wait).is_ok(), "seed {seed}: {wait}");
                }
                Err(rejection @ LimitRejection::InFlight { .. }) => {
                    panic!("seed {seed}: {rejection:?}")
                }
            }
        }
        for (first, begin) in started.iter().enumerate() {
            for (last, end) in started.iter().enumerate().skip(first).step_by(17) {
                let allowed =
                    f64::from(burst) + end.since(*begin).as_secs_f64() * per_second * 1.001;
                let count = (last - first + 1) as f64;
                assert!(count <= allowed + 1e-6, "seed {seed}: {count} in a window for {allowed}");
            }
        }
    }
}

/// A client that sends at its rate, each request by itself up to a burst late, is never rejected.
#[test]
fn a_client_that_keeps_its_rate_is_never_rejected() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let per_second = [0.3, 3.0, 7.0, 600.0, 333_333.0, 1e6][rng.below(6)];
        let burst = u32::try_from(1 + rng.below(20)).expect("small");
        let limit = rate(per_second, burst);
        let mut limiter = RequestLimiter::default();
        let mut latest = Instant::ZERO;
        for nth in 0..5_000_u32 {
            // The request is due at its place in the schedule, and late by less than the burst allows.
            let due = f64::from(nth) * 1e9 / per_second;
            let late = rng.unit() * f64::from(burst - 1) * 1e9 / per_second;
            let now = Instant::from_ns(Duration::from_ns_f64(due + late + 1.0).as_ns()).max(latest);
            latest = now;
            let outcome = request(&mut limiter, &limit, now);
            assert_eq!(outcome, Ok(()), "seed {seed}: request {nth} of {per_second}/s, {burst}");
        }
    }
}

/// Random starts and ends: never more in flight than allowed, and a place is never lost.
#[test]
fn in_flight_is_bounded_and_no_place_is_lost() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let max = u32::try_from(1 + rng.below(8)).expect("small");
        let limit = in_flight(max);
        let (mut limiter, mut open) = (RequestLimiter::default(), 0);
        for _ in 0..2_000 {
            if open > 0 && rng.chance(0.5) {
                limiter.end();
                open -= 1;
            } else {
                let has_started = request(&mut limiter, &limit, Instant::ZERO).is_ok();
                assert_eq!(has_started, open < max, "seed {seed}: {open} of {max}");
                open += u32::from(has_started);
            }
            assert_eq!(limiter.in_flight(), open, "seed {seed}");
        }
    }
}
