//! The quantiles that each layout reads, and the coarsest layouts within the error.

use curtail_load::buckets::{Coarsest, Layout, Values, coarsest, lab};
use curtail_units::{Duration, Quantile, Rng};

/// The number of samples that are drawn without a file of values.
pub(super) const SAMPLES: u32 = 200;

/// Minimum number of values beyond a quantile; with fewer values, chance decides.
pub(super) const BEYOND_MIN: f64 = 100.0;

/// The number of points of a curve.
const CURVE_PLACES: u32 = 240;

/// The first quantile of a curve. The errors of lower quantiles dwarf all other errors, and nobody reads them.
const CURVE_FROM: f64 = 0.1;

/// Maximum error that is drawn in proportion.
pub(super) const SHOWN_MAX: f64 = 1.0;

/// The values of a report.
pub(super) struct Data {
    /// The file; absent for samples.
    pub(super) name: Option<String>,
    /// The values, or the first sample.
    pub(super) values: Values,
    /// The seed and the generator of samples; absent for a file.
    pub(super) drawn: Option<(u64, Rng)>,
}

impl Data {
    /// Samples like those of Google's lab.
    pub(super) fn drawn(seed: u64) -> Self {
        let rng = Rng::new(seed).split("buckets");
        let values = lab::values(&mut rng.split_index(0));
        Self { name: None, values, drawn: Some((seed, rng)) }
    }
}

/// The quantiles and limits of a report.
pub(super) struct Wanted<'w> {
    pub(super) quantiles: &'w [Quantile],
    /// The quantile at which `error_max` limits the error of the coarsest layouts.
    pub(super) error_at: Quantile,
    pub(super) error_max: f64,
    /// A bound of every growth layout.
    pub(super) unit: Duration,
}

/// A quantile; for samples the mean over the samples, and two standard deviations between samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) ns: f64,
    pub(super) spread_ns: Option<f64>,
}

/// The quantiles of one layout.
pub(super) struct Row {
    pub(super) layout: Layout,
    pub(super) buckets: u64,
    /// Each quantile with its relative error.
    pub(super) reads: Vec<(Figure, Option<f64>)>,
    /// The error at each quantile of the curve: (the number of nines of the quantile, the error).
    pub(super) curve: Vec<(f64, f64)>,
}

/// The coarsest layouts that keep the error within the maximum.
pub(super) struct CoarsestLayouts {
    /// For these values.
    pub(super) growth: Option<Coarsest>,
    pub(super) scale: Option<Coarsest>,
    /// For any values.
    pub(super) growth_always: Option<Layout>,
    pub(super) scale_always: Option<Layout>,
}

/// The report in all its forms.
pub(super) struct Report<'r> {
    pub(super) data: &'r Data,
    pub(super) wanted: &'r Wanted<'r>,
    pub(super) exact: Vec<Figure>,
    pub(super) rows: Vec<Row>,
    pub(super) coarsest: CoarsestLayouts,
}

impl<'r> Report<'r> {
    /// Measures `layouts` on `data`, which has at least one value.
    pub(super) fn new(data: &'r Data, layouts: &[Layout], wanted: &'r Wanted<'r>) -> Self {
        let measure = |values: &Values| measured(values, layouts, wanted.quantiles);
        let measured: Vec<(f64, Option<f64>)> = match &data.drawn {
            Some((_, rng)) => {
                let of_samples = lab::spread(rng, SAMPLES, measure).into_iter();
                of_samples.map(|(mean, deviation)| (mean, Some(2.0 * deviation))).collect()
            }
            None => measure(&data.values).into_iter().map(|figure| (figure, None)).collect(),
        };
        let figure =
            |(ns, spread_ns): &(f64, Option<f64>)| Figure { ns: *ns, spread_ns: *spread_ns };
        let count = wanted.quantiles.len();
        let (exact, read) = measured.split_at(count);
        let rows = layouts.iter().zip(read.chunks(2 * count)).map(|(layout, read)| {
            let (read, errors) = read.split_at(count);
            let errors = errors.iter().map(|(error, _)| (!error.is_nan()).then_some(*error));
            Row {
                layout: layout.clone(),
                buckets: layout.len(&data.values),
                reads: read.iter().map(figure).zip(errors).collect(),
                curve: curve(&data.values, layout),
            }
        });
        Self {
            data,
            wanted,
            exact: exact.iter().map(figure).collect(),
            rows: rows.collect(),
            coarsest: coarsest_layouts(&data.values, wanted),
        }
    }

    /// Quantiles with fewer than [`BEYOND_MIN`] values beyond them.
    pub(super) fn thin(&self) -> Vec<Quantile> {
        let count = self.data.values.len() as f64;
        let is_thin = |at: &&Quantile| (1.0 - at.get()) * count < BEYOND_MIN;
        self.wanted.quantiles.iter().filter(is_thin).copied().collect()
    }
}

/// Returns the exact quantiles in nanoseconds; then, for each layout, the quantiles that the layout reads and their
/// relative errors (NaN if the exact quantile is 0).
fn measured(values: &Values, layouts: &[Layout], quantiles: &[Quantile]) -> Vec<f64> {
    let exact = |at: &Quantile| values.quantile(*at).map_or(f64::NAN, Duration::as_ns_f64);
    let mut measured: Vec<f64> = quantiles.iter().map(exact).collect();
    for layout in layouts {
        let read = |at: &Quantile| layout.read_ns(values, *at).unwrap_or(f64::NAN);
        measured.extend(quantiles.iter().map(read));
        let error = |at: &Quantile| layout.error(values, *at).unwrap_or(f64::NAN);
        measured.extend(quantiles.iter().map(error));
    }
    measured
}

/// The number of nines of a quantile: two at 0.99.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn curve(values: &Values, layout: &Layout) -> Vec<(f64, f64)> {
    // Up to the quantile with ten values beyond: further out, single values make the curve.
    let nines_max = (values.len() as f64 / 10.0).log10().clamp(1.0, 5.0);
    let error = |place: u32| {
        let share = f64::from(place) / f64::from(CURVE_PLACES);
        let nines = nines(CURVE_FROM) + (nines_max - nines(CURVE_FROM)) * share;
        let at = Quantile::new(1.0 - f64::powf(10.0, -nines)).ok()?;
        Some((nines, layout.error(values, at)?))
    };
    (0..=CURVE_PLACES).filter_map(error).collect()
}

fn coarsest_layouts(values: &Values, wanted: &Wanted<'_>) -> CoarsestLayouts {
    let Wanted { error_at, error_max, unit, .. } = *wanted;
    let always = |layouts: &mut dyn Iterator<Item = Layout>| {
        layouts.take_while(|layout| layout.error_max().is_some_and(|most| most <= error_max)).last()
    };
    CoarsestLayouts {
        growth: coarsest(Layout::growths(unit), (values, error_at), error_max),
        scale: coarsest(Layout::otel_scales(), (values, error_at), error_max),
        growth_always: always(&mut Layout::growths(unit)),
        scale_always: always(&mut Layout::otel_scales()),
    }
}
