use super::{Exponential, Scale};
use crate::{
    Histogram, Precision,
    samples::{SHAPES, exact_quantile, quantiles},
};
use alloc::vec::Vec;
use curtail_units::Duration;

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

/// What tells two apart, leaving out the sum, whose rounding depends on the order of additions.
fn content(e: &Exponential) -> (Scale, i32, &[u64], u64, u64, Option<Duration>, Option<Duration>) {
    (e.scale(), e.offset(), e.counts(), e.zero_count(), e.count(), e.min(), e.max())
}

#[test]
fn quantiles_of_200_000_values_are_off_by_no_more_than_both_layouts_together() {
    for shape in SHAPES {
        let mut sorted = shape.sample(1, 200_000);
        let histogram = recorded(&sorted);
        sorted.sort_unstable();
        for s in [-4, 0, 3, 5, 7, 8, 11] {
            let exponential = Exponential::from_histogram(&histogram, scale(s), UNBOUNDED);
            let (a, b) = (scale(s).error(), Precision::FINE.error());
            for quantile in quantiles() {
                let exact = exact_quantile(&sorted, quantile).as_ns_f64();
                let got = exponential.quantile(quantile).expect("values").as_ns_f64();
                let bound = (a + b + a * b) * exact + 0.5;
                assert!(
                    (got - exact).abs() <= bound,
                    "{}, scale {s}: {quantile} is {exact} ns, read {got} ns",
                    shape.name
                );
            }
        }
    }
}

#[test]
fn the_error_of_the_usual_scales_is_what_the_documents_say() {
    for (s, percent) in [(3, 4.33), (5, 1.083), (7, 0.270_8)] {
        assert!((scale(s).error() * 100.0 - percent).abs() < 0.001 * percent, "scale {s}");
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
fn downscaling_equals_converting_at_the_lower_scale() {
    for shape in SHAPES {
        let histogram = recorded(&shape.sample(2, 20_000));
        let finest = Exponential::from_histogram(&histogram, scale(9), UNBOUNDED);
        for by in 0..=19_u8 {
            let lower = scale(9 - i8::try_from(by).expect("small"));
            let mut downscaled = finest.clone();
            downscaled.downscale(u32::from(by));
            assert_eq!(downscaled, Exponential::from_histogram(&histogram, lower, UNBOUNDED));
        }
        let mut at_once = finest.clone();
        at_once.downscale(1_000);
        assert_eq!(at_once.scale(), scale(-10));
        assert_eq!(at_once.count(), 20_000);
    }
}

#[test]
fn merging_two_scales_equals_converting_everything_at_the_lower() {
    for shape in SHAPES {
        let durations = shape.sample(3, 20_000);
        let (first, second) = durations.split_at(3_000);
        let convert =
            |durations, s| Exponential::from_histogram(&recorded(durations), scale(s), UNBOUNDED);
        let expected = convert(&durations, 3);
        for (of_first, of_second) in [(3, 3), (7, 3), (3, 8)] {
            let mut merged = convert(first, of_first);
            merged.merge(&convert(second, of_second));
            assert_eq!(content(&merged), content(&expected), "{}", shape.name);
            let sums = (merged.sum_secs_f64(), expected.sum_secs_f64());
            assert!((sums.0 - sums.1).abs() <= 1e-12 * sums.1, "{sums:?}");
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
            assert_eq!(content(&bounded), content(&same), "{}", shape.name);
            if bounded.scale() < scale(10) {
                let finer = scale(bounded.scale().get() + 1);
                let finer = Exponential::from_histogram(&histogram, finer, UNBOUNDED);
                assert!(finer.counts().len() > max_size.max(2), "{}", shape.name);
            }
        }
    }
}

#[test]
fn a_merge_keeps_to_the_bound_of_the_histogram_it_goes_into() {
    let of =
        |durations: &[Duration]| Exponential::from_histogram(&recorded(durations), scale(8), 160);
    let (short, long) = ([Duration::from_us(3); 5], [Duration::from_secs(3_000); 7]);
    let mut merged = of(&short);
    assert_eq!(merged.scale(), scale(8));
    merged.merge(&of(&long));
    let both: Vec<_> = short.into_iter().chain(long).collect();
    assert_eq!(content(&merged), content(&of(&both)));
    assert!(merged.counts().len() <= 160);
}

#[test]
fn zeros_are_counted_apart_and_rank_first() {
    let mut histogram = Histogram::new(Precision::FINE);
    histogram.record_n(Duration::ZERO, 6);
    histogram.record_n(Duration::from_ms(1), 4);
    let exponential = Exponential::from_histogram(&histogram, scale(5), 160);
    assert_eq!((exponential.zero_count(), exponential.count()), (6, 10));
    assert_eq!(exponential.counts(), [4]);
    let read: Vec<_> = quantiles().map(|q| exponential.quantile(q).expect("values")).collect();
    let expected: Vec<_> = quantiles()
        .map(|q| if q.get() <= 0.6 { Duration::ZERO } else { Duration::from_ms(1) })
        .collect();
    assert_eq!(read, expected);
}

#[test]
fn nothing_but_zeros_and_nothing_at_all_have_no_buckets() {
    let empty = Exponential::from_histogram(&recorded(&[]), scale(5), 160);
    assert_eq!((empty.count(), empty.min(), empty.max()), (0, None, None));
    assert!(quantiles().all(|quantile| empty.quantile(quantile).is_none()));
    let zeros = Exponential::from_histogram(&recorded(&[Duration::ZERO; 3]), scale(5), 160);
    assert!(zeros.counts().is_empty());
    let mut merged = empty.clone();
    merged.merge(&zeros);
    assert_eq!(content(&merged), content(&zeros));
    merged.downscale(1);
    assert_eq!((merged.scale(), merged.count()), (scale(4), 3));
}

#[test]
fn scales_outside_their_range_are_refused() {
    assert!(Scale::new(-11).is_err());
    assert!(Scale::new(21).is_err());
}
