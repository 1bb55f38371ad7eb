//! Records of simulated requests: the instants and outcomes that a trace of each request would show.
//!
//! A [`Recorder`] follows each recorded request from its arrival until its last attempt has left its server, which may
//! be after the response. It then keeps the record for the caller, who takes it.
//! **Limits**: it records the first `requests_max` requests that count. The world bounds the requests in flight.
//! **Invariant**: recording draws no random number and schedules no event, so a recorded run has the same log.

use crate::slab::{Key, Slab};
use curtail_policy::{AttemptId, CallId, Choice, Failure, Outcome, Reason, Tie};
use curtail_units::{Duration, Instant};

/// A request, as a trace would show it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// The number of the request, in order of arrival.
    pub number: u64,
    /// The root at which the request arrived.
    pub client: u32,
    /// The factor on the service times of all attempts.
    pub factor: f64,
    /// The index of the type among the types of the model, if it has types.
    pub of_type: Option<usize>,
    /// The instant of the arrival.
    pub arrived: Instant,
    /// The instant at which the client got the response, or the request failed.
    pub ended: Instant,
    /// Whether the client got a response.
    pub is_complete: bool,
    /// The calls of the request, in the order in which they began.
    pub calls: Vec<CallRecord>,
}

/// A call of a request to a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The shard.
    pub shard: u32,
    /// The factor on the service times of all attempts of the call, that of the request included.
    pub factor: f64,
    /// The instant at which the call began.
    pub began: Instant,
    /// The instant at which the call ended.
    pub ended: Instant,
    /// Whether the call got a good response.
    pub is_complete: bool,
    /// The attempts, in the order in which they were sent.
    pub attempts: Vec<AttemptRecord>,
}

/// An attempt of a call at one replica.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    /// The replica, numbered within its shard.
    pub replica: u32,
    /// The server of the replica.
    pub server: u32,
    /// The reason why the attempt was sent.
    pub reason: Reason,
    /// The reason for the choice of the replica.
    pub choice: Choice,
    /// The tie, if the attempt is a copy of one.
    pub tie: Option<Tie>,
    /// The service time of an execution at this server, without faults and shared cores.
    pub service: Duration,
    /// The instant at which the root sent the attempt.
    pub sent: Instant,
    /// The instant at which the attempt arrived at its server; absent: its cancellation was faster, or the server was
    /// down.
    pub arrived: Option<Instant>,
    /// The instant at which the execution began; absent: the attempt was not executed.
    pub started: Option<Instant>,
    /// The instant at which the attempt left its server: executed, rejected, dropped or cancelled. It may be later than
    /// `ended`.
    pub left: Option<Instant>,
    /// The instant at which the attempt ended for the root: response, failure or cancellation; absent: it got no
    /// response, and was not cancelled either.
    pub ended: Option<Instant>,
    /// How the attempt ended for the root; absent with `ended`.
    pub end: Option<AttemptEnd>,
    /// Whether the client got the response of this attempt.
    pub won: bool,
}

/// How an attempt ended for the root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttemptEnd {
    /// A response arrived.
    Responded(Outcome),
    /// The attempt failed.
    Failed(Failure),
    /// The root cancelled the attempt, or discarded its response, for this reason.
    Cancelled(Reason),
}

impl RequestRecord {
    pub(crate) const fn new(
        number: u64,
        client: u32,
        factor: f64,
        of_type: Option<usize>,
        arrived: Instant,
    ) -> Self {
        Self {
            number,
            client,
            factor,
            of_type,
            arrived,
            ended: arrived,
            is_complete: false,
            calls: Vec::new(),
        }
    }
}

impl AttemptRecord {
    pub(crate) const fn new(
        (replica, server): (u32, u32),
        (reason, choice, tie): (Reason, Choice, Option<Tie>),
        sent: Instant,
        service: Duration,
    ) -> Self {
        Self {
            replica,
            server,
            reason,
            choice,
            tie,
            service,
            sent,
            arrived: None,
            started: None,
            left: None,
            ended: None,
            end: None,
            won: false,
        }
    }
}

/// The record of a request that may still have attempts at servers.
#[derive(Clone, Debug)]
pub(crate) struct OpenRecord {
    record: RequestRecord,
    /// The attempts that the world still knows.
    attempts_open: u32,
    is_over: bool,
}

/// The place of an attempt in the open records.
#[derive(Clone, Copy, Debug)]
struct AttemptPlace {
    record: Key,
    call: CallId,
    attempt: AttemptId,
}

const NO_REQUEST: (Key, Key) = (Key::NONE, Key::NONE);

/// Records requests. The keys are those of the world's slabs; requests and attempts that are not recorded are ignored.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) open: Slab<OpenRecord>,
    /// Each request and its open record, by the index of the request's key. A call that nobody waits for may outlive its
    /// request, whose entry then has another request.
    of_request: Vec<(Key, Key)>,
    /// The place of each attempt, by the index of the attempt's key.
    of_attempt: Vec<Option<AttemptPlace>>,
    finished: Vec<RequestRecord>,
    /// The number of requests that are still to be recorded.
    requests_left: u64,
}

impl Recorder {
    pub(crate) const fn new(requests_max: u64) -> Self {
        Self {
            open: Slab::new(),
            of_request: Vec::new(),
            of_attempt: Vec::new(),
            finished: Vec::new(),
            requests_left: requests_max,
        }
    }

    /// Begins the record of a request that counts; `record` has no calls yet.
    pub(crate) fn begin(&mut self, request: Key, record: RequestRecord) {
        if self.requests_left == 0 {
            return;
        }
        self.requests_left -= 1;
        let key = self.open.insert(OpenRecord { record, attempts_open: 0, is_over: false });
        put(&mut self.of_request, request, NO_REQUEST, (request, key));
    }

    pub(crate) fn call(&mut self, request: Key, shard: u32, factor: f64, now: Instant) {
        let Some(open) = self.open_mut(request) else { return };
        let attempts = Vec::with_capacity(1);
        let call =
            CallRecord { shard, factor, began: now, ended: now, is_complete: false, attempts };
        open.record.calls.push(call);
    }

    pub(crate) fn send(&mut self, request: Key, call: CallId, key: Key, record: AttemptRecord) {
        let Some(open) = self.open_mut(request) else { return };
        open.attempts_open += 1;
        let attempts = &mut open.record.calls[call.0 as usize].attempts;
        let attempt = AttemptId(u8::try_from(attempts.len()).expect("ATTEMPTS_MAX is small"));
        attempts.push(record);
        let (_, record) = self.of_request[request.index as usize];
        let place = AttemptPlace { record, call, attempt };
        put(&mut self.of_attempt, key, None, Some(place));
    }

    /// The record of an attempt that the world knows.
    pub(crate) fn attempt(&mut self, key: Key) -> Option<&mut AttemptRecord> {
        let place = (*self.of_attempt.get(key.index as usize)?)?;
        let open = self.open.get_mut(place.record)?;
        open.record.calls[place.call.0 as usize].attempts.get_mut(place.attempt.index())
    }

    /// The world forgets an attempt.
    pub(crate) fn forget(&mut self, key: Key) {
        let Some(place) = self.of_attempt.get_mut(key.index as usize).and_then(Option::take) else {
            return;
        };
        if let Some(open) = self.open.get_mut(place.record) {
            open.attempts_open -= 1;
        }
        self.finish(place.record);
    }

    /// The root ends an attempt, which the world may have forgotten.
    pub(crate) fn end_attempt(
        &mut self,
        (request, call, attempt): (Key, CallId, AttemptId),
        now: Instant,
        end: AttemptEnd,
    ) {
        let Some(call) = self.call_mut(request, call) else { return };
        let attempt = &mut call.attempts[attempt.index()];
        (attempt.ended, attempt.end) = (Some(attempt.ended.unwrap_or(now)), Some(end));
    }

    /// The client gets the response of an attempt.
    pub(crate) fn win(&mut self, request: Key, call: CallId, attempt: AttemptId) {
        if let Some(call) = self.call_mut(request, call) {
            call.attempts[attempt.index()].won = true;
        }
    }

    pub(crate) fn end_call(&mut self, request: Key, call: CallId, now: Instant, success: bool) {
        if let Some(call) = self.call_mut(request, call) {
            (call.ended, call.is_complete) = (now, success);
        }
    }

    /// Ends the record of a request; the world then forgets the request.
    pub(crate) fn end(&mut self, request: Key, ended: Instant, is_complete: bool) {
        let Some(open) = self.open_mut(request) else { return };
        (open.record.ended, open.record.is_complete, open.is_over) = (ended, is_complete, true);
        let (_, key) = std::mem::replace(&mut self.of_request[request.index as usize], NO_REQUEST);
        self.finish(key);
    }

    /// Takes the finished records, in the order in which they were finished.
    pub(crate) fn take(&mut self) -> Vec<RequestRecord> {
        std::mem::take(&mut self.finished)
    }

    /// Finishes the records of all requests that have ended, although servers still execute some of their attempts.
    pub(crate) fn finish_all(&mut self) {
        for open in self.open.drain().filter(|open| open.is_over) {
            self.finished.push(open.record);
        }
    }

    fn finish(&mut self, key: Key) {
        let is_finished = |open: &mut OpenRecord| open.is_over && open.attempts_open == 0;
        if self.open.get_mut(key).is_some_and(is_finished)
            && let Some(open) = self.open.take(key)
        {
            self.finished.push(open.record);
        }
    }

    fn open_mut(&mut self, request: Key) -> Option<&mut OpenRecord> {
        let (known, key) = *self.of_request.get(request.index as usize)?;
        if known == request { self.open.get_mut(key) } else { None }
    }

    fn call_mut(&mut self, request: Key, call: CallId) -> Option<&mut CallRecord> {
        self.open_mut(request)?.record.calls.get_mut(call.0 as usize)
    }
}

fn put<T: Copy>(values: &mut Vec<T>, key: Key, absent: T, value: T) {
    let index = key.index as usize;
    if values.len() <= index {
        values.resize(index + 1, absent);
    }
    values[index] = value;
}
