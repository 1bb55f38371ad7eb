//! What a call sends, and when: the first attempt, the second copy of a tie, hedges and retries.

use super::attempts::{Attempt, AttemptState};
use super::{ATTEMPTS_MAX, Call, Failure};
use crate::budget::Purpose;
use crate::{Choice, Class, Effect, Reason, ReplicaId, Tie, TieId, TieRole, Upstream, hedge};
use arrayvec::ArrayVec;
use curtail_units::{Duration, Instant};

/// What an attempt carries, and why it is sent.
#[derive(Clone, Copy, Debug)]
struct Mark {
    class: Class,
    tie: Option<Tie>,
    reason: Reason,
}

/// The second copy of a tie that is still to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    pub(super) at: Instant,
    id: TieId,
    pub(super) replica: ReplicaId,
    choice: Choice,
}

/// A hedge that is due at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct HedgeDue {
    pub(super) at: Instant,
    delay: Duration,
}

/// A retry that waits for its backoff to pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryDue {
    pub(super) at: Instant,
    pub(super) failure: Failure,
    backoff: Duration,
}

impl Call {
    /// Sends the first attempt and makes ready for the others; false when there is no replica.
    pub(super) fn send_first(&mut self, upstream: &mut Upstream, now: Instant) -> bool {
        let Some(chosen) = upstream.choose(now, &[]) else { return false };
        let tie = if self.may_copy() { upstream.tie() } else { None };
        let twin = tie.and_then(|(id, delay)| {
            let (replica, choice) = upstream.choose(now, &[chosen.0])?;
            Some(Twin { at: now + delay, id, replica, choice })
        });
        let mark = match twin {
            Some(Twin { id, replica, .. }) => Mark {
                tie: Some(Tie { id, twin: replica, role: TieRole::First }),
                ..self.untied(Reason::TieFirst)
            },
            None => self.untied(Reason::First),
        };
        self.send(upstream, now, chosen, mark);
        self.twin = twin;
        upstream.request_sent(now);
        self.expect_hedge(upstream, now);
        true
    }

    /// Sends the second copy of a tie, because its time has come.
    pub(super) fn send_twin(&mut self, upstream: &mut Upstream, now: Instant, twin: Twin) {
        let first = self.attempts.replicas().next().expect("the first copy was sent");
        let tie = Some(Tie { id: twin.id, twin: first, role: TieRole::Second });
        let reason = Reason::TieSecond { delay: now.since(self.arrived) };
        self.send(upstream, now, (twin.replica, twin.choice), Mark { tie, ..self.untied(reason) });
    }

    /// Sends the second copy of a tie, because the first was lost. It is not tied any more: the first may have
    /// started before, and the news of it would have this copy dropped for nothing.
    pub(super) fn send_twin_alone(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        twin: Twin,
        failure: Failure,
    ) {
        let mark = self.untied(Reason::TieFirstLost { failure });
        self.send(upstream, now, (twin.replica, twin.choice), mark);
    }

    /// Sends a copy again that was dropped for a twin that then came to nothing; false when there is none. No
    /// server has seen it, so the two executions of the tie are not used up: neither the budget nor the
    /// retries are asked.
    pub(super) fn resend_dropped(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        failure: Failure,
    ) -> bool {
        let dropped = self.attempts.first(AttemptState::Dropped);
        let Some(id) = dropped.filter(|_| self.replayable && self.has_room()) else { return false };
        // Once: should both copies ever be dropped, one execution is all that is missing.
        while let Some(copy) = self.attempts.first(AttemptState::Dropped) {
            self.attempts.get_mut(copy).state = AttemptState::Gone;
        }
        // Its own leaf has answered a moment ago: it is the one replica known to be there.
        let others = self.attempts.ids().filter(|other| *other != id);
        let others: ArrayVec<ReplicaId, ATTEMPTS_MAX> =
            others.map(|other| self.attempts.get(other).sent.replica).collect();
        let chosen = upstream.choose(now, &others).or_else(|| upstream.choose(now, &[]));
        let chosen = chosen.expect("an upstream that was tried has a replica");
        self.send(upstream, now, chosen, self.untied(Reason::TieStartedLost { failure }));
        true
    }

    /// Sends a hedge that is due, or says why not.
    pub(super) fn send_hedge(&mut self, upstream: &mut Upstream, now: Instant, due: HedgeDue) {
        let Some(config) = upstream.config().hedge else { return };
        let tried = self.tried();
        let granted = if !self.has_room() {
            Err(self.attempts_spent())
        } else if !upstream.has_replica_besides(&tried) {
            Err(Reason::NoOtherReplica)
        } else {
            upstream.budget().withdraw(now, Purpose::Hedge)
        };
        // The budget is asked before the balance, which takes what it chose for sent.
        match granted.map(|()| upstream.choose(now, &tried)) {
            Ok(chosen) => {
                let chosen = chosen.expect("there is a replica besides those tried");
                let reason = hedge::reason(&config, due.delay, now.since(self.arrived));
                self.hedges += 1;
                let class = self.request.class.lower();
                self.send(upstream, now, chosen, Mark { class, ..self.untied(reason) });
                self.expect_hedge(upstream, now);
            }
            Err(refusal) => upstream.decide(Effect::Hold, refusal),
        }
    }

    /// Plans a retry, or sends it at once; or says why there is none.
    pub(super) fn plan_retry(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        failure: Failure,
    ) -> Result<(), Reason> {
        let retries_max = upstream.config().retry.map_or(0, |retry| retry.retries_max);
        if !self.replayable || !(self.request.repeatable || failure.is_unexecuted()) {
            return Err(Reason::MayNotRepeat);
        }
        if self.retries >= retries_max || !self.has_room() {
            return Err(self.attempts_spent());
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
        // The hedge was for an attempt that has come to nothing; the retry gets its own.
        self.hedge = None;
        Ok(())
    }

    /// Sends a retry whose backoff has passed: to a replica not tried yet, if there is one.
    pub(super) fn send_planned_retry(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        RetryDue { failure, backoff, .. }: RetryDue,
    ) {
        let chosen = upstream.choose(now, &self.tried()).or_else(|| upstream.choose(now, &[]));
        let chosen = chosen.expect("an upstream that was tried has a replica");
        self.send_retry(upstream, now, chosen, (failure, backoff));
    }

    fn send_retry(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        chosen: (ReplicaId, Choice),
        (failure, backoff): (Failure, Duration),
    ) {
        let reason = Reason::Retry { failure, nth: self.retries, backoff };
        self.send(upstream, now, chosen, self.untied(reason));
        self.cancel_overdue(upstream, now);
        self.expect_hedge(upstream, now);
    }

    /// The attempt that follows is sent: those that are overdue are given up for it.
    fn cancel_overdue(&mut self, upstream: &mut Upstream, now: Instant) {
        for attempt in self.attempts.ids() {
            let Attempt { sent, state, times_out } = self.attempts.get(attempt);
            if state != AttemptState::Overdue {
                continue;
            }
            self.attempts.get_mut(attempt).state = AttemptState::Gone;
            upstream.attempt_observed(sent, now);
            upstream.attempt_failed(sent, now);
            upstream.attempt_ended(sent);
            let (age, timeout) = (now.since(sent.at), times_out.since(sent.at));
            upstream.decide(Effect::Cancel { attempt }, Reason::AttemptTimeout { age, timeout });
        }
    }

    /// Sets the time of the next hedge, if there may be one.
    fn expect_hedge(&mut self, upstream: &mut Upstream, now: Instant) {
        let hedges_max = upstream.config().hedge.map_or(0, |hedge| hedge.hedges_max);
        let may = self.may_copy() && self.hedges < hedges_max;
        let delay = if may { upstream.hedge_delay(now) } else { None };
        self.hedge = delay.map(|delay| HedgeDue { at: now + delay, delay });
    }

    /// Sends an attempt to the chosen replica.
    fn send(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        (replica, choice): (ReplicaId, Choice),
        Mark { class, tie, reason }: Mark,
    ) {
        let timeout = if self.request.repeatable { upstream.attempt_timeout(now) } else { None };
        let times_out = timeout.map_or(Instant::MAX, |timeout| now + timeout);
        let attempt = self.attempts.next_id();
        self.attempts.add(upstream.attempt_sent(replica, now), times_out);
        upstream.decide(Effect::Send { attempt, replica, choice, class, tie }, reason);
    }

    /// The mark of an attempt that is neither a hedge nor a copy of a tie.
    const fn untied(&self, reason: Reason) -> Mark {
        Mark { class: self.request.class, tie: None, reason }
    }

    /// Every replica that has or had an attempt of this request, or is to have one.
    fn tried(&self) -> ArrayVec<ReplicaId, ATTEMPTS_MAX> {
        self.attempts.replicas().chain(self.twin.map(|twin| twin.replica)).collect()
    }

    /// Whether the request may be sent to two replicas at once.
    const fn may_copy(&self) -> bool {
        self.request.repeatable && self.replayable
    }

    /// Whether there could be one more attempt besides those that are sent or planned.
    const fn has_room(&self) -> bool {
        let planned = self.twin.is_some() as usize + self.retry.is_some() as usize;
        self.attempts.len() + planned < ATTEMPTS_MAX
    }

    fn attempts_spent(&self) -> Reason {
        Reason::AttemptsSpent { attempts: self.attempts.next_id().0 }
    }
}
