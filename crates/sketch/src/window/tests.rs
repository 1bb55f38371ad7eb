use super::Window;
use crate::{
    Histogram, Precision,
    samples::{SHAPES, quantiles},
};
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Quantile, Rng};

/// The plain way: keep every value with the slot of its instant.
struct Oracle {
    values: Vec<(u64, Duration)>,
    slot_ns: u64,
    slots: u64,
}

impl Oracle {
    fn record(&mut self, now: Instant, duration: Duration) {
        self.values.push((now.as_ns() / self.slot_ns, duration));
    }

    fn sorted_values(&mut self, now: Instant) -> Vec<Duration> {
        let slot = now.as_ns() / self.slot_ns;
        self.values.retain(|&(value_slot, _)| slot - value_slot < self.slots);
        let mut sorted_values: Vec<_> = self.values.iter().map(|&(_, duration)| duration).collect();
        sorted_values.sort_unstable();
        sorted_values
    }
}

/// The next instant: mostly within a slot, often the same instant, now and then a pause of many windows.
fn step(rng: &mut Rng, slot_ns: u64) -> Duration {
    let slot = slot_ns as f64;
    Duration::from_ns_f64(match rng.below(100) {
        0..30 => 0.0,
        30..95 => 0.1 * slot * rng.exponential(),
        95..99 => 3.0 * slot * rng.exponential(),
        _ => 500.0 * slot * rng.exponential(),
    })
}

#[test]
fn a_window_agrees_with_every_value_kept_under_random_steps_of_time() {
    for (length_ms, slots) in [(10_000, 10), (1_000, 1), (60_000, 7)] {
        for shape in SHAPES {
            let seed = length_ms + slots;
            let mut rng = Rng::new(seed).split("steps");
            let length = Duration::from_ms(length_ms);
            let slot_ns = length.as_ns() / slots;
            let slot_count = usize::try_from(slots).expect("a few");
            let mut window = Window::new(Precision::COARSE, length, slot_count);
            let mut oracle = Oracle { values: Vec::new(), slot_ns, slots };
            let mut now = Instant::ZERO;
            for duration in shape.sample(seed, 3_000) {
                now = now + step(&mut rng, slot_ns);
                if rng.chance(0.1) {
                    compare(&mut window, &oracle.sorted_values(now), now);
                }
                window.record(now, duration);
                oracle.record(now, duration);
            }
            compare(&mut window, &oracle.sorted_values(now), now);
        }
    }
}

fn compare(window: &mut Window, sorted_values: &[Duration], now: Instant) {
    let mut expected = Histogram::new(Precision::COARSE);
    for &duration in sorted_values {
        expected.record(duration);
    }
    assert_eq!(window.count(now), sorted_values.len() as u64);
    let mut merged = Histogram::new(Precision::COARSE);
    window.slots.iter().for_each(|slot| merged.merge(slot));
    assert_eq!(merged, expected);
    for quantile in quantiles() {
        assert_eq!(window.quantile(now, quantile), expected.quantile(quantile), "{quantile}");
    }
}

#[test]
fn a_value_stays_for_at_least_the_length_less_a_slot_and_less_than_the_length() {
    let mut window = Window::new(Precision::FINE, Duration::from_ms(1_000), 10);
    let mut left_after = Vec::new();
    for offset_ms in (0..100).step_by(9) {
        let recorded = window.began + Duration::from_ms(100_000 + offset_ms);
        window.record(recorded, Duration::from_ms(5));
        let gone = (0..).map(Duration::from_ms).find(|&age| window.count(recorded + age) == 0);
        left_after.push(gone.expect("values are forgotten"));
    }
    assert_eq!(left_after.iter().max(), Some(&Duration::from_ms(1_000)));
    assert!(left_after.iter().all(|&age| age > Duration::from_ms(900)), "{left_after:?}");
}

#[test]
fn an_empty_window_has_no_quantile_however_far_time_jumps() {
    let mut window = Window::new(Precision::FINE, Duration::from_secs(10), 10);
    assert_eq!(window.quantile(Instant::ZERO, Quantile::P50), None);
    window.record(Instant::from_ns(1), Duration::from_ms(5));
    assert_eq!(window.quantile(Instant::MAX, Quantile::P50), None);
    window.record(Instant::MAX, Duration::from_ms(6));
    assert_eq!(window.quantile(Instant::MAX, Quantile::P50), Some(Duration::from_ms(6)));
}

#[test]
fn an_instant_before_the_present_slot_counts_as_the_present() {
    let mut window = Window::new(Precision::FINE, Duration::from_secs(10), 10);
    let now = Instant::from_ns(5_000_000_000);
    window.record(now, Duration::from_ms(5));
    window.record(Instant::from_ns(4_999_999_000), Duration::from_ms(6));
    assert_eq!(window.count(now + Duration::from_ms(9_999)), 2);
    assert_eq!(window.count(now + Duration::from_secs(10)), 0);
}

#[test]
#[should_panic(expected = "a window of 10 s cannot be kept in 0 slots")]
fn a_window_without_slots_is_refused() {
    drop(Window::new(Precision::FINE, Duration::from_secs(10), 0));
}

/// Latencies of 1 to 100 ms. Half of the attempts that are still open at 90 ms are cancelled a little later, and one
/// attempt in ten is cancelled after less than a millisecond, for reasons of its own.
#[test]
fn censored_values_do_not_pull_the_quantiles_down() {
    let (seed, n) = (71, 200_000);
    let mut rng = Rng::new(seed);
    let window = || Window::new(Precision::COARSE, Duration::from_secs(10), 10);
    let (mut ended, mut censored, mut unmarked) = (window(), window(), window());
    let now = Instant::ZERO;
    for _ in 0..n {
        let latency = Duration::from_ms(1) + Duration::from_ms(99).mul_f64(rng.unit());
        let age = match rng.below(20) {
            0 | 1 => Duration::from_ms(1).mul_f64(rng.unit()),
            2..11 => Duration::from_ms(90) + Duration::from_ms(1).mul_f64(rng.unit()),
            _ => Duration::MAX,
        };
        if latency <= age { &mut ended } else { &mut censored }.record(now, latency.min(age));
        unmarked.record(now, latency.min(age));
    }
    let ms = |value: Option<Duration>| value.expect("values are known").as_ms_f64();
    for (q, expected) in [(0.1, 10.9), (0.5, 50.5), (0.85, 85.15)] {
        let quantile = Quantile::new(q).expect("a quantile");
        let estimate = ms(ended.quantile_with_censored(&mut censored, now, quantile));
        assert!((estimate / expected - 1.0).abs() < 0.03, "seed {seed}, {q}: {estimate} ms");
    }
    let unmarked = ms(unmarked.quantile(now, Quantile::P50));
    assert!(unmarked < 46.0, "as values they do: {unmarked} ms");
}

#[test]
fn a_quantile_that_no_value_reaches_is_the_longest_bound() {
    let window = || Window::new(Precision::COARSE, Duration::from_secs(1), 1);
    let (mut ended, mut censored) = (window(), window());
    let p99_ms = |ended: &mut Window, censored: &mut Window, now| {
        let p99 = ended.quantile_with_censored(censored, now, Quantile::P99);
        p99.map(|p99| p99.as_ms_f64().round())
    };
    let now = Instant::ZERO;
    assert_eq!(p99_ms(&mut ended, &mut censored, now), None);
    ended.record(now, Duration::from_ms(3));
    assert_eq!(p99_ms(&mut ended, &mut censored, now), Some(3.0));
    censored.record(now, Duration::from_ms(7));
    assert_eq!(p99_ms(&mut ended, &mut censored, now), Some(7.0));
    let forgotten = now + Duration::from_secs(2);
    assert_eq!(p99_ms(&mut ended, &mut censored, forgotten), None);
}

/// The same estimate by the definition, from values and bounds that are each the middle of their bucket.
#[test]
fn the_censored_quantile_is_the_least_that_a_share_of_the_known_values_reaches() {
    let seed = 72;
    let mut rng = Rng::new(seed);
    for case in 0..500 {
        let window = || Window::new(Precision::COARSE, Duration::from_secs(10), 10);
        let (mut ended, mut censored) = (window(), window());
        let mut record = |window: &mut Window| {
            let octave = 1 << rng.below(25);
            let ns = octave + rng.below(1_000) as u64;
            window.record(Instant::ZERO, Duration::from_ns(ns));
            Precision::COARSE.middle(Precision::COARSE.index(ns))
        };
        let values: Vec<u64> = (0..case % 40).map(|_| record(&mut ended)).collect();
        let bounds: Vec<u64> = (0..=case % 7).map(|_| record(&mut censored)).collect();
        let quantile = Quantile::new(rng.unit()).expect("a quantile");
        let up_to = |all: &[u64], t| all.iter().filter(|ns| **ns <= t).count();
        let is_reached = |t: &u64| {
            let known = values.len() + bounds.len() - up_to(&bounds, *t);
            up_to(&values, *t) as f64 >= quantile.get() * known as f64
        };
        let all = values.iter().chain(&bounds).copied();
        let expected = all.filter(is_reached).min().map(Duration::from_ns);
        let estimate = ended.quantile_with_censored(&mut censored, Instant::ZERO, quantile);
        assert_eq!(estimate, expected, "seed {seed}, case {case}, {quantile:?}");
    }
}
