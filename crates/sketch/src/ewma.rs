//! A mean that forgets: values weigh less the older they are.
//!
//! **Holds** the sum of all values and the sum of their weights, where a value `age` old weighs
//! `exp(-age / tau)`. Their quotient is the mean. So a value counts in full the moment it comes, many
//! values at one instant count alike, and irregular gaps need no correction; the usual update, which
//! moves the mean towards each value by a share that grows with the gap, has none of the three.
//! **Inputs**: instants of one clock that do not go back (one slightly earlier than the last counts as
//! the last), values of any one unit.
//! **Limits**: after 7 `tau` without a value there is no mean any more: what is known is too old.
//! **Hurts when** it stands in for a quantile: a mean does not see a tail.

use curtail_units::{Duration, Instant};

/// With less weight than this there is no mean. A single value falls below it after 6.9 `tau`.
const FORGOTTEN: f64 = 1e-3;

/// The mean of values, weighted by `exp(-age / tau)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ewma {
    tau: Duration,
    updated: Instant,
    /// Sum of values times their weights, at `updated`.
    sum: f64,
    /// Sum of the weights, at `updated`.
    weight: f64,
}

impl Ewma {
    /// A mean whose values weigh 1/e of their first weight after `tau`.
    ///
    /// # Panics
    /// When `tau` is zero: every value would be forgotten at once.
    #[must_use]
    pub fn new(tau: Duration) -> Self {
        assert!(tau > Duration::ZERO, "a mean with a time constant of zero remembers nothing");
        Self { tau, updated: Instant::ZERO, sum: 0.0, weight: 0.0 }
    }

    /// Records `value` at `now`. A value that is not finite is left out: it would stay for ever.
    pub fn record(&mut self, now: Instant, value: f64) {
        if !value.is_finite() {
            return;
        }
        let decay = self.decay(now);
        self.sum = self.sum * decay + value;
        self.weight = self.weight * decay + 1.0;
        self.updated = self.updated.max(now);
    }

    /// The mean at `now`; nothing before the first value and after the last is forgotten.
    #[must_use]
    pub fn get(&self, now: Instant) -> Option<f64> {
        (self.weight(now) >= FORGOTTEN).then_some(self.sum / self.weight)
    }

    /// The weight of all values at `now`: how many fresh ones they are worth. Divided by `tau` it is
    /// the rate at which values come.
    #[must_use]
    pub fn weight(&self, now: Instant) -> f64 {
        self.weight * self.decay(now)
    }

    fn decay(&self, now: Instant) -> f64 {
        let age = now.since(self.updated);
        libm::exp(-(age.as_ns_f64() / self.tau.as_ns_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::Ewma;
    use alloc::vec::Vec;
    use curtail_units::{Duration, Instant, Rng};

    const TAU: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn it_equals_the_weighted_mean_written_out_under_irregular_gaps() {
        let mut rng = Rng::new(1).split("ewma");
        let mut ewma = Ewma::new(TAU);
        let mut values = Vec::new();
        let mut now = Instant::ZERO;
        for _ in 0..2_000 {
            if rng.chance(0.7) {
                now = now + TAU.mul_f64(0.05 * rng.exponential());
            }
            let value = 1_000.0 * rng.normal();
            ewma.record(now, value);
            values.push((now, value));
            let later = now + TAU.mul_f64(rng.unit());
            let weigh = |of: Instant| libm::exp(-later.since(of).as_secs_f64() / TAU.as_secs_f64());
            let weight: f64 = values.iter().map(|&(of, _)| weigh(of)).sum();
            let sum: f64 = values.iter().map(|&(of, value)| weigh(of) * value).sum();
            let got = ewma.get(later).expect("fresh values");
            assert!((got - sum / weight).abs() < 1e-9 * 1_000.0, "{got} and {}", sum / weight);
            assert!((ewma.weight(later) / weight - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn there_is_no_mean_before_the_first_value_and_seven_tau_after_the_last() {
        let mut ewma = Ewma::new(TAU);
        assert_eq!(ewma.get(at(0)), None);
        ewma.record(at(5_000), 3.0);
        assert_eq!(ewma.get(at(5_000)), Some(3.0));
        assert_eq!(ewma.get(at(5_000 + 69_000)), Some(3.0));
        assert_eq!(ewma.get(at(5_000 + 70_000)), None);
        assert_eq!(ewma.get(Instant::MAX), None);
        ewma.record(Instant::MAX, 4.0);
        assert_eq!(ewma.get(Instant::MAX), Some(4.0));
    }

    #[test]
    fn values_at_one_instant_count_alike() {
        let mut ewma = Ewma::new(TAU);
        for value in [1.0, 2.0, 6.0] {
            ewma.record(at(1), value);
        }
        assert_eq!(ewma.get(at(1)), Some(3.0));
        assert_eq!(ewma.weight(at(1)), 3.0);
    }

    #[test]
    fn values_at_a_steady_rate_weigh_the_rate_times_tau() {
        let mut ewma = Ewma::new(TAU);
        for ms in 0..200_000 {
            ewma.record(at(ms), 1.0);
        }
        // 1,000 a second for 20 tau; half a value off since they come in steps.
        let rate = ewma.weight(at(200_000)) / TAU.as_secs_f64();
        assert!((rate - 1_000.0).abs() < 0.1, "{rate}");
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let mut ewma = Ewma::new(TAU);
        ewma.record(at(1), 2.0);
        ewma.record(at(2), f64::NAN);
        ewma.record(at(3), f64::INFINITY);
        assert_eq!(ewma.get(at(3)), Some(2.0));
    }
}
