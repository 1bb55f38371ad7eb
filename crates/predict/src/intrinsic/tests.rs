use super::{Evidence, Work, estimate};
use curtail_units::Rng;

/// Attempts of requests of which a share `alike` takes equally long everywhere. Second attempts follow the slowest 5 %,
/// and the first one to end cancels the other.
fn hedged(seed: u64, alike: f64) -> Vec<Work> {
    let mut rng = Rng::new(seed);
    let mut works = Vec::new();
    for request in 0..60_000 {
        let first = rng.exponential();
        let other = if rng.chance(alike) { first } else { rng.exponential() };
        let delay = 3.0; // The quantile 0.95 of a mean of 1.
        let work = |nth, ns, is_whole| Work { request, nth, kind: 0, ns, is_whole };
        if first <= delay {
            works.push(work(0, first, true));
            continue;
        }
        let end = first.min(delay + other);
        works.push(work(0, end, first <= end));
        works.push(work(1, end - delay, delay + other <= end));
    }
    works
}

#[test]
fn second_attempts_tell_how_alike_attempts_are() {
    for (seed, alike) in [(1, 0.0), (2, 0.3), (3, 0.7), (4, 1.0)] {
        let found = estimate(&hedged(seed, alike));
        assert!(matches!(found.evidence, Evidence::Attempts { .. }), "{found:?}");
        let (low, high) = found.interval;
        assert!(low - 0.02 <= alike && alike <= high + 0.02, "seed {seed}, {alike}: {found:?}");
        assert!(high - low < 0.2, "seed {seed}: {found:?}");
    }
}

#[test]
fn kinds_tell_how_alike_attempts_are() {
    // One kind of 19 is heavy, ten times over: a share of 0.0526, of which 0.05 is above the threshold.
    let heavy = |seed: u64, share: f64| -> Vec<Work> {
        let mut rng = Rng::new(seed);
        let work = |request| {
            let kind = u32::try_from(rng.below(19)).expect("small");
            let is_alike = rng.chance(share);
            let slow = if is_alike { kind == 0 } else { rng.chance(0.05) };
            let ns = if slow { 10.0 + rng.unit() } else { rng.unit() };
            Work { request, nth: 0, kind, ns, is_whole: true }
        };
        (0..40_000).map(work).collect()
    };
    let all = estimate(&heavy(1, 1.0));
    assert!(matches!(all.evidence, Evidence::Kinds { .. }));
    let expected = (0.05 * 19.0 - 0.05) / 0.95;
    assert!((all.ratio - expected).abs() < 0.03, "{all:?}");
    let none = estimate(&heavy(2, 0.0));
    assert!(none.ratio < 0.05, "{none:?}");
}

#[test]
fn without_evidence_nothing_is_known() {
    let mut rng = Rng::new(1);
    let works: Vec<Work> = (0..10_000)
        .map(|request| Work { request, nth: 0, kind: 0, ns: rng.exponential(), is_whole: true })
        .collect();
    assert_eq!(estimate(&works).evidence, Evidence::Nothing);
    assert_eq!(estimate(&works).interval, (0.0, 1.0));
}
