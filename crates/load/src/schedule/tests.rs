//! Schedules against their arithmetic.

use super::{Phase, Schedule, Shape, Spacing};
use curtail_units::{Duration, Rng};
use std::sync::Arc;

const SEED: u64 = 7;

fn phases(spacing: Spacing, phases: &[(Shape, u64)]) -> Schedule {
    let phase =
        |&(shape, seconds): &(Shape, u64)| Phase { shape, lasts: Duration::from_secs(seconds) };
    Schedule::Phases { phases: phases.iter().map(phase).collect(), spacing }
}

fn instants(schedule: &Schedule) -> Vec<Duration> {
    Arc::new(schedule.clone()).instants(Rng::new(SEED)).collect()
}

/// How many fall into each second.
fn by_second(instants: &[Duration]) -> Vec<usize> {
    let mut counts = Vec::new();
    for instant in instants {
        let second = usize::try_from(instant.as_ns() / 1_000_000_000).expect("short");
        counts.resize(counts.len().max(second + 1), 0);
        counts[second] += 1;
    }
    counts
}

#[test]
fn even_requests_are_where_they_belong_to_the_nanosecond() {
    let schedule = Schedule::constant(1_000.0, Duration::from_secs(20), Spacing::Even);
    let all = instants(&schedule);
    assert_eq!(all.len(), 20_000);
    for (nth, instant) in (0_u64..).zip(&all) {
        assert!(instant.as_ns().abs_diff(nth * 1_000_000) <= 1, "request {nth} at {instant}");
    }
}

#[test]
fn phases_follow_each_other_without_a_gap_or_a_request_twice() {
    let (slow, fast) = (Shape::Constant { rate: 3.0 }, Shape::Constant { rate: 7.0 });
    let all = instants(&phases(Spacing::Even, &[(slow, 10), (fast, 10), (slow, 10)]));
    assert_eq!(all.len(), 30 + 70 + 30);
    assert_eq!(all[30], Duration::from_secs(10));
    assert_eq!(all[100], Duration::from_secs(20));
    assert!(all.is_sorted());
}

#[test]
fn a_ramp_has_the_rate_of_each_second() {
    let ramp = Shape::Ramp { from: 100.0, to: 1_100.0 };
    let counts = by_second(&instants(&phases(Spacing::Even, &[(ramp, 10)])));
    let expected: Vec<usize> = (0..10).map(|second| 150 + 100 * second).collect();
    for (count, expected) in counts.iter().zip(&expected) {
        assert!(count.abs_diff(*expected) <= 1, "{counts:?}");
    }
    let falling = Shape::Ramp { from: 1_100.0, to: 100.0 };
    let mut counts = by_second(&instants(&phases(Spacing::Even, &[(falling, 10)])));
    counts.reverse();
    for (count, expected) in counts.iter().zip(&expected) {
        assert!(count.abs_diff(*expected) <= 1, "{counts:?}");
    }
}

#[test]
fn a_burst_comes_at_once() {
    let every = Duration::from_secs(2);
    let bursts = Shape::Bursts { rate: 10.0, size: 50.0, every };
    let all = instants(&phases(Spacing::Even, &[(bursts, 6)]));
    assert_eq!(all.len(), 3 * 50 + 60);
    for burst in 0..3 {
        let at = Duration::from_secs(2 * burst);
        assert!(all.iter().filter(|instant| **instant == at).count() >= 50, "at {at}");
    }
}

#[test]
fn random_requests_are_a_poisson_process() {
    // 100 seconds at 400 a second: the counts of a second have mean and variance 400.
    let schedule = Schedule::constant(400.0, Duration::from_secs(100), Spacing::Poisson);
    let counts = by_second(&instants(&schedule));
    let n = counts.len() as f64;
    let mean = counts.iter().map(|count| *count as f64).sum::<f64>() / n;
    let variance =
        counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // Four standard errors: of the mean 2, of the variance 57.
    assert!((mean - 400.0).abs() < 8.0, "mean {mean}, seed {SEED}");
    assert!((variance - 400.0).abs() < 230.0, "variance {variance}, seed {SEED}");
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let schedule = Schedule::constant(100.0, Duration::from_secs(5), Spacing::Poisson);
    assert_eq!(instants(&schedule), instants(&schedule));
    assert_ne!(
        instants(&schedule),
        Arc::new(schedule).instants(Rng::new(SEED + 1)).collect::<Vec<_>>()
    );
}

#[test]
fn the_first_part_of_a_schedule_is_the_schedule_cut_off() {
    let ramp = Shape::Ramp { from: 100.0, to: 1_100.0 };
    let whole = phases(Spacing::Even, &[(Shape::Constant { rate: 10.0 }, 10), (ramp, 10)]);
    for seconds in [5, 10, 15, 20, 30] {
        let lasts = Duration::from_secs(seconds);
        let first = instants(&whole.first(lasts));
        let expected: Vec<Duration> =
            instants(&whole).into_iter().filter(|at| *at < lasts).collect();
        assert_eq!(first.len(), expected.len(), "{seconds} s");
        for (one, other) in first.iter().zip(&expected) {
            assert!(one.as_ns().abs_diff(other.as_ns()) <= 1, "{one} and {other}");
        }
    }
}

#[test]
fn recorded_instants_come_as_they_were() {
    let recorded = vec![Duration::ZERO, Duration::from_ms(3), Duration::from_ms(3)];
    assert_eq!(instants(&Schedule::Recorded(recorded.clone())), recorded);
}

#[test]
fn a_schedule_is_read_and_every_error_is_named() {
    let text = "spacing: even\nphases: [{rate: 10, lasts: 2s}, {shape: ramp, from: 10, to: 20, lasts: 4s}]";
    let read = curtail_config::read("s.yaml", text, Schedule::read).expect("no errors");
    let (constant, ramp) = (Shape::Constant { rate: 10.0 }, Shape::Ramp { from: 10.0, to: 20.0 });
    assert_eq!(read, phases(Spacing::Even, &[(constant, 2), (ramp, 4)]));
    let text =
        "spacing: randomly\nphases: [{rate: 0, lasts: 2s}, {shape: ramp, from: 10, lasts: 4}]";
    let errors =
        curtail_config::read("s.yaml", text, Schedule::read).expect_err("errors").to_string();
    for key in
        ["spacing: randomly", "phases[0].rate: 0", "phases[1].to: missing", "phases[1].lasts: 4"]
    {
        assert!(errors.contains(key), "{key} is not in:\n{errors}");
    }
}
