//! The coarsest layout that keeps a quantile within an error.
//!
//! Interpolation reads a quantile just below a bound well, however wide its bucket is. A layout is therefore good
//! enough only if its error stays within the maximum at every position of the bounds, and all finer layouts are good
//! enough too.

use super::{Layout, Values};
use curtail_sketch::exponential::Scale;
use curtail_units::{Duration, Quantile};

/// The number of positions of the bounds that are tried, at equal distances within a step.
const PLACES: u8 = 32;

/// A layout that keeps a quantile within the wanted error.
#[derive(Clone, Debug, PartialEq)]
pub struct Coarsest {
    /// The layout.
    pub layout: Layout,
    /// The largest error over all positions of the bounds, with its sign, as a share of the true quantile.
    pub worst: f64,
}

/// Returns the last of `layouts` (the finest first) before the one whose error at `quantile` of `values` exceeds
/// `error_max`; [`None`] if that is the first layout, or the true quantile is zero.
pub fn coarsest(
    layouts: impl IntoIterator<Item = Layout>,
    (values, quantile): (&Values, Quantile),
    error_max: f64,
) -> Option<Coarsest> {
    let judged = layouts.into_iter().map_while(|layout| {
        let worst = worst(&layout, values, quantile).filter(|worst| worst.abs() <= error_max)?;
        Some(Coarsest { layout, worst })
    });
    judged.last()
}

/// The error with the largest absolute value, over all positions of the bounds.
fn worst(layout: &Layout, values: &Values, quantile: Quantile) -> Option<f64> {
    (0..PLACES)
        .map(|place| layout.shifted(f64::from(place) / f64::from(PLACES)).error(values, quantile))
        .try_fold(0.0_f64, |worst, error| {
            error.map(|error| if error.abs() > worst.abs() { error } else { worst })
        })
}

impl Layout {
    /// Growth factors from 1.001 to 10, rounded as people write them, the finest first; `unit` is one of the bounds.
    ///
    /// # Panics
    /// Never: all of them are growth factors.
    pub fn growths(unit: Duration) -> impl Iterator<Item = Self> {
        let thousandths = (1_001..1_010)
            .chain((1_010..2_000).step_by(10))
            .chain((2_000..=10_000_u32).step_by(100));
        thousandths.map(move |thousandths| {
            let growth = f64::from(thousandths) / 1_000.0;
            Self::growth(growth, unit).expect("all of them are growth factors")
        })
    }

    /// All scales of OpenTelemetry, the finest first.
    pub fn otel_scales() -> impl Iterator<Item = Self> {
        (-10..=20).rev().filter_map(|scale| Some(Self::otel_scale(Scale::new(scale).ok()?)))
    }
}
