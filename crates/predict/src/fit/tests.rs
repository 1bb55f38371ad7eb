use super::{Fit, FitOverrides, to_samples};
use crate::intrinsic::Work;
use crate::lab::Lab;
use curtail_units::{Instant, Rng};

#[test]
fn a_fit_recovers_what_was_planted() {
    let lab = Lab {
        seed: 1,
        requests: 30_000,
        per_second: 400.0,
        replicas: 3,
        concurrency: 4,
        work_ms: |rng: &mut Rng| 20.0 * (0.4 * rng.normal()).exp(),
        periods: Lab::periods((1, 3), 2.0, 80, f64::INFINITY, 74.0),
    };
    let fit = Fit::new(&lab.record(), FitOverrides::default()).expect("enough requests");
    assert_eq!((fit.replicas, fit.concurrency), (3, Some(4)));
    // 20 ms × exp(0.4² / 2).
    let mean = fit.mean_work().as_ms_f64();
    assert!((mean / 21.67 - 1.0).abs() < 0.05, "{mean}");
    let utilization = fit.utilization().expect("the concurrency is known");
    assert!((utilization / 0.75 - 1.0).abs() < 0.06, "{utilization}");
    assert!(!fit.intrinsic.is_known());
}

#[test]
fn slow_periods_make_replicas_busier() {
    let lab = Lab {
        seed: 2,
        requests: 20_000,
        per_second: 200.0,
        replicas: 3,
        concurrency: 4,
        work_ms: |rng: &mut Rng| 20.0 * (0.4 * rng.normal()).exp(),
        periods: Lab::periods((2, 3), 3.0, 1_000, 2.5, 99.0),
    };
    let fit = Fit::new(&lab.record(), FitOverrides::default()).expect("enough requests");
    assert_eq!(fit.concurrency, Some(4));
    // 200 requests of 21.67 ms a second, 12 at once: 0.361, and in a quarter of the time 2.5 times as much.
    let utilization = fit.utilization().expect("the concurrency is known");
    assert!((utilization / 0.497 - 1.0).abs() < 0.1, "{utilization}");
}

#[test]
fn replicas_are_never_busier_than_all_of_the_time() {
    // A load of 4/3: executions go on after the last arrival.
    let lab = Lab { per_second: 400.0, concurrency: 1, ..Lab::small(4) };
    let fit = Fit::new(&lab.record(), FitOverrides::default()).expect("enough requests");
    assert_eq!(fit.concurrency, Some(1));
    let utilization = fit.utilization().expect("the concurrency is known");
    assert!((0.9..=1.0).contains(&utilization), "{utilization}");
}

/// Requests of equal length end in the order of their arrival, as those of a queue, whose services would be short then.
#[test]
fn requests_of_equal_length_are_no_queue() {
    let mut recording = Lab::small(4).record();
    let lasted = recording.span().mul_f64(0.9);
    for (request, attempt) in recording.requests.iter_mut().zip(&mut recording.attempts) {
        (request.latency, attempt.lasted) = (Some(lasted), lasted);
    }
    recording.shorten(10_000);
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    assert_eq!(fit.concurrency, None);
}

/// Executions that wait for one another for longer than the recording start after its end.
#[test]
fn another_stretch_of_time_has_work_even_if_nothing_started_in_its_blocks() {
    let mut recording = Lab::small(4).record();
    let lasted = recording.span().mul_f64(3.0);
    for (request, attempt) in recording.requests.iter_mut().zip(&mut recording.attempts) {
        (request.latency, attempt.lasted) = (Some(lasted), lasted);
    }
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    for seed in 0..10 {
        assert!(!fit.redrawn(&mut Rng::new(seed)).samples.is_empty(), "seed {seed}");
    }
}

/// Each request slower than the median gets a second attempt, which cancels the first one if it responds earlier.
#[test]
fn the_tail_of_the_work_is_known_although_hedges_cancel_most_of_it() {
    let mut rng = Rng::new(3);
    let mut works = Vec::new();
    let mut all = Vec::new();
    for request in 0..60_000 {
        let [first, other] = [(); 2].map(|()| 10.0 * (0.5 * rng.normal()).exp());
        let end = if first <= 10.0 { first } else { first.min(10.0 + other) };
        all.push(first);
        works.push(Work {
            request,
            nth: 0,
            kind: 0,
            started: Instant::from_ns(u64::from(request)),
            ns: end * 1e6,
            is_whole: first <= end,
        });
    }
    assert!(works.iter().filter(|work| !work.is_whole).count() > 5_000);
    let mut sampled: Vec<f64> =
        to_samples(works).iter().map(|sample| sample.work.as_ms_f64()).collect();
    sampled.sort_unstable_by(f64::total_cmp);
    all.sort_unstable_by(f64::total_cmp);
    // The median, p90 and p99.
    for (nth, tolerance) in [(30_000, 0.01), (54_000, 0.02), (59_400, 0.08)] {
        let ratio = sampled[nth] / all[nth];
        assert!((ratio - 1.0).abs() < tolerance, "{nth}: {ratio}");
    }
}
