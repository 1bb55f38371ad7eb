//! Traces that take long: those that add more than half of the time that the fastest slow trace of their stratum adds.
//!
//! During a pause, most traces take long, and only some of them are slow. At a replica that is always slower, most traces
//! take long, and those are slow that meet something else besides.

use crate::populations::{NO_STRATUM, Populations};
use crate::traces::{TraceRow, Traces};
use alloc::vec;
use alloc::vec::Vec;

/// Whether each trace takes long.
pub(crate) fn find_long_traces(traces: &Traces, populations: &Populations) -> Vec<bool> {
    let mut sums = vec![(0.0, 0.0); populations.counts.len()];
    for nth in &populations.baseline {
        let (count, sum_ns) = &mut sums[populations.strata[*nth as usize] as usize];
        *count += 1.0;
        *sum_ns += traces.rows[*nth as usize].duration_ns as f64;
    }
    let mut thresholds_ns = vec![f64::INFINITY; sums.len()];
    for nth in &populations.slow {
        let threshold_ns: &mut f64 = &mut thresholds_ns[populations.strata[*nth as usize] as usize];
        *threshold_ns = threshold_ns.min(traces.rows[*nth as usize].duration_ns as f64);
    }
    let is_long = |(row, stratum): (&TraceRow, &u32)| {
        if *stratum == NO_STRATUM {
            return false;
        }
        let stratum = *stratum as usize;
        let (count, sum_ns) = sums[stratum];
        let baseline_ns = sum_ns / count;
        row.duration_ns as f64 - baseline_ns > (thresholds_ns[stratum] - baseline_ns) / 2.0
    };
    traces.rows.iter().zip(&populations.strata).map(is_long).collect()
}
