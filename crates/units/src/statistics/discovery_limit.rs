//! Many tests at once: the p-values that are discoveries at a false discovery rate.

use alloc::vec::Vec;

/// The largest p-value that is a discovery when a share of `q` of all discoveries may be false; below zero if none is
/// (Benjamini & Hochberg, "Controlling the false discovery rate", Journal of the Royal Statistical Society B 57, 1995).
/// `tests` is the number of all tests, of which `p_values` are the smallest ones.
#[must_use]
pub fn discovery_limit(p_values: impl IntoIterator<Item = f64>, tests: usize, q: f64) -> f64 {
    let mut sorted: Vec<f64> = p_values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let limits = (1..).zip(&sorted).map(|(nth, p)| (f64::from(nth) * q / tests as f64, *p));
    limits.filter(|(limit, p)| p <= limit).map(|(_, p)| p).last().unwrap_or(-1.0)
}

#[cfg(test)]
mod tests {
    use super::discovery_limit;

    #[test]
    fn discoveries_are_those_of_the_paper() {
        // Benjamini & Hochberg 1995, section 3.2: 15 p-values, four discoveries at q = 0.05.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        assert_eq!(discovery_limit(p, 15, 0.05), 0.0095);
        assert!(discovery_limit([0.9, 0.8], 2, 0.05) < 0.0);
    }
}
