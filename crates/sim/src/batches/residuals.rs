//! From batches to the error of a statistic.
//!
//! A statistic of the whole run (a mean, a share) is the mean of what its batches add to it. The **residual** of
//! a batch is by how much that differs from the whole, so the error of the statistic follows from how
//! residuals vary. Four things make the textbook interval too narrow, and each is met:
//!
//! | what | how it is met |
//! |---|---|
//! | batches still depend on their neighbours | the variance is computed from [`GROUPS`] groups of batches, and extrapolated from batches to groups, twice as far as would remove a bias that falls with the length |
//! | a variance of few groups is known badly | the degrees of freedom of a mean are the groups, less one |
//! | a mean of few long stalls is skewed | the interval of a mean is bent by the skewness of the residuals |
//! | few batches reach a high quantile | the degrees of freedom of a share are the groups that reach it, less one |
//!
//! **Source**: extrapolated ("lugsail") batch means: Vats & Flegal, "Lugsail lag windows for estimating
//! time-average covariance matrices", 2022. Skewness: Willink, "A confidence interval and test for the mean
//! of an asymmetric distribution", 2005, as Tafazzoli and Wilson use it in "Skart", 2011.

use super::{Batch, Bound};
use curtail_load::compare::student;

/// The level of an interval of 95 %.
const LEVEL: f64 = 0.05;

/// Groups of batches; successive batches form a group.
const GROUPS: usize = 16;

/// The degrees of freedom of a mean. Its variance comes from the groups: those of the batches would be right only for
/// batches that do not depend on each other.
const FREEDOM: f64 = GROUPS as f64 - 1.0;

/// Fewer batches give no interval: a group must have two for an extrapolation.
const BATCHES_MIN: usize = 2 * GROUPS;

/// How far the variance is extrapolated: 1 would remove a bias that falls with the length of batches.
const EXTRAPOLATION: f64 = 2.0;

/// Less skewness than this bends nothing.
const SKEWNESS_MIN: f64 = 1e-3;

/// What each batch adds to a statistic, beyond what the whole run says.
#[derive(Clone, Debug)]
pub(super) struct Residuals {
    of_batches: Vec<f64>,
    /// By group, whether it has anything to say.
    is_reached: Vec<bool>,
}

impl Residuals {
    /// Those of a mean of what was answered; nothing with too few batches.
    pub(super) fn of_mean(batches: &[&Batch], mean_ns: f64) -> Option<Self> {
        let answered: u64 = batches.iter().map(|batch| batch.answered.count()).sum();
        if answered == 0 {
            return None;
        }
        let middling = answered as f64 / batches.len() as f64;
        let residual =
            |batch: &&Batch| (batch.sum_ns() - mean_ns * batch.answered.count() as f64) / middling;
        Self::new(batches.iter().map(residual).collect(), &[])
    }

    /// Those of the share of requests that reach a bound.
    pub(super) fn of_share(batches: &[&Batch], bound: Bound) -> Option<Self> {
        Self::of_counts(batches, batches.iter().map(|batch| batch.reaching(bound)).collect())
    }

    /// Those of a share of which these are the `counts`, by batch.
    pub(super) fn of_counts(batches: &[&Batch], counts: Vec<f64>) -> Option<Self> {
        let all: u64 = batches.iter().map(|batch| batch.len()).sum();
        let share = counts.iter().sum::<f64>() / all as f64;
        let middling = all as f64 / batches.len() as f64;
        let residual =
            |(batch, count): (&&Batch, &f64)| (count - share * batch.len() as f64) / middling;
        Self::new(batches.iter().zip(&counts).map(residual).collect(), &counts)
    }

    /// With `counts` of which some may be 0; without any, every batch has something to say.
    fn new(of_batches: Vec<f64>, counts: &[f64]) -> Option<Self> {
        if of_batches.len() < BATCHES_MIN {
            return None;
        }
        let is_reached = match counts {
            [] => vec![true; GROUPS],
            counts => groups(counts).map(|group| group.iter().any(|count| *count > 0.0)).collect(),
        };
        Some(Self { of_batches, is_reached })
    }

    /// Those of `other` less `factor` of these, batch by batch: two arms that saw the same requests.
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
        let error = self.variance().sqrt();
        let bend = skewness(&self.of_batches) / (6.0 * count.sqrt());
        let t = student::critical(LEVEL, FREEDOM);
        (value - error * bent(t, bend), value - error * bent(-t, bend))
    }

    /// Half the width of the interval of a share; infinite when less than two groups reach it.
    pub(super) fn error_of_share(&self) -> f64 {
        let reached = self.is_reached.iter().filter(|is_reached| **is_reached).count();
        if reached < 2 {
            return f64::INFINITY;
        }
        student::critical(LEVEL, reached as f64 - 1.0) * self.variance().sqrt()
    }

    /// The variance of the statistic.
    fn variance(&self) -> f64 {
        let of_batches = variance_of_mean(&self.of_batches);
        let each = self.of_batches.len() / GROUPS;
        let means = groups(&self.of_batches)
            .map(|group| group.iter().sum::<f64>() / group.len() as f64)
            .collect::<Vec<f64>>();
        // Batches that are left over belong to no group, but to the statistic.
        let grouped = (each * GROUPS) as f64 / self.of_batches.len() as f64;
        let of_groups = variance_of_mean(&means) * grouped;
        let grown = (of_groups - of_batches) / (each - 1) as f64;
        of_batches.max(of_groups + EXTRAPOLATION * grown)
    }
}

/// Groups of successive batches, all of one size; the first batches may be left over.
fn groups<T>(batches: &[T]) -> impl Iterator<Item = &[T]> {
    let each = batches.len() / GROUPS;
    batches[batches.len() - each * GROUPS..].chunks(each)
}

/// The variance of the mean of independent `values`.
fn variance_of_mean(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    squares / (count - 1.0) / count
}

/// The skewness of `values`; 0 where all are alike.
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

/// A quantile of Student's distribution, bent for a mean with that skewness / (6 √n).
fn bent(t: f64, bend: f64) -> f64 {
    if bend.abs() < SKEWNESS_MIN {
        return t;
    }
    ((1.0 + 6.0 * bend * (t - bend)).cbrt() - 1.0) / (2.0 * bend)
}

#[cfg(test)]
mod tests {
    use super::{Residuals, bent, skewness, variance_of_mean};

    #[test]
    fn independent_residuals_vary_as_they_do_without_groups() {
        // Alternating values: groups of three differ by a third of what batches do, so batches decide.
        let values: Vec<f64> = (0..48).map(|nth| f64::from(nth % 2)).collect();
        let residuals = Residuals::new(values.clone(), &[]).expect("enough batches");
        assert_eq!(residuals.variance(), variance_of_mean(&values));
        // Blocks of three: the variance of groups is three times that of batches, and one more is added.
        let values: Vec<f64> = (0..48).map(|nth| f64::from(nth / 3 % 2)).collect();
        let residuals = Residuals::new(values.clone(), &[]).expect("enough batches");
        let batches = variance_of_mean(&values);
        let groups = 47.0 / 15.0 * batches;
        assert!((residuals.variance() / (2.0 * groups - batches) - 1.0).abs() < 1e-12);
        assert!(Residuals::new(vec![0.0; 31], &[]).is_none());
    }

    #[test]
    fn a_mean_has_the_degrees_of_freedom_of_its_groups() {
        let values: Vec<f64> = (0..48).map(|nth| f64::from(nth % 2) - 0.5).collect();
        let residuals = Residuals::new(values, &[]).expect("enough batches");
        let (low, high) = residuals.interval(0.0);
        let t = high / residuals.variance().sqrt();
        assert!((t - 2.131).abs() < 0.001 && (low + high).abs() < 1e-12, "{t}");
    }

    #[test]
    fn a_skewed_mean_reaches_further_up_than_down() {
        assert!(skewness(&[1.0, 2.0, 3.0]).abs() < 1e-12);
        // Of 0, 0, 0, 4: cubes 3 · (−1)³ + 3³ = 24 over a deviation of 2, times 4 / (3 · 2).
        assert!((skewness(&[0.0, 0.0, 0.0, 4.0]) - 2.0).abs() < 1e-12);
        assert_eq!(skewness(&[1.0; 9]), 0.0);
        assert_eq!(bent(2.0, 0.0), 2.0);
        // (1 + 0.6 · 1.9)^(1/3) = 1.2887; (1 − 0.6 · 2.1)^(1/3) = −0.6383.
        assert!((bent(2.0, 0.1) - 1.4434).abs() < 1e-3, "{}", bent(2.0, 0.1));
        assert!((bent(-2.0, 0.1) + 8.1913).abs() < 1e-3, "{}", bent(-2.0, 0.1));
    }

    #[test]
    fn what_few_groups_reach_is_known_badly() {
        let error = |counts: &[f64]| {
            let residuals = Residuals::new(counts.to_vec(), counts).expect("enough batches");
            residuals.error_of_share() / residuals.variance().sqrt()
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
