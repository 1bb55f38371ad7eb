use super::{BOUNDS, count_by_bound, to_plain};
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Rng};

#[test]
fn bounds_rise_by_about_the_same_ratio() {
    assert_eq!(BOUNDS[0], Duration::from_us(100));
    assert_eq!(BOUNDS.last(), Some(&Duration::from_secs(100)));
    for pair in BOUNDS.windows(2) {
        let ratio = pair[1].as_ns_f64() / pair[0].as_ns_f64();
        assert!((1.18..=1.2).contains(&ratio), "{pair:?}: {ratio}");
    }
}

#[test]
fn counts_below_a_bound_are_never_more_than_there_are() {
    const SEED: u64 = 7;
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut histogram = Histogram::new(Precision::FINE);
    let near = Precision::FINE.error() * 2.0;
    // Half of the durations lie on or next to a bound, where a bucket straddles it.
    let durations: Vec<_> = (0..20_000)
        .map(|index| match index % 2 {
            0 => Duration::from_ns_f64(rng.exponential() * 1e7),
            _ => BOUNDS[rng.below(BOUNDS.len())].mul_f64(1.0 + near * (rng.unit() - 0.5)),
        })
        .collect();
    durations.iter().for_each(|&duration| histogram.record(duration));
    let buckets = count_by_bound(&histogram);
    let mut below = 0;
    for (index, (bound, count)) in buckets.iter().enumerate() {
        below += count;
        let Some(exact) = BOUNDS.get(index) else { break };
        assert_eq!(exact.as_secs_f64(), *bound);
        let really = durations.iter().filter(|d| *d <= exact).count() as u64;
        let surely = exact.mul_f64(1.0 - near);
        let surely = durations.iter().filter(|d| **d <= surely).count() as u64;
        assert!((surely..=really).contains(&below), "{exact}: {surely} <= {below} <= {really}");
    }
    assert_eq!(below, durations.len() as u64);
}

#[test]
fn plain_text_has_the_types_of_full_names() {
    let open_metrics = "\
# HELP curtail_requests Requests.
# TYPE curtail_requests counter
curtail_requests_total{upstream=\"# HELP a b\"} 1
# HELP curtail_delay_seconds The delay.
# TYPE curtail_delay_seconds gauge
# UNIT curtail_delay_seconds seconds
curtail_delay_seconds 0.5
# HELP curtail_build Version.
# TYPE curtail_build info
curtail_build_info{version=\"1\"} 1
# EOF
";
    let plain = "\
# HELP curtail_requests_total Requests.
# TYPE curtail_requests_total counter
curtail_requests_total{upstream=\"# HELP a b\"} 1
# HELP curtail_delay_seconds The delay.
# TYPE curtail_delay_seconds gauge
curtail_delay_seconds 0.5
# HELP curtail_build_info Version.
# TYPE curtail_build_info gauge
curtail_build_info{version=\"1\"} 1
";
    assert_eq!(to_plain(open_metrics), plain);
}
