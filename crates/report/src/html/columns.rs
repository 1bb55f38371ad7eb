//! The time columns of plots: a column merges the time slots of an arm's blocks that fall into it.
//!
//! **Limits**: at most [`COLUMNS_MAX`] columns. A request counts at its intended time.

use crate::Results;
use crate::results::Block;
use curtail_load::{Slot, Timeline};
use curtail_sketch::rank;
use curtail_units::{Duration, Instant, Quantile};

/// Maximum number of columns; more could not be distinguished.
pub(super) const COLUMNS_MAX: usize = 240;

pub(super) struct TimeColumns {
    pub(super) width: Duration,
    /// The columns from the start of the run on.
    pub(super) columns: Vec<Slot>,
}

impl TimeColumns {
    pub(super) fn of_arm(results: &Results, arm: usize) -> Option<Self> {
        // The width follows from the run, not from the arm: the columns of all arms are equally wide.
        let widest = results.blocks.iter().map(|block| block.timeline.width()).max()?;
        let mut width = widest;
        while end(results).as_ns().div_ceil(width.as_ns()) > COLUMNS_MAX as u64 {
            width = width + widest;
        }
        let mut columns = Vec::new();
        for block in results.blocks.iter().filter(|block| block.arm == arm) {
            for (nth, slot) in block.timeline.slots().iter().enumerate() {
                // Slots do not begin where columns do: a slot is in the column of its middle.
                let middle = block.began + block.timeline.width().mul_f64(nth as f64 + 0.5);
                let column = usize::try_from(middle.as_ns() / width.as_ns()).unwrap_or(usize::MAX);
                if columns.len() <= column {
                    columns.resize_with(column + 1, Slot::new);
                }
                columns[column].merge(slot);
            }
        }
        (!columns.is_empty()).then_some(Self { width, columns })
    }

    pub(super) fn begins(&self, nth: usize) -> Instant {
        Instant::ZERO + self.width.mul_f64(nth as f64)
    }
}

/// The end of the run as the plots show it.
pub(super) fn end(results: &Results) -> Instant {
    let of_timeline = |timeline: &Timeline| timeline.width().mul_f64(timeline.slots().len() as f64);
    let of_block = |block: &Block| block.began + block.lasted.max(of_timeline(&block.timeline));
    let blocks = results.blocks.iter().map(of_block);
    let events = results.events.iter().map(|event| event.at);
    blocks.chain(events).max().unwrap_or(Instant::ZERO)
}

/// The latency at `quantile` of all requests of a column, failed ones included; [`None`] when it is a failed request,
/// or the column has no requests.
pub(super) fn at(slot: &Slot, quantile: Quantile) -> Option<Duration> {
    let count = slot.response.count().saturating_add(slot.failed);
    slot.response.at_rank(rank(quantile, count))
}
