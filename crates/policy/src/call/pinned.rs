//! Calls that are pinned to replicas, under every rule and technique, while replicas join and leave.

use super::{Call, Event, Failure, Outcome, Request};
use crate::{
    AttemptId, BalanceConfig, Effect, HedgeConfig, Load, PrequalConfig, QuantileDelay, Reason,
    ReplicaId, RequestFailure, RetryConfig, TieConfig, Upstream, UpstreamConfig, UpstreamEvent,
};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Quantile, Rng};
use expect_test::expect;

const REPLICAS: u32 = 5;
fn rules() -> [BalanceConfig; 5] {
    [
        BalanceConfig::RoundRobin,
        BalanceConfig::Random,
        BalanceConfig::LEAST_REQUEST,
        BalanceConfig::PeakEwma { decay: Duration::from_secs(10) },
        BalanceConfig::Prequal(PrequalConfig::default()),
    ]
}

/// Every technique, with an ample budget.
fn config(balance: BalanceConfig) -> UpstreamConfig {
    let (ms, one) = (Duration::from_ms, curtail_units::Ratio::ONE);
    let overdue = QuantileDelay { max: ms(8), ..RetryConfig::OVERDUE };
    let delay = QuantileDelay { quantile: Quantile::P99, min: ms(1), max: ms(3) };
    let hedge = HedgeConfig { delay, hedges_max: 2 };
    let mut config = UpstreamConfig { balance, ..UpstreamConfig::default() };
    config.hedge = Some(hedge);
    config.tie = Some(TieConfig { delay: Some(ms(1)), ..TieConfig::default() });
    config.retry = Some(RetryConfig { overdue: Some(overdue), ..RetryConfig::default() });
    (config.budget.ratio, config.budget.reserve) = (one, 1_000);
    config
}

/// One upstream, its calls, and an observer's record of its replicas.
struct World {
    upstream: Upstream,
    rng: Rng,
    now: Instant,
    present: BTreeSet<ReplicaId>,
    joined: u32,
    calls: Vec<(Call, Option<Arc<[ReplicaId]>>)>,
    reasons: BTreeSet<&'static str>,
    pinned_attempts: u32,
    case: alloc::string::String,
}

impl World {
    fn new(seed: u64, balance: BalanceConfig) -> Self {
        let rng = Rng::new(seed);
        Self {
            upstream: Upstream::new(config(balance), REPLICAS as usize, &rng.split("upstream")),
            rng,
            now: Instant::ZERO,
            present: (0..REPLICAS).map(ReplicaId).collect(),
            joined: REPLICAS,
            calls: Vec::new(),
            reasons: BTreeSet::new(),
            pinned_attempts: 0,
            case: format!("seed {seed}, {}", balance.name()),
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_us(self.rng.below(2_000) as u64);
        match self.rng.below(8) {
            0 => self.request(),
            1 => self.upstream_event(),
            _ => self.call_event(),
        }
    }

    /// A request for replicas that are present, have left or have yet to join, or for any replica.
    fn request(&mut self) {
        let ids = (0..self.joined + 1).map(ReplicaId);
        let ids: Arc<[ReplicaId]> = ids.filter(|_| self.rng.chance(0.3)).collect();
        let eligible = self.rng.chance(0.8).then_some(ids);
        self.calls.push((Call::pinned(Request::READ, eligible.clone()), eligible));
        self.call(self.calls.len() - 1, Event::Arrived);
    }

    fn upstream_event(&mut self) {
        let replica = ReplicaId(self.joined);
        let any = self.rng.below(self.present.len().max(1));
        let leaving = self.present.iter().nth(any).copied();
        let event = match (leaving, self.rng.below(3)) {
            (_, 0) | (None, _) => {
                self.joined += 1;
                self.present.insert(replica);
                UpstreamEvent::ReplicaJoined { replica }
            }
            (Some(replica), 1) => {
                self.present.remove(&replica);
                UpstreamEvent::ReplicaLeft { replica }
            }
            (Some(replica), _) => {
                let load = Load { in_flight: 2, latency: Duration::from_ms(3) };
                UpstreamEvent::ProbeSucceeded { replica, load }
            }
        };
        self.upstream.handle(self.now, event);
        while self.upstream.poll_effect().is_some() {}
    }

    fn call_event(&mut self) {
        let Some(nth) = self.calls.len().checked_sub(1) else { return };
        let nth = nth - self.rng.below(4).min(nth);
        let attempt = AttemptId(u8::try_from(self.rng.below(4)).expect("small"));
        let event = match self.rng.below(9) {
            0 => Event::Responded { attempt, outcome: Outcome::Bad },
            1 => Event::Responded { attempt, outcome: Outcome::TwinStarted },
            2 => Event::Failed { attempt, failure: Failure::Broken },
            3 => Event::Failed { attempt, failure: Failure::NotSent },
            4 => Event::Responded { attempt, outcome: Outcome::Good },
            _ => Event::Woke,
        };
        self.call(nth, event);
    }

    fn call(&mut self, nth: usize, event: Event) {
        let (call, eligible) = &mut self.calls[nth];
        call.handle(&mut self.upstream, self.now, event);
        let may_be = |id: &ReplicaId| eligible.as_ref().is_none_or(|ids| ids.contains(id));
        let has_replica = self.present.iter().any(may_be);
        let case = &self.case;
        if event == Event::Arrived {
            assert_ne!(call.is_over(), has_replica, "{case}: {eligible:?} of {:?}", self.present);
        }
        while let Some(decided) = self.upstream.poll_effect() {
            self.reasons.insert(decided.reason.name());
            match decided.effect {
                Effect::Send { replica, tie, .. } => {
                    assert!(may_be(&replica), "{case}: {replica:?} outside {eligible:?}");
                    assert!(self.present.contains(&replica), "{case}: {replica:?} has left");
                    assert!(tie.is_none_or(|tie| may_be(&tie.twin)), "{case}: {tie:?}");
                    self.pinned_attempts += u32::from(eligible.is_some());
                }
                Effect::Fail { why: RequestFailure::NoReplica } => {
                    assert_eq!(decided.reason, Reason::NoReplica, "{case}");
                    assert!(!has_replica, "{case}: {eligible:?} of {:?}", self.present);
                }
                Effect::Cancel { .. }
                | Effect::Respond { .. }
                | Effect::Fail { .. }
                | Effect::Skip
                | Effect::SetRemedy { .. }
                | Effect::Probe { .. } => {}
            }
        }
    }
}

#[test]
fn no_attempt_of_a_pinned_call_goes_to_another_replica() {
    let (mut reasons, mut attempts) = (BTreeSet::new(), 0);
    for balance in rules() {
        for seed in 0..20 {
            let mut world = World::new(seed, balance);
            (0..2_000).for_each(|_| world.step());
            reasons.extend(world.reasons);
            attempts += world.pinned_attempts;
        }
    }
    assert!(attempts > 10_000, "{attempts} attempts of pinned calls");
    let names = reasons.into_iter().collect::<Vec<_>>().join("\n");
    expect![[r#"
        attempts_spent
        budget_spent
        first
        first_accepted
        lost
        no_other_replica
        no_replica
        nothing_better
        overdue
        probe_for_request
        retry
        slower_than_cap
        tie_first
        tie_first_lost
        tie_second
        tie_started_lost"#]]
    .assert_eq(&names);
}

#[test]
fn a_pin_to_all_replicas_changes_no_decision() {
    for balance in rules() {
        let all: Arc<[ReplicaId]> = (0..REPLICAS).map(ReplicaId).collect();
        let mut decisions = [None, Some(all)].map(|eligible| {
            let mut rng = Rng::new(7);
            let mut upstream = Upstream::new(config(balance), REPLICAS as usize, &rng);
            let (mut effects, mut now) = (Vec::new(), Instant::ZERO);
            for _ in 0..300 {
                let mut call = Call::pinned(Request::READ, eligible.clone());
                call.handle(&mut upstream, now, Event::Arrived);
                for _ in 0..6 {
                    effects.extend(core::iter::from_fn(|| upstream.poll_effect()));
                    now = now + Duration::from_ms(1 + rng.below(4) as u64);
                    let attempt = AttemptId(u8::try_from(rng.below(3)).expect("small"));
                    let failed = Event::Failed { attempt, failure: Failure::Broken };
                    let event = if rng.chance(0.3) { failed } else { Event::Woke };
                    call.handle(&mut upstream, now, event);
                }
                effects.extend(core::iter::from_fn(|| upstream.poll_effect()));
                call.handle(&mut upstream, now, Event::Abandoned);
                effects.extend(core::iter::from_fn(|| upstream.poll_effect()));
            }
            effects
        });
        let [ref mut unpinned, ref mut pinned] = decisions;
        assert!(unpinned.len() > 1_000, "{balance:?}");
        assert_eq!(unpinned, pinned, "{balance:?}");
    }
}

#[test]
fn a_call_that_is_pinned_to_one_replica_is_repeated_there_and_asks_for_no_probe() {
    let balance = BalanceConfig::Prequal(PrequalConfig::default());
    let mut upstream = Upstream::new(config(balance), REPLICAS as usize, &Rng::new(1));
    let mut call = Call::pinned(Request::READ, Some([ReplicaId(3)].into()));
    let (mut now, mut event, mut sent) = (Instant::ZERO, Event::Arrived, Vec::new());
    while sent.len() < 3 {
        call.handle(&mut upstream, now, event);
        for decided in core::iter::from_fn(|| upstream.poll_effect()) {
            if let Effect::Send { attempt, replica, choice, .. } = decided.effect {
                sent.push((attempt, replica.0, choice.name(), decided.reason.name()));
            } else {
                let skipped = (Effect::Skip, Reason::NoOtherReplica);
                assert_eq!((decided.effect, decided.reason), skipped);
            }
        }
        now = call.poll_timeout().expect("three attempts are allowed");
        let (attempt, failure) = (sent[sent.len() - 1].0, Failure::NotSent);
        let is_open = !matches!(event, Event::Failed { .. });
        event = if is_open { Event::Failed { attempt, failure } } else { Event::Woke };
    }
    let expected = [(0, "first"), (1, "retry"), (2, "retry")];
    assert_eq!(sent, expected.map(|(nth, reason)| (AttemptId(nth), 3, "only", reason)));
}
