//! Time as columns: the slots of an arm's blocks put together until a plot has room for them.
//!
//! **Limits**: at most [`COLUMNS_MAX`] columns. A request counts where it was intended.

use crate::Results;
use crate::results::Block;
use curtail_load::{Slot, Timeline};
use curtail_sketch::rank;
use curtail_units::{Duration, Instant, Quantile};

/// More than that nobody could tell apart.
pub(super) const COLUMNS_MAX: usize = 240;

/// One arm over time.
pub(super) struct Columns {
    /// How long a column is.
    pub(super) width: Duration,
    /// From the start of the run on.
    pub(super) columns: Vec<Slot>,
}

impl Columns {
    /// The columns of an arm, those of warming up included.
    pub(super) fn of_arm(results: &Results, arm: usize) -> Option<Self> {
        let mut blocks = results.blocks.iter().filter(|block| block.arm == arm);
        let mut all = blocks.next()?.timeline.clone();
        for block in blocks {
            all.merge(&block.timeline);
        }
        // So that the columns of all arms are equally wide, what counts is the run and not the arm.
        let slots = slot_count(results, all.width());
        let each = slots.div_ceil(COLUMNS_MAX).max(1);
        let columns = all.slots().chunks(each).map(merged).collect();
        Some(Self { width: all.width().mul_f64(each as f64), columns })
    }

    /// When a column begins.
    pub(super) fn begins(&self, nth: usize) -> Instant {
        Instant::ZERO + self.width.mul_f64(nth as f64)
    }
}

fn slot_count(results: &Results, width: Duration) -> usize {
    let slots = end(results).as_ns().div_ceil(width.as_ns());
    usize::try_from(slots).unwrap_or(usize::MAX)
}

/// When the run ended, and everything that is shown of it.
pub(super) fn end(results: &Results) -> Instant {
    let of_timeline = |timeline: &Timeline| {
        Instant::ZERO + timeline.width().mul_f64(timeline.slots().len() as f64)
    };
    let of_block = |block: &Block| (block.began + block.lasted).max(of_timeline(&block.timeline));
    let blocks = results.blocks.iter().map(of_block);
    let events = results.events.iter().map(|event| event.at);
    blocks.chain(events).max().unwrap_or(Instant::ZERO)
}

fn merged(slots: &[Slot]) -> Slot {
    let mut all = Slot::new();
    for slot in slots {
        all.merge(slot);
    }
    all
}

/// The latency at `quantile` of all requests of a column, failed ones included; nothing when it lies among those, or no
/// request was intended in it.
pub(super) fn at(slot: &Slot, quantile: Quantile) -> Option<Duration> {
    let count = slot.response.count().saturating_add(slot.failed);
    slot.response.at_rank(rank(quantile, count))
}
