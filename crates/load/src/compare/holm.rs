//! Holm's procedure with weights, for many tests at once.
//!
//! Each test gets a part of the level by its weight. The test with the least ratio of p-value to part is a finding if
//! the ratio is at most 1, and the other tests share its part. The procedure ends when there is no further finding.
//! **Invariant**: without any true difference, the probability of a finding is at most the level.
//! **Source**: Holm, "A simple sequentially rejective multiple test procedure" (1979), sections 2 and 4 (weights).

/// The level at which each test ends; the test is a finding if its probability is at most this level.
///
/// `weights` has a positive weight for each of `probabilities`.
pub(crate) fn levels(probabilities: &[f64], weights: &[f64], level: f64) -> Vec<f64> {
    let parts = |open: &[usize]| {
        let whole: f64 = open.iter().map(|&nth| weights[nth]).sum();
        move |nth: usize| level * weights[nth] / whole
    };
    let mut tested_at = vec![level; probabilities.len()];
    let mut open: Vec<usize> = (0..probabilities.len()).collect();
    while !open.is_empty() {
        let part = parts(&open);
        for &nth in &open {
            tested_at[nth] = part(nth);
        }
        let by_part = |a: &usize, b: &usize| {
            (probabilities[*a] / part(*a)).total_cmp(&(probabilities[*b] / part(*b)))
        };
        let best = open.iter().copied().min_by(by_part).expect("it is not empty");
        if probabilities[best] > tested_at[best] {
            break;
        }
        open.retain(|nth| *nth != best);
    }
    tested_at
}

#[cfg(test)]
mod tests {
    use super::levels;

    fn found(probabilities: &[f64], weights: &[f64]) -> Vec<bool> {
        let levels = levels(probabilities, weights, 0.05);
        probabilities.iter().zip(levels).map(|(p, level)| *p <= level).collect()
    }

    #[test]
    fn with_equal_weights_it_is_holms_own_example() {
        // Four tests: 0.0125, 0.0167, 0.025, 0.05 one after the other.
        let equal = [1.0; 4];
        assert_eq!(found(&[0.01, 0.04, 0.03, 0.005], &equal), [true, false, false, true]);
        assert_eq!(found(&[0.012, 0.016, 0.024, 0.049], &equal), [true; 4]);
        assert_eq!(found(&[0.013, 0.001, 0.02, 0.04], &equal), [true, true, true, true]);
        assert_eq!(found(&[0.013, 0.013, 0.013, 0.013], &equal), [false; 4]);
    }

    #[test]
    fn a_weight_buys_a_larger_part_and_what_is_found_passes_it_on() {
        let weights = [1.0, 3.0, 1.0, 1.0];
        assert_eq!(found(&[0.5, 0.024, 0.5, 0.5], &weights), [false, true, false, false]);
        // The second has half of the level; with it found, the others have a third of all each.
        assert_eq!(found(&[0.016, 0.024, 0.5, 0.5], &weights), [true, true, false, false]);
        assert_eq!(found(&[0.016, 0.026, 0.5, 0.5], &weights), [false; 4]);
        assert_eq!(levels(&[0.5, 0.5, 0.5, 0.5], &weights, 0.06), [0.01, 0.03, 0.01, 0.01]);
    }

    #[test]
    fn nothing_to_test_is_nothing_found() {
        assert!(levels(&[], &[], 0.05).is_empty());
    }
}
