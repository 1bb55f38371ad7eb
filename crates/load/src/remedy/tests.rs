use super::{LOOK_EVERY, RemedyEvidence};
use crate::holdout::Sides;
use curtail_policy::{RemedyEstimate, RemedyState, RemedyStatus, SlowShares, UpstreamEvent};
use curtail_units::{Duration, Instant, Quantile, Rng};

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

fn status(state: RemedyState) -> RemedyStatus {
    RemedyStatus { state, decisions: 1, threshold: Duration::from_ms(100) }
}

fn shares(evidence: &mut RemedyEvidence, now: Instant) -> SlowShares {
    match evidence.poll_event(now) {
        Some(UpstreamEvent::RemedyMeasured { shares }) => shares,
        other => panic!("{other:?}"),
    }
}

fn estimate(evidence: &mut RemedyEvidence, now: Instant) -> RemedyEstimate {
    match evidence.poll_event(now) {
        Some(UpstreamEvent::RemedyEstimated { estimate }) => estimate,
        other => panic!("{other:?}"),
    }
}

/// Requests of which a share is slow on each side, one in ten of them in the holdout.
fn compare(seed: u64, requests: u64, slow: Sides<f64>) -> SlowShares {
    let (mut rng, mut evidence) =
        (Rng::new(seed), RemedyEvidence::new(at(0.0), status(RemedyState::On)));
    for _ in 0..requests {
        let is_holdout = rng.chance(0.1);
        let is_slow = rng.chance(*slow.clone().get_mut(is_holdout));
        let latency = Duration::from_ms(if is_slow { 101 } else { 100 });
        evidence.record(at(1.0), is_holdout, latency);
    }
    shares(&mut evidence, at(10.0))
}

#[test]
fn a_gain_is_proven_by_some_twenty_slow_requests() {
    let shares = compare(1, 40_000, Sides { without: 0.005, with: 0.000_2 });
    assert_eq!(shares.without.requests + shares.with.requests, 40_000);
    assert!(shares.without.slow + shares.with.slow < 40, "{shares}");
    assert!(shares.ratio_high.expect("bounded") < 0.3, "{shares}");
    assert!(shares.ratio_low < 0.04, "{shares}");
}

#[test]
fn equal_shares_prove_that_there_is_no_gain_and_no_slow_request_proves_nothing() {
    let shares = compare(2, 40_000, Sides { without: 0.5, with: 0.5 });
    assert!((0.85..1.0).contains(&shares.ratio_low), "{shares}");
    assert!((1.0..1.15).contains(&shares.ratio_high.expect("bounded")), "{shares}");
    let shares = compare(3, 40_000, Sides { without: 0.0, with: 0.0 });
    assert_eq!((shares.ratio_low, shares.ratio_high), (0.0, None));
}

/// With slow requests that come in bursts, and a look every five seconds, a comparison of equals is rarely wrong.
#[test]
fn the_ratio_of_equals_is_held_at_all_looks_even_if_slow_requests_come_in_bursts() {
    let (seed, runs) = (4, 400);
    let mut rng = Rng::new(seed);
    let mut is_missed = || {
        let mut evidence = RemedyEvidence::new(at(0.0), status(RemedyState::Trial));
        (1..=24).any(|look| {
            let is_burst = rng.chance(0.3);
            for _ in 0..400 {
                let is_slow = rng.chance(if is_burst { 0.2 } else { 0.001 });
                let latency = Duration::from_ms(if is_slow { 101 } else { 1 });
                evidence.record(at(1.0), rng.chance(0.5), latency);
            }
            let now = at(1.0) + Duration::from_ns(look * LOOK_EVERY.as_ns());
            let shares = shares(&mut evidence, now);
            shares.ratio_low > 1.0 || shares.ratio_high.is_some_and(|high| high < 1.0)
        })
    };
    let missed = (0..runs).filter(|_| is_missed()).count();
    // 1 % is 4; four standard errors more are 12.
    assert!(missed <= 12, "seed {seed}: {missed} of {runs}");
}

/// A dry run of 40,000 requests, of which one in `every` is stalled for 400 ms and would have taken `hedged`.
fn dry_run(every: u32, hedged: Duration) -> RemedyEstimate {
    let mut evidence = RemedyEvidence::new(at(0.0), status(RemedyState::DryRun));
    for nth in 0..40_000_u32 {
        let body = Duration::from_us(u64::from(1_000 + nth % 1_000));
        let is_stalled = nth % every == 0;
        let without = if is_stalled { Duration::from_ms(400) } else { body };
        let with = if is_stalled { hedged } else { body };
        evidence.record_dry_run(at(1.0), Sides { without, with });
    }
    estimate(&mut evidence, at(5.0))
}

#[test]
fn a_dry_run_states_the_quantile_with_the_largest_gain() {
    // One in 250 is beyond the quantile 0.996, and before 0.998.
    let estimate = dry_run(250, Duration::from_ms(4));
    assert!(estimate.is_gain(), "{estimate}");
    assert_eq!(
        (estimate.quantile, estimate.requests),
        (Quantile::new(0.998).expect("below 1"), 40_000)
    );
    let ms = |duration: Duration| duration.as_ms_f64();
    assert!((ms(estimate.without) / 400.0 - 1.0).abs() < 0.01, "{estimate}");
    assert!((ms(estimate.with) / 4.0 - 1.0).abs() < 0.01, "{estimate}");
    assert!((ms(estimate.threshold) / 40.0 - 1.0).abs() < 0.01, "{estimate}");
    assert_eq!((estimate.slow_without, estimate.slow_with), (160, 0), "{estimate}");
    assert!(estimate.ratio_high < 0.06, "{estimate}");
}

/// Whatever the share of stalled requests is, a quantile shows it.
#[test]
fn a_dry_run_finds_stalls_of_any_share() {
    for every in [60, 80, 99, 100, 101, 150, 199, 201, 300, 499, 501, 700, 999] {
        let estimate = dry_run(every, Duration::from_ms(4));
        assert!(estimate.is_gain(), "one in {every}: {estimate}");
    }
}

#[test]
fn a_dry_run_without_a_gain_in_latency_or_with_few_slow_requests_has_none() {
    let estimate = dry_run(100, Duration::from_ms(330));
    assert!(!estimate.is_gain(), "too small a gain: {estimate}");
    let estimate = dry_run(3_000, Duration::from_ms(4));
    assert!(!estimate.is_gain(), "14 slow requests: {estimate}");
    let estimate = dry_run(100, Duration::from_ms(400));
    assert!(!estimate.is_gain() && estimate.ratio_high > 0.95, "hedges save none: {estimate}");
}

#[test]
fn evidence_is_of_one_state_and_looked_at_every_five_seconds() {
    let mut evidence = RemedyEvidence::new(at(10.0), status(RemedyState::Trial));
    let slow = Duration::from_secs(1);
    evidence.record(at(9.9), true, slow);
    evidence.record(at(10.0), true, slow);
    evidence.record_dry_run(at(10.0), Sides { without: slow, with: slow });
    assert_eq!(evidence.poll_event(at(14.9)), None);
    assert_eq!(shares(&mut evidence, at(15.0)).without.requests, 1, "one arrived before");
    assert_eq!(evidence.poll_event(at(15.0)), None);
    evidence.follow(at(16.0), status(RemedyState::Trial));
    assert_eq!(shares(&mut evidence, at(20.0)).without.requests, 1, "nothing was decided");
    let next = RemedyStatus { decisions: 2, ..status(RemedyState::Trial) };
    evidence.follow(at(21.0), next);
    evidence.record(at(20.9), true, slow);
    assert_eq!(shares(&mut evidence, at(26.0)).without.requests, 0, "all arrived before");
    evidence.follow(at(30.0), RemedyStatus { decisions: 3, ..status(RemedyState::DryRun) });
    assert_eq!(evidence.poll_event(at(40.0)), None, "there are no requests");
    evidence.follow(at(41.0), RemedyStatus { decisions: 4, ..status(RemedyState::Off) });
    assert_eq!(evidence.poll_event(at(50.0)), None, "nothing is looked at");
}
