//! `remedy: auto`: hands the evidence of an upstream's requests to its machine, and carries out what it decides.
//!
//! The machine ([`curtail_policy::Remedy`]) decides between dry run, trial, on and off. [`RemedyEvidence`] has the
//! statistics. Each second, one task of the proxy ([`advance`]) looks whether there are new figures.
//! **Invariant**: a request counts only if it arrived after the holdout of its state was in effect.

use crate::driver::{Effects, Upstream};
use crate::holdout::{Draw, Holdout, with_hedge};
use crate::probe;
use crate::trail::Trail;
use crate::worker::Worker;
use curtail_http::clock::Clock;
use curtail_load::holdout::Sides;
use curtail_load::remedy::RemedyEvidence;
use curtail_policy::{Reason, RemedyState, RemedyStatus, UpstreamEvent};
use curtail_units::{Duration, Instant, Ratio};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A remedy that is switched by its effect.
#[derive(Debug)]
pub(crate) struct AutoRemedy {
    /// The configured share of the holdout in the state on, if any.
    on: Option<Ratio>,
    /// The bits of the share of the holdout now, an `f64`; 0: there is no holdout.
    ratio: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    evidence: RemedyEvidence,
    status: RemedyStatus,
    since: Instant,
    reason: Option<Reason>,
    /// The end of the last dry run, unless one is running.
    dry_run_end: Option<Instant>,
}

/// The state of a remedy for the state page and the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemedySnapshot {
    pub(crate) state: RemedyState,
    pub(crate) holdout: Option<Ratio>,
    /// A request that takes longer is slow; zero before the first trial.
    pub(crate) threshold: Duration,
    /// The time since the last decision.
    pub(crate) age: Duration,
    /// The reason for the last decision.
    pub(crate) reason: Option<Reason>,
    /// The time since the end of the last dry run; [`None`] while one is running.
    pub(crate) dry_run_end_age: Option<Duration>,
}

impl AutoRemedy {
    pub(crate) fn new(on: Option<Ratio>, now: Instant) -> Self {
        let status = RemedyStatus::default();
        let evidence = RemedyEvidence::new(now, status);
        let state = State { evidence, status, since: now, reason: None, dry_run_end: None };
        Self { on, ratio: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// The share of the requests in the holdout now, if there is one.
    pub(crate) fn holdout_ratio(&self) -> Option<Ratio> {
        match self.ratio.load(Ordering::Acquire) {
            0 => None,
            bits => Ratio::new(f64::from_bits(bits)).ok(),
        }
    }

    /// Records the end of a request with this latency, and the time that the hedge of a dry run would have saved. Returns
    /// the present state.
    pub(crate) fn record(
        &self,
        trail: &Trail,
        latency: Duration,
        saved: Option<Duration>,
    ) -> RemedyState {
        let mut state = self.lock();
        let sides = Sides { without: latency, with: with_hedge(latency, saved) };
        state.evidence.record_dry_run(trail.started, sides);
        if let Some(is_holdout) = trail.draw.and_then(Draw::random_side) {
            state.evidence.record(trail.started, is_holdout, latency);
        }
        state.status.state
    }

    /// Logs a decision, and keeps its reason for the state page.
    pub(crate) fn decided(&self, upstream: &str, state: RemedyState, reason: Reason) {
        let mut kept = self.lock();
        kept.reason = Some(reason);
        let (name, why) = (state.name(), reason.name());
        if state == kept.status.state {
            tracing::debug!(upstream, state = name, reason = why, "remedy stays: {reason}");
        } else {
            tracing::info!(upstream, state = name, reason = why, "remedy switched: {reason}");
        }
    }

    /// Follows the state of the machine. `holdout` measures one share at a time, and begins again with each.
    fn follow(&self, clock: Clock, status: RemedyStatus, holdout: Option<&Holdout>) {
        let mut state = self.lock();
        if state.status == status {
            return;
        }
        let ratio = status.state.holdout_ratio(self.on);
        let bits = ratio.map_or(0, |ratio| ratio.get().to_bits());
        if self.ratio.swap(bits, Ordering::AcqRel) != bits
            && let Some(holdout) = holdout
        {
            holdout.begin_again();
        }
        // Read after the store: a request that arrives later is drawn with the new share.
        let now = clock.now();
        state.evidence.follow(now, status);
        state.dry_run_end = match (state.status.state, status.state) {
            (_, RemedyState::DryRun) => None,
            (RemedyState::DryRun, _) => Some(now),
            _ => state.dry_run_end,
        };
        (state.status, state.since) = (status, now);
    }

    pub(crate) fn read(&self, now: Instant) -> RemedySnapshot {
        let state = self.lock();
        RemedySnapshot {
            state: state.status.state,
            holdout: self.holdout_ratio(),
            threshold: state.status.threshold,
            age: now.since(state.since),
            reason: state.reason,
            dry_run_end_age: state.dry_run_end.map(|end| now.since(end)),
        }
    }

    fn poll_event(&self, now: Instant) -> Option<UpstreamEvent> {
        self.lock().evidence.poll_event(now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands new figures to the machine of an upstream, and follows its state.
pub(crate) fn advance(worker: &Arc<Worker>, upstream: &Arc<Upstream>) {
    let Some(auto) = &upstream.auto else { return };
    if let Some(event) = auto.poll_event(upstream.clock.now()) {
        let mut effects = Effects::new();
        let generation = upstream.handle(event, &mut effects);
        probe::carry_out(worker, upstream, generation, effects);
    }
    let status = upstream.look(|machine, _| machine.remedy_status());
    auto.follow(upstream.clock, status, upstream.holdout.as_ref());
}

impl RemedySnapshot {
    /// The members of the state page's object that only this mode has.
    pub(crate) fn to_json(self) -> Value {
        let threshold = Some(self.threshold).filter(|threshold| *threshold > Duration::ZERO);
        json!({
            "state": self.state.name(),
            "holdout_ratio": self.holdout.map(Ratio::get),
            "slow_ms": threshold.map(Duration::as_ms_f64),
            "age_s": self.age.as_secs_f64(),
            "reason": self.reason.map(|reason| reason.name()),
            "reason_detail": self.reason.map(|reason| reason.to_string()),
        })
    }
}

#[cfg(test)]
mod tests;
