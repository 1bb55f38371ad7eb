use super::{SlowPeriod, find_slow_periods, work_ns};
use crate::executions::Executions;
use crate::lab::Lab;
use curtail_units::{Duration, Rng};

fn lognormal(rng: &mut Rng) -> f64 {
    20.0 * (0.4 * rng.normal()).exp()
}

/// A service whose tail is in its requests: one in a hundred takes ten times as long.
fn heavy(rng: &mut Rng) -> f64 {
    let factor = if rng.chance(0.01) { 10.0 } else { 1.0 };
    factor * lognormal(rng)
}

fn found(lab: &Lab) -> Vec<SlowPeriod> {
    let executions = Executions::infer(&lab.record());
    find_slow_periods(&executions.of_replica).into_iter().flatten().collect()
}

fn lab(seed: u64, periods: Vec<SlowPeriod>, work_ms: fn(&mut Rng) -> f64) -> Lab {
    Lab { seed, requests: 30_000, per_second: 300.0, replicas: 3, concurrency: 6, work_ms, periods }
}

fn total_s(periods: &[SlowPeriod]) -> f64 {
    periods.iter().map(|period| period.lasted().as_secs_f64()).sum()
}

#[test]
fn nothing_is_found_where_nothing_is() {
    for work in [lognormal, heavy] {
        for seed in 0..5 {
            assert_eq!(found(&lab(seed, Vec::new(), work)), Vec::new(), "seed {seed}");
        }
    }
}

#[test]
fn pauses_are_found_where_they_were() {
    for seed in 0..3 {
        let planted = Lab::periods((seed, 3), 2.0, 80, f64::INFINITY, 98.0);
        let found = found(&lab(seed, planted.clone(), lognormal));
        let hit = |pause: &&SlowPeriod| {
            found
                .iter()
                .any(|f| f.replica == pause.replica && f.from < pause.to && pause.from < f.to)
        };
        let hits = planted.iter().filter(hit).count();
        assert!(hits * 10 >= planted.len() * 8, "seed {seed}: {hits} of {}", planted.len());
        let ratio = total_s(&found) / total_s(&planted);
        println!("{ratio} {hits} {} {}", planted.len(), found.len());
        assert!((0.75..1.25).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn a_pause_of_an_idle_replica_begins_before_the_first_arrival() {
    // Arrivals 50 ms apart on average that take a moment each: nothing is in service when a pause of 400 ms begins.
    let periods = Lab::periods((3, 3), 8.0, 400, f64::INFINITY, 300.0);
    let lab = Lab {
        seed: 3,
        requests: 18_000,
        per_second: 60.0,
        replicas: 3,
        concurrency: 64,
        work_ms: |_| 0.5,
        periods: periods.clone(),
    };
    let found = found(&lab);
    let found: Vec<&SlowPeriod> = found.iter().filter(|period| period.is_pause()).collect();
    let mean = |periods: &[&SlowPeriod]| {
        let sum: f64 = periods.iter().map(|period| period.lasted().as_secs_f64()).sum();
        sum / periods.len() as f64
    };
    // Of the same pauses as those found, each 400 ms; the spread of one is that of the gap, 50 ms.
    let error = 5.0 * 0.05 / (found.len() as f64).sqrt();
    assert!(
        found.len() > 60 && (mean(&found) - 0.4).abs() < error,
        "{} {}",
        found.len(),
        mean(&found)
    );
}

#[test]
fn slower_times_are_found_with_their_slowdown() {
    for seed in 0..3 {
        let planted = Lab::periods((seed, 3), 2.0, 400, 3.0, 98.0);
        let found = found(&lab(seed, planted.clone(), lognormal));
        let lost = |periods: &[SlowPeriod]| {
            let lost = |p: &SlowPeriod| p.lasted().as_secs_f64() * (1.0 - 1.0 / p.slowdown);
            periods.iter().map(lost).sum::<f64>()
        };
        let ratio = lost(&found) / lost(&planted);
        println!("{ratio}");
        assert!((0.75..1.25).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn short_slow_periods_of_all_replicas_are_found_at_all_of_them() {
    for seed in 0..3 {
        // Six executions of each replica in a period, and those of three replicas together are eighteen.
        let of_one = Lab::periods((seed, 1), 3.0, 300, 3.0, 240.0);
        let on = |replica| of_one.iter().map(move |period| SlowPeriod { replica, ..*period });
        let planted: Vec<SlowPeriod> = (0..3).flat_map(on).collect();
        let lab = Lab {
            seed,
            requests: 14_400,
            per_second: 60.0,
            replicas: 3,
            concurrency: 8,
            work_ms: lognormal,
            periods: planted.clone(),
        };
        let found = found(&lab);
        let is_hit = |period: &&SlowPeriod| {
            let middle = period.from + period.lasted().mul_f64(0.5);
            let holds = |f: &&SlowPeriod| f.from <= middle && middle < f.to;
            found.iter().filter(|f| f.replica == period.replica).any(|f| holds(&f))
        };
        let hits = planted.iter().filter(is_hit).count();
        let ratio = total_s(&found) / total_s(&planted);
        println!("seed {seed}: {hits} of {}, time {ratio:.2}", planted.len());
        assert!(hits * 100 >= planted.len() * 90, "seed {seed}: {hits} of {}", planted.len());
        assert!((0.75..1.25).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn a_slow_replica_does_not_make_the_others_slow() {
    for seed in 0..3 {
        let planted = Lab::periods((seed, 1), 2.0, 1_000, 3.0, 98.0);
        let found = found(&lab(seed, planted, lognormal));
        let others = found.iter().filter(|period| period.replica != 0);
        assert_eq!(others.count(), 0, "seed {seed}: {found:?}");
    }
}

#[test]
fn work_is_the_time_at_the_usual_pace() {
    let at = |ms| curtail_units::Instant::ZERO + Duration::from_ms(ms);
    let period =
        |from, to, slowdown| SlowPeriod { replica: 0, from: at(from), to: at(to), slowdown };
    let periods = [period(10, 20, f64::INFINITY), period(30, 50, 2.0)];
    let work = |started, ended| {
        let execution = crate::executions::Execution {
            request: 0,
            nth: 0,
            replica: 0,
            arrived: at(started),
            started: at(started),
            ended: at(ended),
            is_whole: true,
        };
        work_ns(&execution, &periods) / 1e6
    };
    assert_eq!(work(0, 10), 10.0);
    assert_eq!(work(5, 25), 10.0);
    assert_eq!(work(15, 40), 15.0);
    assert_eq!(work(0, 60), 40.0);
}

/// Three replicas with few executions at once: 20 a second of 20 ms each.
fn quiet_lab(seed: u64, periods: Vec<SlowPeriod>) -> Lab {
    Lab { requests: 14_400, per_second: 60.0, concurrency: 8, ..lab(seed, periods, lognormal) }
}

#[test]
fn where_many_pauses_are_certain_less_evidence_is_enough_for_another() {
    for seed in 0..3 {
        let planted = Lab::periods((seed, 3), 3.0, 200, f64::INFINITY, 240.0);
        let found = found(&quiet_lab(seed, planted.clone()));
        let is_hit = |pause: &&SlowPeriod| {
            found
                .iter()
                .any(|f| f.replica == pause.replica && f.from < pause.to && pause.from < f.to)
        };
        let hits = planted.iter().filter(is_hit).count();
        let ratio = total_s(&found) / total_s(&planted);
        println!("seed {seed}: {hits} of {}, time {ratio:.2}", planted.len());
        // Some have no two requests that wait for their end.
        assert!(hits * 100 >= planted.len() * 90, "seed {seed}: {hits} of {}", planted.len());
        assert!((0.9..1.1).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn a_slow_replica_does_not_pause() {
    for seed in 0..3 {
        let end = curtail_units::Instant::ZERO + Duration::from_secs(240);
        let planted = SlowPeriod { replica: 0, from: Default::default(), to: end, slowdown: 3.0 };
        let found = found(&quiet_lab(seed, vec![planted]));
        let pauses: Vec<&SlowPeriod> = found.iter().filter(|period| period.is_pause()).collect();
        // A chance of one in fifty at each replica.
        assert!(pauses.len() <= 1, "seed {seed}: {pauses:?}");
    }
}

#[test]
fn a_pause_is_found_among_hundreds_of_executions() {
    let planted = Lab::periods((1, 1), 2.0, 200, f64::INFINITY, 9.0);
    let lab = Lab {
        seed: 1,
        requests: 30_000,
        per_second: 3_000.0,
        replicas: 1,
        concurrency: 2_000,
        work_ms: |rng| 5.0 * lognormal(rng),
        periods: planted.clone(),
    };
    let found = found(&lab);
    let pauses: Vec<SlowPeriod> = found.into_iter().filter(|period| period.is_pause()).collect();
    let ratio = total_s(&pauses) / total_s(&planted);
    assert!(!planted.is_empty() && (0.9..1.1).contains(&ratio), "{ratio}: {pauses:?}");
}

/// 0.6 s; with every execution in service looked at for each gap, minutes.
#[test]
fn many_executions_at_once_take_no_quadratic_time() {
    let at_us = |us| curtail_units::Instant::ZERO + Duration::from_us(us);
    let execution = |request: u32, started: u64, lasted: u64| crate::executions::Execution {
        request,
        nth: 0,
        replica: 0,
        arrived: at_us(started),
        started: at_us(started),
        ended: at_us(started + lasted),
        is_whole: true,
    };
    // Each long execution ends after the last short one.
    let long = (0..25_000).map(|nth| execution(nth, 1 + u64::from(nth), 60_000_000));
    let short = (0..25_001).map(|nth| execution(nth, 30_000 + 1_000 * u64::from(nth), 500));
    let mut executions: Vec<_> = long.chain(short).collect();
    executions.sort_unstable_by_key(|execution| execution.started);
    assert_eq!(super::pauses::find_certain_pauses(&[executions]), [Vec::new()]);
}

/// With few executions in service, a gap is longer than its pause by the time until the first of them ends.
#[test]
fn pauses_are_not_found_as_long_as_their_gaps() {
    for lasts_ms in [80, 250] {
        let periods = Lab::periods((1, 3), 2.0, lasts_ms, f64::INFINITY, 240.0);
        let found = found(&quiet_lab(1, periods));
        let mut lengths: Vec<f64> = found.iter().map(|of| of.lasted().as_ms_f64()).collect();
        lengths.sort_unstable_by(f64::total_cmp);
        let median = lengths[lengths.len() / 2];
        assert!((median - lasts_ms as f64).abs() < 8.0, "{lasts_ms} ms: {median}");
    }
}
