use super::{EffectVerdict, Holdout, PERIODS, PercentileEffect, PeriodEffects, time_to_state};
use curtail_units::{Duration, Instant, Quantile, Rng};

const RATE: u64 = 200;

fn at(seconds: f64) -> Instant {
    Instant::from_ns(0) + Duration::from_secs_f64(seconds)
}

/// Records [`RATE`] requests a second for `seconds`, half of them without the remedy, with latencies by `latency`.
fn record(
    holdout: &mut Holdout,
    from: f64,
    seconds: u64,
    mut latency: impl FnMut(&mut Rng, bool) -> Duration,
) {
    let mut rng = Rng::new(11);
    for nth in 0..seconds * RATE {
        let is_holdout = rng.chance(0.5);
        let now = at(from + nth as f64 / RATE as f64);
        let attempts = if !is_holdout && nth % 100 == 0 { 2 } else { 1 };
        holdout.record(now, is_holdout, latency(&mut rng, is_holdout), attempts);
    }
    holdout.advance(at(from + seconds as f64 + 120.0));
}

fn exponential_ms(rng: &mut Rng, mean: f64) -> Duration {
    Duration::from_ns_f64(1e6 * mean * rng.exponential())
}

fn hour(holdout: &Holdout) -> PeriodEffects {
    holdout.effects().into_iter().find(|effects| effects.period == "hour").expect("a period")
}

fn p90(effects: &PeriodEffects) -> PercentileEffect {
    *effects.percentiles.iter().find(|percentile| percentile.name == "p90").expect("stated")
}

#[test]
fn a_remedy_that_halves_latencies_is_better() {
    let mut holdout = Holdout::new();
    record(&mut holdout, 0.0, 120, |rng, is_holdout| {
        exponential_ms(rng, if is_holdout { 20.0 } else { 10.0 })
    });
    let effects = hour(&holdout);
    assert_eq!(effects.requests.without + effects.requests.with, 120 * RATE);
    let extra = effects.extra_ratio().expect("attempts on both sides");
    assert!((extra - 0.01).abs() < 0.002, "{extra}");
    let p90 = p90(&effects);
    assert_eq!(p90.verdict(), EffectVerdict::Better);
    let (ratio, (low, high)) = (p90.ratio().expect("no failures"), p90.ratio_interval());
    assert!(low < 0.5 && 0.5 < high && high < 1.0, "{ratio} ({low} to {high})");
    assert!((0.45..0.55).contains(&ratio), "{ratio}");
}

#[test]
fn the_other_side_is_worse_and_equal_sides_are_undecided() {
    let verdict = |without: f64, with: f64| {
        let mut holdout = Holdout::new();
        record(&mut holdout, 0.0, 60, |rng, is_holdout| {
            exponential_ms(rng, if is_holdout { without } else { with })
        });
        p90(&hour(&holdout)).verdict()
    };
    assert_eq!(verdict(10.0, 20.0), EffectVerdict::Worse);
    assert_eq!(verdict(10.0, 10.0), EffectVerdict::Undecided);
}

#[test]
fn a_percentile_is_stated_only_with_a_hundred_requests_beyond_it_on_each_side() {
    let mut holdout = Holdout::new();
    // About 3,000 requests on each side: 300 beyond the p90, 30 beyond the p99.
    record(&mut holdout, 0.0, 30, |rng, _| exponential_ms(rng, 10.0));
    let names = |holdout: &Holdout| {
        hour(holdout).percentiles.iter().map(|percentile| percentile.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&holdout), ["p50", "p90"]);
    record(&mut holdout, 300.0, 90, |rng, _| exponential_ms(rng, 10.0));
    assert_eq!(names(&holdout), ["p50", "p90", "p99"]);
    // 0.5 × 200/s × 1 % is one request a second beyond the p99.
    let seconds = time_to_state(0.5, RATE as f64, Quantile::P99).as_secs_f64();
    assert!((seconds - 100.0).abs() < 1e-6, "{seconds}");
}

#[test]
fn a_new_period_keeps_the_figures_of_the_last_one_until_it_has_its_own() {
    let (mut holdout, length) = (Holdout::new(), PERIODS[0].1.as_secs_f64());
    record(&mut holdout, 0.0, 60, |rng, is_holdout| {
        exponential_ms(rng, if is_holdout { 20.0 } else { 10.0 })
    });
    let first = hour(&holdout);
    holdout.advance(at(length + 10.0));
    assert_eq!(hour(&holdout), PeriodEffects { is_complete: true, ..first });
    record(&mut holdout, length + 20.0, 60, |rng, is_holdout| {
        exponential_ms(rng, if is_holdout { 10.0 } else { 20.0 })
    });
    assert_eq!(p90(&hour(&holdout)).verdict(), EffectVerdict::Worse);
    // The day has both hours, in which the effects cancel each other.
    let day = holdout.effects().pop().expect("two periods");
    assert_eq!((day.period, day.requests.with + day.requests.without), ("day", 120 * RATE));
    // An hour without requests states nothing and is not kept.
    holdout.advance(at(2.0 * length + 200.0));
    holdout.advance(at(3.0 * length + 400.0));
    assert_eq!(hour(&holdout).percentiles, Vec::new());
}

#[test]
fn failures_with_the_remedy_are_never_an_improvement() {
    let mut holdout = Holdout::new();
    record(&mut holdout, 0.0, 60, |rng, is_holdout| {
        if !is_holdout && rng.chance(0.2) { Duration::MAX } else { exponential_ms(rng, 10.0) }
    });
    let p90 = p90(&hour(&holdout));
    assert_eq!((p90.latency.with, p90.ratio()), (None, None));
    assert_eq!(p90.ratio_interval().1, f64::INFINITY);
    assert_ne!(p90.verdict(), EffectVerdict::Better);
}
