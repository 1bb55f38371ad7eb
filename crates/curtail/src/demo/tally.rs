//! The tally: the latencies of the reads of each arm, in blocks of time.
//!
//! **Inputs**: the planned time of a read, its start, and the time of its last response. Latency is measured from the
//! planned time, so a late start counts against the arm (no coordinated omission). A failed read counts as longer than
//! every response.
//! **Limits**: [`BLOCKS_MAX`] blocks an arm, whatever the duration of the demo.

use super::arm::Arm;
use curtail_load::{Failure, Latencies, Timing};
use curtail_units::{Duration, Instant};

/// Maximum number of blocks of one arm: the independent observations in the comparison of two arms.
const BLOCKS_MAX: u64 = 20;

/// A block is longer than a stall; otherwise one stall would count as several observations.
const BLOCK_MIN: Duration = Duration::from_secs(3);

/// The reads of one arm.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    blocks: Vec<Latencies>,
    /// Requests to single shards that were sent.
    pub(crate) sent: u64,
}

/// The read that took longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slowest {
    pub(crate) latency: Duration,
    pub(crate) arm: Arm,
    /// The trace of its requests.
    pub(crate) trace_id: u128,
}

/// The tallies of all arms.
#[derive(Clone, Debug)]
pub(crate) struct Tallies {
    arms: [Tally; Arm::ALL.len()],
    began: Instant,
    block_len: Duration,
    /// Of the reads that went through a proxy.
    pub(crate) slowest: Option<Slowest>,
    /// The reason of the first failure.
    pub(crate) first_failure: Option<String>,
}

impl Tally {
    /// The blocks in order of time.
    pub(crate) fn blocks(&self) -> &[Latencies] {
        &self.blocks
    }

    /// All reads.
    pub(crate) fn latencies(&self) -> Latencies {
        Latencies::merged(&self.blocks)
    }
}

impl Tallies {
    /// Empty tallies of a measurement of `length` that starts at `began`.
    pub(crate) fn new(began: Instant, length: Duration) -> Self {
        let block_len = Duration::from_ns(length.as_ns().div_ceil(BLOCKS_MAX)).max(BLOCK_MIN);
        let blocks =
            (0..length.as_ns().div_ceil(block_len.as_ns()).max(1)).map(|_| Latencies::new());
        let tally = Tally { blocks: blocks.collect(), sent: 0 };
        let arms = Arm::ALL.map(|_| tally.clone());
        Self { arms, began, block_len, slowest: None, first_failure: None }
    }

    pub(crate) const fn of(&self, arm: Arm) -> &Tally {
        &self.arms[arm.index()]
    }

    /// Counts a read of `shards` shards.
    pub(crate) const fn sent(&mut self, arm: Arm, shards: u64) {
        self.arms[arm.index()].sent += shards;
    }

    /// Records a read to which all shards have responded.
    pub(crate) fn succeeded(&mut self, arm: Arm, timing: &Timing, trace_id: u128) {
        self.block(arm, timing.intended).record(timing, None);
        let latency = timing.ended.since(timing.intended);
        let is_slowest = self.slowest.is_none_or(|slowest| latency > slowest.latency);
        if arm != Arm::Direct && is_slowest {
            self.slowest = Some(Slowest { latency, arm, trace_id });
        }
    }

    /// A read failed, or was not sent.
    pub(crate) fn failed(&mut self, arm: Arm, timing: &Timing, why: impl FnOnce() -> String) {
        self.block(arm, timing.intended).record(timing, Some(Failure::Status));
        self.first_failure.get_or_insert_with(|| format!("{}: {}", arm.name(), why()));
    }

    /// The block of a read with the planned time `due`.
    fn block(&mut self, arm: Arm, due: Instant) -> &mut Latencies {
        let blocks = &mut self.arms[arm.index()].blocks;
        let nth = due.since(self.began).as_ns() / self.block_len.as_ns();
        let last = blocks.len() - 1;
        &mut blocks[usize::try_from(nth).unwrap_or(last).min(last)]
    }
}

#[cfg(test)]
mod tests {
    use super::{Arm, BLOCKS_MAX, Slowest, Tallies};
    use curtail_load::{Clock, Timing};
    use curtail_units::{Duration, Instant, Quantile};

    fn timing(due_s: u64, ms: u64) -> Timing {
        let due = Instant::ZERO + Duration::from_secs(due_s);
        Timing { intended: due, ready: due, sent: due, ended: due + Duration::from_ms(ms) }
    }

    #[test]
    fn reads_count_in_the_block_of_their_planned_time_and_failures_as_longest() {
        let mut tallies = Tallies::new(Instant::ZERO, Duration::from_secs(60));
        for second in 0..60 {
            tallies.succeeded(Arm::Hedged, &timing(second, 10 + second), second.into());
        }
        tallies.failed(Arm::Hedged, &timing(59, 1), || "shard 3: status 503".to_owned());
        tallies.failed(Arm::Hedged, &timing(60, 1), || "not kept".to_owned());
        let tally = tallies.of(Arm::Hedged);
        let counts: Vec<u64> = tally.blocks().iter().map(|block| block.count()).collect();
        assert_eq!((counts.len(), counts[0], counts[19]), (20, 3, 5), "{counts:?}");
        let all = tally.latencies();
        assert_eq!(all.quantile(Clock::Response, Quantile::P99), None, "the p99 is a failed read");
        assert_eq!(all.failures.total(), 2);
        assert_eq!(tallies.first_failure.as_deref(), Some("hedged: shard 3: status 503"));
        // Direct reads have no trace.
        tallies.succeeded(Arm::Direct, &timing(1, 2_000), 1);
        let latency = Duration::from_ms(69);
        assert_eq!(tallies.slowest, Some(Slowest { latency, arm: Arm::Hedged, trace_id: 59 }));
    }

    #[test]
    fn blocks_are_longer_than_a_stall_and_bounded_in_number() {
        for (seconds, blocks) in [(1, 1), (20, 7), (60, 20), (86_400, 20)] {
            let tallies = Tallies::new(Instant::ZERO, Duration::from_secs(seconds));
            assert_eq!(tallies.of(Arm::Direct).blocks().len(), blocks, "{seconds} s");
            assert!(blocks as u64 <= BLOCKS_MAX);
        }
    }
}
