//! The interval of a share that was counted.

use libm::sqrt;

/// The 95 % interval of a share of `count` trials (Wilson, "Probable inference, the law of succession, and statistical
/// inference", Journal of the American Statistical Association 22, 1927). Without trials, all shares are possible.
#[must_use]
pub fn wilson_interval(share: f64, count: f64) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    if count <= 0.0 {
        return (0.0, 1.0);
    }
    let z2 = Z * Z / count;
    let middle = (share + z2 / 2.0) / (1.0 + z2);
    let half = Z * sqrt(share * (1.0 - share) / count + z2 / (4.0 * count)) / (1.0 + z2);
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_solves_the_score_equation() {
        for (share, count) in [(0.0, 10.0), (0.98, 100.0), (0.3, 37.0), (1.0, 5.0)] {
            let (low, high) = wilson_interval(share, count);
            assert!(0.0 <= low && low <= share && share <= high && high <= 1.0);
            // Each bound is the share whose own standard error puts the counted share 1.96 errors away.
            for bound in [low, high].into_iter().filter(|bound| 0.0 < *bound && *bound < 1.0) {
                let z = (share - bound) / sqrt(bound * (1.0 - bound) / count);
                assert!((z.abs() - 1.959_964).abs() < 1e-9, "{share} of {count}: {bound}");
            }
        }
        assert_eq!(wilson_interval(0.0, 0.0), (0.0, 1.0));
    }
}
