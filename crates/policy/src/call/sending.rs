//! The attempts that a call sends: the first attempt, the second copy of a tie, hedges, further attempts after overdue
//! ones, and retries.

use super::attempts::AttemptState;
use super::{ATTEMPTS_MAX, Call, Failure};
use crate::budget::Purpose;
use crate::{
    Choice, Class, Effect, Reason, ReplicaId, RequestFailure, Tie, TieId, TieRole, Upstream, hedge,
};
use arrayvec::ArrayVec;
use curtail_units::{Duration, Instant};

/// Minimum time from a refusal by the budget to the next request for budget.
const ASK_AGAIN_MIN: Duration = Duration::from_ms(1);

/// The class and the tie of an attempt, and the reason for sending it.
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

/// The timer of a further attempt: `delay` after the last attempt was sent, if no response comes before.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptTimer {
    pub(super) at: Instant,
    delay: Duration,
    /// Whether the budget has refused it already. Only the first refusal is reported.
    is_refused: bool,
}

/// A retry that waits for its backoff to pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryDue {
    pub(super) at: Instant,
    pub(super) failure: Failure,
    backoff: Duration,
}

impl Call {
    /// Sends the first attempt and chooses the replica of its twin, if it gets one; false if there is no replica.
    pub(super) fn send_first(&mut self, upstream: &mut Upstream, now: Instant) -> bool {
        let Some(chosen) = upstream.choose(now, self.eligible(), &[]) else { return false };
        let tie = if self.may_use_remedy() { upstream.tie() } else { None };
        let twin = tie.and_then(|(id, delay)| {
            let (replica, choice) = upstream.choose(now, self.eligible(), &[chosen.0])?;
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
        // With only one replica to choose from, a probe is of no use.
        if chosen.1 != Choice::Only {
            upstream.request_sent(now);
        }
        true
    }

    /// Sends the second copy of a tie when its time has come, unless its replica has left the upstream.
    pub(super) fn send_twin(&mut self, upstream: &mut Upstream, now: Instant, twin: Twin) {
        if !upstream.has_replica(twin.replica) {
            return;
        }
        let first = self.attempts.replicas().next().expect("the first copy was sent");
        let tie = Some(Tie { id: twin.id, twin: first, role: TieRole::Second });
        let reason = Reason::TieSecond { delay: now.since(self.arrived) };
        self.send(upstream, now, (twin.replica, twin.choice), Mark { tie, ..self.untied(reason) });
    }

    /// Sends the second copy of a tie after the first copy has failed. The second copy is not tied: the first may have
    /// started before it failed, and a late cancel from its leaf would drop the second copy for nothing.
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

    /// Sends a dropped copy again after its twin has failed; false if there is no dropped copy. No server has executed
    /// the dropped copy, so that sending it again counts neither against the budget nor against the retries.
    pub(super) fn resend_dropped(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        failure: Failure,
    ) -> bool {
        let dropped = self.attempts.first(AttemptState::Dropped);
        let Some(id) = dropped.filter(|_| self.replayable && self.has_room()) else { return false };
        // Only one copy is sent again, even if both were dropped: the request needs one execution.
        while let Some(copy) = self.attempts.first(AttemptState::Dropped) {
            self.attempts.get_mut(copy).state = AttemptState::Gone;
        }
        // The leaf of the copy has just responded, so its replica is the only one that is known to be up.
        let others = self.attempts.ids().filter(|other| *other != id);
        let others: ArrayVec<ReplicaId, ATTEMPTS_MAX> =
            others.map(|other| self.attempts.get(other).sent.replica).collect();
        let chosen = upstream
            .choose(now, self.eligible(), &others)
            .or_else(|| upstream.choose(now, self.eligible(), &[]));
        let Some(chosen) = chosen else { return false };
        self.send(upstream, now, chosen, self.untied(Reason::TieStartedLost { failure }));
        true
    }

    /// Sends a hedge that is due, or records the reason for skipping it.
    pub(super) fn send_hedge(&mut self, upstream: &mut Upstream, now: Instant, due: AttemptTimer) {
        let Some(config) = upstream.hedge() else { return };
        if upstream.is_dry_run() {
            match self.dry_run_hedge(upstream, now, due.delay) {
                Ok(reason) => {
                    self.hedges += 1;
                    upstream.decide(Effect::Skip, reason);
                }
                Err(refusal) => self.hedge = self.refused(upstream, now, due, refusal),
            }
            return;
        }
        match self.choose_extra(upstream, now, &self.tried(), Purpose::Hedge) {
            Ok(chosen) => {
                self.hedges += 1;
                let reason = hedge::reason(&config, due.delay, now.since(self.arrived));
                self.send(upstream, now, chosen, self.extra_mark(reason));
            }
            Err(refusal) => self.hedge = self.refused(upstream, now, due, refusal),
        }
    }

    /// The reason that counts a hedge of a dry run. It takes the budget of a hedge, but no turn of the balancing rule.
    ///
    /// # Errors
    /// The reason not to send the hedge, even if this were no dry run.
    fn dry_run_hedge(
        &self,
        upstream: &mut Upstream,
        now: Instant,
        delay: Duration,
    ) -> Result<Reason, Reason> {
        if !self.has_room() {
            return Err(self.attempts_spent());
        }
        let other = upstream.other_latency(self.eligible(), &self.tried());
        let other = other.ok_or(Reason::NoOtherReplica)?;
        upstream.budget().withdraw(now, Purpose::DryRun)?;
        Ok(Reason::DryRun { age: now.since(self.arrived), delay, other })
    }

    /// Sends a further attempt because the last one is overdue, or records the reason for skipping it. Nothing has
    /// failed, so there is no backoff, and the open attempts stay in the race.
    pub(super) fn send_overdue(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        due: AttemptTimer,
    ) {
        let tried = self.tried();
        // When all replicas were tried, a failed one is a better choice than a hung one.
        let exclude = if upstream.has_choice(now, self.eligible(), &tried) {
            tried
        } else {
            self.pending_replicas()
        };
        match self.choose_extra(upstream, now, &exclude, Purpose::Retry) {
            Ok(chosen) => {
                self.retries += 1;
                let reason = Reason::Overdue { waited: self.waited(now), delay: due.delay };
                self.send(upstream, now, chosen, self.extra_mark(reason));
            }
            Err(refusal) => self.overdue = self.refused(upstream, now, due, refusal),
        }
    }

    /// Records a refusal. If the budget refused, returns a timer at twice the age of the last attempt: without this
    /// timer, a request on a hung replica would wait until its timeout, even if the budget recovers.
    fn refused(
        &self,
        upstream: &mut Upstream,
        now: Instant,
        due: AttemptTimer,
        refusal: Reason,
    ) -> Option<AttemptTimer> {
        if !due.is_refused {
            upstream.decide(Effect::Skip, refusal);
        }
        let at = now + self.waited(now).max(ASK_AGAIN_MIN);
        let is_by_budget = matches!(refusal, Reason::BudgetSpent { .. });
        is_by_budget.then_some(AttemptTimer { at, is_refused: true, ..due })
    }

    fn waited(&self, now: Instant) -> Duration {
        let last = self.attempts.ids().last().expect("an attempt was sent");
        now.since(self.attempts.get(last).sent.at)
    }

    /// Chooses a replica for an extra attempt and pays for it from the budget.
    ///
    /// # Errors
    /// The reason not to send the attempt.
    fn choose_extra(
        &self,
        upstream: &mut Upstream,
        now: Instant,
        exclude: &[ReplicaId],
        purpose: Purpose,
    ) -> Result<(ReplicaId, Choice), Reason> {
        if !self.has_room() {
            return Err(self.attempts_spent());
        }
        if !upstream.has_choice(now, self.eligible(), exclude) {
            return Err(Reason::NoOtherReplica);
        }
        // The budget comes first, because the balancing rule counts an attempt to each replica that it chooses.
        upstream.budget().withdraw(now, purpose)?;
        Ok(upstream
            .choose(now, self.eligible(), exclude)
            .expect("there is a replica that is not excluded"))
    }

    /// Sends a retry to an untried replica, or plans one after a backoff; otherwise returns the reason for no retry.
    pub(super) fn plan_retry(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        failure: Failure,
    ) -> Result<(), Reason> {
        if !self.replayable || !(self.request.repeatable || failure.is_unexecuted()) {
            return Err(Reason::MayNotRepeat);
        }
        if self.retries >= self.retries_max(upstream) || !self.has_room() {
            return Err(self.attempts_spent());
        }
        if !failure.is_free() {
            upstream.budget().withdraw(now, Purpose::Retry)?;
        }
        self.retries += 1;
        // Backoff gives a failed replica time to recover; an untried replica needs none.
        if let Some(chosen) = upstream.choose(now, self.eligible(), &self.tried()) {
            self.send_retry(upstream, now, chosen, (failure, Duration::ZERO));
            return Ok(());
        }
        let backoff = upstream.backoff(self.retries);
        self.retry = Some(RetryDue { at: now + backoff, failure, backoff });
        // These timers belong to the failed attempt; the retry sets its own.
        (self.hedge, self.overdue) = (None, None);
        Ok(())
    }

    /// Sends a retry after its backoff. It may go to any replica, because all were tried.
    pub(super) fn send_planned_retry(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        RetryDue { failure, backoff, .. }: RetryDue,
    ) {
        if let Some(chosen) = upstream.choose(now, self.eligible(), &[]) {
            self.send_retry(upstream, now, chosen, (failure, backoff));
        } else {
            let why = RequestFailure::Failed(failure);
            self.end_without_good(upstream, now, why, Reason::NoReplica);
        }
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
    }

    /// Sets the timers for the next hedge and for an overdue attempt, if the request may have these.
    fn set_further_attempts(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        overdue_delay: Option<Duration>,
    ) {
        let due = |delay| AttemptTimer { at: now + delay, delay, is_refused: false };
        let hedges_max = upstream.hedge().map_or(0, |hedge| hedge.hedges_max);
        let may_hedge = self.may_use_remedy() && self.hedges < hedges_max;
        self.hedge = if may_hedge { upstream.hedge_delay(now).map(due) } else { None };
        let may_retry = self.may_copy() && self.retries < self.retries_max(upstream);
        self.overdue = overdue_delay.filter(|_| may_retry).map(due);
    }

    fn send(
        &mut self,
        upstream: &mut Upstream,
        now: Instant,
        (replica, choice): (ReplicaId, Choice),
        Mark { class, tie, reason }: Mark,
    ) {
        let attempt = self.attempts.next_id();
        let overdue_delay = upstream.overdue_delay(now);
        let sent = upstream.attempt_sent(replica, now);
        self.attempts.add(sent, overdue_delay.map(|delay| now + delay));
        upstream.decide(Effect::Send { attempt, replica, choice, class, tie }, reason);
        self.set_further_attempts(upstream, now, overdue_delay);
    }

    /// The mark of an extra attempt: one class lower, so that it does not delay first attempts of its request's class.
    const fn extra_mark(&self, reason: Reason) -> Mark {
        Mark { class: self.request.class.lower(), ..self.untied(reason) }
    }

    /// The mark of an attempt in the request's own class, without a tie.
    const fn untied(&self, reason: Reason) -> Mark {
        Mark { class: self.request.class, tie: None, reason }
    }

    /// Every replica that has or had an attempt of this request, and the replica of its pending twin.
    fn tried(&self) -> ArrayVec<ReplicaId, ATTEMPTS_MAX> {
        self.attempts.replicas().chain(self.twin.map(|twin| twin.replica)).collect()
    }

    /// The replicas with an open attempt of this request, and the replica of its pending twin.
    fn pending_replicas(&self) -> ArrayVec<ReplicaId, ATTEMPTS_MAX> {
        self.attempts.open_replicas().chain(self.twin.map(|twin| twin.replica)).collect()
    }

    /// Whether the request may be sent to two replicas at once.
    const fn may_copy(&self) -> bool {
        self.request.repeatable && self.replayable
    }

    /// Whether the request may be hedged or tied.
    const fn may_use_remedy(&self) -> bool {
        self.may_copy() && !self.request.is_holdout
    }

    /// Whether the maximum of attempts allows one more besides those that are sent or planned.
    const fn has_room(&self) -> bool {
        let planned = self.twin.is_some() as usize + self.retry.is_some() as usize;
        self.attempts.len() + planned < ATTEMPTS_MAX
    }

    /// The maximum number of retries: that of the upstream, or less if the request wants fewer.
    fn retries_max(&self, upstream: &Upstream) -> u8 {
        let max = upstream.config().retry.map_or(0, |retry| retry.retries_max);
        self.request.retries_max.map_or(max, |own| own.min(max))
    }

    fn attempts_spent(&self) -> Reason {
        Reason::AttemptsSpent { attempts: self.attempts.next_id().0 }
    }
}
