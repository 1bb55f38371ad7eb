//! Detects the end of a warm-up: the caches, compiled code and connections of a service are warm.
//!
//! The last [`SLOTS`] slots are steady when their medians have no significant trend (Mann–Kendall test, two-sided, at
//! [`LEVEL`]), or when the medians of the two halves differ by at most [`DIFFERENCE_MAX`].
//! **Limits**: slow changes of the tail, such as a growing heap, do not show in medians.
//! **Source**: Mann, "Nonparametric tests against trend" (1945), in Kendall's form with its normal approximation, which
//! holds from ten values on.

use crate::Slot;
use crate::compare::student::two_sided_normal;
use curtail_units::Quantile;

/// The number of slots that the test uses.
pub const SLOTS: usize = 12;

/// A trend is significant if chance alone shows one as clear with at most this probability.
pub const LEVEL: f64 = 0.1;

/// Maximum difference between the halves that does not matter, as a share of the first half.
pub const DIFFERENCE_MAX: f64 = 0.02;

/// Whether the last slots are steady; false when there are too few, or one of them has no response.
#[must_use]
pub fn is_steady(slots: &[Slot]) -> bool {
    let Some(from) = slots.len().checked_sub(SLOTS) else { return false };
    let median =
        |slot: &Slot| slot.response.quantile(Quantile::P50).map(|latency| latency.as_ns_f64());
    let Some(medians) = slots[from..].iter().map(median).collect::<Option<Vec<f64>>>() else {
        return false;
    };
    let (first, second) = medians.split_at(SLOTS / 2);
    let (before, after) = (middle(first), middle(second));
    (after - before).abs() <= DIFFERENCE_MAX * before || trend_chance(&medians) > LEVEL
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The probability of a trend as clear as that of `values` by chance.
fn trend_chance(values: &[f64]) -> f64 {
    let mut sum = 0.0;
    for (nth, earlier) in values.iter().enumerate() {
        for later in &values[nth + 1..] {
            // Equal values say nothing either way.
            sum += if later == earlier { 0.0 } else { (later - earlier).signum() };
        }
    }
    let n = values.len() as f64;
    let variance = n * (n - 1.0) * (2.0 * n + 5.0) / 18.0;
    let distance = (sum.abs() - 1.0).max(0.0) / libm::sqrt(variance);
    two_sided_normal(distance)
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, is_steady, trend_chance};
    use crate::Slot;
    use curtail_units::{Duration, Rng};

    const SEED: u64 = 11;

    fn slots(median_ms: impl Fn(usize) -> f64) -> Vec<Slot> {
        let mut rng = Rng::new(SEED);
        let mut slot = |nth: usize| {
            let mut slot = Slot::new();
            for _ in 0..200 {
                let ms = median_ms(nth) * (0.5 * rng.normal()).exp();
                slot.response.record(Duration::from_ns_f64(ms * 1e6));
            }
            slot
        };
        (0..SLOTS).map(&mut slot).collect()
    }

    #[test]
    fn what_gets_faster_is_not_steady_and_what_stays_is() {
        assert!(is_steady(&slots(|_| 10.0)), "seed {SEED}");
        assert!(!is_steady(&slots(|nth| 10.0 + 40.0 / (nth as f64 + 1.0))), "seed {SEED}");
        assert!(!is_steady(&slots(|nth| 10.0 + nth as f64)), "seed {SEED}");
        assert!(is_steady(&slots(|nth| 10.0 + 0.001 * nth as f64)), "seed {SEED}");
    }

    #[test]
    fn too_little_is_not_steady() {
        let all = slots(|_| 10.0);
        assert!(!is_steady(&all[1..]));
        let mut with_gap = all;
        with_gap[SLOTS - 1] = Slot::new();
        assert!(!is_steady(&with_gap));
    }

    #[test]
    fn a_trend_is_as_likely_as_tables_say() {
        // Gilbert, "Statistical methods for environmental pollution monitoring" (1987), equation 16.4: S = 45 of 10
        // values in order is 3.936 deviations, which is once in 12,000.
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        assert!((trend_chance(&rising) - 8.3e-5).abs() < 2e-6, "{}", trend_chance(&rising));
        assert!((trend_chance(&[1.0; 10]) - 1.0).abs() < 1e-12);
    }
}
