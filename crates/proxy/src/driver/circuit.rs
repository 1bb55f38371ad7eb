//! Ejections of replicas, in the log and the metrics: the changes of their circuits, as the machine decides them.

use super::{Root, Upstream};
use curtail_policy::{CircuitChange, ReplicaId};

impl Root {
    /// The changes since the last event. The caller reports them when it has released the lock.
    pub(super) fn circuit_changes(&mut self) -> Vec<CircuitChange> {
        // Nearly always there are none, and an empty list allocates nothing.
        std::iter::from_fn(|| self.machine.poll_circuit_change()).collect()
    }
}

impl Upstream {
    /// Counts and logs changes of circuits. Only the first ejection in a row is logged as a warning: a replica that is
    /// down would otherwise fill the log.
    pub(super) fn report_circuit_changes(&self, changes: Vec<CircuitChange>) {
        for change in changes {
            let upstream = &self.name;
            match change {
                CircuitChange::Opened { replica, reason, circuit } => {
                    self.metrics.ejections.add(&reason, 1);
                    let (failures, duration) = (circuit.failures, circuit.open_for);
                    let (replica, reason) = (self.replica_name(replica), reason.name());
                    if circuit.is_first() {
                        tracing::warn!(upstream, replica, reason, failures, %duration, "replica is ejected after failures; further ejections until it succeeds are counted, and logged at level debug");
                    } else {
                        tracing::debug!(upstream, replica, reason, failures, %duration, "replica is ejected again");
                    }
                }
                CircuitChange::Closed { replica } => {
                    let replica = self.replica_name(replica);
                    tracing::info!(upstream, replica, "replica succeeds again after an ejection");
                }
            }
        }
    }

    /// The address of a replica, or its number if it has left.
    fn replica_name(&self, id: ReplicaId) -> String {
        let replicas = self.replicas.load();
        replicas.get(id).map_or_else(|| id.0.to_string(), |replica| replica.address.clone())
    }
}
