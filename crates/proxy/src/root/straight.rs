//! Serves a request without a policy, after its state machine panicked or made an impossible decision.
//!
//! The open attempts of the request continue. The client gets the first good response, or a bad one when no other can
//! come. A request that no server can have executed is sent to the next replica, round robin. So is a repeatable
//! request whose attempts the machine has cancelled.
//! **Limits**: one attempt more than the machine sent, and the upstream's `timeout`.

use super::{Attempt, Ended, Exchange, NoResponse};
use crate::trail::{AttemptEnd, AttemptTrail};
use curtail_policy::{Choice, Failure, Outcome, Reason, Request, RequestFailure};
use std::task::{Context, Poll};

impl Exchange {
    pub(super) fn poll_straight(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            if let Some(fault) = self.outgoing.body.as_ref().and_then(|body| body.fault()) {
                return Poll::Ready(Err(NoResponse::Client(fault)));
            }
            let is_good = |outcome| outcome == Outcome::Good;
            if let Some(good) = self.respond_straight(is_good, Reason::FirstAccepted) {
                return Poll::Ready(good);
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
            let timeout = self.driver.upstream.policy.timeout;
            let gives_up = self.trail.started + self.outgoing.request.time_limit(timeout);
            self.now = self.driver.upstream.clock.now();
            if self.now < gives_up && self.timer.poll_until(cx, gives_up, self.now).is_pending() {
                return Poll::Pending;
            }
            return Poll::Ready(self.end_straight(RequestFailure::TimedOut));
        }
    }

    /// Sends the request once more, and only once; false if an attempt failed that a server may have executed.
    fn send_straight(&mut self) -> bool {
        let Request { class, repeatable, .. } = self.outgoing.request;
        let allows_another = |attempt: &AttemptTrail| match attempt.end {
            Some((_, AttemptEnd::Failed(failure))) => failure.is_unexecuted(),
            Some((_, AttemptEnd::Cancelled(_))) => repeatable,
            Some((_, AttemptEnd::Responded)) | None => false,
        };
        let may_send = !std::mem::replace(&mut self.is_sent_straight, true)
            && !self.replay_lost
            && self.trail.attempts.iter().all(allows_another);
        let Some(replica) = self.driver.any_replica().filter(|_| may_send) else { return false };
        let now = self.driver.upstream.clock.now();
        self.send(now, (replica, Choice::Turn), (class, None), Reason::First).is_some()
    }

    /// Ends the request with the last response, or with an error if there is none.
    fn end_straight(&mut self, why: RequestFailure) -> Ended {
        // A leaf's response that the twin has started is not for the client.
        let is_for_client = |outcome| outcome != Outcome::TwinStarted;
        self.respond_straight(is_for_client, Reason::NothingBetter)
            .unwrap_or(Err(NoResponse::RequestFailure(why)))
    }

    /// Ends the request with the last response of a wanted outcome, if there is one.
    fn respond_straight(
        &mut self,
        is_wanted: impl Fn(Outcome) -> bool,
        reason: Reason,
    ) -> Option<Ended> {
        let is_wanted = |attempt: &Attempt| matches!(attempt, Attempt::Buffered(response) if is_wanted(self.outgoing.outcome(response)));
        let id = super::attempt_id(self.attempts.iter().rposition(is_wanted)?);
        let response = self.take_buffered(id)?;
        let now = self.driver.upstream.clock.now();
        let error = self.outgoing.error(&response);
        self.note_end(now, Some(response.head.status), error, reason);
        Some(Ok((id, response)))
    }

    fn last_failure(&self) -> Failure {
        let mut failures =
            self.trail.attempts.iter().rev().filter_map(|attempt| match attempt.end {
                Some((_, AttemptEnd::Failed(failure))) => Some(failure),
                Some((_, AttemptEnd::Responded | AttemptEnd::Cancelled(_))) | None => None,
            });
        failures.next().unwrap_or(Failure::Broken)
    }
}
