//! The calls of requests: they decide, and attempts and probes travel.

use super::remedy::RemedyCall;
use super::root::RequestKind;
use super::{Step, World};
use crate::queue::Lane;
use crate::record::{AttemptEnd, AttemptRecord};
use crate::slab::Key;
use curtail_policy::{
    ATTEMPTS_MAX, AttemptId, Call, CallId, Choice, Class, Decided, Effect, Event, Failure,
    GatherEvent, Load, Outcome, Reason, ReplicaId, Request, Tie, TieId, UpstreamEvent,
};
use curtail_units::{Duration, Instant};

#[derive(Clone, Debug)]
pub(super) struct CallPlace {
    machine: Call,
    request: Key,
    /// The number of the call among the calls of the request.
    id: CallId,
    /// The same, with the calls of earlier tries of the client.
    recorded_id: CallId,
    /// Whether nobody waits for the call: the request is done without it, or the client has sent the request again.
    is_abandoned: bool,
    /// Whether its client or its request cancelled it.
    pub(super) was_cancelled: bool,
    pub(super) upstream: u32,
    pub(super) kind: RequestKind,
    attempts: [Key; ATTEMPTS_MAX],
    /// The service time of the call's first attempt, without factors.
    service_ns: f64,
    /// The factor on the service times of all attempts, that of the request included.
    factor: f64,
    /// Whether all attempts of the call have the service time of the first one, apart from the factors of servers.
    copies_alike: bool,
    pub(super) good: Option<AttemptId>,
    pub(super) remedy: RemedyCall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Outward,
    /// On its way to the leaf, overtaken by its cancellation.
    Overtaken,
    Queued,
    InService,
    /// Its server waits for calls of its own, of this request.
    Calls(Key),
    Homeward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Call(Key),
    /// A client outside the model.
    NoisyNeighbor,
}

/// An attempt, from its start until no message about it can matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) owner: Owner,
    pub(super) id: AttemptId,
    pub(super) server: u32,
    pub(super) class: Class,
    /// The tie of the attempt, and the server of its twin.
    pub(super) tie: Option<(TieId, u32)>,
    pub(super) service_ns: f64,
    pub(super) stage: Stage,
    /// Whether the attempt was cancelled, but its server runs on.
    pub(super) is_cancelled: bool,
    /// The ending of the attempt, once it is on the way back.
    pub(super) ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Responded(Outcome),
    Failed(Failure),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    upstream: u32,
    replica: ReplicaId,
    server: u32,
    sent: Instant,
    load: Option<Load>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TwinNews {
    pub(super) server: u32,
    pub(super) tie: TieId,
}

impl World<'_> {
    pub(super) fn begin_call(&mut self, request_key: Key, id: CallId) {
        let request = self.request_mut(request_key);
        let (kind, recorded_id, factor) = (request.kind, request.recorded_id(id), request.factor);
        let (client, first_shard) = (request.client, request.first_shard);
        let tier = &self.tiers[kind.tier as usize];
        let shard = (first_shard + id.0) % tier.shards;
        let upstream = tier.upstream(client, shard);
        let factor = match kind.tier {
            0 => factor * self.model.call_factor.draw_factor(&mut self.draws.call_factors),
            _ => factor,
        };
        let copies_alike = self.model.copies_alike.get();
        let service_ns = self.draw_work_ns(kind, id, true);
        let remedy = self.begin_remedy_call(upstream);
        let RequestKind { class, repeatable, .. } = kind;
        let key = self.calls.insert(CallPlace {
            machine: Call::new(Request {
                class,
                repeatable,
                is_holdout: remedy.is_holdout,
                timeout: None,
                deadline: None,
                retries_max: None,
            }),
            request: request_key,
            id,
            recorded_id,
            is_abandoned: false,
            was_cancelled: false,
            upstream,
            kind,
            attempts: [Key::NONE; ATTEMPTS_MAX],
            service_ns,
            factor,
            copies_alike: copies_alike > 0.0 && self.draws.service.chance(copies_alike),
            good: None,
            remedy,
        });
        if self.may_abandon_calls() {
            self.request_mut(request_key).calls.push(key);
        }
        if key.index as usize == self.call_alarms.len() {
            self.call_alarms.push(crate::alarm::Alarm::OFF);
        }
        self.counts.calls += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.call(request_key, shard, factor, self.now);
        }
        if kind.tier == 0
            && let Some(patience) = self.model.gives_up_after
        {
            self.queue.push_lane(Lane::Alarms, self.now + patience, Step::ClientGivesUp(key));
        }
        self.call_event(key, Event::Arrived);
    }

    /// Abandons a call for which nobody waits any more.
    pub(super) fn abandon_call(&mut self, key: Key) {
        self.leave_call(key);
        self.cancel_call(key);
    }

    fn cancel_call(&mut self, key: Key) {
        if let Some(call) = self.calls.get_mut(key) {
            call.was_cancelled = true;
        }
        self.call_event(key, Event::Abandoned);
    }

    /// Lets a call run to its end, for which nobody waits.
    pub(super) fn leave_call(&mut self, key: Key) {
        if let Some(call) = self.calls.get_mut(key) {
            call.is_abandoned = true;
        }
    }

    pub(super) fn call_woke(&mut self, index: u32) {
        if let Some(key) = self.calls.key_at(index) {
            self.call_event(key, Event::Woke);
        }
    }

    /// Hands an event to a call and carries out the effects.
    fn call_event(&mut self, key: Key, event: Event) {
        let Some(call) = self.calls.get_mut(key) else { return };
        let index = call.upstream as usize;
        self.call_step(key, event);
        if let Some(attempt) = self.carry_out(index, key) {
            self.record_win(key, attempt);
            // Bodies take no time here: a response ends as soon as it begins.
            self.call_step(key, Event::Ended { attempt, whole: true });
            self.carry_out(index, key);
        }
        let call = self.calls.get_mut(key).expect("only finishing a call removes it");
        let wanted = call.machine.poll_timeout();
        let over = call.machine.is_over();
        if let Some(at) = self.call_alarms[key.index as usize].set(wanted) {
            self.queue.push_lane(Lane::Alarms, at, Step::CallAlarm(key.index));
        }
        self.wake_upstream(index);
        if over {
            self.finish_call(key);
        }
    }

    /// Runs a call's machine on an event, in the group of its upstream if there is one.
    fn call_step(&mut self, key: Key, event: Event) {
        let call = self.calls.get_mut(key).expect("only finishing a call removes it");
        let group = self.groups.get_mut(self.upstreams[call.upstream as usize].group);
        let (machine, now) = (&mut call.machine, self.now);
        let upstream = &mut self.upstreams[call.upstream as usize].machine;
        upstream.in_group(group, |upstream| machine.handle(upstream, now, event));
    }

    /// Carries out the effects of an upstream and a call. Returns the attempt whose response the client gets.
    fn carry_out(&mut self, upstream: usize, key: Key) -> Option<AttemptId> {
        let mut winner = None;
        while let Some(Decided { effect, reason }) = self.upstreams[upstream].machine.poll_effect()
        {
            match effect {
                Effect::Send { attempt, replica, choice, class, tie } => {
                    self.send(key, (attempt, replica), (class, tie), (reason, choice));
                }
                Effect::Cancel { attempt } => self.cancel(key, attempt, reason),
                Effect::Respond { attempt } => winner = Some(attempt),
                // A call that has failed is over, and finished as such.
                Effect::Fail { .. } => {}
                Effect::Skip => self.skipped(key, reason),
                Effect::SetRemedy { state } => {
                    self.remedy_decided(upstream, Decided { effect: state, reason });
                }
                Effect::Probe { replica } => self.send_probe(upstream, replica),
            }
        }
        winner
    }

    fn finish_call(&mut self, key: Key) {
        let call = self.calls.get_mut(key).expect("a call is finished once");
        let (recorded_id, is_abandoned) = (call.recorded_id, call.is_abandoned);
        let (request, call, success) = (call.request, call.id, call.good.is_some());
        self.end_remedy_call(key);
        self.calls.free(key);
        if let Some(recorder) = &mut self.recorder {
            recorder.end_call(request, recorded_id, self.now, success);
        }
        if !is_abandoned {
            self.request_event(request, GatherEvent::CallEnded { call, success });
        }
    }
}

impl World<'_> {
    fn send(
        &mut self,
        call_key: Key,
        (id, replica): (AttemptId, ReplicaId),
        (class, tie): (Class, Option<Tie>),
        (reason, choice): (Reason, Choice),
    ) {
        let call = self.calls.get_mut(call_key).expect("only a call that is known sends");
        let (upstream, request, recorded_id) = (call.upstream, call.request, call.recorded_id);
        let (kind, call_id) = (call.kind, call.id);
        let (first_ns, factor) = (call.service_ns, call.factor);
        let is_as_first = id.0 == 0 || call.copies_alike;
        let drawn_ns = if is_as_first { first_ns } else { self.draw_work_ns(kind, call_id, false) };
        let server = self.server_of(upstream, replica);
        let service_ns = drawn_ns * factor * self.server_factors[server as usize];
        let key = self.attempts.insert(Attempt {
            owner: Owner::Call(call_key),
            id,
            server,
            class,
            tie: tie.map(|tie| (tie.id, self.server_of(upstream, tie.twin))),
            service_ns,
            stage: Stage::Outward,
            is_cancelled: false,
            ending: Ending::Responded(Outcome::Good),
        });
        let call = self.calls.get_mut(call_key).expect("it is known");
        call.attempts[id.index()] = key;
        self.counts.attempts += 1;
        if let Some(recorder) = &mut self.recorder {
            let (replica, sent) = (replica.0, self.now);
            let record = AttemptRecord::new(
                (replica, server),
                (reason, choice, tie),
                sent,
                Duration::from_ns_f64(service_ns),
            );
            recorder.send(request, recorded_id, key, record);
        }
        let setup = self.connect(key, server, (upstream, replica));
        self.post_after(setup, Step::AttemptArrives(key));
    }

    /// Gives an attempt a connection; returns the time to open it.
    fn connect(
        &mut self,
        attempt: Key,
        server: u32,
        (upstream, replica): (u32, ReplicaId),
    ) -> Duration {
        let Some(connections) = &mut self.connections else { return Duration::ZERO };
        let tier = self.upstreams[upstream as usize].tier;
        let pair = self.tiers[tier as usize].pair(upstream, replica);
        connections.open(self.now, attempt, pair, self.leaves[server as usize].crashed)
    }

    fn cancel(&mut self, call_key: Key, id: AttemptId, reason: Reason) {
        let call = self.calls.get_mut(call_key).expect("only a call that is known cancels");
        let key = call.attempts[id.index()];
        self.record_end(call_key, id, AttemptEnd::Cancelled(reason));
        // A kept response leaves no attempt to cancel.
        if self.attempts.get_mut(key).is_some() {
            if let Some(connections) = &mut self.connections {
                connections.close(key);
            }
            self.post(Step::CancelArrives(key));
        }
    }

    pub(super) fn response_arrives(&mut self, key: Key) {
        let attempt = self.forget_attempt(key).expect("an attempt is known until its response");
        if let Some(connections) = &mut self.connections {
            connections.end(self.now, key, matches!(attempt.ending, Ending::Responded(_)));
        }
        let Owner::Call(call_key) = attempt.owner else { return };
        let Some(call) = self.calls.get_mut(call_key) else { return };
        let id = attempt.id;
        let (event, end) = match attempt.ending {
            Ending::Responded(outcome) => {
                if outcome == Outcome::Good {
                    call.good = Some(id);
                }
                (Event::Responded { attempt: id, outcome }, AttemptEnd::Responded(outcome))
            }
            Ending::Failed(failure) => {
                (Event::Failed { attempt: id, failure }, AttemptEnd::Failed(failure))
            }
        };
        self.record_end(call_key, id, end);
        self.call_event(call_key, event);
    }

    /// Abandons a call because the client gives up; false when the call has ended before.
    pub(super) fn client_gives_up(&mut self, key: Key) -> bool {
        let is_waiting = self.calls.get_mut(key).is_some();
        if is_waiting {
            self.cancel_call(key);
        }
        is_waiting
    }
}

/// The record of a call, if it is recorded.
impl World<'_> {
    fn record_win(&mut self, call: Key, attempt: AttemptId) {
        if let Some(recorder) = &mut self.recorder
            && let Some(call) = self.calls.get_mut(call)
        {
            recorder.win(call.request, call.recorded_id, attempt);
        }
    }

    fn record_end(&mut self, call: Key, attempt: AttemptId, end: AttemptEnd) {
        if let Some(recorder) = &mut self.recorder
            && let Some(call) = self.calls.get_mut(call)
        {
            recorder.end_attempt((call.request, call.recorded_id, attempt), self.now, end);
        }
    }
}

/// Probes and wake-ups of an upstream.
impl World<'_> {
    pub(super) fn upstream_woke(&mut self, index: usize) {
        self.upstream_event(index, UpstreamEvent::Woke);
    }

    pub(super) fn wake_upstream(&mut self, index: usize) {
        let place = &mut self.upstreams[index];
        if let Some(at) = place.alarm.set(place.machine.poll_timeout()) {
            let index = u32::try_from(index).expect("counts of the model are u32");
            self.queue.push(at, Step::UpstreamAlarm(index));
        }
    }

    pub(super) fn upstream_event(&mut self, index: usize, event: UpstreamEvent) {
        let group = self.groups.get_mut(self.upstreams[index].group);
        let now = self.now;
        self.upstreams[index].machine.in_group(group, |upstream| upstream.handle(now, event));
        // An upstream by itself probes, and decides about its remedies.
        self.carry_out(index, Key::NONE);
        self.wake_upstream(index);
    }

    fn send_probe(&mut self, upstream: usize, replica: ReplicaId) {
        let upstream = u32::try_from(upstream).expect("counts of the model are u32");
        let server = self.server_of(upstream, replica);
        let sent = self.now;
        let key = self.probes.insert(Probe { upstream, replica, server, sent, load: None });
        self.post(Step::ProbeArrives(key));
        if self.network.may_exceed(self.probe_timeout) {
            self.queue.push(self.now + self.probe_timeout, Step::ProbeTimesOut(key));
        }
    }

    pub(super) fn probe_arrives(&mut self, key: Key) {
        // It may have been given up meanwhile.
        let Some(Probe { server, .. }) = self.probes.get_mut(key) else { return };
        let server = *server;
        if self.is_down(server) {
            // A probe without a response is no event for the policies.
            self.probes.free(key);
            return;
        }
        let load = self.leaves[server as usize].machine.load(self.now);
        if let Some(probe) = self.probes.get_mut(key) {
            probe.load = Some(load);
        }
        self.post(Step::ProbeResponseArrives(key));
    }

    pub(super) fn probe_response_arrives(&mut self, key: Key) {
        let Some(Probe { upstream, replica, sent, load, .. }) = self.probes.remove(key) else {
            return;
        };
        let upstream = upstream as usize;
        // As the proxy does: a probe and its response are two of the shortest messages there are.
        let one_way = Duration::from_ns(self.now.since(sent).as_ns() / 2);
        self.upstream_event(upstream, UpstreamEvent::MessageTimed { one_way });
        let load = load.expect("a probe with a response was at its leaf");
        self.upstream_event(upstream, UpstreamEvent::ProbeSucceeded { replica, load });
    }

    /// Gives a probe up; false when its response came in time.
    pub(super) fn probe_times_out(&mut self, key: Key) -> bool {
        self.probes.remove(key).is_some()
    }
}
