use super::{Evidence, Intrinsic, Work, estimate, from_kinds};
use curtail_units::{Duration, Instant, Rng};

/// The work of an attempt that starts this many ms after its request; requests begin a second apart.
fn work((request, nth, kind): (u32, u32, u32), delay: f64, (ns, is_whole): (f64, bool)) -> Work {
    let began = Instant::from_ns(u64::from(request) * 1_000_000_000);
    let started = began + Duration::from_ns_f64(delay * 1e6);
    Work { request, nth, kind, started, ns: ns * 1e6, is_whole }
}

/// Attempts of requests of which a share `intrinsic_ratio` takes equally long everywhere. Second attempts follow after a delay, and
/// the first one to end cancels the other.
fn hedged(seed: u64, intrinsic_ratio: f64, delay: f64) -> Vec<Work> {
    let mut rng = Rng::new(seed);
    let mut works = Vec::new();
    for request in 0..60_000 {
        let first = rng.exponential();
        let other = if rng.chance(intrinsic_ratio) { first } else { rng.exponential() };
        if first <= delay {
            works.push(work((request, 0, 0), 0.0, (first, true)));
            continue;
        }
        let end = first.min(delay + other);
        works.push(work((request, 0, 0), 0.0, (end, first <= end)));
        works.push(work((request, 1, 0), delay, (end - delay, delay + other <= end)));
    }
    works
}

#[track_caller]
fn assert_holds(found: Intrinsic, intrinsic_ratio: f64) {
    let (low, high) = found.interval;
    assert!(
        low - 0.02 <= intrinsic_ratio && intrinsic_ratio <= high + 0.02,
        "{intrinsic_ratio}: {found:?}"
    );
}

#[test]
fn second_attempts_show_the_intrinsic_ratio() {
    // The quantile 0.95 of a mean of 1.
    for (seed, intrinsic_ratio) in [(1, 0.0), (2, 0.3), (3, 0.7), (4, 1.0)] {
        let found = estimate(&hedged(seed, intrinsic_ratio, 3.0));
        assert!(matches!(found.evidence, Evidence::Attempts { .. }), "{found:?}");
        assert_holds(found, intrinsic_ratio);
        assert!(found.interval.1 - found.interval.0 < 0.2, "seed {seed}: {found:?}");
    }
}

/// A second attempt that responds early hides that its first attempt would have been slow.
#[test]
fn second_attempts_after_a_short_delay_do_not_raise_the_ratio() {
    for (seed, delay) in [(1, 0.693), (2, 2.303)] {
        for intrinsic_ratio in [0.0, 0.3] {
            let found = estimate(&hedged(seed, intrinsic_ratio, delay));
            assert!(matches!(found.evidence, Evidence::Attempts { .. }), "{found:?}");
            assert_holds(found, intrinsic_ratio);
        }
    }
}

#[test]
fn second_attempts_that_never_end_below_the_threshold_tell_nothing_by_themselves() {
    // Each second attempt is cancelled at once: none is followed up to the threshold.
    let works = hedged(1, 0.0, 3.0).into_iter().map(|work| match work.nth {
        1 => Work { ns: 1.0, is_whole: false, ..work },
        _ => work,
    });
    assert_eq!(estimate(&works.collect::<Vec<_>>()).evidence, Evidence::Nothing);
}

/// Kinds with different shares of slow requests: each kind is one observation of the service.
#[test]
fn the_interval_of_kinds_holds_the_ratio_of_other_kinds() {
    let mut rng = Rng::new(1);
    let mut hits = 0;
    for _ in 0..40 {
        let mut works = Vec::new();
        for kind in 0..60 {
            let slow_share = if rng.chance(0.2) { 0.4 * rng.unit() } else { 0.02 };
            for nth in 0..200 {
                let ms = if rng.chance(slow_share) { 10.0 } else { 1.0 };
                works.push(work((kind * 200 + nth, 0, kind), 0.0, (ms, true)));
            }
        }
        let found = from_kinds(&works, 5e6).expect("enough pairs");
        assert!(matches!(found.evidence, Evidence::Kinds { is_one_kind: false, .. }), "{found:?}");
        // p = 0.8 × 0.02 + 0.2 × 0.2, and q = (0.8 × 0.02² + 0.2 × 0.4² / 3) / p.
        let (low, high) = found.interval;
        hits += u32::from(low <= 0.1485 && 0.1485 <= high);
    }
    // With independent requests, the interval holds it in about half of the cases.
    assert!(hits >= 32, "{hits} of 40");
}

#[test]
fn kinds_show_the_intrinsic_ratio() {
    // One kind of 19 is heavy, ten times over: a share of 0.0526, of which 0.05 is above the threshold.
    let heavy = |seed: u64, share: f64| -> Vec<Work> {
        let mut rng = Rng::new(seed);
        let of = |request| {
            let kind = u32::try_from(rng.below(19)).expect("small");
            let is_intrinsic = rng.chance(share);
            let slow = if is_intrinsic { kind == 0 } else { rng.chance(0.05) };
            let ns = if slow { 10.0 + rng.unit() } else { rng.unit() };
            work((request, 0, kind), 0.0, (ns, true))
        };
        (0..40_000).map(of).collect()
    };
    let all = estimate(&heavy(1, 1.0));
    // Nearly all slow requests are of one kind.
    assert!(matches!(all.evidence, Evidence::Kinds { is_one_kind: true, .. }), "{all:?}");
    let expected = (0.05 * 19.0 - 0.05) / 0.95;
    assert!((all.ratio - expected).abs() < 0.03, "{all:?}");
    let none = estimate(&heavy(2, 0.0));
    assert!(none.ratio < 0.05, "{none:?}");
}

/// At the quantile 0.95, most slow requests are of the other kind.
#[test]
fn a_few_heavy_requests_are_the_tail() {
    for seed in 1..=5 {
        let mut rng = Rng::new(seed);
        let of = |request| {
            let kind = u32::from(rng.chance(0.02));
            let ns = if kind == 1 { 150.0 + rng.unit() } else { 10.0 * rng.exponential() };
            work((request, 0, kind), 0.0, (ns, true))
        };
        let found = estimate(&(0..20_000).map(of).collect::<Vec<_>>());
        assert!(found.ratio > 0.9, "seed {seed}: {found:?}");
        let (low, high) = found.interval;
        assert!(0.8 < low && low <= high && high <= 1.0, "seed {seed}: {found:?}");
    }
}

#[test]
fn without_evidence_nothing_is_known() {
    let mut rng = Rng::new(1);
    let works: Vec<Work> =
        (0..10_000).map(|request| work((request, 0, 0), 0.0, (rng.exponential(), true))).collect();
    assert_eq!(estimate(&works).evidence, Evidence::Nothing);
    assert_eq!(estimate(&works).interval, (0.0, 1.0));
}
