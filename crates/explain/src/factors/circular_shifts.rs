//! Random shifts of labels in time: how strong a factor is that has nothing to do with slow traces.
//!
//! The traces of each stratum are a circle in the order of their starts. All labels of slow traces are shifted by the same
//! random number of places, so that they keep their clusters (Lotwick & Silverman 1982). Each is then shifted a little
//! further by itself: replicas that take turns would otherwise meet themselves in one of a few shifts.
//!
//! The factor looked at is the best one of its attribute, so the best of the attribute counts in each shift.

use super::factor_table::Cell;
use super::{SLOW_MIN, estimate};
use alloc::vec;
use alloc::vec::Vec;
use curtail_units::Rng;

/// The number of places up to which a label is shifted by itself.
const OWN_SHIFT: usize = 16;

/// What a trace has of an attribute.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceFactors {
    pub(super) has_attribute: bool,
    /// The factors of the attribute that the trace has.
    pub(super) factors: Vec<u16>,
}

/// The traces of a stratum in a circle of time.
#[derive(Debug)]
pub(super) struct Circle {
    /// The places of the slow traces.
    slow: Vec<usize>,
    places: Vec<PlaceFactors>,
    with_attribute: u32,
    with_factor: Vec<u32>,
}

impl Circle {
    pub(super) fn new(slow: Vec<usize>, places: Vec<PlaceFactors>, factors: usize) -> Self {
        let mut with_factor = vec![0; factors];
        for factor in places.iter().flat_map(|place| &place.factors) {
            with_factor[usize::from(*factor)] += 1;
        }
        let with_attribute = places.iter().map(|place| u32::from(place.has_attribute)).sum();
        Self { slow, places, with_attribute, with_factor }
    }

    /// The number of slow traces with the attribute and with each factor after a random shift.
    fn shifted(&self, rng: &mut Rng) -> (u32, Vec<u32>) {
        let (mut of_attribute, mut of_factors) = (0, vec![0; self.with_factor.len()]);
        // Without traces, nothing is shifted.
        let shift = rng.below(self.places.len().max(1));
        for at in &self.slow {
            let place = &self.places[(at + shift + rng.below(OWN_SHIFT)) % self.places.len()];
            of_attribute += u32::from(place.has_attribute);
            place.factors.iter().for_each(|factor| of_factors[usize::from(*factor)] += 1);
        }
        (of_attribute, of_factors)
    }
}

/// The largest lower bound of a fraction that a factor of the attribute has after a random shift.
pub(super) fn largest_lower(circles: &[Circle], slow_count: f64, rng: &mut Rng) -> f64 {
    let shifted: Vec<_> = circles.iter().map(|circle| circle.shifted(rng)).collect();
    let factors = circles.first().map_or(0, |circle| circle.with_factor.len());
    let lower = |factor: usize| {
        let of_strata = circles.iter().zip(&shifted).map(|(circle, (of_attribute, of_factors))| {
            let own = Cell { all: circle.with_factor[factor], slow: of_factors[factor] };
            (own, Cell { all: circle.with_attribute, slow: *of_attribute })
        });
        let estimate = estimate(of_strata, slow_count);
        if estimate.slow >= SLOW_MIN { estimate.lower() } else { f64::NEG_INFINITY }
    };
    (0..factors).map(lower).fold(f64::NEG_INFINITY, f64::max)
}
