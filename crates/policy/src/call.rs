//! One request at the root, with its hedges, ties and retries.
//!
//! **Decides** which attempts are sent, which response the client gets, and when to stop.
//! **Inputs**: the events of the request and of its attempts; the shared state of its [`Upstream`].
//! **Limits**: [`ATTEMPTS_MAX`] attempts; one timer, for [`Call::poll_timeout`]; only the replicas of a pinned call.
//! **Invariants** `exactly-one-response`: a request that is not abandoned ends in exactly one [`Effect::Respond`] or
//! [`Effect::Fail`]; `every-other-cancelled`: every attempt that does not end by itself is cancelled;
//! `good-beats-fast-error`: a bad response is kept while another attempt may do better, and used if none does.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 77–78.

mod attempts;
mod event;
mod sending;

use crate::{AttemptId, Effect, EjectionReason, Reason, ReplicaId, RequestFailure, Upstream};
use alloc::sync::Arc;
use attempts::{Attempt, AttemptState, Attempts};
use curtail_units::Instant;
pub use event::{Event, Failure, Outcome, Request};
use sending::{AttemptTimer, RetryDue, Twin};

/// Maximum number of attempts of one request, whatever the configuration says.
pub const ATTEMPTS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Trying,
    /// The client is receiving the response.
    Responding,
    Over,
}

/// The machine of one request.
#[derive(Clone, Debug)]
pub struct Call {
    request: Request,
    /// The only replicas that attempts may go to; absent: all.
    eligible: Option<Arc<[ReplicaId]>>,
    state: State,
    arrived: Instant,
    deadline: Instant,
    attempts: Attempts,
    /// When the next hedge is due.
    hedge: Option<AttemptTimer>,
    /// When the last attempt is overdue.
    overdue: Option<AttemptTimer>,
    twin: Option<Twin>,
    retry: Option<RetryDue>,
    hedges: u8,
    retries: u8,
    replayable: bool,
    /// The last failure of an attempt that a server may have executed.
    unknown_outcome: Option<Failure>,
}

impl Call {
    /// A request that has not arrived yet.
    #[must_use]
    pub fn new(request: Request) -> Self {
        Self::pinned(request, None)
    }

    /// A request that has not arrived yet. Its attempts go only to the replicas in `eligible`, a sorted list; absent:
    /// to any replica. If none of these is present, the request fails as in an upstream without replicas.
    #[must_use]
    pub fn pinned(request: Request, eligible: Option<Arc<[ReplicaId]>>) -> Self {
        debug_assert!(eligible.iter().all(|ids| ids.is_sorted()), "a set of replicas is sorted");
        Self {
            request,
            eligible,
            state: State::New,
            arrived: Instant::ZERO,
            deadline: Instant::MAX,
            attempts: Attempts::default(),
            hedge: None,
            overdue: None,
            twin: None,
            retry: None,
            hedges: 0,
            retries: 0,
            replayable: true,
            unknown_outcome: None,
        }
    }

    /// The only replicas that attempts may go to; [`None`]: all.
    #[must_use]
    pub fn eligible(&self) -> Option<&[ReplicaId]> {
        self.eligible.as_deref()
    }

    /// Handles an event. The effects come from [`Upstream::poll_effect`].
    pub fn handle(&mut self, upstream: &mut Upstream, now: Instant, event: Event) {
        upstream.assert_drained();
        match (self.state, event) {
            (State::New, Event::Arrived) => self.arrived(upstream, now),
            (State::Trying, Event::Responded { attempt, outcome }) => {
                if self.attempts.is_open(attempt) {
                    self.responded(upstream, now, attempt, outcome);
                }
            }
            (State::Trying, Event::Failed { attempt, failure }) => {
                if self.attempts.is_open(attempt) {
                    self.failed(upstream, now, attempt, failure);
                }
            }
            (State::Responding, Event::Ended { attempt, whole }) => {
                if self.attempts.is(attempt, AttemptState::Won) {
                    self.ended(upstream, now, attempt, whole);
                }
            }
            (_, Event::ReplayLost) => self.replay_lost(upstream, now),
            (State::Trying | State::Responding, Event::Abandoned) => self.abandoned(upstream, now),
            (State::Trying, Event::Woke) => self.woke(upstream, now),
            // Late events of an attempt or a request that is over.
            (
                State::New | State::Trying | State::Responding | State::Over,
                Event::Arrived
                | Event::Responded { .. }
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
        let times = [
            self.hedge.map(|hedge| hedge.at),
            self.overdue.map(|overdue| overdue.at),
            self.twin.map(|twin| twin.at),
            self.retry.map(|retry| retry.at),
            Some(self.deadline),
        ];
        times.into_iter().flatten().min()
    }

    /// Whether the request has ended, so that no effect can follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    fn arrived(&mut self, upstream: &mut Upstream, now: Instant) {
        self.state = State::Trying;
        self.arrived = now;
        self.deadline = now + self.request.time_limit(upstream.config().timeout);
        upstream.budget().request(now);
        if !self.send_first(upstream, now) {
            self.state = State::Over;
            upstream.decide(Effect::Fail { why: RequestFailure::NoReplica }, Reason::NoReplica);
        }
    }

    fn responded(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        id: AttemptId,
        outcome: Outcome,
    ) {
        let Attempt { sent, .. } = self.attempts.get(id);
        upstream.response_begun(sent);
        match outcome {
            Outcome::Good => {
                upstream.latency_observed(sent, now);
                self.respond(upstream, now, id, Reason::FirstAccepted);
            }
            Outcome::Bad => {
                self.attempts.get_mut(id).state = AttemptState::Kept;
                upstream.attempt_failed(sent, now, EjectionReason::BadResponse);
                upstream.attempt_ended(sent);
                self.lost(upstream, now, Failure::BadResponse);
            }
            Outcome::Refused => {
                self.attempts.get_mut(id).state = AttemptState::Kept;
                upstream.attempt_ended(sent);
                self.lost(upstream, now, Failure::Refused);
            }
            Outcome::TwinStarted => {
                self.attempts.get_mut(id).state = AttemptState::Dropped;
                upstream.attempt_ended(sent);
                self.lost(upstream, now, Failure::TwinLost);
            }
        }
    }

    fn failed(&mut self, upstream: &mut Upstream, now: Instant, id: AttemptId, failure: Failure) {
        let Attempt { sent, .. } = self.attempts.get(id);
        self.attempts.get_mut(id).state = AttemptState::Gone;
        if !failure.is_unexecuted() {
            self.unknown_outcome = Some(failure);
        }
        if let Some(reason) = EjectionReason::of(failure) {
            upstream.attempt_failed(sent, now, reason);
        } else if failure == Failure::ConnectionLimit {
            upstream.attempt_rejected(sent, now);
        }
        upstream.attempt_ended(sent);
        self.lost(upstream, now, failure);
    }

    /// After a failed attempt: waits for another open one, plans a further one, or ends the request.
    fn lost(&mut self, upstream: &mut Upstream, now: Instant, failure: Failure) {
        if self.attempts.any_open() || self.retry.is_some() {
            return;
        }
        if let Some(twin) = self.twin.take()
            && upstream.has_replica(twin.replica)
        {
            self.send_twin_alone(upstream, now, twin, failure);
        } else if !self.resend_dropped(upstream, now, failure)
            && let Err(reason) = self.plan_retry(upstream, now, failure)
        {
            self.end_without_good(upstream, now, RequestFailure::Failed(failure), reason);
        }
    }

    fn woke(&mut self, upstream: &mut Upstream, now: Instant) {
        if now >= self.deadline {
            self.time_out(upstream, now);
            return;
        }
        if let Some(twin) = self.twin.take_if(|twin| now >= twin.at) {
            self.send_twin(upstream, now, twin);
        }
        if let Some(retry) = self.retry.take_if(|retry| now >= retry.at) {
            self.send_planned_retry(upstream, now, retry);
        }
        if let Some(hedge) = self.hedge.take_if(|hedge| now >= hedge.at) {
            self.send_hedge(upstream, now, hedge);
        }
        if let Some(overdue) = self.overdue.take_if(|overdue| now >= overdue.at) {
            self.send_overdue(upstream, now, overdue);
        }
    }

    /// Drops all planned attempts, because the request body can no longer be sent again.
    fn replay_lost(&mut self, upstream: &mut Upstream, now: Instant) {
        self.replayable = false;
        (self.hedge, self.overdue, self.twin) = (None, None, None);
        if let Some(retry) = self.retry.take()
            && !self.attempts.any_open()
        {
            let why = RequestFailure::Failed(retry.failure);
            self.end_without_good(upstream, now, why, Reason::MayNotRepeat);
        }
    }

    fn time_out(&mut self, upstream: &mut Upstream, now: Instant) {
        let age = now.since(self.arrived);
        let reason = Reason::RequestTimeout { age };
        // Otherwise clients with short deadlines could get healthy replicas ejected.
        if age >= self.request.timeout_or(upstream.config().timeout) {
            for id in self.attempts.ids().filter(|id| self.attempts.is_open(*id)) {
                upstream.attempt_failed(self.attempts.get(id).sent, now, EjectionReason::TimedOut);
            }
        }
        self.end_without_good(upstream, now, RequestFailure::TimedOut, reason);
    }

    /// Ends the request when no better response can come: with the last response that was kept, or with a failure.
    pub(super) fn end_without_good(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        why: RequestFailure,
        reason: Reason,
    ) {
        // A refusal states that nothing was executed. For a request that may be executed only once, this must be true.
        let unknown = self.unknown_outcome.is_some() || self.attempts.any_open();
        let may_respond = self.request.repeatable || !unknown;
        if let Some(winner) = self.attempts.last(AttemptState::Kept).filter(|_| may_respond) {
            upstream.decide(Effect::Skip, reason);
            self.respond(upstream, now, winner, Reason::NothingBetter);
        } else {
            self.cancel_all(upstream, now, reason);
            self.state = State::Over;
            // An error that says "not executed" must be true of all attempts: the client may send the request again.
            let why = match (why, self.unknown_outcome) {
                (RequestFailure::Failed(last), Some(unknown)) if last.is_unexecuted() => {
                    RequestFailure::Failed(unknown)
                }
                (why, _) => why,
            };
            upstream.decide(Effect::Fail { why }, reason);
        }
    }

    /// Passes on the response to `winner` and cancels everything else.
    fn respond(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        winner: AttemptId,
        reason: Reason,
    ) {
        let was_kept = self.attempts.is(winner, AttemptState::Kept);
        if !was_kept {
            self.report_overtaken(upstream, now, winner);
        }
        self.attempts.get_mut(winner).state = AttemptState::Won;
        self.cancel_all(upstream, now, Reason::Lost { winner });
        // An attempt whose response was kept is no longer in flight.
        self.state = if was_kept { State::Over } else { State::Responding };
        upstream.decide(Effect::Respond { attempt: winner }, reason);
    }

    /// Records the open attempts that the winner overtook, for the balance. Otherwise a stalled or hung replica would
    /// look idle after each cancelled attempt, and attract the next request.
    fn report_overtaken(&self, upstream: &mut Upstream, now: Instant, winner: AttemptId) {
        let winner_sent = self.attempts.get(winner).sent.at;
        for id in self.attempts.ids().filter(|id| *id < winner && self.attempts.is_open(*id)) {
            let Attempt { sent, overdue_at, .. } = self.attempts.get(id);
            // The winner took less time than the head start of this attempt, which chance alone rarely explains.
            if now.since(winner_sent) < winner_sent.since(sent.at) {
                upstream.attempt_overtaken(sent, now);
            }
            if overdue_at.is_some_and(|at| now >= at) {
                upstream.attempt_failed(sent, now, EjectionReason::Overdue);
            }
        }
    }

    /// Cancels every attempt that is open or has its response kept, and everything planned.
    fn cancel_all(&mut self, upstream: &mut Upstream, now: Instant, reason: Reason) {
        (self.hedge, self.overdue, self.twin, self.retry) = (None, None, None, None);
        for id in self.attempts.ids() {
            let Attempt { sent, state, .. } = self.attempts.get(id);
            match state {
                AttemptState::Waiting => {
                    upstream.attempt_cancelled(sent, now);
                    upstream.attempt_ended(sent);
                }
                AttemptState::Kept => {}
                AttemptState::Dropped | AttemptState::Gone | AttemptState::Won => continue,
            }
            self.attempts.get_mut(id).state = AttemptState::Gone;
            upstream.decide(Effect::Cancel { attempt: id }, reason);
        }
    }

    fn ended(&mut self, upstream: &mut Upstream, now: Instant, id: AttemptId, whole: bool) {
        let Attempt { sent, .. } = self.attempts.get(id);
        self.state = State::Over;
        // Only at the end: if headers counted, a replica whose responses all break off would never be ejected.
        if whole {
            upstream.attempt_succeeded(sent);
        } else {
            upstream.attempt_failed(sent, now, EjectionReason::Broken);
        }
        upstream.attempt_ended(sent);
    }

    /// Ends the request of a client that has gone. The driver also stops sending the response, without an effect.
    fn abandoned(&mut self, upstream: &mut Upstream, now: Instant) {
        if let Some(won) = self.attempts.first(AttemptState::Won) {
            let Attempt { sent, .. } = self.attempts.get(won);
            upstream.attempt_succeeded(sent);
            upstream.attempt_ended(sent);
        }
        self.cancel_all(upstream, now, Reason::ClientGone);
        self.state = State::Over;
    }
}

#[cfg(test)]
mod pinned;
#[cfg(test)]
mod small_worlds;
#[cfg(test)]
mod tests;
