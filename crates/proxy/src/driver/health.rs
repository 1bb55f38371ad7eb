//! The health of an upstream's replicas, as [`crate::health`] finds it: its machine knows the result.

use super::{Effects, Root, Upstream};
use crate::config::HealthCheckConfig;
use crate::health::CheckResult;
use crate::replica::{Replica, Replicas};
use curtail_policy::{ReplicaId, UpstreamEvent};
use std::sync::Arc;

impl Upstream {
    /// The health checks of the replicas, if there are any.
    pub(crate) fn health_check(&self) -> Option<HealthCheckConfig> {
        self.sources.load().config.health_check.clone()
    }

    /// Whether the replicas have health checks.
    pub(crate) fn has_health_check(&self) -> bool {
        self.sources.load().config.health_check.is_some()
    }

    /// Takes the result of a health check.
    pub(crate) fn health_checked(
        &self,
        id: ReplicaId,
        replica: &Arc<Replica>,
        config: &HealthCheckConfig,
        result: Result<(), String>,
    ) {
        let counted = if result.is_ok() { CheckResult::Passed } else { CheckResult::Failed };
        self.metrics.health_checks.add(&counted, 1);
        let mut root = self.lock();
        let replicas = self.replicas.load_full();
        let is_present = replicas.get(id).is_some_and(|present| Arc::ptr_eq(present, replica));
        // A reload may have removed the replica or the checks.
        if !is_present || !self.has_health_check() {
            return;
        }
        let changed = replica.health.take(self.clock.now(), result, config);
        let Some(is_healthy) = changed else { return };
        let event = UpstreamEvent::HealthChecked { replica: id, is_healthy };
        // No rule decides anything at this event.
        self.handle_locked(&mut root, &mut self.lock_group(), event, &mut Effects::new());
        drop(root);
        let healthy = replicas.values().filter(|replica| replica.health.is_usable()).count();
        let (upstream, of) = (&self.name, replicas.len());
        if is_healthy {
            tracing::info!(upstream, replica = replica.address, healthy, of, "replica is healthy");
        } else {
            let error = replica.health.read(self.clock.now()).last_error.unwrap_or_default();
            let effect = if healthy == 0 {
                "replica is unhealthy, as are all others: all of them get requests"
            } else {
                "replica is unhealthy: it gets no requests"
            };
            tracing::warn!(upstream, replica = replica.address, healthy, of, error, "{effect}");
        }
    }

    /// The events with which new replicas wait for their first health check, or replicas that are not checked any more
    /// become healthy. Without a usable replica that stays, the new ones do not wait: the first one that passes would get
    /// all requests.
    pub(super) fn health_events(
        &self,
        root: &Root,
        old: &Replicas,
        new: &Replicas,
    ) -> Vec<UpstreamEvent> {
        let is_checked = self.has_health_check();
        let is_kept = |replica: ReplicaId, present: &Arc<Replica>| {
            old.get(replica).is_some_and(|kept| Arc::ptr_eq(kept, present))
        };
        let has_usable = new.iter().any(|(id, at)| is_kept(id, at) && at.health.is_usable());
        let mut events = Vec::new();
        for (replica, present) in new.iter() {
            if is_checked && has_usable && !is_kept(replica, present) {
                present.health.join();
                events.push(UpstreamEvent::HealthChecked { replica, is_healthy: false });
            } else if !is_checked {
                present.health.forget();
                if root.machine.is_unhealthy(replica) {
                    events.push(UpstreamEvent::HealthChecked { replica, is_healthy: true });
                }
            }
        }
        events
    }
}
