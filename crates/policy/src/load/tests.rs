use super::{LATENCIES_KEPT, LEVEL_MAX, Load, LoadTracker, RECENT, level};
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Rng};

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

fn tracker(in_flight: u32) -> LoadTracker {
    let mut tracker = LoadTracker::default();
    for in_flight_on_arrival in 0..in_flight {
        assert_eq!(tracker.arrived(), in_flight_on_arrival);
    }
    tracker
}

fn expected_ms(tracker: &LoadTracker, now: Instant) -> f64 {
    tracker.load(now).latency.as_ms_f64()
}

#[test]
fn levels_are_exact_below_eight_then_four_to_the_octave_and_never_fall() {
    let first: Vec<u32> = (0..18).map(level).collect();
    assert_eq!(first, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12]);
    for in_flight in 1..1_000_000 {
        let step = level(in_flight) - level(in_flight - 1);
        assert!(step <= 1, "{in_flight}");
    }
    assert_eq!(level(u32::MAX), LEVEL_MAX);
}

#[test]
fn the_latency_is_the_median_at_the_present_level() {
    let mut tracker = tracker(3);
    for ms in [10, 20, 900] {
        tracker.observe(at(100), 3, Duration::from_ms(ms));
    }
    tracker.observe(at(100), 0, Duration::from_ms(1));
    tracker.observe(at(100), 9, Duration::from_ms(70));
    assert_eq!(tracker.load(at(100)), Load { in_flight: 3, latency: Duration::from_ms(20) });
    tracker.ended();
    tracker.ended();
    assert_eq!(tracker.load(at(100)), Load { in_flight: 1, latency: Duration::from_ms(1) });
}

#[test]
fn the_nearest_level_stands_in_and_of_two_the_higher() {
    let mut tracker = tracker(4);
    tracker.observe(at(100), 1, Duration::from_ms(1));
    assert!((expected_ms(&tracker, at(100)) - 1.0).abs() < 1e-9);
    tracker.observe(at(100), 7, Duration::from_ms(7));
    assert!((expected_ms(&tracker, at(100)) - 7.0).abs() < 1e-9, "equally near: the higher");
    tracker.observe(at(100), 2, Duration::from_ms(2));
    assert!((expected_ms(&tracker, at(100)) - 2.0).abs() < 1e-9, "nearer");
}

#[test]
fn recent_latencies_of_another_level_go_before_old_ones_of_this() {
    let mut tracker = tracker(2);
    tracker.observe(at(0), 2, Duration::from_ms(50));
    let later = at(1_000);
    tracker.observe(later, 5, Duration::from_ms(9));
    assert!((expected_ms(&tracker, later) - 9.0).abs() < 1e-9);
}

#[test]
fn load_says_what_is_known() {
    let mut tracker = LoadTracker::default();
    assert_eq!(tracker.load(at(5)), Load { in_flight: 0, latency: Duration::ZERO });
    tracker.observe(at(5), 40, Duration::from_ms(50));
    let years_later = Instant::MAX;
    assert!((expected_ms(&tracker, years_later) - 50.0).abs() < 1e-9);
    let boundary = at(5) + RECENT;
    assert!((expected_ms(&tracker, boundary) - 50.0).abs() < 1e-9);
}

#[test]
fn old_latencies_leave_the_ring_in_order() {
    let mut tracker = LoadTracker::default();
    for _ in 0..LATENCIES_KEPT {
        tracker.observe(at(1), 0, Duration::from_ms(100));
    }
    for recorded in 1..=LATENCIES_KEPT {
        tracker.observe(at(2), 0, Duration::from_ms(1));
        let expected = if recorded < LATENCIES_KEPT / 2 { 100.0 } else { 1.0 };
        assert!((expected_ms(&tracker, at(2)) - expected).abs() < 1e-9, "{recorded}");
    }
}

/// Against a plain list of everything recorded, searched in the obvious way.
#[test]
fn it_agrees_with_a_list_of_all_that_was_recorded() {
    let seed = 3;
    let mut rng = Rng::new(seed);
    let mut tracker = LoadTracker::default();
    let mut all: Vec<(Instant, u32, Duration)> = Vec::new();
    let mut now = Instant::ZERO;
    let mut in_flight: u32 = 0;
    for step in 0..20_000 {
        now = now + Duration::from_us(rng.below(20_000) as u64);
        if rng.chance(0.5) {
            assert_eq!(tracker.arrived(), in_flight);
            in_flight += 1;
        } else if in_flight > 0 {
            let in_flight_on_arrival = u32::try_from(rng.below(60)).expect("below 60");
            let latency = Duration::from_us(rng.below(1_000) as u64);
            tracker.observe(now, in_flight_on_arrival, latency);
            tracker.ended();
            in_flight -= 1;
            all.push((now, level(in_flight_on_arrival), latency));
        }
        let load = tracker.load(now);
        let expected = searched(&all, now, level(in_flight)).unwrap_or(Duration::ZERO);
        assert_eq!((load.in_flight, load.latency), (in_flight, expected), "seed {seed}, {step}");
    }
}

fn searched(all: &[(Instant, u32, Duration)], now: Instant, present: u32) -> Option<Duration> {
    let kept = |level: u32| {
        let of_level = all.iter().rev().filter(move |(_, l, _)| *l == level);
        of_level.take(LATENCIES_KEPT)
    };
    let median = |level: u32, age_max: Duration| {
        let recent = kept(level).filter(|(at, _, _)| now.since(*at) <= age_max);
        let mut latencies: Vec<Duration> = recent.map(|(_, _, latency)| *latency).collect();
        latencies.sort_unstable();
        latencies.get(latencies.len().checked_sub(1)? / 2).copied()
    };
    [RECENT, Duration::MAX].into_iter().find_map(|age_max| {
        (0..=LEVEL_MAX).find_map(|distance| {
            let above = (present + distance <= LEVEL_MAX).then(|| present + distance);
            let below = present.checked_sub(distance);
            [above, below].into_iter().flatten().find_map(|level| median(level, age_max))
        })
    })
}
