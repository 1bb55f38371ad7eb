//! Student's distribution: the two-sided probability of a `t`, and the `t` of a two-sided level, to 10 digits.
//!
//! **Source**: DLMF 8.17.22 (the continued fraction of the incomplete beta function, by Lentz's method as in Thompson
//! and Barnett, 1986) and 8.17.4 (its symmetry).

use curtail_units::normal_upper_tail;

/// Maximum number of terms. Below a million degrees of freedom fewer suffice; above, the value is close enough by then.
const TERMS_MAX: u32 = 10_000;

const TINY: f64 = 1e-300;

/// The probability that a value is at least as far from zero as `t`, either way.
#[must_use]
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The `t` that is exceeded, in either direction, with probability `level`, which lies in (0, 1).
#[must_use]
pub fn critical(level: f64, freedom: f64) -> f64 {
    let mut high = 2.0;
    while two_sided(high, freedom) > level && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Each step halves what is left: 100 are more than a float has bits.
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, freedom) > level {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability that a normally distributed value is at least as far from zero as `z`, either way.
pub(crate) fn two_sided_normal(z: f64) -> f64 {
    2.0 * normal_upper_tail(z.abs())
}

/// The regularised incomplete beta function `I_x(a, b)`.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction settles fast on this side only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let log_beta = libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b);
    let front = libm::exp(a * libm::log(x) + b * libm::log1p(-x) - log_beta) / a;
    front / fraction(x, a, b)
}

/// `1 + d1/(1 + d2/(1 + …))` with the coefficients of DLMF 8.17.23.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for term in 1..=TERMS_MAX {
        let m = f64::from(term / 2);
        let coefficient = if term % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        d = 1.0 / non_zero(1.0 + coefficient * d);
        c = non_zero(1.0 + coefficient / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

fn non_zero(value: f64) -> f64 {
    if value.abs() < TINY { TINY } else { value }
}

#[cfg(test)]
mod tests {
    use super::{critical, two_sided, two_sided_normal};
    use core::f64::consts::PI;

    /// The usual printed table: degrees of freedom, then `t` at two-sided 10 %, 5 %, 1 %, 0.1 %.
    const TABLE: [(f64, [f64; 4]); 8] = [
        (1.0, [6.314, 12.706, 63.657, 636.619]),
        (2.0, [2.920, 4.303, 9.925, 31.599]),
        (5.0, [2.015, 2.571, 4.032, 6.869]),
        (9.0, [1.833, 2.262, 3.250, 4.781]),
        (19.0, [1.729, 2.093, 2.861, 3.883]),
        (30.0, [1.697, 2.042, 2.750, 3.646]),
        (60.0, [1.671, 2.000, 2.660, 3.460]),
        (120.0, [1.658, 1.980, 2.617, 3.373]),
    ];

    #[test]
    fn it_agrees_with_the_printed_table() {
        for (freedom, row) in TABLE {
            for (level, expected) in [0.1, 0.05, 0.01, 0.001].into_iter().zip(row) {
                let got = critical(level, freedom);
                assert!((got - expected).abs() <= 0.000_501, "{freedom}, {level}: {got}");
            }
        }
    }

    #[test]
    fn it_equals_the_closed_forms_of_one_two_and_four_degrees_of_freedom() {
        for t in [0.0_f64, 1e-6, 0.3, 1.0, 2.5, 7.0, 40.0, 3_000.0] {
            let one = 1.0 - 2.0 / PI * t.atan();
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            let y = t / (4.0 + t * t).sqrt();
            let four = 1.0 - y * (3.0 - y * y) / 2.0;
            for (freedom, expected) in [(1.0, one), (2.0, two), (4.0, four)] {
                let got = two_sided(t, freedom);
                assert!((got - expected).abs() < 1e-10, "{freedom}, {t}: {got} and {expected}");
                assert_eq!(two_sided(-t, freedom), got);
            }
        }
        assert_eq!(two_sided(f64::INFINITY, 9.0), 0.0);
    }

    #[test]
    fn with_many_degrees_of_freedom_it_is_the_normal_one() {
        for z in [0.5, 1.959_963_985, 3.0] {
            let got = two_sided(z, 1e6);
            assert!((got / two_sided_normal(z) - 1.0).abs() < 1e-4, "{z}: {got}");
        }
        assert!((two_sided_normal(1.959_963_984_540_054) - 0.05).abs() < 1e-12);
    }
}
