//! Peak EWMA: the latency of each replica as a mean that jumps up at once and decays slowly.
//!
//! **Decides** the cost of a replica: latency × (attempts in flight + 1). A replica without a known latency costs
//! nothing while idle, and [`UNSEEN`] for each attempt in flight. Attempts in flight count relative to weights.
//! **Inputs**: latencies of attempts; the age of a cancelled attempt only if it exceeds the mean.
//! **Source**: the description of Finagle's `PeakEwma` balancer.
//! **Hurts when** one odd request makes a good replica look bad for a while.

use super::{Choice, Rule, lowest};
use crate::replica::{Candidates, Replicas};
use crate::upstream::Sent;
use crate::{ReplicaId, ReplicaMap};
use curtail_units::{Duration, Instant, Rng};

/// The cost of a replica that has attempts in flight and no known latency.
const UNSEEN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    latency: Duration,
    at: Instant,
}

impl Peak {
    /// The share of the latency that is left at `now`.
    fn weight(&self, now: Instant, decay: Duration) -> f64 {
        let age = now.since(self.at);
        libm::exp(-age.as_ns_f64() / decay.as_ns_f64().max(1.0))
    }
}

#[derive(Clone, Debug)]
pub(super) struct PeakEwma {
    decay: Duration,
    peaks: ReplicaMap<Peak>,
}

impl PeakEwma {
    pub(super) fn new(decay: Duration) -> Self {
        Self { decay, peaks: ReplicaMap::default() }
    }

    fn observe(&mut self, id: ReplicaId, now: Instant, latency: Duration) {
        let Some(peak) = self.peaks.get_mut(id) else { return };
        let weight = peak.weight(now, self.decay);
        let mean = peak.latency.mul_f64(weight) + latency.mul_f64(1.0 - weight);
        *peak = Peak { latency: mean.max(latency), at: now };
    }

    fn cost(&self, id: ReplicaId, now: Instant, in_flight: f64) -> Duration {
        match self.peaks.get(id) {
            Some(peak) if peak.latency > Duration::ZERO => {
                peak.latency.mul_f64(peak.weight(now, self.decay) * (in_flight + 1.0))
            }
            _ => UNSEEN.mul_f64(in_flight),
        }
    }
}

impl Rule for PeakEwma {
    fn choose(&mut self, candidates: Candidates<'_>, rng: &mut Rng) -> Option<(ReplicaId, Choice)> {
        let cost =
            |id: ReplicaId| self.cost(id, candidates.now(), candidates.relative_in_flight(id));
        let choice = |id, other| Choice::LowerPeakEwma { cost: cost(id), other: cost(other) };
        lowest(candidates, (2, rng), cost, choice)
    }

    fn latency_observed(&mut self, _: &mut Replicas, sent: Sent, now: Instant) {
        self.observe(sent.replica, now, now.since(sent.at));
    }

    /// The latency would have been longer than the age, so an age below the mean says nothing.
    fn attempt_cancelled(&mut self, _: &mut Replicas, sent: Sent, now: Instant) {
        let age = now.since(sent.at);
        let Some(peak) = self.peaks.get(sent.replica) else { return };
        if age > peak.latency.mul_f64(peak.weight(now, self.decay)) {
            self.observe(sent.replica, now, age);
        }
    }

    fn replica_joined(&mut self, replica: ReplicaId) {
        self.peaks.insert(replica, Peak::default());
    }

    fn replica_left(&mut self, replica: ReplicaId) {
        self.peaks.remove(replica);
    }
}

#[cfg(test)]
mod tests {
    use super::{PeakEwma, Rule};
    use crate::ReplicaId;
    use curtail_units::{Duration, Instant};

    #[test]
    fn it_jumps_to_a_peak_and_decays_by_its_time_constant() {
        let id = ReplicaId(0);
        let mut ewma = PeakEwma::new(Duration::from_secs(10));
        ewma.replica_joined(id);
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        ewma.observe(id, at(1), Duration::from_ms(10));
        ewma.observe(id, at(1), Duration::from_ms(100));
        assert_eq!(ewma.cost(id, at(1), 0.0), Duration::from_ms(100));
        assert_eq!(ewma.cost(id, at(1), 2.0), Duration::from_ms(300));
        let decayed = ewma.cost(id, at(11), 0.0).as_ms_f64();
        assert!((decayed - 100.0 / core::f64::consts::E).abs() < 0.001, "{decayed}");
        ewma.observe(id, at(11), Duration::from_ms(10));
        let mixed = ewma.cost(id, at(11), 0.0).as_ms_f64();
        assert!(mixed > 36.0 && mixed < 44.0, "{mixed}");
    }

    #[test]
    fn a_replica_never_seen_is_tried_once() {
        let mut ewma = PeakEwma::new(Duration::from_secs(10));
        ewma.replica_joined(ReplicaId(0));
        assert_eq!(ewma.cost(ReplicaId(0), Instant::ZERO, 0.0), Duration::ZERO);
        assert_eq!(ewma.cost(ReplicaId(0), Instant::ZERO, 1.0), Duration::from_secs(1));
    }
}
