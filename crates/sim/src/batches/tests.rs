use super::{BATCHES_MIN, Batches, student_t};
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
        let mut batches = Batches::new(&[threshold]);
        for latency in correlated(&mut rng, 40_000, 0.95) {
            batches.record(Some(latency));
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

#[test]
fn an_interval_as_if_nothing_depended_would_be_much_too_narrow() {
    let mut rng = Rng::new(5);
    let latencies = correlated(&mut rng, 40_000, 0.95);
    let mut batches = Batches::new(&[]);
    latencies.iter().for_each(|latency| {
        batches.record(Some(*latency));
    });
    let mean = batches.mean_ns().expect("there are latencies");
    let (low, high) = mean.interval.expect("enough batches");
    let naive = 2.0 * 1.96 * 10e6 / (40_000_f64).sqrt();
    // The variance of the mean is (1 + 0.95) / (1 − 0.95) = 39 times as large.
    let ratio = (high - low) / naive;
    assert!((4.0..9.0).contains(&ratio), "{ratio}, expected about √39");
}

#[test]
fn failures_are_longer_than_every_answer() {
    let mut batches = Batches::new(&[Duration::from_ms(50)]);
    for n in 1..=1000 {
        batches.record((n % 50 != 0).then(|| Duration::from_ms(n % 50)));
    }
    assert_eq!(batches.failed(), 20);
    assert_eq!(batches.len(), 1000);
    let quantile = |q| batches.quantile_ns(Quantile::new(q).expect("a quantile"));
    let at_98 = quantile(0.98).expect("the last answer").value;
    assert!((at_98 / 49e6 - 1.0).abs() < 0.001, "{at_98}");
    assert_eq!(quantile(0.981), None, "two in a hundred failed");
    assert_eq!(batches.above()[0].1.value, 0.02);
}

#[test]
fn too_little_gives_no_interval() {
    let mut batches = Batches::new(&[]);
    assert!(batches.is_empty());
    assert_eq!(batches.mean_ns(), None);
    for _ in 0..(16 * BATCHES_MIN - 1) {
        batches.record(Some(Duration::from_ms(1)));
    }
    assert_eq!(batches.mean_ns().expect("latencies").interval, None, "31 batches");
    batches.record(Some(Duration::from_ms(1)));
    assert!(batches.mean_ns().expect("latencies").interval.is_some());
    let p99 = batches.quantile_ns(Quantile::P99).expect("latencies");
    assert_eq!(p99.interval, None, "five requests beyond the p99");
}

#[test]
fn student_t_agrees_with_its_tables() {
    for (freedom, expected) in [(31.0, 2.0395), (40.0, 2.0211), (63.0, 1.9983)] {
        assert!((student_t(freedom) - expected).abs() < 0.0005, "{freedom}");
    }
}
