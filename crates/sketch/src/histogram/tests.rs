use super::{Bucket, Histogram};
use crate::{
    Precision,
    samples::{SHAPES, exact_quantile, quantiles, relative_error},
};
use alloc::vec::Vec;
use curtail_units::{Duration, Quantile, Rng};

fn recorded(precision: Precision, durations: &[Duration]) -> Histogram {
    let mut histogram = Histogram::new(precision);
    for &duration in durations {
        histogram.record(duration);
    }
    histogram
}

fn ns(ns: u64) -> Duration {
    Duration::from_ns(ns)
}

#[test]
fn two_million_values_of_every_shape_read_back_within_the_stated_error() {
    for shape in SHAPES {
        let mut sorted = shape.sample(1, 2_000_000);
        let fine = recorded(Precision::FINE, &sorted);
        let coarse = recorded(Precision::COARSE, &sorted);
        sorted.sort_unstable();
        for histogram in [&fine, &coarse] {
            let mut worst = 0.0_f64;
            for quantile in quantiles() {
                let exact = exact_quantile(&sorted, quantile);
                let got = histogram.quantile(quantile).expect("not empty");
                let error = relative_error(got, exact);
                assert!(
                    error <= histogram.precision().error(),
                    "{}: {quantile} is {exact}, read {got}",
                    shape.name
                );
                worst = worst.max(error);
            }
            std::println!("{:?}: at most {:.4} % off", histogram.precision(), 100.0 * worst);
        }
    }
}

#[test]
fn the_stated_error_is_a_twentieth_of_a_percent_and_four_tenths() {
    assert!(Precision::FINE.error() < 0.000_5);
    assert!(Precision::COARSE.error() < 0.004);
}

#[test]
fn count_sum_mean_and_extremes_are_exact() {
    for shape in SHAPES {
        let durations = shape.sample(2, 10_000);
        let histogram = recorded(Precision::COARSE, &durations);
        let sum: u128 = durations.iter().map(|d| u128::from(d.as_ns())).sum();
        assert_eq!(histogram.count(), 10_000);
        assert_eq!(histogram.exact().sum_ns, sum);
        let mean = u64::try_from(sum / 10_000).expect("a mean");
        assert_eq!(histogram.mean(), Some(ns(mean)));
        assert_eq!(histogram.min(), durations.iter().min().copied());
        assert_eq!(histogram.max(), durations.iter().max().copied());
        let quantile = |q| histogram.quantile(Quantile::new(q).expect("in range"));
        assert_eq!(quantile(0.0), histogram.min());
        assert_eq!(quantile(1.0), histogram.max());
    }
}

#[test]
fn merging_parts_equals_recording_everything_in_one_bucket_for_bucket() {
    for shape in SHAPES {
        let durations = shape.sample(3, 50_000);
        let whole = recorded(Precision::FINE, &durations);
        let mut merged = Histogram::new(Precision::FINE);
        for part in durations.chunks(7_001) {
            merged.merge(&recorded(Precision::FINE, part));
        }
        assert_eq!(merged, whole, "{}", shape.name);
        assert!(merged.buckets().eq(whole.buckets()), "{}", shape.name);
    }
}

#[test]
fn merging_precisions_equals_recording_everything_at_the_coarser() {
    for shape in SHAPES {
        let durations = shape.sample(4, 20_000);
        let (first, second) = durations.split_at(8_000);
        let whole = recorded(Precision::COARSE, &durations);
        let mut into_fine = recorded(Precision::FINE, first);
        into_fine.merge(&recorded(Precision::COARSE, second));
        assert_eq!(into_fine, whole, "{}", shape.name);
        let mut into_coarse = recorded(Precision::COARSE, first);
        into_coarse.merge(&recorded(Precision::FINE, second));
        assert_eq!(into_coarse, whole, "{}", shape.name);
    }
}

#[test]
fn an_empty_histogram_has_no_values_and_changes_nothing_it_is_merged_into() {
    let empty = Histogram::new(Precision::FINE);
    for quantile in quantiles() {
        assert_eq!(empty.quantile(quantile), None);
    }
    assert_eq!((empty.min(), empty.max(), empty.mean()), (None, None, None));
    assert_eq!((empty.count(), empty.exact().sum_ns, empty.count_above(ns(0))), (0, 0, 0));
    assert_eq!(empty.buckets().count(), 0);

    let one = recorded(Precision::FINE, &[ns(5)]);
    let mut merged = one.clone();
    merged.merge(&empty);
    assert_eq!(merged, one);
    let mut merged = empty;
    merged.merge(&one);
    assert_eq!(merged, one);
}

#[test]
fn zero_and_overflow_are_counted_and_the_extremes_stay_exact() {
    let end = Precision::END.as_ns();
    let histogram =
        recorded(Precision::COARSE, &[ns(0), ns(0), ns(end - 1), ns(end), ns(u64::MAX)]);
    assert_eq!((histogram.count(), histogram.overflowed()), (5, 2));
    assert_eq!((histogram.min(), histogram.max()), (Some(ns(0)), Some(ns(u64::MAX))));
    assert_eq!(histogram.quantile(Quantile::new(0.3).expect("in range")), Some(ns(0)));
    let below_the_maximum = histogram.quantile(Quantile::new(0.8).expect("in range"));
    let below_the_maximum = below_the_maximum.expect("not empty");
    assert!(relative_error(below_the_maximum, ns(end)) <= 2.0 * Precision::COARSE.error());
    assert!(histogram.sum_secs_f64() > Duration::MAX.as_secs_f64());
}

#[test]
fn recording_in_bulk_equals_recording_one_by_one_and_nothing_when_there_are_none() {
    let mut bulk = Histogram::new(Precision::FINE);
    bulk.record_n(ns(123_456_789), 1_000);
    bulk.record_n(ns(7), 0);
    assert_eq!(bulk, recorded(Precision::FINE, &[ns(123_456_789); 1_000]));
}

#[test]
fn what_no_count_can_hold_is_left_out_and_quantiles_stay_right() {
    let mut full = Histogram::new(Precision::COARSE);
    full.record_n(ns(10), u64::MAX - 5);
    full.record_n(ns(1_000_000), 100);
    full.record(ns(2));
    assert_eq!(full.count(), u64::MAX);
    assert_eq!(full.count_above(ns(10)), 5);
    assert_eq!(full.min(), Some(ns(10)));
    let other = full.clone();
    full.merge(&other);
    assert_eq!(full.count(), u64::MAX);
    assert_eq!(full.quantile(Quantile::P50), Some(ns(10)));
}

#[test]
fn counts_above_a_limit_agree_with_the_values_to_a_bucket() {
    for shape in SHAPES {
        let mut sorted = shape.sample(5, 20_000);
        let histogram = recorded(Precision::COARSE, &sorted);
        sorted.sort_unstable();
        for quantile in quantiles() {
            let limit = exact_quantile(&sorted, quantile);
            let bucket = histogram.buckets().find(|bucket| limit < bucket.upper);
            let bucket = bucket.expect("the limit was recorded");
            let beyond = sorted.iter().filter(|&&duration| duration >= bucket.upper).count();
            assert_eq!(histogram.count_above(limit), beyond as u64, "{}", shape.name);
        }
        assert_eq!(histogram.count_above(Duration::MAX), 0);
    }
}

#[test]
fn overflow_is_merged_like_everything_else() {
    let mut histogram = recorded(Precision::FINE, &[ns(5), Duration::MAX]);
    histogram.merge(&recorded(Precision::FINE, &[Precision::END, Precision::END, ns(7)]));
    assert_eq!((histogram.count(), histogram.overflowed()), (5, 3));
}

#[test]
fn a_cleared_histogram_equals_a_new_one() {
    let mut histogram = recorded(Precision::FINE, &[ns(5), ns(900_000), Precision::END]);
    histogram.clear();
    assert_eq!(histogram, Histogram::new(Precision::FINE));
    histogram.record(ns(17));
    assert_eq!(histogram, recorded(Precision::FINE, &[ns(17)]));
}

#[test]
fn buckets_come_in_order_and_hold_the_values() {
    let histogram = recorded(Precision::COARSE, &[ns(1_000_003), ns(3), ns(1_000_001)]);
    let buckets: Vec<_> = histogram.buckets().collect();
    // 1,000,001 lies in the octave from 2^19, whose 128 buckets are 4,096 ns wide.
    let lower = 1_000_001 / 4_096 * 4_096;
    assert_eq!(
        buckets,
        [
            Bucket { lower: ns(3), upper: ns(4), count: 1 },
            Bucket { lower: ns(lower), upper: ns(lower + 4_096), count: 2 },
        ]
    );
}

#[test]
fn the_order_of_recording_does_not_matter_however_octaves_are_added() {
    let mut durations = SHAPES[7].sample(7, 2_000);
    let expected = recorded(Precision::COARSE, &durations);
    let mut rng = Rng::new(7).split("shuffle");
    for _ in 0..20 {
        for last in (1..durations.len()).rev() {
            durations.swap(last, rng.below(last + 1));
        }
        assert_eq!(recorded(Precision::COARSE, &durations), expected);
    }
}
