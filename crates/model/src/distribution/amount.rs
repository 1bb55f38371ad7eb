//! The amounts that a distribution can have: durations, and factors on durations.

use curtail_config::{Field, Section, Value};
use curtail_units::Duration;

/// Maximum factor.
pub const FACTOR_MAX: f64 = 1e9;

/// A value of a distribution: zero or more.
pub trait Amount: Value + Copy + PartialOrd + std::fmt::Display + 'static {
    /// Zero.
    const ZERO: Self;
    /// The shortest duration or the smallest factor above zero that a power law may begin with.
    const SHORTEST: Self;

    /// The value as a number; a duration in nanoseconds.
    fn as_f64(self) -> f64;

    /// A key whose value is an amount.
    fn field<'s, 'a>(
        s: &'s mut Section<'a>,
        key: &'static str,
        doc: &'static str,
    ) -> Field<'s, 'a, Self>;
}

impl Amount for Duration {
    const ZERO: Self = Self::ZERO;
    const SHORTEST: Self = Self::from_ns(1);

    fn as_f64(self) -> f64 {
        self.as_ns_f64()
    }

    fn field<'s, 'a>(
        s: &'s mut Section<'a>,
        key: &'static str,
        doc: &'static str,
    ) -> Field<'s, 'a, Self> {
        s.field(key, doc)
    }
}

impl Amount for f64 {
    const ZERO: Self = 0.0;
    const SHORTEST: Self = 1e-9;

    fn as_f64(self) -> f64 {
        self
    }

    fn field<'s, 'a>(
        s: &'s mut Section<'a>,
        key: &'static str,
        doc: &'static str,
    ) -> Field<'s, 'a, Self> {
        s.field(key, doc).range(0.0..=FACTOR_MAX)
    }
}
