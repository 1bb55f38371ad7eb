//! The measurement of one arm: latencies of reads, in blocks of time for comparisons, and the ratio of extra requests.

use curtail_generator::Recording;
use curtail_load::{Failure, Latencies, Slot, Timeline};
use curtail_units::Duration;

/// Maximum number of blocks, which are the independent observations in the comparison of two arms.
const BLOCKS_MAX: u64 = 20;

/// Minimum duration of a block. It is longer than two stalls, which would otherwise count as several observations.
const BLOCK_MIN: Duration = Duration::from_secs(1);

/// The reads of one arm.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArmMeasurement {
    /// All reads.
    pub(crate) latencies: Latencies,
    /// The reads in blocks, by their intended send time; empty while the measurement runs.
    pub(crate) blocks: Vec<Latencies>,
    /// The number of executions at the servers, divided by the number of needed ones (one per read and shard), less 1;
    /// unknown while reads are in flight.
    pub(crate) extra_requests_ratio: Option<f64>,
}

impl ArmMeasurement {
    /// Creates a complete measurement of `length`; the servers began `executions` for the reads from `shards` shards.
    pub(crate) fn new(
        recording: &Recording,
        length: Duration,
        (executions, shards): (u64, usize),
    ) -> Self {
        let latencies = recording.merged();
        let needed = latencies.count() as f64 * shards as f64;
        // A read that fails may need fewer requests: that is no saving.
        let ratio = if needed > 0.0 { (executions as f64 / needed - 1.0).max(0.0) } else { 0.0 };
        let blocks = blocks(&recording.timeline, length);
        Self { latencies, blocks, extra_requests_ratio: Some(ratio) }
    }

    /// Adds the latest reads of a running measurement.
    pub(crate) fn add(&mut self, slot: &Slot) {
        add(&mut self.latencies, slot);
    }
}

/// Cuts the timeline of a measurement of `length` into blocks.
fn blocks(timeline: &Timeline, length: Duration) -> Vec<Latencies> {
    let count = (length.as_ns() / BLOCK_MIN.as_ns()).clamp(1, BLOCKS_MAX);
    let mut blocks: Vec<_> = (0..count).map(|_| Latencies::new()).collect();
    let last = blocks.len() - 1;
    for (nth, slot) in timeline.slots().iter().enumerate() {
        let block = nth as u64 * timeline.width().as_ns() * count / length.as_ns();
        add(&mut blocks[usize::try_from(block).unwrap_or(last).min(last)], slot);
    }
    blocks
}

/// Adds the reads of a slot: the response times, and the number of failures.
fn add(latencies: &mut Latencies, slot: &Slot) {
    latencies.response.merge(&slot.response);
    latencies.failures.add_n(Failure::Status, slot.failed);
}

#[cfg(test)]
mod tests {
    use super::{ArmMeasurement, BLOCKS_MAX, blocks};
    use curtail_generator::Recording;
    use curtail_load::{Failure, LatencyKind, Slot, Timeline, Timing};
    use curtail_units::{Duration, Instant, Quantile};

    fn slot(nth: u64) -> Slot {
        let mut slot = Slot { failed: u64::from(nth >= 59), ..Slot::new() };
        slot.response.record(Duration::from_ms(10 + nth));
        slot
    }

    #[test]
    fn reads_count_in_the_block_of_their_intended_time_and_failures_as_longest() {
        let width = Duration::from_secs(1);
        let timeline = Timeline::of_slots(width, (0..61).map(slot).collect());
        let blocks = blocks(&timeline, Duration::from_secs(60));
        let counts: Vec<u64> = blocks.iter().map(curtail_load::Latencies::count).collect();
        assert_eq!((counts.len(), counts[0], counts[19]), (20, 3, 6), "{counts:?}");
        let last = &blocks[19];
        assert_eq!(
            last.quantile(LatencyKind::Response, Quantile::P99),
            None,
            "it is a failed read"
        );
        assert_eq!(last.failures.total(), 2);
    }

    #[test]
    fn blocks_are_longer_than_a_stall_and_bounded_in_number() {
        for (seconds, expected) in [(1, 1), (6, 6), (20, 20), (86_400, 20)] {
            let timeline = Timeline::of_slots(Duration::from_secs(128), vec![slot(0); 676]);
            let blocks = blocks(&timeline, Duration::from_secs(seconds));
            assert_eq!(blocks.len(), expected, "{seconds} s");
            assert!(blocks.len() as u64 <= BLOCKS_MAX);
            let counted: u64 = blocks.iter().map(curtail_load::Latencies::count).sum();
            assert_eq!(counted, 676);
        }
    }

    #[test]
    fn extra_requests_are_executions_beyond_one_for_each_shard() {
        let mut recording = Recording::new(1, Instant::ZERO);
        let at = Instant::ZERO;
        let timing = Timing { intended: at, ready: at, sent: at, ended: at };
        for failure in [None, None, Some(Failure::Status)] {
            recording.latencies[0].record(&timing, failure);
        }
        for (executions, expected) in [(300, 0.0), (330, 0.1), (299, 0.0)] {
            let length = Duration::from_secs(60);
            let measured = ArmMeasurement::new(&recording, length, (executions, 100));
            let ratio = measured.extra_requests_ratio.expect("it is complete");
            assert!((ratio - expected).abs() < 1e-9, "{ratio}");
        }
    }
}
