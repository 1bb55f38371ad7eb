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

/// Each label is shifted further, by a random number of places below this.
const JITTER: usize = 16;

/// The traces of a stratum in a circle of time.
#[derive(Debug)]
pub(super) struct Circle {
    /// The places of the slow traces.
    slow: Vec<usize>,
    has_attribute: Vec<bool>,
    /// The factors of the attribute that each trace has, at the indices that `ends` bounds.
    factors: Vec<u16>,
    ends: Vec<usize>,
    with_attribute: u32,
    with_factor: Vec<u32>,
}

impl Circle {
    /// A circle of `places`, of an attribute with `factors` factors. `add` adds the factors of a trace, and returns whether
    /// it has the attribute.
    pub(super) fn new(
        slow: Vec<usize>,
        places: &[usize],
        factors: usize,
        add: impl Fn(usize, &mut Vec<u16>) -> bool,
    ) -> Self {
        let mut this = Self {
            slow,
            has_attribute: Vec::with_capacity(places.len()),
            factors: Vec::with_capacity(places.len()),
            ends: Vec::with_capacity(places.len()),
            with_attribute: 0,
            with_factor: vec![0; factors],
        };
        for at in places {
            let has_attribute = add(*at, &mut this.factors);
            this.with_attribute += u32::from(has_attribute);
            this.has_attribute.push(has_attribute);
            this.ends.push(this.factors.len());
        }
        this.factors.iter().for_each(|factor| this.with_factor[usize::from(*factor)] += 1);
        this
    }

    /// The number of slow traces with the attribute and with each factor after a random shift.
    fn shifted(&self, rng: &mut Rng) -> (u32, Vec<u32>) {
        let (mut of_attribute, mut of_factors) = (0, vec![0; self.with_factor.len()]);
        // Without traces, nothing is shifted.
        let shift = rng.below(self.ends.len().max(1));
        for at in &self.slow {
            let place = (at + shift + rng.below(JITTER)) % self.ends.len();
            of_attribute += u32::from(self.has_attribute[place]);
            let from = place.checked_sub(1).map_or(0, |before| self.ends[before]);
            let factors = &self.factors[from..self.ends[place]];
            factors.iter().for_each(|factor| of_factors[usize::from(*factor)] += 1);
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
