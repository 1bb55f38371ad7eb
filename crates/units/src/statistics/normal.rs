//! The normal distribution.

use libm::erfc;

/// The probability that a standard normal variable exceeds `z`.
#[must_use]
pub fn normal_upper_tail(z: f64) -> f64 {
    erfc(z / core::f64::consts::SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::normal_upper_tail;

    #[test]
    fn probabilities_are_those_of_the_printed_table() {
        for (z, probability) in [(0.0, 0.5), (1.959_963_984_540_054, 0.025), (-1.0, 0.841_345)] {
            let found = normal_upper_tail(z);
            assert!((found - probability).abs() < 1e-6, "{z}: {found}");
        }
    }
}
