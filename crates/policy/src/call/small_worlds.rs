//! Every order of events, to a small depth, for one request over two or three replicas.
//!
//! A world is a call, its upstream, and an observer's record. In each state the test tries every event that a driver
//! could send next, including the passing of time to the next timer. After each it checks the invariants; at the
//! depth limit, time alone must end the request. The reasons that occurred are collected, so that a world in which
//! nothing happens cannot pass.

use super::{ATTEMPTS_MAX, Call, Event, Failure, Outcome, Request};
use crate::{
    AttemptId, BalanceConfig, BudgetConfig, Effect, HedgeConfig, QuantileDelay, Reason, RemedyMode,
    ReplicaId, RetryConfig, TieConfig, Upstream, UpstreamConfig,
};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Quantile, Ratio, Rng};
use expect_test::expect;

/// What an onlooker knows of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Open,
    /// Responded, but not well.
    Held,
    /// Came to nothing by itself.
    Ended,
    Cancelled,
    /// The client gets its response; whether it counts as in flight.
    Winner(bool),
}

#[derive(Clone, Copy, Debug)]
struct Try {
    replica: ReplicaId,
    tied: bool,
    seen: Seen,
    /// Whether a server may have executed it.
    executed: bool,
}

#[derive(Clone, Debug)]
struct World {
    upstream: Upstream,
    call: Call,
    /// The replicas that the call is pinned to; absent: all.
    eligible: Option<Arc<[ReplicaId]>>,
    replicas: usize,
    request: Request,
    now: Instant,
    tries: Vec<Try>,
    endings: usize,
    abandoned: bool,
    replay_lost: bool,
    /// Attempts that the budget pays for.
    paid: u64,
    path: Vec<Event>,
    reasons: BTreeSet<&'static str>,
}

impl World {
    fn new(config: UpstreamConfig, replicas: usize, request: Request) -> Self {
        Self {
            upstream: Upstream::new(config, replicas, &Rng::new(1)),
            call: Call::new(request),
            eligible: None,
            replicas,
            request,
            now: Instant::ZERO,
            tries: Vec::new(),
            endings: 0,
            abandoned: false,
            replay_lost: false,
            paid: 0,
            path: Vec::new(),
            reasons: BTreeSet::new(),
        }
    }

    fn pinned(mut self, to: &[u32]) -> Self {
        let eligible: Arc<[ReplicaId]> = to.iter().copied().map(ReplicaId).collect();
        self.call = Call::pinned(self.request, Some(Arc::clone(&eligible)));
        self.eligible = Some(eligible);
        self
    }

    /// Everything that could happen next.
    fn moves(&self) -> Vec<Event> {
        if self.path.iter().all(|event| *event == Event::ReplayLost) {
            let replay_lost = (!self.replay_lost).then_some(Event::ReplayLost);
            return [Event::Arrived].into_iter().chain(replay_lost).collect();
        }
        let mut moves = Vec::new();
        for (index, tried) in self.tries.iter().enumerate() {
            let attempt = AttemptId::at(index);
            match tried.seen {
                Seen::Open => {
                    let outcomes = [Outcome::Good, Outcome::Bad, Outcome::Refused];
                    let dropped = tried.tied.then_some(Outcome::TwinStarted);
                    let responses = outcomes.into_iter().chain(dropped);
                    moves.extend(responses.map(|outcome| Event::Responded { attempt, outcome }));
                    let failures = [Failure::NotSent, Failure::Broken];
                    moves.extend(failures.map(|failure| Event::Failed { attempt, failure }));
                }
                Seen::Winner(true) => {
                    moves.extend([true, false].map(|whole| Event::Ended { attempt, whole }));
                }
                Seen::Held | Seen::Ended | Seen::Cancelled | Seen::Winner(false) => {}
            }
        }
        // News of what was cancelled, on its way while that was decided.
        if let Some(late) = self.tries.iter().position(|tried| tried.seen == Seen::Cancelled) {
            let (attempt, outcome) = (AttemptId::at(late), Outcome::Good);
            moves.push(Event::Responded { attempt, outcome });
        }
        if !self.call.is_over() {
            moves.extend(self.call.poll_timeout().map(|_| Event::Woke));
            moves.push(Event::Abandoned);
            moves.extend((!self.replay_lost).then_some(Event::ReplayLost));
        }
        moves
    }

    fn step(&mut self, event: Event) {
        self.path.push(event);
        if event == Event::Woke {
            self.now = self.call.poll_timeout().expect("only then is it a move");
        }
        self.note(event);
        self.call.handle(&mut self.upstream, self.now, event);
        while let Some(decided) = self.upstream.poll_effect() {
            self.reasons.insert(decided.reason.name());
            self.effect(decided.effect, decided.reason);
        }
        self.check();
    }

    /// What the onlooker learns from an event.
    fn note(&mut self, event: Event) {
        match event {
            Event::Responded { attempt, outcome } => {
                let tried = &mut self.tries[attempt.index()];
                if tried.seen == Seen::Open {
                    (tried.seen, tried.executed) = match outcome {
                        Outcome::Good => (Seen::Winner(true), true),
                        Outcome::Bad => (Seen::Held, true),
                        Outcome::Refused => (Seen::Held, false),
                        Outcome::TwinStarted => (Seen::Ended, false),
                    };
                }
            }
            Event::Failed { attempt, failure } => {
                let tried = &mut self.tries[attempt.index()];
                (tried.seen, tried.executed) = (Seen::Ended, failure != Failure::NotSent);
            }
            Event::Ended { attempt, .. } => {
                self.tries[attempt.index()].seen = Seen::Winner(false);
            }
            Event::Abandoned => {
                self.abandoned = true;
                for tried in &mut self.tries {
                    if tried.seen == Seen::Winner(true) {
                        tried.seen = Seen::Winner(false);
                    }
                }
            }
            Event::ReplayLost => self.replay_lost = true,
            Event::Arrived | Event::Woke => {}
        }
    }

    fn effect(&mut self, effect: Effect, reason: Reason) {
        let path = &self.path;
        match effect {
            Effect::Send { attempt, replica, tie, .. } => {
                assert_eq!(attempt.index(), self.tries.len(), "{path:?}");
                assert!(self.endings == 0 && !self.abandoned, "exactly-one-response: {path:?}");
                self.check_sent(replica, reason);
                let (tied, seen) = (tie.is_some(), Seen::Open);
                self.tries.push(Try { replica, tied, seen, executed: true });
            }
            Effect::Cancel { attempt } => {
                let tried = &mut self.tries[attempt.index()];
                let can_be = matches!(tried.seen, Seen::Open | Seen::Held);
                assert!(can_be, "every-other-cancelled, and once: {path:?}");
                tried.seen = Seen::Cancelled;
            }
            Effect::Respond { attempt } => {
                self.endings += 1;
                match self.tries[attempt.index()].seen {
                    Seen::Winner(true) => assert_eq!(reason, Reason::FirstAccepted, "{path:?}"),
                    Seen::Held => self.check_nothing_better(attempt),
                    Seen::Open | Seen::Ended | Seen::Cancelled | Seen::Winner(false) => {
                        panic!("the response of {attempt:?} was not held: {path:?}")
                    }
                }
            }
            Effect::Fail { .. } => {
                self.endings += 1;
                let mut tries = self.tries.iter();
                assert!(
                    !tries.any(|tried| tried.seen == Seen::Held),
                    "a response was held and not given: {path:?}"
                );
            }
            Effect::Skip => {}
            Effect::Probe { .. } | Effect::SetRemedy { .. } => {
                panic!("nothing is probed or switched here: {path:?}")
            }
        }
    }

    fn check_sent(&mut self, replica: ReplicaId, reason: Reason) {
        let path = &self.path;
        let is_pinned = |eligible: &Arc<[ReplicaId]>| eligible.contains(&replica);
        assert!(self.eligible.as_ref().is_none_or(is_pinned), "pinned: {path:?}");
        let (requests, extra) = self.upstream.budget_counts(self.now);
        let budget = self.upstream.config().budget;
        let share = budget.ratio.get() * requests as f64;
        let is_hedge =
            matches!(reason, Reason::SlowerThanCap { .. } | Reason::SlowerThanQuantile { .. });
        if is_hedge {
            let other = self.tries.iter().all(|tried| tried.replica != replica);
            assert!(other, "hedge-other-replica: {path:?}");
            assert!(extra as f64 <= share, "hedge-within-budget: {path:?}");
        }
        let is_overdue = matches!(reason, Reason::Overdue { .. });
        if is_overdue {
            let mut open = self.tries.iter().filter(|tried| tried.seen == Seen::Open);
            assert!(open.all(|tried| tried.replica != replica), "{path:?}");
        }
        let is_free = |failure| failure == Failure::NotSent;
        let is_retry = matches!(reason, Reason::Retry { failure, .. } if !is_free(failure));
        self.paid += u64::from(is_hedge || is_overdue || is_retry);
        assert!(
            self.paid <= extra,
            "only an attempt that was not executed is retried for free: {path:?}"
        );
        let allowed = share.max(f64::from(budget.reserve));
        assert!(extra as f64 <= allowed, "extra-within-budget: {path:?}");
        let once = !self.tries.iter().any(|tried| tried.executed);
        assert!(self.request.repeatable || once, "repeat-only-if-safe: {path:?}");
        let repeats = !self.tries.is_empty() && self.replay_lost;
        assert!(!repeats, "the body is not there any more: {path:?}");
    }

    /// The client gets a bad response: none is open, unless the request's time is over.
    fn check_nothing_better(&mut self, winner: AttemptId) {
        let open = self.tries.iter().any(|tried| tried.seen == Seen::Open);
        let timed_out = self.now >= Instant::ZERO + self.upstream.config().timeout;
        assert!(!open || timed_out, "good-beats-fast-error: {:?}", self.path);
        let others = self.tries.iter().enumerate().filter(|(other, _)| *other != winner.index());
        let executed = others.map(|(_, tried)| tried).any(|tried| tried.executed);
        assert!(self.request.repeatable || !executed, "repeat-only-if-safe: {:?}", self.path);
        self.tries[winner.index()].seen = Seen::Winner(false);
    }

    fn check(&mut self) {
        let path = &self.path;
        let ids = (0..self.replicas).map(ReplicaId::at);
        let in_flight: u32 = ids.map(|id| self.upstream.in_flight(id)).sum();
        let counts = |tried: &&Try| matches!(tried.seen, Seen::Open | Seen::Winner(true));
        let expected = self.tries.iter().filter(counts).count();
        assert_eq!(in_flight as usize, expected, "attempts in flight: {path:?}");
        let most = self.upstream.config().amplification().attempts_max as usize;
        assert!(self.tries.len() <= most.min(ATTEMPTS_MAX), "{path:?}");
        let trying = !self.tries.is_empty() && self.endings == 0 && !self.abandoned;
        assert_eq!(self.call.poll_timeout().is_some(), trying, "a timer while trying: {path:?}");
        let mut tries = self.tries.iter();
        let any_cancelled = tries.any(|tried| tried.seen == Seen::Cancelled);
        assert!(!trying || !any_cancelled, "slow-is-not-cancelled: {path:?}");
        assert!(self.endings <= 1, "exactly-one-response: {path:?}");
        if self.call.is_over() {
            assert_eq!(self.endings + usize::from(self.abandoned && self.endings == 0), 1);
            let left = self.tries.iter().any(|t| matches!(t.seen, Seen::Open | Seen::Held));
            assert!(!left, "every-other-cancelled: {path:?}");
            assert_eq!(in_flight, 0, "attempts in flight at the end: {path:?}");
        }
    }

    /// Being woken before the polled instant decides nothing.
    fn check_woken_early(&self) {
        if self.call.poll_timeout().is_some_and(|at| self.now < at) {
            let Self { mut upstream, mut call, .. } = self.clone();
            call.handle(&mut upstream, self.now, Event::Woke);
            assert_eq!(upstream.poll_effect(), None, "woken too early: {:?}", self.path);
        }
    }

    /// Nothing happens any more but that time passes: the request must end.
    fn run_out(mut self) -> Self {
        for _ in 0..64 {
            if self.call.is_over() {
                return self;
            }
            let winner = self.tries.iter().position(|tried| tried.seen == Seen::Winner(true));
            let ended = winner.map(|w| Event::Ended { attempt: AttemptId::at(w), whole: true });
            self.step(ended.unwrap_or(Event::Woke));
        }
        panic!("exactly-one-response: it never ends: {:?}", self.path);
    }
}

/// Walks all worlds that come of this one in `depth` steps; adds the reasons met.
fn explore(world: &World, depth: usize, reasons: &mut BTreeSet<&'static str>) {
    world.check_woken_early();
    let moves = world.moves();
    if depth == 0 || moves.is_empty() {
        reasons.extend(world.clone().run_out().reasons);
        return;
    }
    for event in moves {
        let mut next = world.clone();
        next.step(event);
        explore(&next, depth - 1, reasons);
    }
}

const ONCE: Request = Request { repeatable: false, ..Request::READ };
const HOLDOUT: Request = Request { is_holdout: true, ..Request::READ };

const fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

fn hedged(delay: Duration, hedges_max: u8) -> Option<HedgeConfig> {
    let delay = QuantileDelay { quantile: Quantile::P99, min: ms(1), max: delay };
    Some(HedgeConfig { delay, hedges_max })
}

fn retried(retries_max: u8, overdue_after: Option<Duration>) -> Option<RetryConfig> {
    let overdue = overdue_after.map(|max| QuantileDelay { max, ..RetryConfig::OVERDUE });
    Some(RetryConfig { retries_max, overdue, ..RetryConfig::default() })
}

fn tied(delay: Duration) -> Option<TieConfig> {
    Some(TieConfig { delay: Some(delay), ..TieConfig::default() })
}

/// Nothing is on; a budget of as many extra attempts as requests, and one retry in reserve.
fn plain() -> UpstreamConfig {
    let ratio = Ratio::ONE;
    UpstreamConfig {
        budget: BudgetConfig { ratio, reserve: 1, ..BudgetConfig::default() },
        timeout: ms(1_000),
        ..UpstreamConfig::plain(BalanceConfig::LEAST_REQUEST)
    }
}

/// A world to which `before` other requests have come: as many more extra attempts are granted.
fn world(config: UpstreamConfig, replicas: usize, request: Request, before: usize) -> World {
    let mut world = World::new(config, replicas, request);
    (0..before).for_each(|_| world.upstream.budget().request(Instant::ZERO));
    world
}

/// With every technique on, a request of the holdout meets the reasons of an upstream without hedges and ties.
#[test]
fn a_request_of_the_holdout_is_handled_as_without_hedges_and_ties() {
    let retry = retried(2, Some(ms(200)));
    let without = UpstreamConfig { retry, ..plain() };
    let with = UpstreamConfig { hedge: hedged(ms(10), 2), tie: tied(ms(1)), ..without };
    let reasons = |config, request| {
        let mut reasons = BTreeSet::new();
        explore(&world(config, 3, request, 2), 7, &mut reasons);
        reasons
    };
    let held = reasons(with, HOLDOUT);
    assert_eq!(held, reasons(without, Request::READ));
    assert!(held.contains("retry") && held.contains("overdue"), "{held:?}");
    assert!(reasons(with, Request::READ).contains("tie_first"));
}

/// In a dry run, only the reasons for hedges that are skipped are added. With the remedies off, none is.
#[test]
fn a_dry_run_changes_nothing_but_the_hedges_that_it_skips() {
    let retry = retried(2, Some(ms(200)));
    let without = UpstreamConfig { retry, ..plain() };
    let with = UpstreamConfig { hedge: hedged(ms(10), 2), tie: tied(ms(1)), ..without };
    let reasons = |config| {
        let mut reasons = BTreeSet::new();
        explore(&world(config, 3, Request::READ, 2), 7, &mut reasons);
        reasons
    };
    let expected = reasons(without);
    assert_eq!(reasons(UpstreamConfig { remedy: RemedyMode::Off, ..with }), expected);
    let dry_run = reasons(UpstreamConfig { remedy: RemedyMode::DryRun, ..with });
    let added: Vec<_> = dry_run.difference(&expected).copied().collect();
    assert_eq!(added, ["no_other_replica"], "no other replica has responded before");
    assert!(expected.is_subset(&dry_run));
}

fn names(reasons: &BTreeSet<&'static str>) -> alloc::string::String {
    reasons.iter().copied().collect::<Vec<_>>().join("\n")
}

#[test]
fn each_technique_alone_to_a_depth_of_ten() {
    let techniques = [
        ("plain", plain()),
        ("hedge", UpstreamConfig { hedge: hedged(ms(10), 2), ..plain() }),
        ("retry", UpstreamConfig { retry: retried(2, Some(ms(200))), ..plain() }),
        ("tie", UpstreamConfig { tie: tied(ms(1)), ..plain() }),
    ];
    let mut met = Vec::new();
    for (name, config) in techniques {
        let mut reasons = BTreeSet::new();
        for (replicas, request) in
            [(2, Request::READ), (3, Request::READ), (2, ONCE), (1, Request::READ)]
        {
            explore(&world(config, replicas, request, 0), 10, &mut reasons);
        }
        met.push(alloc::format!("{name}\n\n{}\n", names(&reasons)));
    }
    let expected = expect![[r#"
        plain

        attempts_spent
        client_gone
        first
        first_accepted
        may_not_repeat
        nothing_better
        request_timeout

        hedge

        attempts_spent
        budget_spent
        client_gone
        first
        first_accepted
        lost
        may_not_repeat
        no_other_replica
        nothing_better
        request_timeout
        slower_than_cap

        retry

        attempts_spent
        budget_spent
        client_gone
        first
        first_accepted
        lost
        may_not_repeat
        no_other_replica
        nothing_better
        overdue
        request_timeout
        retry

        tie

        attempts_spent
        client_gone
        first
        first_accepted
        lost
        may_not_repeat
        nothing_better
        request_timeout
        tie_first
        tie_first_lost
        tie_second
        tie_started_lost
    "#]];
    expected.assert_eq(&met.join("\n"));
}

#[test]
fn every_combination_to_a_depth_of_six() {
    let mut reasons = BTreeSet::new();
    // Hedges before and after the second copy of a tie, and more of them than attempts are allowed.
    let hedges = [None, hedged(Duration::from_us(500), 2), hedged(ms(10), 1), hedged(ms(2), 20)];
    let retries = [None, retried(2, None), retried(2, Some(ms(5))), retried(9, Some(ms(20)))];
    for (hedge, retry) in hedges.iter().flat_map(|h| retries.iter().map(move |r| (*h, *r))) {
        for (tie, replicas) in [(None, 2), (None, 3), (tied(ms(1)), 2), (tied(ms(1)), 3)] {
            let config = UpstreamConfig { hedge, retry, tie, ..plain() };
            explore(&world(config, replicas, Request::READ, 0), 6, &mut reasons);
            explore(&world(config, replicas, Request::READ, 9), 6, &mut reasons);
            explore(&world(config, replicas, ONCE, 9), 6, &mut reasons);
        }
    }
    let expected = expect![[r#"
        attempts_spent
        budget_spent
        client_gone
        first
        first_accepted
        lost
        may_not_repeat
        no_other_replica
        nothing_better
        overdue
        request_timeout
        retry
        slower_than_cap
        tie_first
        tie_first_lost
        tie_second
        tie_started_lost"#]];
    expected.assert_eq(&names(&reasons));
}

fn everything() -> UpstreamConfig {
    let (hedge, retry) = (hedged(ms(10), 1), retried(2, Some(ms(200))));
    UpstreamConfig { hedge, retry, tie: tied(ms(1)), ..plain() }
}

#[test]
fn pinned_calls_to_a_depth_of_seven() {
    let mut met = Vec::new();
    for to in [&[1_u32][..], &[0, 2]] {
        let mut reasons = BTreeSet::new();
        explore(&world(everything(), 3, Request::READ, 9).pinned(to), 7, &mut reasons);
        met.push(alloc::format!("{to:?}\n\n{}\n", names(&reasons)));
    }
    let expected = expect![[r#"
        [1]

        attempts_spent
        client_gone
        first
        first_accepted
        lost
        may_not_repeat
        no_other_replica
        nothing_better
        request_timeout
        retry

        [0, 2]

        attempts_spent
        client_gone
        first
        first_accepted
        lost
        may_not_repeat
        no_other_replica
        nothing_better
        overdue
        request_timeout
        retry
        tie_first
        tie_first_lost
        tie_second
        tie_started_lost
    "#]];
    expected.assert_eq(&met.join("\n"));
}

#[test]
fn everything_at_once_to_a_depth_of_nine() {
    let config = everything();
    let mut reasons = BTreeSet::new();
    explore(&world(config, 3, Request::READ, 1), 9, &mut reasons);
    let expected = expect![[r#"
        attempts_spent
        budget_spent
        client_gone
        first
        first_accepted
        lost
        may_not_repeat
        no_other_replica
        nothing_better
        overdue
        request_timeout
        retry
        slower_than_cap
        tie_first
        tie_first_lost
        tie_second
        tie_started_lost"#]];
    expected.assert_eq(&names(&reasons));
}

#[test]
fn the_most_attempts_there_can_be_are_never_exceeded() {
    let (hedge, retry) = (hedged(ms(2), 200), retried(200, None));
    let config = UpstreamConfig { hedge, retry, tie: tied(ms(7)), ..plain() };
    let mut world = world(config, 12, Request::READ, 500);
    world.step(Event::Arrived);
    // Hedges come before the second copy, and take its place if it is not kept for it.
    while world.now < Instant::ZERO + ms(900) {
        world.step(Event::Woke);
    }
    assert_eq!(world.tries.len(), ATTEMPTS_MAX);
    assert!(world.reasons.contains("tie_second") && world.reasons.contains("attempts_spent"));
    world.run_out();
}
