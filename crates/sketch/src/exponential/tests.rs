use super::{Exponential, Scale};
use crate::{
    Histogram, Precision, rank,
    samples::{SHAPES, exact_quantile, quantiles},
};
use alloc::vec::Vec;
use curtail_units::{Duration, Quantile};

/// More than any test data spans.
const UNBOUNDED: usize = usize::MAX;

fn scale(scale: i8) -> Scale {
    Scale::new(scale).expect("in range")
}

fn recorded(durations: &[Duration]) -> Histogram {
    let mut histogram = Histogram::new(Precision::FINE);
    durations.iter().for_each(|&duration| histogram.record(duration));
    histogram
}

/// Half the relative width of a bucket.
fn error(scale: Scale) -> f64 {
    let base = libm::exp2(scale.octaves_per_bucket());
    (base - 1.0) / (base + 1.0)
}

/// The value of a quantile, as a reader of the exponential histogram finds it.
fn quantile(
    exponential: &Exponential,
    histogram: &Histogram,
    quantile: Quantile,
) -> Option<Duration> {
    let rank = rank(quantile, histogram.count());
    if rank == 1 || rank == histogram.count() {
        return if rank == 1 { histogram.min() } else { histogram.max() };
    }
    let mut seen = exponential.zero_count();
    if rank <= seen {
        return Some(Duration::ZERO);
    }
    for (index, n) in (exponential.offset()..).zip(exponential.counts()) {
        seen += n;
        if rank <= seen {
            let octaves = exponential.scale().octaves_per_bucket();
            let bound = |index| libm::exp2(f64::from(index) * octaves);
            // The harmonic mean; at the coarsest scales one bound is 0 or infinite.
            let middle = 2.0 * bound(index) / (1.0 + bound(index) / bound(index + 1));
            return Some(Duration::from_secs_f64(middle).clamp(histogram.min()?, histogram.max()?));
        }
    }
    None
}

#[test]
fn quantiles_of_200_000_values_are_off_by_no_more_than_both_layouts_together() {
    for shape in SHAPES {
        let mut sorted = shape.sample(1, 200_000);
        let histogram = recorded(&sorted);
        sorted.sort_unstable();
        for s in [-4, 0, 3, 5, 7, 8, 11] {
            let exponential = Exponential::from_histogram(&histogram, scale(s), UNBOUNDED);
            let (a, b) = (error(scale(s)), Precision::FINE.error());
            for at in quantiles() {
                let exact = exact_quantile(&sorted, at).as_ns_f64();
                let got = quantile(&exponential, &histogram, at).expect("values").as_ns_f64();
                let bound = (a + b + a * b) * exact + 0.5;
                assert!(
                    (got - exact).abs() <= bound,
                    "{}, scale {s}: {at} is {exact} ns, read {got} ns",
                    shape.name
                );
            }
        }
    }
}

#[test]
fn the_error_of_the_usual_scales_is_what_the_documents_say() {
    for (s, percent) in [(3, 4.33), (5, 1.083), (7, 0.270_8)] {
        assert!((error(scale(s)) * 100.0 - percent).abs() < 0.001 * percent, "scale {s}");
    }
}

#[test]
fn a_power_of_two_seconds_is_the_upper_bound_of_its_bucket_at_every_scale() {
    for s in -10..=20 {
        // 2^-9 s is the smallest power of two that is a whole number of nanoseconds.
        for exponent in -9..=12_i32 {
            let ns =
                if exponent < 0 { 1_000_000_000 >> -exponent } else { 1_000_000_000 << exponent };
            // At scale s the boundary 2^exponent has index exponent · 2^s, and the bucket one less;
            // below scale 0 the bucket is the one that holds that of scale 0.
            let expected = if s < 0 { (exponent - 1) >> -s } else { (exponent << s) - 1 };
            assert_eq!(scale(s).index(Duration::from_ns(ns)), expected, "2^{exponent} s at {s}");
            let above = if s < 0 { exponent >> -s } else { exponent << s };
            assert!(scale(s).index(Duration::from_ns(ns + 1)) >= above, "2^{exponent} s at {s}");
        }
    }
}

#[test]
fn the_bound_lowers_the_scale_just_as_far_as_it_must() {
    for shape in SHAPES {
        let histogram = recorded(&shape.sample(4, 20_000));
        for max_size in [0, 2, 3, 20, 160, 600] {
            let bounded = Exponential::from_histogram(&histogram, scale(10), max_size);
            assert!(bounded.counts().len() <= max_size.max(2), "{}", shape.name);
            let same = Exponential::from_histogram(&histogram, bounded.scale(), UNBOUNDED);
            assert_eq!(bounded, same, "{}", shape.name);
            if bounded.scale() < scale(10) {
                let finer = scale(bounded.scale().get() + 1);
                let finer = Exponential::from_histogram(&histogram, finer, UNBOUNDED);
                assert!(finer.counts().len() > max_size.max(2), "{}", shape.name);
            }
        }
    }
}

#[test]
fn zeros_are_counted_apart_and_rank_first() {
    let mut histogram = Histogram::new(Precision::FINE);
    histogram.record_n(Duration::ZERO, 6);
    histogram.record_n(Duration::from_ms(1), 4);
    let exponential = Exponential::from_histogram(&histogram, scale(5), 160);
    assert_eq!(exponential.zero_count(), 6);
    assert_eq!(exponential.counts(), [4]);
    let read: Vec<_> =
        quantiles().map(|q| quantile(&exponential, &histogram, q).expect("values")).collect();
    let expected: Vec<_> = quantiles()
        .map(|q| if q.get() <= 0.6 { Duration::ZERO } else { Duration::from_ms(1) })
        .collect();
    assert_eq!(read, expected);
}

#[test]
fn nothing_but_zeros_and_nothing_at_all_have_no_buckets() {
    let empty = Exponential::from_histogram(&recorded(&[]), scale(5), 160);
    assert!(empty.counts().is_empty());
    let zeros = Exponential::from_histogram(&recorded(&[Duration::ZERO; 3]), scale(5), 160);
    assert!(zeros.counts().is_empty());
    assert_eq!((empty.zero_count(), zeros.zero_count()), (0, 3));
}

#[test]
fn scales_outside_their_range_are_refused() {
    assert!(Scale::new(-11).is_err());
    assert!(Scale::new(21).is_err());
}
