//! Values in their order, so that a quantile is a look-up.

use curtail_sketch::rank;
use curtail_units::{Duration, Quantile};

/// Values, the shortest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values(Vec<Duration>);

impl Values {
    /// All of `values`, in any order.
    #[must_use]
    pub fn new(mut values: Vec<Duration>) -> Self {
        values.sort_unstable();
        Self(values)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, the shortest first.
    #[must_use]
    pub fn as_slice(&self) -> &[Duration] {
        &self.0
    }

    /// The value with rank `ceil(q · n)`: one that is there, not one in between. Nothing when there is none.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        let place = usize::try_from(rank(quantile, self.len())).ok()?.checked_sub(1)?;
        self.0.get(place).copied()
    }

    /// How many are at most `bound_ns`.
    pub(super) fn up_to(&self, bound_ns: f64) -> u64 {
        self.0.partition_point(|value| value.as_ns_f64() <= bound_ns) as u64
    }
}
