use super::{Layout, Reader};
use crate::buckets::Values;
use curtail_sketch::exponential::Scale;
use curtail_units::{Duration, Quantile, Rng};

const MS: Duration = Duration::from_ms(1);

fn quantile(q: f64) -> Quantile {
    Quantile::new(q).expect("a quantile")
}

fn growth(growth: f64) -> Layout {
    Layout::growth(growth, MS).expect("a growth factor")
}

fn scale(scale: i8) -> Layout {
    Layout::otel_scale(Scale::new(scale).expect("a scale"))
}

fn native(schema: i8) -> Layout {
    Layout::prometheus_native(schema).expect("a schema")
}

/// Values over six decades, many of them whole milliseconds, so that some stand on bounds; some are zero.
fn values(rng: &mut Rng, count: usize) -> Values {
    let draw = |rng: &mut Rng| match rng.below(8) {
        0 => Duration::ZERO,
        1..=3 => Duration::from_ms(1 << rng.below(14)),
        4 => Duration::from_ms(rng.below(20_000) as u64),
        _ => Duration::from_us(10).mul_f64(libm::pow(10.0, 6.0 * rng.unit())),
    };
    Values::new((0..count).map(|_| draw(rng)).collect())
}

/// What a reader says who has the counts between these bounds and nothing else: `histogram_quantile`, as its
/// documentation describes it.
fn read_from_counts(bounds_ns: &[f64], values: &Values, q: f64) -> f64 {
    let mut counts = vec![0_u64; bounds_ns.len() + 1];
    for value in values.as_slice() {
        let place = bounds_ns.iter().position(|bound| value.as_ns_f64() <= *bound);
        counts[place.unwrap_or(bounds_ns.len())] += 1;
    }
    let wanted = q * values.len() as f64;
    let mut passed = 0_u64;
    for (place, count) in counts.iter().enumerate() {
        // A share of a product that should be whole may be a hair more than that.
        if (passed + count) as f64 + 1e-6 < wanted || *count == 0 {
            passed += count;
            continue;
        }
        let lower = if place == 0 { 0.0 } else { bounds_ns[place - 1] };
        let Some(upper) = bounds_ns.get(place) else { return lower };
        if *upper <= 0.0 {
            return *upper;
        }
        return lower + (upper - lower) * (wanted - passed as f64) / *count as f64;
    }
    unreachable!("the last bucket holds the rest")
}

#[test]
fn what_is_read_is_what_a_reader_of_the_counts_says() {
    let mut rng = Rng::new(4);
    let powers =
        |first: f64| -> Vec<f64> { (-60..30).map(|i| first * f64::exp2(i.into())).collect() };
    let listed = [0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000];
    let cases = [
        (growth(2.0), [&[0.0][..], &powers(1e6)].concat()),
        (Layout::otel_default(), listed.map(|ms| f64::from(ms) * 1e6).to_vec()),
        (Layout::prometheus_default(), {
            let ms = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];
            ms.map(|ms| f64::from(ms) * 1e6).to_vec()
        }),
    ];
    for count in [1, 2, 7, 100, 1_000] {
        let values = values(&mut rng, count);
        for (layout, bounds_ns) in &cases {
            for q in [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
                let expected = read_from_counts(bounds_ns, &values, q);
                let got = layout.read_ns(&values, quantile(q)).expect("there are values");
                let margin = 1e-9 * expected.max(1.0);
                assert!(
                    (got - expected).abs() <= margin,
                    "{layout}, {count}, {q}: {got}, {expected}"
                );
            }
        }
    }
}

#[test]
fn no_read_is_further_off_than_the_layout_promises() {
    let mut rng = Rng::new(5);
    let layouts = [1.1, 1.2, 1.4, 2.0, 10.0].map(growth).into_iter();
    let layouts = layouts.chain([-2, 0, 3, 7].map(scale)).chain([-4, 0, 3, 8].map(native));
    for layout in layouts {
        let most = layout.error_max().expect("its bounds have one ratio");
        for _ in 0..20 {
            let values = values(&mut rng, 500);
            for thousandth in 0..=1_000 {
                let at = quantile(f64::from(thousandth) / 1_000.0);
                let Some(error) = layout.error(&values, at) else { continue };
                assert!(error.abs() <= most + 1e-9, "{layout}, {at}: {error}, promised {most}");
            }
        }
    }
}

#[test]
fn what_is_promised_can_happen() {
    for factor in [1.2, 2.0] {
        // All just above a bound: the highest rank is read as the bound above.
        let just_above = Values::new(vec![Duration::from_ns(1_000_001); 100]);
        let error = growth(factor).error(&just_above, quantile(1.0)).expect("there are values");
        assert!((error - (factor - 1.0)).abs() < 1e-5, "growth {factor}: {error}");
    }
    let on_bound = Values::new(vec![Duration::from_secs(2)]);
    let error = scale(0).error(&on_bound, Quantile::P50).expect("there is one");
    assert!((error + 1.0 / 3.0).abs() < 1e-12, "a middle of 1 s and 2 s: {error}");
}

#[test]
fn coarser_buckets_are_made_of_finer_ones() {
    let mut rng = Rng::new(6);
    let pairs = [
        (growth(1.2), growth(1.2 * 1.2)),
        (growth(2.0), growth(4.0)),
        (scale(5), scale(4)),
        (scale(0), scale(-3)),
        (native(8), native(-4)),
    ];
    for (fine, coarse) in pairs {
        for value in values(&mut rng, 2_000).as_slice() {
            let ((fine_low, fine_high), (low, high)) = (fine.bucket(*value), coarse.bucket(*value));
            let margin = 1e-9 * high;
            let is_within = low - margin <= fine_low && fine_high <= high + margin;
            assert!(is_within, "{fine} in {coarse}, {value}");
        }
    }
}

#[test]
fn a_bound_belongs_to_the_bucket_below_it() {
    for factor in [1.1, 1.2, 1.4, 2.0, 10.0] {
        let layout = growth(factor);
        for index in -20..60_i32 {
            // Where a bound is a whole number of nanoseconds.
            let bound = 1e6 * libm::pow(factor, index.into());
            if bound.fract() != 0.0 || bound > 1e15 {
                continue;
            }
            let (_, upper) = layout.bucket(Duration::from_ns_f64(bound));
            assert!((upper / bound - 1.0).abs() < 1e-12, "{layout}, bound {bound}: {upper}");
            let (lower, _) = layout.bucket(Duration::from_ns_f64(bound + 1.0));
            assert!((lower / bound - 1.0).abs() < 1e-12, "{layout}, above {bound}: {lower}");
        }
    }
}

#[test]
fn each_reader_reads_as_it_says() {
    // Four values in the bucket from 1 s to 2 s: half of them are passed.
    let values = Values::new((1..=4).map(|tenth| Duration::from_ms(1_000 + 200 * tenth)).collect());
    let read = |layout: Layout| layout.read_ns(&values, Quantile::P50).expect("there are values");
    let near = |got: f64, expected: f64| (got / expected - 1.0).abs() < 1e-12;
    assert!(near(read(growth(1_000.0)), 1e9 + 999e9 / 2.0), "linear between 1 s and 1,000 s");
    assert!(near(read(native(0)), 2.0_f64.sqrt() * 1e9), "the logarithms' half");
    assert!(near(read(scale(0)), 4.0 / 3.0 * 1e9), "the harmonic mean");
    assert_eq!(scale(0).reader(), Reader::Middle);
}

#[test]
fn zero_and_what_lies_beyond_listed_bounds() {
    let bounds = [10, 20].map(Duration::from_ms);
    let layout = Layout::bounds("two", &bounds).expect("they rise");
    let beyond = Values::new(vec![Duration::from_secs(3)]);
    assert_eq!(layout.read_ns(&beyond, Quantile::P50), Some(20e6));
    assert_eq!(layout.error_max(), None);
    let zeros = Values::new(vec![Duration::ZERO; 3]);
    for layout in [growth(1.2), scale(3), native(3), Layout::otel_default()] {
        assert_eq!(layout.read_ns(&zeros, Quantile::P99), Some(0.0), "{layout}");
        assert_eq!(layout.error(&zeros, Quantile::P99), None, "{layout}: a share of nothing");
    }
    let none = Values::new(Vec::new());
    assert_eq!(growth(1.2).read_ns(&none, Quantile::P50), None);
}

#[test]
fn buckets_are_counted_from_the_shortest_to_the_longest() {
    let values = Values::new([0, 1, 1_000, 60_000].map(Duration::from_ms).to_vec());
    // Zero, and (0.5, 1] up to (32768, 65536].
    assert_eq!(growth(2.0).len(&values), 1 + 17);
    assert_eq!(Layout::prometheus_default().len(&values), 12);
    // 1 ms to 60 s at scale 5: 508 buckets of OpenTelemetry's.
    assert_eq!(scale(5).len(&Values::new([1, 60_000].map(Duration::from_ms).to_vec())), 509);
}

#[test]
fn layouts_that_are_none() {
    for factor in [1.0, 0.5, f64::NAN, f64::INFINITY, 1e9] {
        assert!(Layout::growth(factor, MS).is_err(), "{factor}");
    }
    assert!(Layout::prometheus_native(9).is_err());
    assert!(Layout::prometheus_native(-5).is_err());
    assert_eq!(Layout::bounds("none", &[]), Err("expected at least one bound".to_owned()));
    let fall =
        Layout::bounds("fall", &[5, 5].map(Duration::from_ms)).expect_err("they do not rise");
    assert_eq!(fall.to_string(), "5 ms comes after 5 ms: expected bounds that rise");
    assert_eq!(
        Layout::bounds("many", &[MS; 10_001]),
        Err("10001 bounds, expected at most 10000".to_owned())
    );
}
