//! The state that requests to one upstream share: replicas, balance, recent latencies and budget.
//!
//! The [`Call`](crate::Call)s of an upstream's requests borrow the [`Upstream`], and the effects of both come from
//! [`Upstream::poll_effect`]. Latencies and budget are in its [`Group`], which several upstreams may share.
//! **Limits**: [`REPLICAS_MAX`] replicas; some 143 KiB for each of the two latency windows of the group.

use crate::balance::{BalanceConfig, Choice, Rule};
use crate::budget::{Budget, BudgetConfig};
use crate::group::{Group, GroupConfig};
use crate::hedge::HedgeConfig;
use crate::remedy::{
    Remedy, RemedyEstimate, RemedyEvent, RemedyMode, RemedyState, RemedyStatus, SlowShares,
};
use crate::replica::{Circuit, CircuitChange, EjectionReason, Replica, Replicas, ZoneSide};
use crate::retry::{self, Amplification, RetryConfig};
use crate::tie::{MessageDelay, TieConfig, TieId};
use crate::zone::ZoneLatencies;
use crate::{ATTEMPTS_MAX, Decided, Effect, Load, REPLICAS_MAX, Reason, ReplicaId, Weight};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Quantile, Rng};
use serde::{Deserialize, Serialize};

/// The techniques of an upstream. An absent technique is off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpstreamConfig {
    /// The balancing rule.
    pub balance: BalanceConfig,
    /// Second attempts for slow requests.
    pub hedge: Option<HedgeConfig>,
    /// Ties: two copies of a request in the queues of two replicas.
    pub tie: Option<TieConfig>,
    /// Further attempts after failed and overdue ones.
    pub retry: Option<RetryConfig>,
    /// The limit on hedges and retries together.
    pub budget: BudgetConfig,
    /// The timeout of a request.
    pub timeout: Duration,
    /// Whether hedges and ties are sent.
    #[serde(default, skip_serializing_if = "RemedyMode::is_on")]
    pub remedy: RemedyMode,
    /// The time for which a new or recovered replica gets fewer attempts; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<Duration>,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            balance: BalanceConfig::default(),
            hedge: Some(HedgeConfig::default()),
            tie: None,
            retry: Some(RetryConfig::default()),
            budget: BudgetConfig::default(),
            timeout: Duration::from_secs(60),
            remedy: RemedyMode::On,
            slow_start: None,
        }
    }
}

impl UpstreamConfig {
    /// A configuration with every technique off: one attempt, to a replica that `balance` chooses.
    #[must_use]
    pub fn plain(balance: BalanceConfig) -> Self {
        Self { balance, hedge: None, tie: None, retry: None, ..Self::default() }
    }

    /// The maximum numbers of attempts that requests can cause.
    #[must_use]
    pub fn amplification(&self) -> Amplification {
        let is_sent = matches!(self.remedy, RemedyMode::On | RemedyMode::Auto);
        let tie = u32::from(self.tie.is_some() && is_sent);
        let hedges = self.hedge.filter(|_| is_sent).map_or(0, |hedge| u32::from(hedge.hedges_max));
        let retries = self.retry.map_or(0, |retry| u32::from(retry.retries_max));
        let extra = hedges + retries;
        Amplification {
            attempts_max: (1 + 2 * tie + extra)
                .min(u32::try_from(ATTEMPTS_MAX).unwrap_or(u32::MAX)),
            average_max: f64::from(1 + tie) + f64::from(extra).min(self.budget.ratio.get()),
        }
    }
}

/// An event of an upstream that does not concern one request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum UpstreamEvent {
    /// A leaf responded to a probe. There is no event for a probe without a response: what is known only grows old.
    ProbeSucceeded { replica: ReplicaId, load: Load },
    /// The replica does not support probes: there is no leaf in front of it.
    ProbeUnsupported { replica: ReplicaId },
    /// A replica joined the upstream; its number is above those of all earlier replicas.
    ReplicaJoined { replica: ReplicaId },
    /// A replica left the upstream. Its attempts in flight continue.
    ReplicaLeft { replica: ReplicaId },
    /// The health checks of a replica fail, or pass again. A replica is healthy until its first event.
    HealthChecked { replica: ReplicaId, is_healthy: bool },
    /// A replica has another weight. It has [`Weight::ONE`] until its first event.
    WeightChanged { replica: ReplicaId, weight: Weight },
    /// A replica is in another zone than the root, or no longer. It is near until its first event.
    ZoneChanged { replica: ReplicaId, is_far: bool },
    /// A message between root and leaf took `one_way` in one direction.
    MessageTimed { one_way: Duration },
    /// The estimate of a dry run so far, of an upstream whose remedies are switched by their effect.
    RemedyEstimated { estimate: RemedyEstimate },
    /// The comparison with the holdout so far, of such an upstream.
    RemedyMeasured { shares: SlowShares },
    /// The instant of [`Upstream::poll_timeout`] has come.
    Woke,
}

/// The record of an attempt in flight, which its call keeps and passes with later events of the attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) replica: ReplicaId,
    pub(crate) at: Instant,
    pub(crate) in_flight_on_arrival: u32,
}

/// The state that the requests to one upstream share.
#[derive(Clone, Debug)]
pub struct Upstream {
    config: UpstreamConfig,
    rule: Box<dyn Rule>,
    replicas: Replicas,
    group: Group,
    message_delay: Option<MessageDelay>,
    zone_latencies: ZoneLatencies,
    /// Decides whether hedges and ties are sent, if `config.remedy` is auto.
    remedy: Remedy,
    /// The latest latencies of two different replicas, the latest first.
    latest: [Option<(ReplicaId, Duration)>; 2],
    effects: VecDeque<Decided<Effect, Reason>>,
    /// The latest changes of circuits, at most [`ATTEMPTS_MAX`].
    circuit_changes: VecDeque<CircuitChange>,
    balance_rng: Rng,
    retry_rng: Rng,
    tie_rng: Rng,
}

impl Upstream {
    /// An upstream of `replicas` replicas, numbered from 0; all its randomness follows from `rng`.
    ///
    /// # Panics
    /// With more than [`REPLICAS_MAX`] replicas.
    #[must_use]
    pub fn new(config: UpstreamConfig, replicas: usize, rng: &Rng) -> Self {
        assert!(replicas <= REPLICAS_MAX, "at most {REPLICAS_MAX} replicas");
        let ids: Vec<ReplicaId> = (0..replicas).map(ReplicaId::at).collect();
        Self::with_replicas(config, &ids, rng)
    }

    /// An upstream of replicas with these numbers, in ascending order, of which the first [`REPLICAS_MAX`] join.
    #[must_use]
    pub fn with_replicas(config: UpstreamConfig, replicas: &[ReplicaId], rng: &Rng) -> Self {
        let mut upstream = Self {
            rule: config.balance.rule(replicas.len(), rng),
            replicas: Replicas::new(config.slow_start),
            group: Group::new(GroupConfig::from(&config)),
            message_delay: config.tie.map(MessageDelay::new),
            zone_latencies: ZoneLatencies::default(),
            remedy: Remedy::new(),
            latest: [None; 2],
            effects: VecDeque::with_capacity(8),
            circuit_changes: VecDeque::new(),
            balance_rng: rng.split("balance"),
            retry_rng: rng.split("retry"),
            tie_rng: rng.split("tie"),
            config,
        };
        for id in replicas {
            if upstream.replicas.join(*id) {
                upstream.rule.replica_joined(*id);
            }
        }
        upstream
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &UpstreamConfig {
        &self.config
    }

    /// Runs `step` with the latencies and the budget of `group` instead of the upstream's own, if there is a group.
    ///
    /// The driver passes every event of an upstream in a group through this method, so that the event sees the changes
    /// of the other upstreams. A replay in the driver's order of events gives the same effects.
    pub fn in_group<T>(
        &mut self,
        group: Option<&mut Group>,
        step: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let Some(group) = group else { return step(self) };
        core::mem::swap(&mut self.group, group);
        let result = step(self);
        core::mem::swap(&mut self.group, group);
        result
    }

    /// Attempts in flight on `replica` from this root.
    #[must_use]
    pub fn in_flight(&self, replica: ReplicaId) -> u32 {
        self.replicas.get(replica).map_or(0, |replica| replica.load.in_flight())
    }

    /// Whether the health checks of `replica` fail. If all replicas are unhealthy or ejected, all get attempts.
    #[must_use]
    pub fn is_unhealthy(&self, replica: ReplicaId) -> bool {
        self.replicas.get(replica).is_some_and(Replica::is_unhealthy)
    }

    /// The weight of `replica`.
    #[must_use]
    pub fn weight(&self, replica: ReplicaId) -> Option<Weight> {
        self.replicas.get(replica).map(Replica::weight)
    }

    /// Whether `replica` is in another zone than the root.
    #[must_use]
    pub fn is_far(&self, replica: ReplicaId) -> Option<bool> {
        self.replicas.get(replica).map(Replica::is_far)
    }

    /// The part of its weight that `replica` gets, if it is warming up.
    #[must_use]
    pub fn warm_up_share(&self, replica: ReplicaId, now: Instant) -> Option<f64> {
        self.replicas.get(replica)?.warm_up_share(now, self.config.slow_start?)
    }

    /// The rest of the time for which `replica` is full, unless a response of it begins before; zero: it is not full.
    #[must_use]
    pub fn full_for(&self, replica: ReplicaId, now: Instant) -> Duration {
        self.replicas.get(replica).map_or(Duration::ZERO, |replica| replica.full_for(now))
    }

    /// The rest of the time for which `replica` is suspect, unless a response of it begins before; zero: it is not suspect.
    #[must_use]
    pub fn suspect_for(&self, replica: ReplicaId, now: Instant) -> Duration {
        self.replicas.get(replica).map_or(Duration::ZERO, |replica| replica.suspect_for(now))
    }

    /// Whether `replica` gets no attempts because of its failures. If all replicas are ejected, all get attempts.
    #[must_use]
    pub fn is_ejected(&self, replica: ReplicaId, now: Instant) -> bool {
        self.replicas.get(replica).is_some_and(|replica| replica.is_ejected(now))
    }

    /// The circuit of `replica`, which its failures open.
    #[must_use]
    pub fn circuit(&self, replica: ReplicaId, now: Instant) -> Circuit {
        self.replicas.get(replica).map_or_else(Circuit::default, |replica| replica.circuit(now))
    }

    /// The next change of a circuit, for the log and the counters of the driver. No decision depends on it.
    pub fn poll_circuit_change(&mut self) -> Option<CircuitChange> {
        self.circuit_changes.pop_front()
    }

    /// Requests and extra attempts within the budget's window.
    pub fn budget_counts(&mut self, now: Instant) -> (u64, u64) {
        self.group.budget().counts(now)
    }

    /// A quantile of the recent latencies, if any are known.
    pub fn latency(&mut self, now: Instant, quantile: Quantile) -> Option<Duration> {
        self.group.latency(now, quantile)
    }

    /// The hedge delay of a request that arrives now, if requests are hedged, or a dry run counts hedges.
    pub fn hedge_delay(&mut self, now: Instant) -> Option<Duration> {
        Some(self.hedge()?.delay.clamp_estimate(self.group.hedge_estimate(now)))
    }

    /// The same for a report. No later decision depends on it, so a replay needs no record of it.
    pub fn peek_hedge_delay(&mut self, now: Instant) -> Option<Duration> {
        Some(self.hedge()?.delay.clamp_estimate(self.group.peek_hedge_estimate(now)))
    }

    /// The state of the remedies and the evidence that they need, if `config.remedy` is auto.
    #[must_use]
    pub const fn remedy_status(&self) -> RemedyStatus {
        self.remedy.status()
    }

    /// Handles an event that does not concern one request.
    pub fn handle(&mut self, now: Instant, event: UpstreamEvent) {
        match event {
            UpstreamEvent::MessageTimed { one_way } => {
                if let Some(delay) = &mut self.message_delay {
                    delay.observe(one_way);
                }
            }
            UpstreamEvent::ReplicaJoined { replica } => {
                if self.replicas.join_later(replica, now) {
                    self.rule.replica_joined(replica);
                }
            }
            UpstreamEvent::HealthChecked { replica, is_healthy } => {
                self.replicas.health_checked(replica, now, is_healthy);
            }
            UpstreamEvent::ZoneChanged { replica, is_far } => {
                self.replicas.set_far(replica, is_far);
            }
            UpstreamEvent::WeightChanged { replica, weight } => {
                self.replicas.set_weight(replica, weight);
            }
            UpstreamEvent::ReplicaLeft { replica } => {
                if self.replicas.leave(replica) {
                    self.rule.replica_left(replica);
                }
            }
            UpstreamEvent::ProbeSucceeded { replica, load } => {
                if self.has_replica(replica) {
                    self.replicas.compare_weights();
                    self.rule.probe_succeeded(&self.replicas, (replica, load), now);
                }
            }
            UpstreamEvent::ProbeUnsupported { replica } => {
                if self.has_replica(replica) {
                    self.rule.probe_unsupported(&self.replicas, replica, now);
                }
            }
            UpstreamEvent::RemedyEstimated { estimate } => {
                self.remedy_event(now, RemedyEvent::Estimated(estimate));
            }
            UpstreamEvent::RemedyMeasured { shares } => {
                self.remedy_event(now, RemedyEvent::Measured(shares));
            }
            UpstreamEvent::Woke => {
                self.rule.woke(&self.replicas, now);
                self.remedy_event(now, RemedyEvent::Woke);
            }
        }
        self.drain_probes();
    }

    /// The next action for the driver, with its reason. The driver drains all actions before the next event.
    pub fn poll_effect(&mut self) -> Option<Decided<Effect, Reason>> {
        self.effects.pop_front()
    }

    /// When to send [`UpstreamEvent::Woke`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rule.poll_timeout().into_iter().chain(self.remedy.poll_timeout()).min()
    }

    fn remedy_event(&mut self, now: Instant, event: RemedyEvent) {
        if self.config.remedy == RemedyMode::Auto {
            self.remedy.handle(now, event);
        }
        if let Some(Decided { effect: state, reason }) = self.remedy.poll_effect() {
            self.decide(Effect::SetRemedy { state }, reason);
        }
    }

    fn drain_probes(&mut self) {
        while let Some((replica, reason)) = self.rule.poll_probe() {
            self.effects.push_back(Decided { effect: Effect::Probe { replica }, reason });
        }
    }
}

/// The methods that a [`Call`](crate::Call) uses.
impl Upstream {
    pub(crate) fn decide(&mut self, effect: Effect, reason: Reason) {
        self.effects.push_back(Decided { effect, reason });
    }

    pub(crate) fn assert_drained(&self) {
        debug_assert!(self.effects.is_empty(), "effects are drained before the next event");
    }

    pub(crate) const fn budget(&mut self) -> &mut Budget {
        self.group.budget()
    }

    /// Chooses one of all replicas, or of the `eligible` ones that a call is pinned to.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        eligible: Option<&[ReplicaId]>,
        exclude: &[ReplicaId],
    ) -> Option<(ReplicaId, Choice)> {
        self.replicas.compare_weights();
        let candidates = self.replicas.candidates(now, eligible, exclude);
        if candidates.len() < 2 {
            return candidates.first().map(|only| (only, Choice::Only));
        }
        if self.rule.knows_zones() || !candidates.prefers_near() {
            return self.rule.choose(candidates, &mut self.balance_rng);
        }
        let chosen = self.rule.choose(candidates.on(ZoneSide::Near), &mut self.balance_rng)?;
        let far = self.zone_latencies.spill(candidates, chosen.0, &mut self.balance_rng);
        Some(far.unwrap_or(chosen))
    }

    /// Whether the replica is still in the upstream.
    pub(crate) fn has_replica(&self, replica: ReplicaId) -> bool {
        self.replicas.get(replica).is_some()
    }

    /// Whether [`Self::choose`] finds a replica.
    pub(crate) fn has_choice(
        &mut self,
        now: Instant,
        eligible: Option<&[ReplicaId]>,
        exclude: &[ReplicaId],
    ) -> bool {
        self.replicas.compare_weights();
        self.replicas.candidates(now, eligible, exclude).first().is_some()
    }

    /// Informs the rule that the first attempt of a request is decided.
    pub(crate) fn request_sent(&mut self, now: Instant) {
        self.rule.request_sent(&self.replicas, now);
        self.drain_probes();
    }

    pub(crate) fn attempt_sent(&mut self, replica: ReplicaId, now: Instant) -> Sent {
        let joined = self.replicas.get_mut(replica);
        let in_flight_on_arrival = joined.map_or(0, |replica| replica.load.arrived());
        let sent = Sent { replica, at: now, in_flight_on_arrival };
        if let Some(is_far) = self.side_of(sent) {
            self.zone_latencies.sent(is_far, now);
        }
        sent
    }

    /// Records a good response that was complete, or that its client abandoned.
    pub(crate) fn attempt_succeeded(&mut self, sent: Sent) {
        let Some(replica) = self.replicas.get_mut(sent.replica) else { return };
        let was_closed = replica.is_circuit_closed();
        replica.succeeded(sent.at);
        if !was_closed && replica.is_circuit_closed() {
            self.circuit_changed(CircuitChange::Closed { replica: sent.replica });
        }
    }

    /// Records the latency of an attempt whose good response has begun, or is complete if the driver buffers it.
    pub(crate) fn latency_observed(&mut self, sent: Sent, now: Instant) {
        let latency = now.since(sent.at);
        self.group.record_latency(now, latency);
        if self.is_dry_run() {
            let [first, second] = self.latest;
            let is_same = first.is_some_and(|(replica, _)| replica == sent.replica);
            self.latest = [Some((sent.replica, latency)), if is_same { second } else { first }];
        }
        if let Some(is_far) = self.side_of(sent) {
            self.zone_latencies.observe(sent, is_far, now);
        }
        self.rule.latency_observed(&mut self.replicas, sent, now);
    }

    /// Whether the replica of an attempt is far; absent: it has left, or all are near.
    fn side_of(&self, sent: Sent) -> Option<bool> {
        if self.replicas.has_far() { self.is_far(sent.replica) } else { None }
    }

    /// Records an attempt that was cancelled before its response. Its latency would have been longer than its age.
    pub(crate) fn attempt_cancelled(&mut self, sent: Sent, now: Instant) {
        self.group.record_cancelled(now, now.since(sent.at));
        if let Some(is_far) = self.side_of(sent) {
            self.zone_latencies.observe_cancelled(sent, is_far, now);
        }
        self.rule.attempt_cancelled(&mut self.replicas, sent, now);
    }

    pub(crate) fn response_begun(&mut self, sent: Sent) {
        if let Some(replica) = self.replicas.get_mut(sent.replica) {
            replica.responded();
        }
    }

    /// Records an attempt that was cancelled because a later attempt at another replica was faster.
    pub(crate) fn attempt_overtaken(&mut self, sent: Sent, now: Instant) {
        self.replicas.overtaken(sent.replica, now, now.since(sent.at));
    }

    /// Records an attempt that the limit of connections to its replica has rejected.
    pub(crate) fn attempt_rejected(&mut self, sent: Sent, now: Instant) {
        self.replicas.rejected(sent.replica, now);
    }

    pub(crate) fn attempt_failed(&mut self, sent: Sent, now: Instant, reason: EjectionReason) {
        let Some(replica) = self.replicas.get_mut(sent.replica) else { return };
        let was_ejected = replica.is_ejected(now);
        replica.failed(now);
        if !was_ejected && replica.is_ejected(now) {
            let circuit = replica.circuit(now);
            self.circuit_changed(CircuitChange::Opened { replica: sent.replica, reason, circuit });
        }
    }

    fn circuit_changed(&mut self, change: CircuitChange) {
        // A driver without a log, such as the simulator, polls none.
        if self.circuit_changes.len() == ATTEMPTS_MAX {
            self.circuit_changes.pop_front();
        }
        self.circuit_changes.push_back(change);
    }

    /// A latency that tests make known without an attempt.
    #[cfg(test)]
    pub(crate) fn latency_known(&mut self, now: Instant, latency: Duration) {
        self.group.record_latency(now, latency);
    }

    /// Removes an attempt from those in flight.
    pub(crate) fn attempt_ended(&mut self, sent: Sent) {
        if let Some(replica) = self.replicas.get_mut(sent.replica) {
            replica.load.ended();
        }
    }

    /// The delay after which an attempt that is sent now becomes overdue, if attempts can be overdue.
    pub(crate) fn overdue_delay(&mut self, now: Instant) -> Option<Duration> {
        Some(self.config.retry?.overdue?.clamp_estimate(self.group.overdue_estimate(now)))
    }

    pub(crate) fn backoff(&mut self, nth: u8) -> Duration {
        self.config
            .retry
            .as_ref()
            .map_or(Duration::ZERO, |config| retry::backoff(config, nth, &mut self.retry_rng))
    }

    /// Whether hedges and ties are sent now. In a trial they are, and the driver draws the requests that go without.
    const fn remedy_state(&self) -> RemedyState {
        match self.config.remedy {
            RemedyMode::On => RemedyState::On,
            RemedyMode::Off => RemedyState::Off,
            RemedyMode::DryRun => RemedyState::DryRun,
            RemedyMode::Auto => self.remedy.status().state,
        }
    }

    /// The configuration of hedges, unless they are off.
    pub(crate) fn hedge(&self) -> Option<HedgeConfig> {
        self.config.hedge.filter(|_| self.remedy_state() != RemedyState::Off)
    }

    /// Whether hedges are counted, but not sent.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.remedy_state() == RemedyState::DryRun
    }

    /// The latency of the latest response of one of the `eligible` replicas that is not in `exclude`, as far as it is
    /// known.
    pub(crate) fn other_latency(
        &self,
        eligible: Option<&[ReplicaId]>,
        exclude: &[ReplicaId],
    ) -> Option<Duration> {
        let is_other = |id: &ReplicaId| {
            self.has_replica(*id)
                && !exclude.contains(id)
                && eligible.is_none_or(|ids| ids.contains(id))
        };
        let mut latest = self.latest.iter().flatten();
        latest.find(|(id, _)| is_other(id)).map(|(_, latency)| *latency)
    }

    /// The ID of a new tie and the time between its copies, if requests are tied.
    pub(crate) fn tie(&mut self) -> Option<(TieId, Duration)> {
        if matches!(self.remedy_state(), RemedyState::Off | RemedyState::DryRun) {
            return None;
        }
        let delay = self.message_delay.as_ref()?.between_copies();
        Some((TieId(self.tie_rng.next_u64()), delay))
    }
}

#[cfg(test)]
mod tests;
