//! Faults in the event queue: wakes each fault at its instants and carries out its effects.

use super::request::{Attempt, Ending, Owner, Stage};
use super::{Step, World};
use crate::recorded::RecordedCursor;
use curtail_model::{ExecutionOutcome, FaultEffect, FaultStep};
use curtail_policy::{AttemptId, Class, Failure, Leaf, LeafEvent, LeafRequestId, Outcome};

impl World<'_> {
    pub(super) fn begin_faults(&mut self) {
        for site in 0..self.faults.len() {
            let step = self.faults.begin(site);
            self.carry_out_fault(site, step);
        }
    }

    pub(super) fn fault_wakes(&mut self, site: u32) {
        let step = self.faults.wake(site, self.now);
        self.carry_out_fault(site, step);
    }

    fn carry_out_fault(&mut self, site: u32, FaultStep { effect, next }: FaultStep) {
        if let Some(wait) = next {
            self.queue.push(self.now + wait, Step::FaultWakes(site));
        }
        match effect {
            FaultEffect::None => {}
            FaultEffect::PaceChanges => {
                for nth in 0..self.faults.servers(site).len() {
                    let server = self.faults.servers(site)[nth];
                    self.change_pace(server);
                }
            }
            FaultEffect::Crashes => self.crash(self.faults.servers(site)[0]),
            FaultEffect::Restarts => {}
            FaultEffect::RequestArrives { service_ns, class } => {
                let server = self.faults.servers(site)[0];
                self.noisy_neighbor_arrives(server, service_ns, class);
            }
        }
    }

    /// Sets the pace that the faults and the recorded slow periods leave to a server.
    fn change_pace(&mut self, server: u32) {
        let mut pace = self.faults.pace(server);
        if let Some(recorded) = &self.recorded {
            pace.speed *= recorded.speed(server);
        }
        self.leaves[server as usize].processor.set_pace(self.now, pace);
        self.set_server_alarm(server);
    }

    pub(super) fn schedule_pace_change(&mut self) {
        if let Some(at) = self.recorded.as_mut().and_then(RecordedCursor::next_change) {
            self.queue.push(at, Step::RecordedPaceChanges);
        }
    }

    pub(super) fn recorded_pace_changes(&mut self) {
        if let Some(server) = self.recorded.as_mut().and_then(RecordedCursor::change) {
            self.change_pace(server);
        }
        self.schedule_pace_change();
    }

    /// Breaks the connections of all requests at a server. The process that follows knows nothing of them.
    fn crash(&mut self, server: u32) {
        let leaf = &mut self.leaves[server as usize];
        leaf.machine = Leaf::new(self.model.leaf);
        leaf.crashed = Some(self.now);
        leaf.processor.abort_all(self.now);
        let is_lost = |attempt: &Attempt| {
            attempt.server == server && matches!(attempt.stage, Stage::Queued | Stage::InService)
        };
        for key in self.attempts.keys_where(is_lost) {
            self.end(key, Ending::Failed(Failure::Broken));
        }
        self.set_server_alarm(server);
    }

    fn noisy_neighbor_arrives(&mut self, server: u32, service_ns: f64, class: Class) {
        if self.faults.is_down(server) {
            return;
        }
        self.check_in_flight();
        let key = self.attempts.insert(Attempt {
            owner: Owner::NoisyNeighbor,
            id: AttemptId(0),
            server,
            class,
            tie: None,
            service_ns,
            stage: Stage::Queued,
            is_cancelled: false,
            ending: Ending::Responded(Outcome::Good),
        });
        let request = LeafRequestId(key.as_u64());
        self.leaf_event(server, LeafEvent::Arrived { request, class, tie: None });
        self.set_server_alarm(server);
    }

    /// Counts an execution for garbage collection, and begins a collection that is now due.
    pub(super) fn collect_garbage(&mut self, server: u32) {
        self.faults.count_execution(server);
        while let Some(site) = self.faults.garbage_to_collect(server) {
            self.fault_wakes(site);
        }
    }

    /// The ending of an execution; [`None`] when the root never gets a response.
    pub(super) fn ending(&mut self, server: u32) -> Option<Ending> {
        match self.faults.execution_outcome(server) {
            ExecutionOutcome::Success => Some(Ending::Responded(Outcome::Good)),
            ExecutionOutcome::BadResponse => Some(Ending::Responded(Outcome::Bad)),
            ExecutionOutcome::BrokenConnection => Some(Ending::Failed(Failure::Broken)),
            ExecutionOutcome::NoResponse => None,
        }
    }
}
