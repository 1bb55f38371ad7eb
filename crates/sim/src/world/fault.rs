//! Faults in the event queue: wakes each fault at its instants and carries out its effects.

use super::request::{Attempt, Ending, Owner, Stage};
use super::{Step, World};
use crate::recorded::RecordedCursor;
use curtail_model::{ExecutionOutcome, FaultEffect, FaultStep, Faults};
use curtail_policy::{
    AttemptId, Class, Failure, GatherEvent, Leaf, LeafEvent, LeafRequestId, Outcome,
};

impl World<'_> {
    pub(super) fn begin_faults(&mut self) {
        for tier in (0..).take(self.faults.len()) {
            for site in 0..self.faults_of(tier).len() {
                let step = self.faults_of(tier).begin(site);
                self.carry_out_fault((tier, site), step);
            }
        }
    }

    fn faults_of(&mut self, tier: u32) -> &mut Faults {
        &mut self.faults[tier as usize]
    }

    pub(super) fn fault_wakes(&mut self, (tier, site): (u32, u32)) {
        let now = self.now;
        let step = self.faults_of(tier).wake(site, now);
        self.carry_out_fault((tier, site), step);
    }

    fn carry_out_fault(&mut self, (tier, site): (u32, u32), FaultStep { effect, next }: FaultStep) {
        if let Some(wait) = next {
            self.queue.push(self.now + wait, Step::FaultWakes(tier, site));
        }
        match effect {
            FaultEffect::None => {}
            FaultEffect::PaceChanges => {
                for nth in 0..self.faults_of(tier).servers(site).len() {
                    self.change_pace(self.affected(tier, site, nth));
                }
            }
            FaultEffect::Crashes => self.crash(self.affected(tier, site, 0)),
            FaultEffect::Restarts => {}
            FaultEffect::RequestArrives { service_ns, class } => {
                self.noisy_neighbor_arrives(self.affected(tier, site, 0), service_ns, class);
            }
        }
    }

    /// One of the servers that a fault affects.
    fn affected(&self, tier: u32, site: u32, nth: usize) -> u32 {
        let tier = tier as usize;
        self.tiers[tier].server_index(self.faults[tier].servers(site)[nth])
    }

    /// Sets the pace that the faults and the recorded slow periods leave to a server.
    fn change_pace(&mut self, server: u32) {
        let (tier, nth) = self.leaves[server as usize].tier_and_number;
        let mut pace = self.faults_of(tier).pace(nth);
        // A recording is of the first tier.
        if let Some(recorded) = self.recorded.as_ref().filter(|_| tier == 0) {
            pace.speed *= recorded.speed(nth);
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

    /// Whether a server has crashed and is not back yet.
    pub(super) fn is_down(&self, server: u32) -> bool {
        let (tier, nth) = self.leaves[server as usize].tier_and_number;
        self.faults[tier as usize].is_down(nth)
    }

    /// Breaks the connections of all requests at a server. The process that follows knows nothing of them.
    fn crash(&mut self, server: u32) {
        let leaf = &mut self.leaves[server as usize];
        leaf.machine = Leaf::new(self.tiers[leaf.tier_and_number.0 as usize].leaf);
        leaf.crashed = Some(self.now);
        leaf.processor.abort_all(self.now);
        let is_lost = |attempt: &Attempt| {
            let is_there =
                matches!(attempt.stage, Stage::Queued | Stage::InService | Stage::Calls(_));
            attempt.server == server && is_there
        };
        if let Some(connections) = &mut self.connections {
            let is_connected = |attempt: &Attempt| attempt.server == server;
            let connected = self.attempts.keys_where(is_connected);
            connected.into_iter().for_each(|key| connections.close(key));
        }
        for key in self.attempts.keys_where(is_lost) {
            if let Some(Attempt { stage: Stage::Calls(request), .. }) = self.attempts.get_mut(key) {
                let request = *request;
                self.request_event(request, GatherEvent::Abandoned);
            }
            self.end(key, Ending::Failed(Failure::Broken));
        }
        self.set_server_alarm(server);
    }

    fn noisy_neighbor_arrives(&mut self, server: u32, service_ns: f64, class: Class) {
        if self.is_down(server) {
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
        let (tier, nth) = self.leaves[server as usize].tier_and_number;
        self.faults_of(tier).count_execution(nth);
        while let Some(site) = self.faults_of(tier).garbage_to_collect(nth) {
            self.fault_wakes((tier, site));
        }
    }

    /// The ending of an execution; [`None`] when the root never gets a response.
    pub(super) fn ending(&mut self, server: u32) -> Option<Ending> {
        let (tier, nth) = self.leaves[server as usize].tier_and_number;
        match self.faults_of(tier).execution_outcome(nth) {
            ExecutionOutcome::Success => Some(Ending::Responded(Outcome::Good)),
            ExecutionOutcome::BadResponse => Some(Ending::Responded(Outcome::Bad)),
            ExecutionOutcome::BrokenConnection => Some(Ending::Failed(Failure::Broken)),
            ExecutionOutcome::NoResponse => None,
        }
    }
}
