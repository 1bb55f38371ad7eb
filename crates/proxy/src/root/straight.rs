//! Serves a request whose machine has panicked, without a policy.
//!
//! Its open attempts continue. The client gets the first good response, or a bad one when no other can come. A
//! request that no server can have executed is sent to the next replica, round robin. No request is executed twice.
//! **Limits**: one attempt more than the machine sent, and the upstream's `timeout`.

use super::{Attempt, Ended, Exchange, NoResponse};
use crate::trail::AttemptEnd;
use curtail_policy::{AttemptId, Choice, Failure, Outcome, Reason, RequestFailure};
use std::task::{Context, Poll};

impl Exchange {
    pub(super) fn poll_straight(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            if let Some(fault) = self.outgoing.body.as_ref().and_then(|body| body.fault()) {
                return Poll::Ready(Err(NoResponse::Client(fault)));
            }
            if let Some(good) = self.last_held(|outcome| outcome == Outcome::Good) {
                return Poll::Ready(self.respond_straight(good, Reason::FirstGood));
            }
            if self.poll_attempts(cx).is_ready() {
                // The trail has the outcome of each attempt.
                continue;
            }
            let is_open = |attempt: &Attempt| matches!(attempt, Attempt::Waiting(_));
            if !self.attempts.iter().any(is_open) {
                if self.send_straight() {
                    continue;
                }
                return Poll::Ready(self.end_straight(RequestFailure::Failed(self.last_failure())));
            }
            let gives_up = self.trail.started + self.driver.upstream.policy.timeout;
            self.now = self.driver.upstream.clock.now();
            if self.now < gives_up && self.timer.poll_until(cx, gives_up, self.now).is_pending() {
                return Poll::Pending;
            }
            return Poll::Ready(self.end_straight(RequestFailure::TimedOut));
        }
    }

    /// Sends the request if no server can have executed it; false if an attempt may have.
    fn send_straight(&mut self) -> bool {
        let is_unexecuted = |end| matches!(end, Some((_, AttemptEnd::Failed(Failure::NotSent))));
        let may_send = !std::mem::replace(&mut self.is_sent_straight, true)
            && !self.replay_lost
            && self.trail.attempts.iter().all(|attempt| is_unexecuted(attempt.end));
        let Some(replica) = self.driver.any_replica().filter(|_| may_send) else { return false };
        let (class, now) = (self.outgoing.request.class, self.driver.upstream.clock.now());
        self.send(now, (replica, Choice::Turn), (class, None), Reason::First);
        true
    }

    /// Ends the request with the last response, or with an error if there is none.
    fn end_straight(&mut self, why: RequestFailure) -> Ended {
        // A leaf's response that the twin has started is not for the client.
        if let Some(held) = self.last_held(|outcome| outcome != Outcome::TwinStarted) {
            return self.respond_straight(held, Reason::NothingBetter);
        }
        Err(NoResponse::RequestFailure(why))
    }

    fn respond_straight(&mut self, id: AttemptId, reason: Reason) -> Ended {
        let now = self.driver.upstream.clock.now();
        let given = self.take_held(id);
        self.note_end(now, Some(given.head.status), None, reason);
        Ok((id, given))
    }

    fn last_held(&self, is_wanted: impl Fn(Outcome) -> bool) -> Option<AttemptId> {
        let place = self.attempts.iter().rposition(|attempt| match attempt {
            Attempt::Held(held) => is_wanted(held.outcome()),
            Attempt::Waiting(_) | Attempt::Gone => false,
        });
        place.map(super::attempt_id)
    }

    fn last_failure(&self) -> Failure {
        let failures = self.trail.attempts.iter().rev().filter_map(|attempt| match attempt.end {
            Some((_, AttemptEnd::Failed(failure))) => Some(failure),
            Some((_, AttemptEnd::Responded | AttemptEnd::Cancelled(_))) | None => None,
        });
        failures.into_iter().next().unwrap_or(Failure::Broken)
    }
}
