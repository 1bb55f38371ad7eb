//! The side of the leaves: attempts arrive, wait, are executed, and get responses.

use super::request::{Attempt, Ending, Owner, Stage, TwinNews};
use super::{Step, World};
use crate::alarm::Alarm;
use crate::model::Cancelled;
use crate::record::AttemptRecord;
use crate::slab::Key;
use curtail_model::{Cores, Processor};
use curtail_policy::{
    Decided, Failure, GatherEvent, Leaf, LeafConfig, LeafEffect, LeafEvent, LeafRequestId, Outcome,
};
use curtail_units::Instant;

#[derive(Debug)]
pub(super) struct LeafPlace {
    pub(super) machine: Leaf,
    pub(super) processor: Processor,
    pub(super) server_alarm: Alarm,
    /// The tier of the server, and its number in this tier.
    pub(super) tier_and_number: (u32, u32),
    /// The instant of the latest crash of the server.
    pub(super) crashed: Option<Instant>,
}

impl LeafPlace {
    pub(super) fn new(tier_and_number: (u32, u32), leaf: LeafConfig, cores: Option<Cores>) -> Self {
        Self {
            tier_and_number,
            machine: Leaf::new(leaf),
            processor: Processor::new(cores),
            server_alarm: Alarm::OFF,
            crashed: None,
        }
    }
}

const fn leaf_request(key: Key) -> LeafRequestId {
    LeafRequestId(key.as_u64())
}

impl World<'_> {
    pub(super) fn attempt_arrives(&mut self, key: Key) {
        let attempt = self.attempts.get_mut(key).expect("nothing ends an attempt on its way out");
        let Attempt { server, class, tie, stage, .. } = *attempt;
        if stage == Stage::Overtaken {
            self.forget_attempt(key);
            return;
        }
        attempt.stage = Stage::Queued;
        if self.is_down(server) {
            self.end(key, Ending::Failed(Failure::NotSent));
            return;
        }
        self.record_attempt(key, |record, now| record.arrived = Some(now));
        let tie = tie.map(|(id, _)| id);
        self.leaf_event(server, LeafEvent::Arrived { request: leaf_request(key), class, tie });
        self.set_server_alarm(server);
    }

    pub(super) fn cancel_arrives(&mut self, key: Key) {
        // Its response may have come in the meantime.
        let Some(attempt) = self.attempts.get_mut(key) else { return };
        let (server, stage) = (attempt.server, attempt.stage);
        match (stage, self.model.cancelled) {
            (Stage::Outward, _) => attempt.stage = Stage::Overtaken,
            (Stage::Queued | Stage::InService | Stage::Calls(_), Cancelled::RunsOn)
            | (Stage::InService | Stage::Calls(_), Cancelled::LeavesQueue) => {
                attempt.is_cancelled = true;
            }
            (Stage::Calls(request), Cancelled::Stops) => {
                self.request_event(request, GatherEvent::Abandoned);
                self.record_attempt(key, |record, now| record.left = Some(now));
                self.forget_attempt(key);
            }
            (Stage::Queued | Stage::InService, _) => {
                if stage == Stage::InService {
                    self.leaves[server as usize].processor.abort(self.now, key.as_u64());
                }
                self.leaf_event(server, LeafEvent::Gone { request: leaf_request(key) });
                self.record_attempt(key, |record, now| record.left = Some(now));
                self.forget_attempt(key);
                self.set_server_alarm(server);
            }
            (Stage::Overtaken | Stage::Homeward, _) => {}
        }
    }

    pub(super) fn twin_news_arrives(&mut self, key: Key) {
        let TwinNews { server, tie } = self.twin_news.remove(key).expect("news arrive once");
        if self.is_down(server) {
            return;
        }
        self.leaf_event(server, LeafEvent::TwinStarted { tie });
        self.set_server_alarm(server);
    }

    pub(super) fn server_finished(&mut self, server: u32) {
        while let Some(key) = self.leaves[server as usize].processor.finish(self.now) {
            let key = Key::from_u64(key);
            self.leaf_event(server, LeafEvent::Finished { request: leaf_request(key) });
            match self.ending(server) {
                Some(ending) => self.executed(server, key, ending),
                // The root gets no response.
                None => {
                    self.record_attempt(key, |record, now| record.left = Some(now));
                    self.forget_attempt(key);
                }
            }
            self.collect_garbage(server);
        }
        self.set_server_alarm(server);
    }

    /// Hands an event to a leaf and carries out the effects. The caller sets the alarm of the server afterwards.
    pub(super) fn leaf_event(&mut self, server: u32, event: LeafEvent) {
        self.leaves[server as usize].machine.handle(self.now, event);
        while let Some(Decided { effect, .. }) = self.leaves[server as usize].machine.poll_effect()
        {
            match effect {
                LeafEffect::Start { request } => self.start(server, Key::from_u64(request.0)),
                LeafEffect::TellTwin { request, tie } => {
                    let key = Key::from_u64(request.0);
                    let attempt = self.attempts.get_mut(key).expect("what has started is known");
                    let (_, twin) = attempt.tie.expect("only a copy of a tie has a twin");
                    let news = self.twin_news.insert(TwinNews { server: twin, tie });
                    self.post(Step::TwinNewsArrives(news));
                }
                LeafEffect::Drop { request } => {
                    self.end(Key::from_u64(request.0), Ending::Responded(Outcome::TwinStarted));
                }
                LeafEffect::Refuse { request } => {
                    self.end(Key::from_u64(request.0), Ending::Responded(Outcome::Refused));
                }
            }
        }
    }

    /// Sets the alarm of a server whose executions or pace have changed to the end of its next execution. If servers share
    /// cores, the other executions now have another share of them.
    pub(super) fn set_server_alarm(&mut self, server: u32) {
        if let Some(cores) = self.model.shared_cores {
            let first_tier = 0..self.model.servers as usize;
            let running = self.leaves[first_tier].iter().map(|leaf| leaf.processor.running());
            let share = (cores / running.sum::<usize>() as f64).min(1.0);
            if share != self.share_of_cores {
                self.share_of_cores = share;
                for server in 0..self.model.servers {
                    self.leaves[server as usize].processor.set_share(self.now, share);
                    self.set_own_alarm(server);
                }
            }
        }
        self.set_own_alarm(server);
    }

    fn set_own_alarm(&mut self, server: u32) {
        let place = &mut self.leaves[server as usize];
        if let Some(at) = place.server_alarm.set(place.processor.next_end()) {
            self.queue.push(at, Step::ServerAlarm(server));
        }
    }

    fn start(&mut self, server: u32, key: Key) {
        let attempt = self.attempts.get_mut(key).expect("what waits is known");
        attempt.stage = Stage::InService;
        self.leaves[server as usize].processor.start(self.now, key.as_u64(), attempt.service_ns);
        if attempt.owner != Owner::NoisyNeighbor {
            self.counts.executions += 1;
        }
        self.record_attempt(key, |record, now| record.started = Some(now));
    }

    /// Ends an attempt at its server; the ending goes back to the root, if the root still waits.
    pub(super) fn end(&mut self, key: Key, ending: Ending) {
        self.record_attempt(key, |record, now| record.left = Some(now));
        let attempt = self.attempts.get_mut(key).expect("an attempt that ends exists");
        if attempt.owner == Owner::NoisyNeighbor || attempt.is_cancelled {
            self.forget_attempt(key);
            return;
        }
        attempt.stage = Stage::Homeward;
        attempt.ending = ending;
        self.post(Step::ResponseArrives(key));
    }

    fn record_attempt(&mut self, key: Key, change: impl FnOnce(&mut AttemptRecord, Instant)) {
        if let Some(recorder) = &mut self.recorder
            && let Some(record) = recorder.attempt(key)
        {
            change(record, self.now);
        }
    }
}
