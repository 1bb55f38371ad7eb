//! Prequal: probing for requests in flight and latency.
//!
//! **Source**: Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024,
//! section 4.

use crate::replica::Replicas;
use crate::{Choice, Load, Reason, ReplicaId};
use curtail_units::{Duration, Instant, Quantile, Rng};
use serde::{Deserialize, Serialize};

/// The parameters of Prequal, with the paper's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrequalConfig {
    /// Probes for each request; fractions are rounded so that the long run is exact.
    pub probes_per_request: f64,
    /// Entries of the pool at most.
    pub pool_len_max: u8,
    /// An entry older than this is removed.
    pub age_max: Duration,
    /// A replica is hot when its requests in flight reach this quantile of what recent probes reported.
    pub hot_quantile: Quantile,
    /// Entries removed for each request, the oldest and the worst in turn.
    pub removals_per_request: f64,
    /// δ of the reuse budget: how far the pool's growth may lag.
    pub reuse_slack: f64,
    /// A replica is probed at least this often even when no request comes.
    pub idle_interval: Duration,
    /// A probe without an answer is given up after this.
    pub probe_timeout: Duration,
}

impl Default for PrequalConfig {
    fn default() -> Self {
        Self {
            probes_per_request: 3.0,
            pool_len_max: 16,
            age_max: Duration::from_secs(1),
            hot_quantile: Quantile::new(0.84).expect("0.84 is a quantile"),
            removals_per_request: 1.0,
            reuse_slack: 1.0,
            idle_interval: Duration::from_ms(250),
            probe_timeout: Duration::from_ms(3),
        }
    }
}

/// The pool of probes and what is decided by it.
#[derive(Clone, Debug)]
pub(crate) struct Prequal {}

impl Prequal {
    pub(crate) fn new(_config: PrequalConfig, _replicas: usize, _rng: Rng) -> Self {
        Self {}
    }

    /// The best entry of the pool that is not in `exclude`; a random replica when the pool is too small.
    pub(crate) fn choose(
        &mut self,
        replicas: &Replicas,
        rng: &mut Rng,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<(ReplicaId, Choice)> {
        Some((replicas.draw(rng, now, exclude)?, Choice::PoolTooSmall { len: 0 }))
    }

    /// A request was sent: removes entries and asks for probes.
    pub(crate) fn request_sent(&mut self, _replicas: &Replicas, _now: Instant) {}

    /// A leaf answered a probe.
    pub(crate) fn answered(&mut self, _replica: ReplicaId, _load: Load, _now: Instant) {}

    /// A replica has no leaf that answers probes; from now on the root's own view stands in.
    pub(crate) fn has_no_leaf(&mut self, _replica: ReplicaId) {}

    /// The polled instant has come: probes when idle.
    pub(crate) fn woke(&mut self, _now: Instant) {}

    /// The next probe to send.
    pub(crate) fn poll_probe(&mut self) -> Option<(ReplicaId, Reason)> {
        None
    }

    /// When to call [`Self::woke`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
