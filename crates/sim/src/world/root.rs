//! Requests at their roots: they arrive, gather the responses of their calls, and are retried by their clients.
//!
//! A request that fails is **done** at its client before its last call has ended. The client may then send it again: the
//! calls of the earlier try run to their end, and nobody waits for them.

use super::request::Ending;
use super::tiers::TierPlace;
use super::{Step, World};
use crate::model::ClosedLoop;
use crate::queue::Lane;
use crate::record::RequestRecord;
use crate::slab::Key;
use crate::tally::EndedRequest;
use curtail_model::draw_weighted;
use curtail_policy::{
    CallId, Class, Decided, Gather, GatherConfig, GatherEffect, GatherEvent, GatherOutcome,
    GatherRule, Outcome, RestMode,
};
use curtail_units::{Duration, Instant};

/// What the calls of a request have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestKind {
    /// The tier of the servers that are called.
    pub(super) tier: u32,
    pub(super) class: Class,
    pub(super) repeatable: bool,
    /// The index of the type among the types of the model.
    pub(super) of_type: Option<usize>,
    /// Where the recorded work of its calls is: the index of the request, and the first call's index among them.
    pub(super) recorded: Option<(usize, usize)>,
}

/// Who waits for the response of a request.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// A client; the number of the request, and that among the requests of its type.
    Client { number: u64, number_of_type: u64 },
    /// An attempt whose server makes calls itself.
    Attempt(Key),
}

#[derive(Clone, Debug)]
pub(super) struct RequestPlace {
    waiting: Waiting,
    pub(super) kind: RequestKind,
    arrived: Instant,
    overhead: Duration,
    pub(super) client: u32,
    /// The shard of the first call; later calls go to the next shards.
    pub(super) first_shard: u32,
    /// The factor on the service times of all attempts.
    pub(super) factor: f64,
    gather: Gather,
    /// The calls of this try, if they may be abandoned.
    pub(super) calls: Vec<Key>,
    /// The number of calls of earlier tries.
    calls_before: u32,
    retries_left: u32,
    /// The time at which the client has a response; absent: it has none, or it has failed.
    responded: Option<Instant>,
    is_partial: bool,
}

impl RequestPlace {
    /// A request that a server makes for an attempt, with the numbers of the server and of the first shard.
    pub(super) const fn of_server(
        attempt: Key,
        kind: RequestKind,
        (client, first_shard): (u32, u32),
        gather: Gather,
        now: Instant,
    ) -> Self {
        Self {
            waiting: Waiting::Attempt(attempt),
            kind,
            arrived: now,
            overhead: Duration::ZERO,
            client,
            first_shard,
            factor: 1.0,
            gather,
            calls: Vec::new(),
            calls_before: 0,
            retries_left: 0,
            responded: None,
            is_partial: false,
        }
    }

    /// The number of a call of this try among the calls of all tries.
    pub(super) const fn recorded_id(&self, call: CallId) -> CallId {
        CallId(self.calls_before + call.0)
    }
}

impl World<'_> {
    pub(super) fn begin_arrivals(&mut self) {
        match &self.model.closed_loop {
            Some(ClosedLoop { users, .. }) => {
                (0..*users).for_each(|_| self.schedule_user(Duration::ZERO));
            }
            None => self.schedule_request(),
        }
    }

    fn schedule_request(&mut self) {
        if self.model.closed_loop.is_some() {
            return;
        }
        let at = match &mut self.recorded {
            Some(recorded) => recorded.next_arrival(),
            None => Some(self.arrivals.next_arrival()),
        };
        if let Some(at) = at {
            self.queue.push(at, Step::RequestArrives);
        }
    }

    /// Schedules the next request of a user who has a response in `after`.
    fn schedule_user(&mut self, after: Duration) {
        if let Some(ClosedLoop { think_time, .. }) = &self.model.closed_loop {
            let think_time = think_time.draw(&mut self.draws.think_times);
            self.queue.push(self.now + after + think_time, Step::RequestArrives);
        }
    }

    pub(super) fn request_arrives(&mut self) {
        let recorded = self.recorded_work();
        self.schedule_request();
        self.check_in_flight();
        let model = self.model;
        let client = match model.clients {
            1 => 0,
            clients => {
                let client = self.draws.clients.below(clients as usize);
                u32::try_from(client).expect("counts of the model are u32")
            }
        };
        let first_shard = self.draw_first_shard(0);
        let number = self.tally.arrived();
        let types = &model.request_types;
        let of_type = (!types.is_empty())
            .then(|| draw_weighted(types, |of| of.weight, &mut self.draws.request_types));
        let number_of_type = of_type.map_or(number, |nth| self.tally.arrived_of_type(nth));
        let factor = of_type.and_then(|nth| model.request_types[nth].request_factor.as_ref());
        let factor =
            factor.unwrap_or(&model.request_factor).draw_factor(&mut self.draws.request_factors);
        let types = of_type.map(|nth| &model.request_types[nth]);
        let class = types.and_then(|of| of.class).unwrap_or(model.class);
        let repeatable = types.and_then(|of| of.repeatable).unwrap_or(model.repeatable);
        let request = self.requests.insert(RequestPlace {
            waiting: Waiting::Client { number, number_of_type },
            kind: RequestKind { tier: 0, class, repeatable, of_type, recorded },
            arrived: self.now,
            overhead: model.overhead.draw(&mut self.draws.overhead),
            client,
            first_shard,
            factor,
            gather: Gather::new(self.gather),
            calls: Vec::new(),
            calls_before: 0,
            retries_left: model.client_retries.retries_max,
            responded: None,
            is_partial: false,
        });
        if let Some(recorder) = &mut self.recorder
            && self.tally.counts(number)
        {
            recorder.begin(request, RequestRecord::new(number, client, factor, of_type, self.now));
        }
        self.request_event(request, GatherEvent::Arrived);
    }

    /// The shard of the first call of a request to a tier.
    pub(super) fn draw_first_shard(&mut self, tier: u32) -> u32 {
        let TierPlace { fan_out, shards, .. } = self.tiers[tier as usize];
        if fan_out >= shards {
            return 0;
        }
        let first = self.draws.shards.below(shards as usize);
        u32::try_from(first).expect("counts of the model are u32")
    }

    /// Whether calls may be abandoned: the calls of a request must then be known.
    pub(super) fn may_abandon_calls(&self) -> bool {
        self.gather.rest == RestMode::Cancel
            || self.model.client_retries.retries_max > 0
            || self.tiers.len() > 1
    }

    /// Where the recorded work of the request that arrives is, if it is recorded. Shards and calls are matched at random.
    fn recorded_work(&mut self) -> Option<(usize, usize)> {
        let nth = self.recorded.as_ref()?.arriving();
        let works =
            self.model.timeline.as_ref()?.works.get(nth).filter(|works| !works.is_empty())?;
        Some((nth, self.draws.service.below(works.len())))
    }

    /// The work of a call of a request: of its first attempt, or of a further one.
    pub(super) fn draw_work_ns(&mut self, kind: RequestKind, call: CallId, is_first: bool) -> f64 {
        let model = self.model;
        if let Some(before) = kind.tier.checked_sub(1) {
            return model.tiers[before as usize].service.draw_ns(&mut self.draws.tiers);
        }
        let works = kind.recorded.and_then(|(nth, first)| {
            let works = model.timeline.as_ref()?.works.get(nth)?;
            Some((works, first + call.0 as usize))
        });
        let service = kind.of_type.and_then(|nth| model.request_types[nth].service.as_ref());
        let random = if is_first { &mut self.draws.service } else { &mut self.draws.copies };
        match works {
            Some((works, nth)) if is_first => works[nth % works.len()].as_ns_f64(),
            Some((works, _)) => works[random.below(works.len())].as_ns_f64(),
            None => service.unwrap_or(&model.service).draw_ns(random),
        }
    }

    /// Hands an event to the gather of a request, and carries out the effects.
    pub(super) fn request_event(&mut self, key: Key, event: GatherEvent) {
        let now = self.now;
        self.request_mut(key).gather.handle(now, event);
        let mut done = None;
        while let Some(Decided { effect, .. }) = self.request_mut(key).gather.poll_effect() {
            match effect {
                GatherEffect::StartCall { call } => self.begin_call(key, call),
                GatherEffect::AbandonCall { call } => {
                    let call = self.request_mut(key).calls[call.0 as usize];
                    self.abandon_call(call);
                }
                GatherEffect::Done { outcome } => done = Some(outcome),
            }
        }
        if event == GatherEvent::Arrived
            && let Some(at) = self.request_mut(key).gather.poll_timeout()
        {
            self.queue.push_lane(Lane::Alarms, at, Step::RequestAlarm(key));
        }
        if let Some(outcome) = done {
            self.request_is_done(key, outcome);
        }
        if self.request_mut(key).gather.is_over() {
            self.request_is_over(key);
        }
    }

    /// The deadline of a request; false when the request was over before.
    pub(super) fn request_woke(&mut self, key: Key) -> bool {
        let is_open = self.requests.get_mut(key).is_some();
        if is_open {
            self.request_event(key, GatherEvent::Woke);
        }
        is_open
    }

    /// The client of a request has a response, or knows that the request has failed.
    fn request_is_done(&mut self, key: Key, outcome: GatherOutcome) {
        let (now, gather) = (self.now, self.gather);
        let request = self.request_mut(key);
        if outcome == GatherOutcome::Failed && request.retries_left > 0 {
            request.retries_left -= 1;
            request.gather = Gather::new(gather);
            let calls = std::mem::take(&mut request.calls);
            request.calls_before += u32::try_from(calls.len()).expect("a request has few calls");
            calls.into_iter().for_each(|call| self.leave_call(call));
            let wait = self.model.client_retries.wait.draw(&mut self.draws.client_retries);
            self.queue.push(now + wait, Step::RequestRetried(key));
            return;
        }
        request.responded = (outcome != GatherOutcome::Failed).then_some(now);
        request.is_partial = outcome == GatherOutcome::Partial;
        let (overhead, waiting) = (request.overhead, request.waiting);
        if let Waiting::Attempt(attempt) = waiting {
            let is_good = outcome == GatherOutcome::Complete;
            let response = if is_good { Outcome::Good } else { Outcome::Bad };
            self.end(attempt, Ending::Responded(response));
            return;
        }
        self.schedule_user(overhead);
    }

    pub(super) fn request_retried(&mut self, key: Key) {
        self.check_in_flight();
        self.request_event(key, GatherEvent::Arrived);
    }

    fn request_is_over(&mut self, key: Key) {
        let now = self.now;
        let request = self.request_mut(key);
        let age = request.responded.unwrap_or(now).since(request.arrived) + request.overhead;
        let Waiting::Client { number, number_of_type } = request.waiting else {
            self.requests.free(key);
            return;
        };
        let of_type = request.kind.of_type.map(|nth| (nth, number_of_type));
        let (retries_left, is_partial) = (request.retries_left, request.is_partial);
        let (ended, has_response) = (request.arrived + age, request.responded.is_some());
        if let Some(recorder) = &mut self.recorder {
            recorder.end(key, ended, has_response);
        }
        self.requests.free(key);
        self.tally_request(EndedRequest {
            number,
            of_type,
            latency: has_response.then_some(age),
            age,
            retries: self.model.client_retries.retries_max - retries_left,
            is_partial,
        });
    }

    pub(super) fn request_mut(&mut self, key: Key) -> &mut RequestPlace {
        self.requests.get_mut(key).expect("a request is known until its last call has ended")
    }
}

/// What a request of a client waits for, at the roots of an arm.
pub(super) fn gather_of(rule: Option<GatherRule>, calls: u32) -> GatherConfig {
    // By default, the servers execute the rest of a failed request as well: that is load too.
    let all = GatherConfig { rest: RestMode::Finish, ..GatherConfig::all_of(calls) };
    rule.map_or(all, |rule| rule.of(calls))
}
