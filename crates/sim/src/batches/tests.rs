use super::{BATCHES_MAX, BATCHES_MIN, Batches, Estimate};
use curtail_units::{Duration, Quantile, Rng};

/// Latencies that depend on each other: an autoregressive series with a known mean and known quantiles.
fn correlated(rng: &mut Rng, len: usize, memory: f64) -> Vec<Duration> {
    let mut state = rng.normal();
    let step = (1.0 - memory * memory).sqrt();
    let mut next = || {
        state = memory * state + step * rng.normal();
        Duration::from_ns_f64((100.0 + 10.0 * state) * 1e6)
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn intervals_hold_the_truth_about_nineteen_times_out_of_twenty() {
    // Quantiles of the standard normal distribution.
    let truths = [(Quantile::P50, 100.0), (Quantile::P90, 112.8155), (Quantile::P99, 123.2635)];
    let threshold = Duration::from_ms(110);
    let share_above = 0.158_655;
    let (runs, seed) = (200, 77);
    let (mut mean_hits, mut above_hits, mut hits) = (0, 0, [0; 3]);
    for run in 0..runs {
        let mut rng = Rng::new(seed).split_index(run);
        let mut batches = Batches::new(&[threshold], 0);
        for (nth, latency) in (0..).zip(correlated(&mut rng, 40_000, 0.95)) {
            batches.record(nth, Some(latency));
        }
        let mean = batches.mean_ns().expect("there are latencies");
        mean_hits += u32::from(mean.contains(100e6));
        above_hits += u32::from(batches.above()[0].1.contains(share_above));
        for (hit, (quantile, truth_ms)) in hits.iter_mut().zip(truths) {
            let estimate = batches.quantile_ns(quantile).expect("there are latencies");
            *hit += u32::from(estimate.contains(truth_ms * 1e6));
        }
    }
    // 190 of 200 are expected; fewer than 178 or 200 of 200 would happen by chance once in ten thousand.
    for hit in [mean_hits, above_hits, hits[0], hits[1], hits[2]] {
        assert!((178..200).contains(&hit), "seed {seed}: {mean_hits} {above_hits} {hits:?}");
    }
}

/// The latencies of one server at `load` in its steady state, by Lindley's recursion.
fn queue(rng: &mut Rng, load: f64) -> impl Iterator<Item = Duration> {
    // Steady-state latencies are exponential, so the first one need not be dropped.
    let mut latency = rng.exponential() / (1.0 - load);
    std::iter::repeat_with(move || {
        let now = latency;
        latency = (latency - rng.exponential() / load).max(0.0) + rng.exponential();
        Duration::from_ns_f64(now * 1e6)
    })
}

/// The hardest case of `benches/coverage.rs`: requests in one queue, and the shortest runs that have an interval.
#[test]
fn intervals_of_the_shortest_runs_hold_the_truth_in_92_to_98_of_100() {
    let (load, runs, seed) = (0.8, 1_000, 4);
    let exceeded = |share: f64| -share.ln() / (1.0 - load) * 1e6;
    let check =
        |requests: u64, what: &str, truth: f64, estimate_of: fn(&Batches) -> Option<Estimate>| {
            let (mut covered, mut open) = (0, 0);
            for run in 0..runs {
                let mut rng = Rng::new(seed).split_index(run);
                let mut batches = Batches::new(&[], 0);
                for (number, latency) in (0..requests).zip(queue(&mut rng, load)) {
                    batches.record(number, Some(latency));
                }
                let estimate = estimate_of(&batches).expect("latencies");
                let (_, high) =
                    estimate.interval.expect("every run of this length has an interval");
                covered += u32::from(estimate.contains(truth));
                open += u32::from(high.is_infinite());
            }
            println!(
                "seed {seed}: {what} of {requests}: {covered} of {runs} cover it, {open} are open"
            );
            // Four standard deviations of a binomial count below 92 % and above 98 %.
            assert!(
                (886..=998).contains(&covered),
                "seed {seed}: {what} of {requests}: {covered} of {runs}"
            );
        };
    check(30_000, "mean", 1e6 / (1.0 - load), |batches| batches.mean_ns());
    check(20_000, "p99", exceeded(0.01), |batches| batches.quantile_ns(Quantile::P99));
}

#[test]
fn an_interval_as_if_nothing_depended_would_be_much_too_narrow() {
    let mut rng = Rng::new(5);
    let latencies = correlated(&mut rng, 40_000, 0.95);
    let mut batches = Batches::new(&[], 0);
    (0..).zip(&latencies).for_each(|(nth, latency)| {
        batches.record(nth, Some(*latency));
    });
    let mean = batches.mean_ns().expect("there are latencies");
    let (low, high) = mean.interval.expect("enough batches");
    let naive = 2.0 * 1.96 * 10e6 / (40_000_f64).sqrt();
    // The variance of the mean is (1 + 0.95) / (1 − 0.95) = 39 times as large.
    let ratio = (high - low) / naive;
    assert!((4.0..9.0).contains(&ratio), "{ratio}, expected about √39");
}

#[test]
fn failures_are_longer_than_every_response() {
    let mut batches = Batches::new(&[Duration::from_ms(50)], 1);
    for n in 1..=1000 {
        batches.record(n, (n % 50 != 0).then(|| Duration::from_ms(n % 50)));
    }
    assert_eq!(batches.failed(), 20);
    assert_eq!(batches.len(), 1000);
    let quantile = |q| batches.quantile_ns(Quantile::new(q).expect("a quantile"));
    let at_98 = quantile(0.98).expect("the last response").value;
    assert!((at_98 / 49e6 - 1.0).abs() < 0.001, "{at_98}");
    assert_eq!(quantile(0.981), None, "two in a hundred failed");
    assert_eq!(batches.above()[0].1.value, 0.02);
}

#[test]
fn a_share_of_none_and_of_all_have_the_same_interval() {
    let mut batches = Batches::new(&[1, 2, 3].map(Duration::from_ms), 0);
    for number in 0..20_000 {
        let ms = if number % 100 == 0 { 3 } else { 2 };
        batches.record(number, Some(Duration::from_ms(ms)));
    }
    let [all, few, none] = <[_; 3]>::try_from(batches.above()).expect("three thresholds");
    assert_eq!((all.1.value, all.1.interval), (1.0, Some((0.0, 1.0))));
    assert_eq!((none.1.value, none.1.interval), (0.0, Some((0.0, 1.0))));
    let (low, high) = few.1.interval.expect("enough requests");
    assert!(few.1.value == 0.01 && low > 0.0 && high < 0.02, "{few:?}");
}

#[test]
fn too_little_gives_no_interval() {
    let mut batches = Batches::new(&[], 0);
    assert_eq!(batches.len(), 0);
    assert_eq!(batches.mean_ns(), None);
    let mut has_interval = |requests: u64| {
        for number in batches.len()..requests {
            batches.record(number, Some(Duration::from_ms(number % 1_000)));
        }
        let estimates = [
            batches.mean_ns(),
            batches.quantile_ns(Quantile::P50),
            batches.quantile_ns(Quantile::P99),
        ];
        estimates.map(|estimate| estimate.expect("latencies").interval.is_some())
    };
    assert_eq!(has_interval(9_999), [false, false, false]);
    assert_eq!(has_interval(10_000), [false, true, false]);
    assert_eq!(has_interval(19_999), [false, true, false]);
    assert_eq!(has_interval(20_000), [false, true, true], "200 beyond the p99");
    assert_eq!(has_interval(30_000), [true, true, true]);
}

#[test]
fn batches_begin_at_the_same_requests_from_every_first_request() {
    let latency = |number: u64| Duration::from_ms(number % 777);
    let batches = |first: u64| {
        let mut batches = Batches::new(&[], first);
        // Some requests end out of order.
        (first..40_000).rev().for_each(|number| {
            batches.record(number, Some(latency(number)));
        });
        batches
    };
    for first in [0, 1, 17, 5_000, 12_345] {
        let batches = batches(first);
        assert_eq!(batches.len(), 40_000 - first);
        let (len, base) = (batches.batch_len, batches.base);
        for (nth, batch) in (base..).zip(&batches.batches) {
            let numbers = (nth * len).max(first)..((nth + 1) * len).min(40_000);
            let longest = numbers.map(latency).max();
            assert_eq!(batch.succeeded.max(), longest, "from {first}, batch {nth} of {len}");
        }
    }
}

#[test]
fn every_length_has_enough_full_batches() {
    let seed = 6;
    let mut rng = Rng::new(seed);
    for _ in 0..50 {
        let (first, len) = (rng.below(9_000) as u64, 1_500 + rng.below(20_000) as u64);
        let mut batches = Batches::new(&[], first);
        for number in first..first + len {
            batches.record(number, Some(Duration::from_ms(1)));
        }
        let full = batches.full().len();
        assert!(
            (BATCHES_MIN..=BATCHES_MAX).contains(&full),
            "seed {seed}: {len} from {first}: {full}"
        );
    }
}

#[test]
fn a_quantile_that_few_batches_reach_has_no_upper_end() {
    // 200 of 100,000 requests, in two bursts.
    let mut batches = Batches::new(&[], 0);
    for number in 0..200_000_u64 {
        let is_slow = (50_000..50_150).contains(&number) || (120_000..120_150).contains(&number);
        let ms = if is_slow { 1_000 + number % 100 } else { number % 10 };
        batches.record(number, Some(Duration::from_ms(ms)));
    }
    let p999 = batches.quantile_ns(Quantile::P999).expect("latencies");
    let (low, high) = p999.interval.expect("200 are beyond it");
    assert!(low < 10e6, "the lower end is not close either: {low}");
    assert_eq!(high, f64::INFINITY);
    assert_eq!(p999.relative_error(), f64::INFINITY);
    assert!(p999.contains(5e9) && !p999.contains(-1.0));
}

#[test]
fn equal_latencies_have_closed_intervals() {
    let mut batches = Batches::new(&[], 0);
    for nth in 0..400_000 {
        batches.record(nth, Some(Duration::from_ms(10)));
    }
    let mean = batches.mean_ns().and_then(|mean| mean.interval).expect("an interval");
    assert!((mean.0 - 10e6).abs() < 1.0 && (mean.1 - 10e6).abs() < 1.0, "{mean:?}");
    for (quantile, estimate) in batches.quantiles_ns(&[Quantile::P50, Quantile::P999]) {
        let expected = Some(Estimate { value: 10e6, interval: Some((10e6, 10e6)) });
        assert_eq!(estimate, expected, "{quantile}");
    }
}

#[test]
fn the_ends_of_the_intervals_of_ascending_quantiles_ascend() {
    // All requests of 15 ms are in one eighth of the run, so p90 is in doubt; requests of 100 ms are everywhere.
    let (mut rng, mut batches) = (Rng::new(1), Batches::new(&[], 0));
    for nth in 0..40_000_u64 {
        let usual = if (20_000..25_000).contains(&nth) { 15.0 } else { 10.0 };
        let ms = if rng.below(1_000) < 15 { 100.0 } else { usual };
        batches.record(nth, Some(Duration::from_ns_f64((ms + rng.exponential()) * 1e6)));
    }
    let quantiles = [Quantile::P50, Quantile::P90, Quantile::P95, Quantile::P99];
    let ends = |estimate: Option<Estimate>| estimate.and_then(|e| e.interval).expect("ends");
    let ascend = |ends: &[(f64, f64)]| {
        ends.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1)
    };
    assert!(!ascend(&quantiles.map(|quantile| ends(batches.quantile_ns(quantile)))));
    let together = batches.quantiles_ns(&quantiles);
    let together: Vec<_> = together.into_iter().map(|(_, estimate)| ends(estimate)).collect();
    assert!(ascend(&together), "{together:?}");
    assert_eq!(together[1].1, together[3].1, "p99 bounds p90 from above");
}
