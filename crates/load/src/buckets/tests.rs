use super::{Coarsest, Layout, Values, coarsest, lab};
use curtail_units::{Duration, Quantile, Rng};

const MS: Duration = Duration::from_ms(1);

/// Few enough for a test, and enough for a mean that is known to a fifteenth of the spread.
const REPEATS: u32 = 200;

/// p50 and p99 as Google's document prints them, in milliseconds, each of one sample; the first row is not read
/// from buckets.
const PUBLISHED: [(Option<f64>, [f64; 2]); 4] = [
    (None, [18.5, 49.5]),
    (Some(2.0), [19.2, 62.0]),
    (Some(1.4), [18.7, 53.9]),
    (Some(1.2), [18.6, 51.1]),
];

/// What the document's figures can be off by, since they have one decimal.
const ROUNDING: f64 = 0.05;

fn growth(growth: f64) -> Layout {
    Layout::growth(growth, MS).expect("a growth factor")
}

fn figures(values: &Values) -> Vec<f64> {
    let read = |(factor, _): &(Option<f64>, _)| {
        [Quantile::P50, Quantile::P99].map(|at| match factor {
            None => values.quantile(at).expect("there are values").as_ms_f64(),
            Some(factor) => growth(*factor).read_ns(values, at).expect("there are values") / 1e6,
        })
    };
    PUBLISHED.iter().flat_map(read).collect()
}

/// The share of Beta(2, 5) × 70 ms that is at most `ms`: at least two of six uniform numbers are.
fn share_up_to(ms: f64) -> f64 {
    let x = (ms / 70.0).clamp(0.0, 1.0);
    1.0 - (1.0 - x).powi(6) - 6.0 * x * (1.0 - x).powi(5)
}

/// The quantile of so large a number of values that chance plays no part.
fn limit(factor: Option<f64>, q: f64) -> f64 {
    let (mut low, mut high) = (0.0, 70.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if share_up_to(middle) < q { low = middle } else { high = middle }
    }
    let Some(factor) = factor else { return high };
    let (mut lower, mut upper) = (1.0, factor);
    while upper < high {
        (lower, upper) = (upper, upper * factor);
    }
    let (below, above) = (share_up_to(lower), share_up_to(upper));
    lower + (upper - lower) * (q - below) / (above - below)
}

#[test]
fn the_table_of_googles_lab_is_met_within_sampling_error() {
    let spread = lab::spread(&Rng::new(1), REPEATS, figures);
    let published = PUBLISHED.iter().flat_map(|(factor, figures)| {
        [0.5, 0.99].into_iter().zip(*figures).map(move |(q, figure)| (factor, q, figure))
    });
    for ((factor, q, published), (mean, deviation)) in published.zip(spread) {
        let what = format!("growth {factor:?}, quantile {q}: {mean} ± {deviation}");
        let error_of_mean = deviation / f64::from(REPEATS).sqrt();
        let limit = limit(*factor, q);
        assert!((mean - limit).abs() < 4.0 * error_of_mean, "{what}, in the limit {limit}");
        // The document's figure is one sample's, so it is off by that sample's own error.
        let off = (mean - published).abs();
        assert!(off <= ROUNDING + 2.0 * deviation, "{what}, published {published}");
    }
}

#[test]
fn one_sample_is_within_its_error_too() {
    let spread = lab::spread(&Rng::new(2), REPEATS, figures);
    for seed in 0..5 {
        let values = lab::values(&mut Rng::new(seed));
        assert_eq!(values.len(), 100_000);
        for (figure, (mean, deviation)) in figures(&values).into_iter().zip(&spread) {
            assert!((figure - mean).abs() < 4.0 * deviation, "seed {seed}: {figure}, {mean}");
        }
    }
}

#[test]
fn the_coarsest_layout_keeps_the_error_and_the_next_does_not() {
    let values = lab::values(&mut Rng::new(1));
    let found = |layouts: &mut dyn Iterator<Item = Layout>, error_max| {
        coarsest(layouts, (&values, Quantile::P99), error_max)
    };
    for error_max in [0.02, 0.05, 0.2] {
        let Some(Coarsest { layout, worst }) = found(&mut Layout::growths(MS), error_max) else {
            panic!("growth 1.001 is off by less than {error_max}");
        };
        assert!(worst.abs() <= error_max, "{layout}: {worst}");
        let next = Layout::growths(MS).skip_while(|other| *other != layout).nth(1);
        let next = next.expect("growth 10 is off by more");
        assert_eq!(found(&mut std::iter::once(next), error_max), None, "after {layout}");
        // What holds for all data holds for these.
        let safe = Layout::growths(MS)
            .take_while(|layout| layout.error_max().is_some_and(|most| most <= error_max))
            .last()
            .expect("growth 1.001");
        assert!(layout.error_max() >= safe.error_max(), "{layout} is finer than {safe}");
    }
    let scale = found(&mut Layout::otel_scales(), 0.05).expect("scale 3 is off by 4.3 % at most");
    assert_eq!(scale.layout.name(), "otel scale 3");
}

#[test]
fn where_the_bounds_fall_is_not_left_to_luck() {
    // All values are 1 ms, a bound: from there every growth factor reads well.
    let values = Values::new(vec![MS; 1_000]);
    let at = Quantile::new(1.0).expect("a quantile");
    let lucky = growth(10.0).error(&values, at).expect("there are values");
    assert!(lucky.abs() < 1e-12, "{lucky}");
    let found = coarsest(Layout::growths(MS), (&values, at), 0.1).expect("growth 1.1 or so");
    let growth = found.layout.error_max().expect("a growth factor") + 1.0;
    assert!((1.09..=1.12).contains(&growth), "{}", found.layout);
}

#[test]
fn no_layout_reads_a_share_of_nothing() {
    let zeros = Values::new(vec![Duration::ZERO; 10]);
    assert_eq!(coarsest(Layout::growths(MS), (&zeros, Quantile::P99), 0.5), None);
    let none = Values::new(Vec::new());
    assert_eq!(coarsest(Layout::growths(MS), (&none, Quantile::P99), 0.5), None);
}
