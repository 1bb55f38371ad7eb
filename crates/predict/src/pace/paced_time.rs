//! A time in which known slow periods do not happen.

use super::SlowPeriod;
use crate::executions::Execution;
use curtail_units::{Duration, Instant};
use std::borrow::Borrow;

/// A time that passes more slowly in slow periods, so that they take no longer than the usual pace.
#[derive(Clone, Debug)]
pub(crate) struct PacedTime {
    /// The real and the paced time of each change of the pace, in nanoseconds.
    changes: Vec<(f64, f64)>,
}

impl PacedTime {
    /// `periods` are in order, do not overlap, and have finite slowdowns.
    pub(crate) fn new(periods: &[SlowPeriod]) -> Self {
        let mut changes = vec![(0.0, 0.0)];
        let mut lost = 0.0;
        for period in periods {
            let [from, to] = [period.from, period.to].map(|at| at.as_ns() as f64);
            changes.push((from, from - lost));
            lost += (to - from) * (1.0 - 1.0 / period.slowdown);
            changes.push((to, to - lost));
        }
        Self { changes }
    }

    pub(super) fn paced(&self, real: Instant) -> Instant {
        self.between(real, |(real, paced)| (real, paced))
    }

    fn real(&self, paced: Instant) -> Instant {
        self.between(paced, |(real, paced)| (paced, real))
    }

    /// The value of the other time, which is linear between changes.
    fn between(&self, at: Instant, of: impl Fn((f64, f64)) -> (f64, f64)) -> Instant {
        let at = at.as_ns() as f64;
        let next = self.changes.partition_point(|change| of(*change).0 <= at);
        let (from, other_from) = of(self.changes[next.saturating_sub(1)]);
        let pace = self.changes.get(next).map_or(1.0, |change| {
            let (to, other_to) = of(*change);
            (other_to - other_from) / (to - from).max(1.0)
        });
        Instant::ZERO + Duration::from_ns_f64(other_from + (at - from) * pace)
    }

    /// Periods of the paced time as periods of the real time.
    pub(crate) fn real_periods(&self, periods: Vec<SlowPeriod>) -> Vec<SlowPeriod> {
        let real = |period: SlowPeriod| {
            let (from, to) = (self.real(period.from), self.real(period.to));
            SlowPeriod { from, to, ..period }
        };
        periods.into_iter().map(real).collect()
    }
}

/// The executions of each replica in its paced time.
pub(crate) fn in_paced_time(
    executions: &[Vec<Execution>],
    times: &[impl Borrow<PacedTime>],
) -> Vec<Vec<Execution>> {
    let of_replicas = executions.iter().zip(times).map(|(executions, time)| {
        let paced = |at| time.borrow().paced(at);
        let paced = executions.iter().map(|execution| Execution {
            started: paced(execution.started),
            ended: paced(execution.ended),
            ..*execution
        });
        paced.collect()
    });
    of_replicas.collect()
}

/// The periods of a replica: its own ones, with the common ones. Where both are, their slowdowns multiply. Both are in order.
pub(super) fn overlaid(replica: u32, own: &[SlowPeriod], common: &[SlowPeriod]) -> Vec<SlowPeriod> {
    let mut ends: Vec<Instant> =
        own.iter().chain(common).flat_map(|period| [period.from, period.to]).collect();
    ends.sort_unstable();
    let slowdown_at = |periods: &[SlowPeriod], at| {
        let next = periods.partition_point(|period| period.to <= at);
        periods.get(next).filter(|period| period.from <= at).map_or(1.0, |it| it.slowdown)
    };
    let mut all: Vec<SlowPeriod> = Vec::new();
    for pair in ends.windows(2).filter(|pair| pair[0] < pair[1]) {
        let (from, to) = (pair[0], pair[1]);
        let slowdown = slowdown_at(own, from) * slowdown_at(common, from);
        if slowdown != 1.0 {
            all.push(SlowPeriod { replica, from, to, slowdown });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    fn period(from: u64, to: u64, slowdown: f64) -> SlowPeriod {
        SlowPeriod { replica: 0, from: at(from), to: at(to), slowdown }
    }

    #[test]
    fn a_slow_period_passes_at_the_usual_pace() {
        let time = PacedTime::new(&[period(10, 40, 3.0), period(50, 60, 0.5)]);
        for (real, paced) in [(0, 0), (10, 10), (25, 15), (40, 20), (45, 25), (55, 40), (70, 60)] {
            assert_eq!(time.paced(at(real)), at(paced), "{real}");
            assert_eq!(time.real(at(paced)), at(real), "{paced}");
        }
    }

    #[test]
    fn slowdowns_multiply_where_periods_overlap() {
        let own = [period(5, 15, f64::INFINITY), period(30, 60, 2.0)];
        let common = [period(10, 40, 3.0)];
        let expected = [
            period(5, 10, f64::INFINITY),
            period(10, 15, f64::INFINITY),
            period(15, 30, 3.0),
            period(30, 40, 6.0),
            period(40, 60, 2.0),
        ];
        assert_eq!(overlaid(0, &own, &common), expected);
        assert_eq!(overlaid(0, &[], &[]), []);
    }
}
