//! The tally: what came of the reads of each arm.
//!
//! **Inputs**: the time from when a read was to be sent until its last answer was there, so that a late
//! start counts against the arm (no coordinated omission); errors, which count as longer than any answer:
//! a quantile that falls among them has no value, and never a flattering one.

use super::arm::Arm;
use curtail_sketch::{Histogram, Precision, rank};
use curtail_units::{Duration, Quantile};

/// What came of the reads of one arm.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    latencies: Histogram,
    /// Requests to single shards that were sent.
    pub(crate) sent: u64,
    /// Reads that failed, and reads that were not sent because too many were in flight.
    pub(crate) errors: u64,
}

/// The read that took longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slowest {
    pub(crate) latency: Duration,
    pub(crate) arm: Arm,
    /// Its requests' trace.
    pub(crate) trace_id: u128,
}

/// The tallies of all arms.
#[derive(Clone, Debug)]
pub(crate) struct Tallies {
    arms: [Tally; Arm::ALL.len()],
    /// How long after the planned time each read was sent: the client's own share of the latencies.
    lag: Histogram,
    /// Of the reads that went through a proxy.
    pub(crate) slowest: Option<Slowest>,
    /// The first failure, in words.
    pub(crate) first_failure: Option<String>,
}

impl Tally {
    fn new() -> Self {
        Self { latencies: Histogram::new(Precision::FINE), sent: 0, errors: 0 }
    }

    /// Reads that are over.
    pub(crate) fn reads(&self) -> u64 {
        self.latencies.count()
    }

    /// A quantile of the latencies of all reads; nothing when there were none or when it falls among the
    /// errors.
    pub(crate) fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        let answered = self.reads() - self.errors;
        if rank(quantile, self.reads()) > answered {
            return None;
        }
        self.latencies.quantile(quantile)
    }
}

impl Tallies {
    pub(crate) fn new() -> Self {
        Self {
            arms: Arm::ALL.map(|_| Tally::new()),
            lag: Histogram::new(Precision::FINE),
            slowest: None,
            first_failure: None,
        }
    }

    pub(crate) const fn of(&self, arm: Arm) -> &Tally {
        &self.arms[arm.index()]
    }

    /// A read of `shards` shards was sent, `lag` after its time.
    pub(crate) fn sent(&mut self, arm: Arm, shards: u64, lag: Duration) {
        self.arms[arm.index()].sent += shards;
        self.lag.record(lag);
    }

    /// A read was answered, `latency` after the time at which it was to be sent.
    pub(crate) fn answered(&mut self, arm: Arm, latency: Duration, trace_id: u128) {
        self.arms[arm.index()].latencies.record(latency);
        let is_slowest = self.slowest.is_none_or(|slowest| latency > slowest.latency);
        if arm != Arm::Direct && is_slowest {
            self.slowest = Some(Slowest { latency, arm, trace_id });
        }
    }

    /// A read failed, or was not sent.
    pub(crate) fn failed(&mut self, arm: Arm, why: impl FnOnce() -> String) {
        let tally = &mut self.arms[arm.index()];
        tally.latencies.record(Precision::END);
        tally.errors += 1;
        self.first_failure.get_or_insert_with(|| format!("{}: {}", arm.name(), why()));
    }

    /// A quantile of the client's own delay.
    pub(crate) fn lag(&self, quantile: Quantile) -> Option<Duration> {
        self.lag.quantile(quantile)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arm, Tallies};
    use curtail_units::{Duration, Quantile};

    #[test]
    fn errors_are_longer_than_any_answer() {
        let mut tallies = Tallies::new();
        for ms in 1..=998 {
            tallies.answered(Arm::Hedged, Duration::from_ms(ms), ms.into());
        }
        tallies.failed(Arm::Hedged, || "shard 3: status 503".to_owned());
        tallies.failed(Arm::Hedged, || "never kept".to_owned());
        let tally = tallies.of(Arm::Hedged);
        assert_eq!((tally.reads(), tally.errors), (1_000, 2));
        let p50 = tally.quantile(Quantile::P50).expect("an answer").as_ms_f64();
        assert!((p50 - 500.0).abs() < 1.0, "{p50}");
        assert!(tally.quantile(Quantile::P99).is_some());
        assert_eq!(tally.quantile(Quantile::P999), None, "rank 999 is an error");
        let last = Quantile::new(0.998).expect("a quantile");
        assert!(tally.quantile(last).is_some(), "rank 998 is the longest answer");
        assert_eq!(tallies.first_failure.as_deref(), Some("hedged: shard 3: status 503"));
        assert_eq!(tallies.of(Arm::Direct).quantile(Quantile::P50), None);
        // No proxy has seen direct reads, so nobody has their traces.
        tallies.answered(Arm::Direct, Duration::from_ms(2_000), 1);
        let slowest = tallies.slowest.map(|slowest| (slowest.arm, slowest.trace_id));
        assert_eq!(slowest, Some((Arm::Hedged, 998)));
    }
}
