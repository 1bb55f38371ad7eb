//! One request at the root: hedges, ties and retries composed.
//!
//! **Decides** which attempts are sent, which answer is given, and when to stop.
//! **Inputs**: what happens to the request and its attempts; the shared state of its [`Upstream`].
//! **Limits**: [`ATTEMPTS_MAX`] attempts; at most one timer is needed, for [`Call::poll_timeout`].
//! **Invariants** `exactly-one-answer`: a request that is not abandoned ends in exactly one
//! [`Effect::Answer`] or [`Effect::Fail`]; `every-other-cancelled`: every attempt that was sent and did not
//! end by itself is cancelled; `good-beats-fast-error`: an answer that is not good is held while another
//! attempt may still do better; besides those of [`crate::hedge`], [`crate::tie`] and [`crate::retry`].
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 77–78.
//!
//! Later techniques plug in around it: fan-out, gathering and canaries drive several calls; probation
//! narrows what the upstream's balance may choose; quorum writes are a call with more than one winner.

use crate::budget::Purpose;
use crate::hedge;
use crate::upstream::Sent;
use crate::{
    AttemptId, Class, Effect, Reason, ReplicaId, Tie, TieId, TieRole, Unanswered, Upstream,
};
use arrayvec::ArrayVec;
use curtail_units::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// The most attempts of one request, whatever the configuration says.
pub const ATTEMPTS_MAX: usize = 8;

/// What the policies must know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// How urgent it is.
    pub class: Class,
    /// Whether it may be executed more than once: a read, or what its route declares idempotent.
    pub repeatable: bool,
}

/// How an attempt was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be; also an error that another replica would give as well (a 404).
    Good,
    /// The server could not do it: another replica may.
    Bad,
    /// The leaf had no room; the server has not seen the request.
    Refused,
    /// The leaf dropped this copy of a tie, because the other has started.
    TwinStarted,
}

/// How an attempt came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// It never reached the server: no connection, or the connection was closed before it was written.
    NotSent,
    /// It may have reached the server, and no answer came: reset, closed, garbage.
    Broken,
    /// It took longer than attempts are given.
    TimedOut,
    /// The answer was not good.
    BadAnswer,
    /// The leaf had no room.
    Refused,
    /// Its twin started, and then came to nothing.
    TwinLost,
}

impl Failure {
    /// The constant name: a metric label and a trace attribute.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Broken => "broken",
            Self::TimedOut => "timed_out",
            Self::BadAnswer => "bad_answer",
            Self::Refused => "refused",
            Self::TwinLost => "twin_lost",
        }
    }

    /// Whether the server cannot have executed the attempt.
    const fn is_unexecuted(self) -> bool {
        match self {
            Self::NotSent | Self::Refused => true,
            Self::Broken | Self::TimedOut | Self::BadAnswer | Self::TwinLost => false,
        }
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotSent => "never reached the server",
            Self::Broken => "broke off without an answer",
            Self::TimedOut => "took too long",
            Self::BadAnswer => "was answered badly",
            Self::Refused => "was refused for lack of room",
            Self::TwinLost => "was dropped for a twin that came to nothing",
        })
    }
}

/// Something happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It is there. The first event, once.
    Arrived,
    /// An attempt was answered. The driver holds the answer until told to give or to cancel it.
    Answered {
        /// Which attempt.
        attempt: AttemptId,
        /// How.
        outcome: Outcome,
    },
    /// An attempt came to nothing.
    Failed {
        /// Which attempt.
        attempt: AttemptId,
        /// How.
        failure: Failure,
    },
    /// The answer that was given is through, whole or broken off.
    Ended {
        /// Whose answer.
        attempt: AttemptId,
        /// Whether the client got all of it from the replica.
        whole: bool,
    },
    /// The body is too long to be kept: there can be no further attempt.
    ReplayLost,
    /// The client has gone away.
    Abandoned,
    /// The polled instant has come.
    Woke,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptState {
    /// Sent; nothing heard yet.
    Waiting,
    /// Answered badly; the driver holds the answer.
    Held,
    /// Dropped by its leaf because its twin has started.
    Dropped,
    /// Failed, cancelled, or not chosen: nothing is left of it.
    Gone,
    /// Its answer is the answer.
    Won,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    sent: Sent,
    state: AttemptState,
    times_out: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Trying,
    Answered,
    Over,
}

/// The second copy of a tie that is still to be sent.
#[derive(Clone, Copy, Debug)]
struct Twin {
    at: Instant,
    id: TieId,
    replica: ReplicaId,
    choice: crate::Choice,
}

/// A hedge that is due at some time.
#[derive(Clone, Copy, Debug)]
struct HedgeDue {
    at: Instant,
    delay: Duration,
}

/// A retry that waits for its backoff to pass.
#[derive(Clone, Copy, Debug)]
struct RetryDue {
    at: Instant,
    failure: Failure,
    backoff: Duration,
}

/// The machine of one request.
#[derive(Clone, Debug)]
pub struct Call {
    request: Request,
    state: State,
    arrived: Instant,
    gives_up: Instant,
    attempts: ArrayVec<Attempt, ATTEMPTS_MAX>,
    hedge: Option<HedgeDue>,
    twin: Option<Twin>,
    retry: Option<RetryDue>,
    hedges: u8,
    retries: u8,
    replayable: bool,
}

impl Call {
    /// A request that has not arrived yet.
    #[must_use]
    pub fn new(request: Request) -> Self {
        Self {
            request,
            state: State::New,
            arrived: Instant::ZERO,
            gives_up: Instant::MAX,
            attempts: ArrayVec::new(),
            hedge: None,
            twin: None,
            retry: None,
            hedges: 0,
            retries: 0,
            replayable: true,
        }
    }

    /// Takes note of an event; the effects come out of [`Upstream::poll_effect`].
    pub fn handle(&mut self, upstream: &mut Upstream, now: Instant, event: Event) {
        upstream.assert_drained();
        match (self.state, event) {
            (State::New, Event::Arrived) => self.arrived(upstream, now),
            (State::Trying, Event::Answered { attempt, outcome }) => {
                if self.is(attempt, AttemptState::Waiting) {
                    self.answered(upstream, now, attempt, outcome);
                }
            }
            (State::Trying, Event::Failed { attempt, failure }) => {
                if self.is(attempt, AttemptState::Waiting) {
                    self.set(attempt, AttemptState::Gone);
                    self.replica_failed(upstream, now, attempt);
                    self.lost(upstream, now, failure);
                }
            }
            (State::Answered, Event::Ended { attempt, whole }) => {
                if self.is(attempt, AttemptState::Won) {
                    self.ended(upstream, now, attempt, whole);
                }
            }
            (_, Event::ReplayLost) => {
                self.replayable = false;
                self.hedge = None;
            }
            (State::Trying | State::Answered, Event::Abandoned) => self.abandoned(upstream, now),
            (State::Trying, Event::Woke) => self.woke(upstream, now),
            // News of an attempt or a request that is over, on its way while that was decided.
            (
                State::New | State::Trying | State::Answered | State::Over,
                Event::Arrived
                | Event::Answered { .. }
                | Event::Failed { .. }
                | Event::Ended { .. }
                | Event::Abandoned
                | Event::Woke,
            ) => {}
        }
    }

    /// When to send [`Event::Woke`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state != State::Trying {
            return None;
        }
        let waiting = |attempt: &&Attempt| attempt.state == AttemptState::Waiting;
        self.attempts
            .iter()
            .filter(waiting)
            .map(|attempt| attempt.times_out)
            .chain(self.hedge.map(|hedge| hedge.at))
            .chain(self.twin.map(|twin| twin.at))
            .chain(self.retry.map(|retry| retry.at))
            .chain([self.gives_up])
            .min()
    }

    /// Whether nothing more will come of this request.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Attempts sent so far.
    #[must_use]
    pub const fn attempts(&self) -> usize {
        self.attempts.len()
    }

    fn arrived(&mut self, upstream: &mut Upstream, now: Instant) {
        self.state = State::Trying;
        self.arrived = now;
        self.gives_up = now + upstream.config().timeout;
        upstream.budget().request(now);
        let Some((replica, choice)) = upstream.choose(now, &[]) else {
            self.state = State::Over;
            upstream.decide(Effect::Fail { why: Unanswered::NoReplica }, Reason::NoReplica);
            return;
        };
        let tie = if self.request.repeatable { upstream.tie() } else { None };
        let twin = tie.and_then(|(id, delay)| {
            let (twin, choice) = upstream.choose(now, &[replica])?;
            Some(Twin { at: now + delay, id, replica: twin, choice })
        });
        let reason = if twin.is_some() { Reason::TieFirst } else { Reason::First };
        let mark = twin.map(|t| Tie { id: t.id, twin: t.replica, role: TieRole::First });
        self.send(upstream, now, (replica, choice), (self.request.class, mark), reason);
        self.twin = twin;
        upstream.request_sent(now);
        self.expect_hedge(upstream, now);
    }

    /// Sends an attempt to the chosen replica, marked with its class and its tie.
    fn send(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        (replica, choice): (ReplicaId, crate::Choice),
        (class, tie): (Class, Option<Tie>),
        reason: Reason,
    ) {
        let attempt = AttemptId(u8::try_from(self.attempts.len()).expect("at most ATTEMPTS_MAX"));
        let timeout = if self.request.repeatable { upstream.attempt_timeout(now) } else { None };
        self.attempts.push(Attempt {
            sent: upstream.attempt_sent(replica, now),
            state: AttemptState::Waiting,
            times_out: timeout.map_or(Instant::MAX, |timeout| now + timeout),
        });
        upstream.decide(Effect::Send { attempt, replica, choice, class, tie }, reason);
    }

    /// Sets the time of the next hedge, if there may be one.
    fn expect_hedge(&mut self, upstream: &mut Upstream, now: Instant) {
        let hedges_max = upstream.config().hedge.map_or(0, |hedge| hedge.hedges_max);
        let may = self.request.repeatable && self.replayable && self.hedges < hedges_max;
        let delay = if may { upstream.hedge_delay(now) } else { None };
        self.hedge = delay.map(|delay| HedgeDue { at: now + delay, delay });
    }

    fn answered(&mut self, upstream: &mut Upstream, now: Instant, id: AttemptId, outcome: Outcome) {
        let sent = self.attempts[id.index()].sent;
        match outcome {
            Outcome::Good => {
                upstream.attempt_succeeded(sent, now);
                self.answer(upstream, now, id, Reason::FirstGood);
            }
            Outcome::Bad => {
                self.set(id, AttemptState::Held);
                self.replica_failed(upstream, now, id);
                self.lost(upstream, now, Failure::BadAnswer);
            }
            Outcome::Refused => {
                self.set(id, AttemptState::Held);
                upstream.attempt_ended(sent);
                self.lost(upstream, now, Failure::Refused);
            }
            Outcome::TwinStarted => {
                self.set(id, AttemptState::Dropped);
                upstream.attempt_ended(sent);
                self.lost(upstream, now, Failure::TwinLost);
            }
        }
    }

    /// Gives the answer of `winner` and cancels everything else.
    fn answer(&mut self, upstream: &mut Upstream, now: Instant, winner: AttemptId, reason: Reason) {
        let held = self.is(winner, AttemptState::Held);
        self.set(winner, AttemptState::Won);
        self.cancel_all(upstream, now, Reason::Lost { winner });
        // The replica of an answer that was held is no longer in flight.
        self.state = if held { State::Over } else { State::Answered };
        upstream.decide(Effect::Answer { attempt: winner }, reason);
    }

    /// Cancels every attempt that is waiting or held, and everything that was planned.
    fn cancel_all(&mut self, upstream: &mut Upstream, now: Instant, reason: Reason) {
        (self.hedge, self.twin, self.retry) = (None, None, None);
        for index in 0..self.attempts.len() {
            let attempt = self.attempts[index];
            let id = AttemptId(u8::try_from(index).expect("at most ATTEMPTS_MAX"));
            match attempt.state {
                AttemptState::Waiting => {
                    upstream.attempt_observed(attempt.sent, now);
                    upstream.attempt_ended(attempt.sent);
                }
                AttemptState::Held => {}
                AttemptState::Dropped | AttemptState::Gone | AttemptState::Won => continue,
            }
            self.set(id, AttemptState::Gone);
            upstream.decide(Effect::Cancel { attempt: id }, reason);
        }
    }

    fn replica_failed(&self, upstream: &mut Upstream, now: Instant, id: AttemptId) {
        let sent = self.attempts[id.index()].sent;
        upstream.attempt_failed(sent, now);
        upstream.attempt_ended(sent);
    }

    /// An attempt came to nothing: waits for another, plans a further one, or ends the request.
    fn lost(&mut self, upstream: &mut Upstream, now: Instant, failure: Failure) {
        if self.attempts.iter().any(|attempt| attempt.state == AttemptState::Waiting)
            || self.retry.is_some()
        {
            return;
        }
        if let Some(twin) = self.twin.take() {
            self.send_twin(upstream, now, twin, Reason::TieFirstLost { failure });
            return;
        }
        if let Err(reason) = self.plan_retry(upstream, now, failure) {
            self.end_without_good(upstream, now, failure, reason);
        }
    }

    /// Plans a retry, or sends it at once; or says why there is none.
    fn plan_retry(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        failure: Failure,
    ) -> Result<(), Reason> {
        let retries_max = upstream.config().retry.map_or(0, |retry| retry.retries_max);
        if !self.replayable || !(self.request.repeatable || failure.is_unexecuted()) {
            return Err(Reason::MayNotRepeat);
        }
        if self.retries >= retries_max || self.attempts.is_full() {
            let attempts = u8::try_from(self.attempts.len()).expect("at most ATTEMPTS_MAX");
            return Err(Reason::AttemptsSpent { attempts });
        }
        // What never reached a server is no extra load on it.
        if failure != Failure::NotSent {
            upstream.budget().withdraw(now, Purpose::Retry)?;
        }
        self.retries += 1;
        if failure == Failure::NotSent
            && let Some(chosen) = upstream.choose(now, &self.tried())
        {
            self.send_retry(upstream, now, chosen, (failure, Duration::ZERO));
            return Ok(());
        }
        let backoff = upstream.backoff(self.retries);
        self.retry = Some(RetryDue { at: now + backoff, failure, backoff });
        Ok(())
    }

    fn send_retry(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        chosen: (ReplicaId, crate::Choice),
        (failure, backoff): (Failure, Duration),
    ) {
        let reason = Reason::Retry { failure, nth: self.retries, backoff };
        self.send(upstream, now, chosen, (self.request.class, None), reason);
        self.expect_hedge(upstream, now);
    }

    fn send_twin(&mut self, upstream: &mut Upstream, now: Instant, twin: Twin, reason: Reason) {
        let first = self.attempts[0].sent.replica;
        let mark = Tie { id: twin.id, twin: first, role: TieRole::Second };
        let chosen = (twin.replica, twin.choice);
        self.send(upstream, now, chosen, (self.request.class, Some(mark)), reason);
    }

    /// No attempt is left and none will follow: the best answer held, or none.
    fn end_without_good(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        failure: Failure,
        reason: Reason,
    ) {
        let held = |attempt: &Attempt| attempt.state == AttemptState::Held;
        if let Some(index) = self.attempts.iter().rposition(held) {
            upstream.decide(Effect::Hold, reason);
            let winner = AttemptId(u8::try_from(index).expect("at most ATTEMPTS_MAX"));
            self.answer(upstream, now, winner, Reason::NothingBetter);
        } else {
            self.state = State::Over;
            upstream.decide(Effect::Fail { why: Unanswered::Failed(failure) }, reason);
        }
    }

    fn ended(&mut self, upstream: &mut Upstream, now: Instant, id: AttemptId, whole: bool) {
        self.state = State::Over;
        if whole {
            upstream.attempt_ended(self.attempts[id.index()].sent);
        } else {
            self.replica_failed(upstream, now, id);
        }
    }

    fn abandoned(&mut self, upstream: &mut Upstream, now: Instant) {
        if let Some(won) = self.attempts.iter().find(|a| a.state == AttemptState::Won) {
            upstream.attempt_ended(won.sent);
        }
        self.cancel_all(upstream, now, Reason::ClientGone);
        self.state = State::Over;
    }

    fn woke(&mut self, upstream: &mut Upstream, now: Instant) {
        if now >= self.gives_up {
            self.give_up(upstream, now);
            return;
        }
        if let Some(twin) = self.twin.take_if(|twin| now >= twin.at) {
            let delay = now.since(self.arrived);
            self.send_twin(upstream, now, twin, Reason::TieSecond { delay });
        }
        if let Some(retry) = self.retry.take_if(|retry| now >= retry.at) {
            let chosen = upstream.choose(now, &self.tried()).or_else(|| upstream.choose(now, &[]));
            let chosen = chosen.expect("an upstream that was tried has a replica");
            self.send_retry(upstream, now, chosen, (retry.failure, retry.backoff));
        }
        if let Some(hedge) = self.hedge.take_if(|hedge| now >= hedge.at) {
            self.send_hedge(upstream, now, hedge);
        }
        for index in 0..self.attempts.len() {
            let attempt = self.attempts[index];
            if attempt.state == AttemptState::Waiting && now >= attempt.times_out {
                self.attempt_timed_out(upstream, now, index);
            }
        }
    }

    fn send_hedge(&mut self, upstream: &mut Upstream, now: Instant, due: HedgeDue) {
        let Some(config) = upstream.config().hedge else { return };
        if self.attempts.is_full() {
            return;
        }
        let age = now.since(self.arrived);
        let reason = hedge::reason(&config, due.delay, age);
        let granted = upstream
            .choose(now, &self.tried())
            .ok_or(Reason::NoOtherReplica)
            .and_then(|chosen| upstream.budget().withdraw(now, Purpose::Hedge).map(|()| chosen));
        match granted {
            Ok(chosen) => {
                self.hedges += 1;
                self.send(upstream, now, chosen, (self.request.class.lower(), None), reason);
                self.expect_hedge(upstream, now);
            }
            Err(refusal) => upstream.decide(Effect::Hold, refusal),
        }
    }

    /// Gives an attempt up for its age, but only if another may follow.
    fn attempt_timed_out(&mut self, upstream: &mut Upstream, now: Instant, index: usize) {
        let attempt = self.attempts[index];
        let (age, timeout) = (now.since(attempt.sent.at), attempt.times_out.since(attempt.sent.at));
        self.attempts[index].times_out = Instant::MAX;
        if self.retry.is_some() {
            return;
        }
        match self.plan_retry(upstream, now, Failure::TimedOut) {
            Ok(()) => {
                let id = AttemptId(u8::try_from(index).expect("at most ATTEMPTS_MAX"));
                self.set(id, AttemptState::Gone);
                upstream.attempt_observed(attempt.sent, now);
                self.replica_failed(upstream, now, id);
                let reason = Reason::AttemptTimeout { age, timeout };
                upstream.decide(Effect::Cancel { attempt: id }, reason);
            }
            Err(reason) => upstream.decide(Effect::Hold, reason),
        }
    }

    /// The request's own time is over.
    fn give_up(&mut self, upstream: &mut Upstream, now: Instant) {
        let reason = Reason::RequestTimeout { age: now.since(self.arrived) };
        for index in 0..self.attempts.len() {
            if self.attempts[index].state == AttemptState::Waiting {
                upstream.attempt_failed(self.attempts[index].sent, now);
            }
        }
        self.cancel_all(upstream, now, reason);
        self.state = State::Over;
        upstream.decide(Effect::Fail { why: Unanswered::TimedOut }, reason);
    }

    /// Every replica that has or had an attempt of this request, or is to have one.
    fn tried(&self) -> ArrayVec<ReplicaId, { ATTEMPTS_MAX + 1 }> {
        let sent = self.attempts.iter().map(|attempt| attempt.sent.replica);
        sent.chain(self.twin.map(|twin| twin.replica)).collect()
    }

    fn is(&self, id: AttemptId, state: AttemptState) -> bool {
        self.attempts.get(id.index()).is_some_and(|attempt| attempt.state == state)
    }

    fn set(&mut self, id: AttemptId, state: AttemptState) {
        self.attempts[id.index()].state = state;
    }
}
