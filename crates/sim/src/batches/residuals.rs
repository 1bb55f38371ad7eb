//! From batches to the error of a statistic.
//!
//! A statistic of the whole run (a mean, a share) is the mean of the batches' contributions. The **residual** of a
//! batch is the difference between its contribution and the whole. The error of the statistic follows from the
//! variance of the residuals. Four effects make the textbook interval too narrow:
//!
//! | effect | correction |
//! |---|---|
//! | adjacent batches are correlated, so their variance is too small | the variance is that of [`GROUPS`] groups of batches; its growth from batches to groups predicts the part that groups still lack, and [`EXTRAPOLATION`] times that part is added |
//! | the variance of few groups is uncertain | a mean has [`GROUPS`] − 1 degrees of freedom, or batches − 1 if groups vary no more than independent batches would |
//! | a mean of few long stalls is skewed | the skewness of the residuals bends the interval of a mean |
//! | few batches reach a high quantile | the degrees of freedom of a share are the groups (or batches) that reach the quantile, minus 1 |
//!
//! **Source**: extrapolated ("lugsail") batch means: Vats & Flegal, "Lugsail lag windows for estimating
//! time-average covariance matrices", 2022. Skewness: Willink, "A confidence interval and test for the mean
//! of an asymmetric distribution", 2005, as Tafazzoli and Wilson use it in "Skart", 2011.

use super::{Batch, Bound};
use curtail_load::compare::student;

/// The level of a 95 % interval.
const LEVEL: f64 = 0.05;

/// The number of groups; a group has successive batches.
const GROUPS: usize = 16;

/// Minimum number of batches for an interval: the extrapolation needs two batches in each group.
const BATCHES_MIN: usize = 2 * GROUPS;

/// The factor of the extrapolation: 1 would remove a bias that is inversely proportional to the length of a batch.
const EXTRAPOLATION: f64 = 2.0;

/// A bend (see [`bend_quantile`]) below this is ignored.
const SKEWNESS_MIN: f64 = 1e-3;

/// The contribution of each batch to a statistic, minus that of the whole run.
#[derive(Clone, Debug)]
pub(super) struct Residuals {
    of_batches: Vec<f64>,
    /// For each batch, whether the statistic counts any of its requests.
    is_reached: Vec<bool>,
}

impl Residuals {
    /// The residuals of the mean of responses; [`None`] with too few batches.
    pub(super) fn of_mean(batches: &[&Batch], mean_ns: f64) -> Option<Self> {
        let succeeded: u64 = batches.iter().map(|batch| batch.succeeded.count()).sum();
        if succeeded == 0 {
            return None;
        }
        let middling = succeeded as f64 / batches.len() as f64;
        let residual =
            |batch: &&Batch| (batch.sum_ns() - mean_ns * batch.succeeded.count() as f64) / middling;
        Self::new(batches.iter().map(residual).collect(), &[])
    }

    /// The residuals of the share of requests that reach a bound.
    pub(super) fn of_share(batches: &[&Batch], bound: Bound) -> Option<Self> {
        Self::of_counts(batches, batches.iter().map(|batch| batch.count_reaching(bound)).collect())
    }

    /// The residuals of a share; `counts` has the number of counted requests of each batch.
    pub(super) fn of_counts(batches: &[&Batch], counts: Vec<f64>) -> Option<Self> {
        let all: u64 = batches.iter().map(|batch| batch.len()).sum();
        let share = counts.iter().sum::<f64>() / all as f64;
        let middling = all as f64 / batches.len() as f64;
        let residual =
            |(batch, count): (&&Batch, &f64)| (count - share * batch.len() as f64) / middling;
        Self::new(batches.iter().zip(&counts).map(residual).collect(), &counts)
    }

    /// A batch whose count is zero adds no degree of freedom; with empty `counts`, every batch does.
    fn new(of_batches: Vec<f64>, counts: &[f64]) -> Option<Self> {
        if of_batches.len() < BATCHES_MIN {
            return None;
        }
        let is_reached = match counts {
            [] => vec![true; of_batches.len()],
            counts => counts.iter().map(|count| *count > 0.0).collect(),
        };
        Some(Self { of_batches, is_reached })
    }

    /// The residuals of `other` minus `factor` times those of `self`, by batch, for two arms with the same requests.
    pub(super) fn paired(&self, other: &Self, factor: f64) -> Self {
        let pairs = self.of_batches.iter().zip(&other.of_batches);
        let both = self.is_reached.iter().zip(&other.is_reached);
        Self {
            of_batches: pairs.map(|(a, b)| b - factor * a).collect(),
            is_reached: both.map(|(a, b)| *a && *b).collect(),
        }
    }

    /// The interval of a mean around `value`.
    pub(super) fn interval(&self, value: f64) -> (f64, f64) {
        let count = self.of_batches.len() as f64;
        let (variance, freedom) = self.variance();
        let error = variance.sqrt();
        let bend = skewness(&self.of_batches) / (6.0 * count.sqrt());
        let t = student::critical(LEVEL, freedom);
        (value - error * bend_quantile(t, bend), value - error * bend_quantile(-t, bend))
    }

    /// Half the width of the interval of a share; infinite when fewer than two groups reach it.
    pub(super) fn error_of_share(&self) -> f64 {
        let (variance, freedom) = self.variance();
        if freedom < 1.0 {
            return f64::INFINITY;
        }
        student::critical(LEVEL, freedom) * variance.sqrt()
    }

    /// The variance of the statistic, and its degrees of freedom.
    fn variance(&self) -> (f64, f64) {
        let of_batches = variance_of_mean(&self.of_batches);
        let each = self.of_batches.len() / GROUPS;
        let means = groups(&self.of_batches)
            .map(|group| group.iter().sum::<f64>() / group.len() as f64)
            .collect::<Vec<f64>>();
        // Leftover batches belong to no group, but to the statistic.
        let grouped = (each * GROUPS) as f64 / self.of_batches.len() as f64;
        let of_groups = variance_of_mean(&means) * grouped;
        let grown = (of_groups - of_batches) / (each - 1) as f64;
        if of_groups < of_batches {
            let batches = self.is_reached.iter().filter(|is_reached| **is_reached).count();
            (of_batches, batches as f64 - 1.0)
        } else {
            let reached_groups =
                groups(&self.is_reached).filter(|group| group.contains(&true)).count();
            (of_groups + EXTRAPOLATION * grown, reached_groups as f64 - 1.0)
        }
    }
}

/// Groups of successive batches of equal size; the first batches may be left over.
fn groups<T>(batches: &[T]) -> impl Iterator<Item = &[T]> {
    let each = batches.len() / GROUPS;
    batches[batches.len() - each * GROUPS..].chunks(each)
}

fn variance_of_mean(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    squares / (count - 1.0) / count
}

/// The skewness of `values`; 0 when all are equal.
fn skewness(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let deviation = (variance_of_mean(values) * count).sqrt();
    if deviation <= 0.0 {
        return 0.0;
    }
    let cubes: f64 = values.iter().map(|value| ((value - mean) / deviation).powi(3)).sum();
    cubes * count / ((count - 1.0) * (count - 2.0))
}

/// The quantile `t` of Student's distribution for a mean with a skewness: `bend` is skewness / (6 √n).
fn bend_quantile(t: f64, bend: f64) -> f64 {
    if bend.abs() < SKEWNESS_MIN {
        return t;
    }
    ((1.0 + 6.0 * bend * (t - bend)).cbrt() - 1.0) / (2.0 * bend)
}

#[cfg(test)]
mod tests {
    use super::{Residuals, bend_quantile, skewness, variance_of_mean};

    #[test]
    fn independent_residuals_vary_as_they_do_without_groups() {
        // Alternating values: groups of three vary a third as much as batches, so the batches decide.
        let values: Vec<f64> = (0..48).map(|nth| f64::from(nth % 2)).collect();
        let residuals = Residuals::new(values.clone(), &[]).expect("enough batches");
        assert_eq!(residuals.variance(), (variance_of_mean(&values), 47.0));
        // Blocks of three: the variance of groups is three times that of batches, and the extrapolation adds one.
        let values: Vec<f64> = (0..48).map(|nth| f64::from(nth / 3 % 2)).collect();
        let residuals = Residuals::new(values.clone(), &[]).expect("enough batches");
        let batches = variance_of_mean(&values);
        let groups = 47.0 / 15.0 * batches;
        let (variance, freedom) = residuals.variance();
        assert!((variance / (2.0 * groups - batches) - 1.0).abs() < 1e-12);
        assert_eq!(freedom, 15.0);
        assert!(Residuals::new(vec![0.0; 31], &[]).is_none());
    }

    #[test]
    fn a_mean_has_the_degrees_of_freedom_of_batches_if_these_are_independent_else_of_groups() {
        for (same, expected) in [(1, 2.012), (3, 2.131)] {
            let values = (0..48).map(|nth| f64::from(nth / same % 2) - 0.5).collect();
            let residuals = Residuals::new(values, &[]).expect("enough batches");
            let (low, high) = residuals.interval(0.0);
            let t = high / residuals.variance().0.sqrt();
            assert!((t - expected).abs() < 0.001 && (low + high).abs() < 1e-12, "{t}");
        }
    }

    #[test]
    fn a_skewed_mean_reaches_further_up_than_down() {
        assert!(skewness(&[1.0, 2.0, 3.0]).abs() < 1e-12);
        // Of 0, 0, 0, 4: cubes 3 · (−1)³ + 3³ = 24 over a deviation of 2, times 4 / (3 · 2).
        assert!((skewness(&[0.0, 0.0, 0.0, 4.0]) - 2.0).abs() < 1e-12);
        assert_eq!(skewness(&[1.0; 9]), 0.0);
        assert_eq!(bend_quantile(2.0, 0.0), 2.0);
        // (1 + 0.6 · 1.9)^(1/3) = 1.2887; (1 − 0.6 · 2.1)^(1/3) = −0.6383.
        assert!((bend_quantile(2.0, 0.1) - 1.4434).abs() < 1e-3, "{}", bend_quantile(2.0, 0.1));
        assert!((bend_quantile(-2.0, 0.1) + 8.1913).abs() < 1e-3, "{}", bend_quantile(-2.0, 0.1));
    }

    #[test]
    fn a_share_that_few_groups_reach_has_a_wide_interval() {
        let error = |counts: &[f64]| {
            let residuals = Residuals::new(counts.to_vec(), counts).expect("enough batches");
            residuals.error_of_share() / residuals.variance().0.sqrt()
        };
        let with = |reached: usize| {
            let counts: Vec<f64> = (0..48)
                .map(|nth| if nth % 3 == 0 && nth / 3 < reached { 1.0 } else { 0.0 })
                .collect();
            error(&counts)
        };
        assert_eq!(with(1), f64::INFINITY);
        assert!((with(2) - 12.706).abs() < 0.001, "one degree of freedom");
        assert!((with(16) - 2.131).abs() < 0.001, "fifteen");
    }
}
