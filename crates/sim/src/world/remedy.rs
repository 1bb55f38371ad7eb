//! The driver of `remedy: auto`: draws the holdout of calls, records their ends, and hands the evidence to the machines.

use super::{Step, World};
use crate::slab::Key;
use curtail_load::holdout::Sides;
use curtail_load::remedy::RemedyEvidence;
use curtail_policy::{Decided, Reason, RemedyMode, RemedyState};
use curtail_units::{Duration, Instant};

/// The time between two looks at the evidence, as in the proxy.
const TICK: Duration = Duration::from_secs(1);

/// A decision about the remedy of an upstream.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RemedyStep {
    pub(super) at: Instant,
    pub(super) state: RemedyState,
    pub(super) reason: Reason,
}

/// The part of a call that the evidence needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemedyCall {
    pub(super) began: Instant,
    pub(super) is_holdout: bool,
    /// When the hedge of a dry run would have responded.
    pub(super) hedged: Option<Instant>,
}

impl World<'_> {
    /// Begins to look at the evidence, if the remedies are switched by their effect.
    pub(super) fn begin_remedies(&mut self, mode: RemedyMode) {
        if mode == RemedyMode::Auto {
            for upstream in &mut self.upstreams {
                let status = upstream.machine.remedy_status();
                upstream.evidence = Some(Box::new(RemedyEvidence::new(self.now, status)));
            }
            self.queue.push(self.now + TICK, Step::RemediesTick);
        }
    }

    pub(super) fn remedies_tick(&mut self) {
        for index in 0..self.upstreams.len() {
            let evidence = self.upstreams[index].evidence.as_mut();
            if let Some(event) = evidence.and_then(|evidence| evidence.poll_event(self.now)) {
                self.upstream_event(index, event);
            }
        }
        self.queue.push(self.now + TICK, Step::RemediesTick);
    }

    /// Begins new evidence after a decision.
    pub(super) fn remedy_decided(
        &mut self,
        upstream: usize,
        decided: Decided<RemedyState, Reason>,
    ) {
        let place = &mut self.upstreams[upstream];
        if let Some(evidence) = &mut place.evidence {
            evidence.follow(self.now, place.machine.remedy_status());
        }
        let Decided { effect: state, reason } = decided;
        #[cfg(test)]
        self.remedy_steps.push(RemedyStep { at: self.now, state, reason });
        #[cfg(not(test))]
        let _ = (state, reason);
    }

    /// The part of a call that begins now, which the evidence needs.
    pub(super) fn begin_remedy_call(&mut self, upstream: u32) -> RemedyCall {
        let evidence = self.upstreams[upstream as usize].evidence.as_ref();
        let ratio = evidence.and_then(|evidence| evidence.state().holdout_ratio(None));
        let draws = &mut self.draws.holdout;
        let is_holdout = ratio.is_some_and(|ratio| draws.chance(ratio.get()));
        RemedyCall { began: self.now, is_holdout, hedged: None }
    }

    /// Keeps the response that the hedge of a dry run would have had.
    pub(super) fn skipped(&mut self, key: Key, reason: Reason) {
        if let Reason::DryRun { other, .. } = reason
            && let Some(call) = self.calls.get_mut(key)
        {
            call.remedy.hedged.get_or_insert(self.now + other);
        }
    }

    /// Records the end of a call.
    pub(super) fn end_remedy_call(&mut self, key: Key) {
        let call = self.calls.get_mut(key).expect("a call ends once");
        let evidence = self.upstreams[call.upstream as usize].evidence.as_mut();
        let Some(evidence) = evidence.filter(|_| call.kind.repeatable) else { return };
        let RemedyCall { began, is_holdout, hedged } = call.remedy;
        let until = |at: Instant| match call.good {
            Some(_) => at.since(began),
            // As the proxy does: nobody knows how long it would have taken.
            None if call.was_cancelled => at.since(began),
            None => Duration::MAX,
        };
        let latency = until(self.now);
        let hedged = until(hedged.unwrap_or(self.now).min(self.now));
        evidence.record_dry_run(began, Sides { without: latency, with: hedged });
        evidence.record(began, is_holdout, latency);
    }
}
