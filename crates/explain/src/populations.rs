//! The slow traces, and the traces to compare them with.
//!
//! Traces are compared within strata: of one root operation, and in a tail also of one period. Otherwise a slow operation or a
//! busy hour would seem to be the cause of everything. Weights give the baseline the same share of each stratum as the
//! slow traces have (direct standardization).

use crate::traces::{Side, TraceRow, Traces};
use alloc::vec;
use alloc::vec::Vec;
use curtail_sketch::tail_start;
use curtail_units::Quantile;
use hashbrown::HashMap;

/// The slow traces of a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowTraces {
    /// Traces whose duration reaches or exceeds this quantile of their own root operation and period. Traces equal to the
    /// threshold are not slow if they would more than double the number of slow traces.
    AboveQuantile(Quantile),
    /// Traces longer than this time.
    LongerThan {
        /// The time.
        duration_ns: i64,
    },
    /// The traces of [`Side::Slow`].
    OfSide,
}

impl SlowTraces {
    /// The highest of three common quantiles above which enough of `traces` are.
    #[must_use]
    pub fn quantile_for(traces: usize) -> Quantile {
        let quantiles = [Quantile::P99, Quantile::P95];
        let has_enough =
            |quantile: &Quantile| traces as f64 * (1.0 - quantile.get()) >= SLOW_WANTED;
        quantiles.into_iter().find(has_enough).unwrap_or(Quantile::P90)
    }
}

/// The number of slow traces from which shares are known to a few points.
const SLOW_WANTED: f64 = 50.0;

/// The smallest number of slow traces from which a stratum is compared alone.
const SLOW_MIN: usize = 5;

/// 10 × (1 − 0.9) is less than one by rounding.
const ROUNDING: f64 = 1e-9;

/// No stratum: the trace is not compared.
pub(crate) const NO_STRATUM: u32 = u32::MAX;

/// The two populations. Each list has indices of [`Traces::rows`], in the order of the starts of the traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Populations {
    pub(crate) slow: Vec<u32>,
    pub(crate) baseline: Vec<u32>,
    /// The traces of both.
    pub(crate) by_start: Vec<u32>,
    /// The stratum of each trace, or [`NO_STRATUM`].
    pub(crate) strata: Vec<u32>,
    /// The number of slow and of all traces of each stratum.
    pub(crate) counts: Vec<(u32, u32)>,
    /// Whether each trace is slow.
    pub(crate) is_slow: Vec<bool>,
    /// The number of traces of operations with too few traces for the quantile.
    pub(crate) too_rare: u64,
    /// The number of traces of operations that only one of two populations has.
    pub(crate) unmatched: u64,
}

impl Populations {
    /// Divides traces. `period_ns` is the length of a period.
    pub(crate) fn of(traces: &Traces, slow: SlowTraces, period_ns: i64) -> Self {
        let rows = &traces.rows;
        let mut this = Self {
            strata: vec![NO_STRATUM; rows.len()],
            is_slow: vec![false; rows.len()],
            ..Self::default()
        };
        let mut by_start: Vec<(i64, u32)> = rows.iter().map(|row| row.start_ns).zip(0..).collect();
        by_start.sort_unstable();
        this.by_start = by_start.into_iter().map(|(_, nth)| nth).collect();
        let mut by_operation = this.by_start.clone();
        by_operation.sort_by_key(|nth| rows[*nth as usize].root_operation);
        for of_operation in by_operation.chunk_by(|one, other| same_operation(rows, *one, *other)) {
            this.divide_operation(rows, of_operation, slow, period_ns);
        }
        this.by_start.retain(|nth| this.strata[*nth as usize] != NO_STRATUM);
        (this.slow, this.baseline) =
            this.by_start.iter().partition(|nth| this.is_slow[**nth as usize]);
        this
    }

    /// The weight of a trace of the baseline.
    pub(crate) fn weight(&self, nth: u32) -> f64 {
        let (slow, all) = self.counts[self.strata[nth as usize] as usize];
        f64::from(slow) / f64::from(all - slow)
    }

    fn divide_operation(
        &mut self,
        rows: &[TraceRow],
        of_operation: &[u32],
        slow: SlowTraces,
        period_ns: i64,
    ) {
        let SlowTraces::AboveQuantile(quantile) = slow else {
            let is_slow = |row: &TraceRow| match slow {
                SlowTraces::LongerThan { duration_ns } => row.duration_ns > duration_ns,
                SlowTraces::OfSide | SlowTraces::AboveQuantile(_) => row.side == Side::Slow,
            };
            let is_added = self.add_stratum(of_operation, |nth| is_slow(&rows[nth as usize]));
            if !is_added && slow == SlowTraces::OfSide {
                self.unmatched += of_operation.len() as u64;
            }
            return;
        };
        // Periods that are too short for a quantile of their own are one stratum together.
        let mut rest = Vec::new();
        let period = |nth: &u32| rows[*nth as usize].start_ns.div_euclid(period_ns.max(1));
        for of_period in of_operation.chunk_by(|one, other| period(one) == period(other)) {
            let expected = of_period.len() as f64 * (1.0 - quantile.get());
            if expected < SLOW_MIN as f64 {
                rest.extend_from_slice(of_period);
            } else {
                self.add_tail(rows, of_period, quantile);
            }
        }
        self.add_tail(rows, &rest, quantile);
    }

    fn add_tail(&mut self, rows: &[TraceRow], of_stratum: &[u32], quantile: Quantile) {
        let mut durations: Vec<i64> =
            of_stratum.iter().map(|nth| rows[*nth as usize].duration_ns).collect();
        // Not even one slow trace is expected: the slowest of a few traces of a rare operation says nothing.
        if durations.len() as f64 * (1.0 - quantile.get()) < 1.0 - ROUNDING {
            self.too_rare += durations.len() as u64;
            return;
        }
        let at = tail_start(quantile.get(), durations.len());
        let (_, threshold_ns, _) = durations.select_nth_unstable(at);
        let threshold_ns = *threshold_ns;
        // Traces equal to the threshold are slow, unless they would more than double the number of slow traces.
        let above =
            of_stratum.iter().filter(|nth| rows[**nth as usize].duration_ns >= threshold_ns);
        let wanted = durations.len() - at;
        let with_threshold = above.count() <= wanted * 2;
        self.add_stratum(of_stratum, |nth| {
            let duration_ns = rows[nth as usize].duration_ns;
            duration_ns > threshold_ns || with_threshold && duration_ns == threshold_ns
        });
    }

    /// Adds a stratum, if it has both slow and other traces; returns whether it has.
    fn add_stratum(&mut self, of_stratum: &[u32], is_slow: impl Fn(u32) -> bool) -> bool {
        let slow = of_stratum.iter().filter(|nth| is_slow(**nth)).count();
        if slow == 0 || slow == of_stratum.len() {
            return false;
        }
        let count = |n: usize| u32::try_from(n).expect("the number of traces is limited");
        let stratum = count(self.counts.len());
        self.counts.push((count(slow), count(of_stratum.len())));
        for nth in of_stratum {
            self.strata[*nth as usize] = stratum;
            self.is_slow[*nth as usize] = is_slow(*nth);
        }
        true
    }

    /// The mean durations of the slow traces and of the baseline.
    pub(crate) fn mean_durations_ns(&self, traces: &Traces) -> (f64, f64) {
        let duration = |nth: &u32| traces.rows[*nth as usize].duration_ns as f64;
        let n = self.slow.len() as f64;
        let slow: f64 = self.slow.iter().map(duration).sum();
        let baseline: f64 = self.baseline.iter().map(|nth| self.weight(*nth) * duration(nth)).sum();
        (slow / n, baseline / n)
    }

    /// The number of slow traces of each root operation, most first.
    pub(crate) fn operations(&self, traces: &Traces) -> Vec<(u32, u64)> {
        let mut counts = HashMap::<u32, u64>::new();
        for nth in &self.slow {
            *counts.entry(traces.rows[*nth as usize].root_operation).or_default() += 1;
        }
        let mut sorted: Vec<_> = counts.into_iter().collect();
        sorted.sort_unstable_by_key(|(operation, count)| (core::cmp::Reverse(*count), *operation));
        sorted
    }
}

fn same_operation(rows: &[TraceRow], one: u32, other: u32) -> bool {
    rows[one as usize].root_operation == rows[other as usize].root_operation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::{SpanKind, SpanRow};
    use curtail_trace::Span;

    /// Traces of one span each: the operation, the side and the duration.
    fn reduced(of: impl IntoIterator<Item = (&'static str, Side, i64)>) -> Traces {
        let mut traces = Traces::default();
        for (nth, (operation, side, duration_ns)) in (0..).zip(of) {
            let start_ns = nth * 1_000;
            let span = Span { id: 1, parent_id: 0, start_ns, end_ns: start_ns + duration_ns };
            let row = SpanRow {
                span,
                service: "shop",
                operation,
                kind: SpanKind::Server,
                is_abandoned: false,
                attributes: &[],
            };
            traces.add(u128::from(nth.unsigned_abs()) + 1, side, &[row]);
        }
        traces
    }

    fn of(traces: &Traces, slow: SlowTraces) -> Populations {
        Populations::of(traces, slow, i64::MAX)
    }

    #[test]
    fn traces_of_rare_operations_are_not_slow() {
        let often = (0..1_000).map(|nth| ("GET /", Side::Baseline, 1_000 + nth));
        let rare = ["GET /a", "GET /b", "GET /c"]
            .map(|operation| [(operation, Side::Baseline, 10), (operation, Side::Baseline, 9_000)]);
        let traces = reduced(often.chain(rare.into_iter().flatten()));
        let populations = of(&traces, SlowTraces::AboveQuantile(Quantile::P99));
        assert_eq!((populations.slow.len(), populations.too_rare), (10, 6));
        // Ten traces are enough for a quantile of 0.9.
        let ten = reduced((0..10).map(|nth| ("GET /", Side::Baseline, 1_000 + nth)));
        let populations = of(&ten, SlowTraces::AboveQuantile(Quantile::P90));
        assert_eq!((populations.slow.len(), populations.too_rare), (1, 0));
    }

    #[test]
    fn traces_of_operations_of_one_population_are_counted() {
        let traces = reduced([
            ("GET /", Side::Baseline, 10),
            ("GET /", Side::Slow, 20),
            ("GET /new", Side::Slow, 20),
            ("GET /new", Side::Slow, 30),
            ("GET /old", Side::Baseline, 30),
        ]);
        let populations = of(&traces, SlowTraces::OfSide);
        assert_eq!((populations.slow.len(), populations.baseline.len()), (1, 1));
        assert_eq!(populations.unmatched, 3);
        let longer = of(&traces, SlowTraces::LongerThan { duration_ns: 25 });
        assert_eq!(longer.unmatched, 0);
    }
}
