//! The side of the roots: requests arrive, their calls decide, attempts and probes travel.

use super::remedy::RemedyCall;
use super::{Step, World};
use crate::queue::Lane;
use crate::record::{AttemptEnd, AttemptRecord, RequestRecord};
use crate::slab::Key;
use curtail_policy::{
    ATTEMPTS_MAX, AttemptId, Call, CallId, Choice, Class, Decided, Effect, Event, Failure, Gather,
    GatherConfig, GatherEffect, GatherEvent, GatherOutcome, Load, Outcome, Reason, ReplicaId,
    Request, RestMode, Tie, TieId, UpstreamEvent,
};
use curtail_units::{Duration, Instant};

#[derive(Clone, Debug)]
pub(super) struct RequestPlace {
    number: u64,
    arrived: Instant,
    overhead: Duration,
    client: u32,
    /// The shard of the first call; later calls go to the next shards.
    first_shard: u32,
    /// The factor on the service times of all attempts.
    factor: f64,
    /// Where the recorded work of its calls is: the index of the request, and the first call's index among them.
    recorded_work: Option<(usize, usize)>,
    gather: Gather,
    is_complete: bool,
}

#[derive(Clone, Debug)]
pub(super) struct CallPlace {
    machine: Call,
    request: Key,
    /// The number of the call among the calls of the request.
    id: CallId,
    pub(super) upstream: u32,
    shard: u32,
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
    pub(super) fn schedule_request(&mut self) {
        let at = match &mut self.recorded {
            Some(recorded) => recorded.next_arrival(),
            None => Some(self.arrivals.next_arrival()),
        };
        if let Some(at) = at {
            self.queue.push(at, Step::RequestArrives);
        }
    }

    pub(super) fn request_arrives(&mut self) {
        let recorded_work = self.recorded_work();
        self.schedule_request();
        self.check_in_flight();
        let model = self.model;
        let small = |number: usize| u32::try_from(number).expect("counts of the model are u32");
        let client = match model.clients {
            1 => 0,
            clients => small(self.draws.clients.below(clients as usize)),
        };
        let first_shard = if model.fan_out < model.shards {
            small(self.draws.shards.below(model.shards as usize))
        } else {
            0
        };
        // The servers execute the rest of a failed request as well: that is load too.
        let config = GatherConfig { rest: RestMode::Finish, ..GatherConfig::all_of(model.fan_out) };
        let number = self.tally.arrived();
        let factor = model.request_factor.draw_factor(&mut self.draws.request_factors);
        let request = self.requests.insert(RequestPlace {
            number,
            arrived: self.now,
            overhead: model.overhead.draw(&mut self.draws.overhead),
            client,
            first_shard,
            factor,
            recorded_work,
            gather: Gather::new(config),
            is_complete: false,
        });
        if let Some(recorder) = &mut self.recorder
            && self.tally.counts(number)
        {
            recorder.begin(request, RequestRecord::new(number, client, factor, self.now));
        }
        self.request_event(request, GatherEvent::Arrived);
    }

    /// Where the recorded work of the request that arrives is, if it is recorded. Shards and calls are matched at random.
    fn recorded_work(&mut self) -> Option<(usize, usize)> {
        let nth = self.recorded.as_ref()?.arriving();
        let works =
            self.model.timeline.as_ref()?.works.get(nth).filter(|works| !works.is_empty())?;
        Some((nth, self.draws.service.below(works.len())))
    }

    /// The work of a call of a request: of its first attempt, or of a further one.
    fn draw_work_ns(&mut self, request: Key, call: CallId, is_first: bool) -> f64 {
        let (model, place) = (self.model, self.request_mut(request).recorded_work);
        let works = place.and_then(|(nth, first)| {
            let works = model.timeline.as_ref()?.works.get(nth)?;
            Some((works, first + call.0 as usize))
        });
        let random = if is_first { &mut self.draws.service } else { &mut self.draws.copies };
        match works {
            Some((works, nth)) if is_first => works[nth % works.len()].as_ns_f64(),
            Some((works, _)) => works[random.below(works.len())].as_ns_f64(),
            None => model.service.draw_ns(random),
        }
    }

    /// Hands an event to the gather of a request, and carries out the effects.
    fn request_event(&mut self, key: Key, event: GatherEvent) {
        let now = self.now;
        self.request_mut(key).gather.handle(now, event);
        while let Some(Decided { effect, .. }) = self.request_mut(key).gather.poll_effect() {
            match effect {
                GatherEffect::StartCall { call } => self.begin_call(key, call),
                GatherEffect::AbandonCall { .. } => unreachable!("the rest finishes"),
                GatherEffect::Done { outcome } => {
                    self.request_mut(key).is_complete = outcome == GatherOutcome::Complete;
                }
            }
        }
        let request = self.request_mut(key);
        if request.gather.is_over() {
            let age = now.since(request.arrived) + request.overhead;
            let (number, is_complete) = (request.number, request.is_complete);
            let ended = request.arrived + age;
            if let Some(recorder) = &mut self.recorder {
                recorder.end(key, ended, is_complete);
            }
            self.requests.free(key);
            self.tally_request(number, age, is_complete);
        }
    }

    fn request_mut(&mut self, key: Key) -> &mut RequestPlace {
        self.requests.get_mut(key).expect("a request is known until its last call has ended")
    }

    fn begin_call(&mut self, request_key: Key, id: CallId) {
        let shards = self.model.shards;
        let request = self.request_mut(request_key);
        let shard = (request.first_shard + id.0) % shards;
        let upstream = request.client * shards + shard;
        let factor =
            request.factor * self.model.call_factor.draw_factor(&mut self.draws.call_factors);
        let copies_alike = self.model.copies_alike.get();
        let service_ns = self.draw_work_ns(request_key, id, true);
        let remedy = self.begin_remedy_call(upstream);
        let key = self.calls.insert(CallPlace {
            machine: Call::new(Request {
                class: self.model.class,
                repeatable: self.model.repeatable,
                is_holdout: remedy.is_holdout,
            }),
            request: request_key,
            id,
            upstream,
            shard,
            attempts: [Key::NONE; ATTEMPTS_MAX],
            service_ns,
            factor,
            copies_alike: copies_alike > 0.0 && self.draws.service.chance(copies_alike),
            good: None,
            remedy,
        });
        if key.index as usize == self.call_alarms.len() {
            self.call_alarms.push(crate::alarm::Alarm::OFF);
        }
        self.counts.calls += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.call(request_key, shard, factor, self.now);
        }
        if let Some(patience) = self.model.gives_up_after {
            self.queue.push_lane(Lane::Alarms, self.now + patience, Step::ClientGivesUp(key));
        }
        self.call_event(key, Event::Arrived);
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
        let group = self.groups.get_mut((call.upstream / self.model.shards) as usize);
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
        let (request, call, success) = (call.request, call.id, call.good.is_some());
        self.end_remedy_call(key);
        self.calls.free(key);
        if let Some(recorder) = &mut self.recorder {
            recorder.end_call(request, call, self.now, success);
        }
        self.request_event(request, GatherEvent::CallEnded { call, success });
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
        let model = self.model;
        let call = self.calls.get_mut(call_key).expect("only a call that is known sends");
        let (shard, request, call_id) = (call.shard, call.request, call.id);
        let (upstream, is_as_first) = (call.upstream, id.0 == 0 || call.copies_alike);
        let (first_ns, factor) = (call.service_ns, call.factor);
        let drawn_ns =
            if is_as_first { first_ns } else { self.draw_work_ns(request, call_id, false) };
        let server = model.server(shard, replica.0);
        let service_ns = drawn_ns * factor * self.server_factors[server as usize];
        let key = self.attempts.insert(Attempt {
            owner: Owner::Call(call_key),
            id,
            server,
            class,
            tie: tie.map(|tie| (tie.id, model.server(shard, tie.twin.0))),
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
            recorder.send(request, call_id, key, record);
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
        let pair = upstream as usize * self.model.replicas as usize + replica.0 as usize;
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
            self.call_event(key, Event::Abandoned);
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
            recorder.win(call.request, call.id, attempt);
        }
    }

    fn record_end(&mut self, call: Key, attempt: AttemptId, end: AttemptEnd) {
        if let Some(recorder) = &mut self.recorder
            && let Some(call) = self.calls.get_mut(call)
        {
            recorder.end_attempt((call.request, call.id, attempt), self.now, end);
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
        let group = self.groups.get_mut(index / self.model.shards as usize);
        let now = self.now;
        self.upstreams[index].machine.in_group(group, |upstream| upstream.handle(now, event));
        // An upstream by itself probes, and decides about its remedies.
        self.carry_out(index, Key::NONE);
        self.wake_upstream(index);
    }

    fn send_probe(&mut self, upstream: usize, replica: ReplicaId) {
        let upstream = u32::try_from(upstream).expect("counts of the model are u32");
        let server = self.model.server(upstream % self.model.shards, replica.0);
        let sent = self.now;
        let key = self.probes.insert(Probe { upstream, replica, server, sent, load: None });
        self.post(Step::ProbeArrives(key));
        if self.network.may_exceed(self.probe_timeout) {
            self.queue.push(self.now + self.probe_timeout, Step::ProbeTimesOut(key));
        }
    }

    pub(super) fn probe_arrives(&mut self, key: Key) {
        // It may have been given up meanwhile.
        let Some(probe) = self.probes.get_mut(key) else { return };
        if self.faults.is_down(probe.server) {
            // A probe without a response is no event for the policies.
            self.probes.free(key);
            return;
        }
        probe.load = Some(self.leaves[probe.server as usize].machine.load(self.now));
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
