//! Every order of events for up to four calls, in every configuration, to the end of the request.
//!
//! A world is a gather and an observer's record of it. After each event the invariants are checked against that record.
//! The reasons that occurred are collected, so that a world in which nothing happens cannot pass.

#![expect(clippy::cast_possible_truncation, reason = "numbers up to four")]

use super::{CallId, Gather, GatherConfig, GatherEffect, GatherEvent, GatherOutcome, RestMode};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant};
use expect_test::expect;

const DEADLINE: Duration = Duration::from_ms(50);

/// What the onlooker knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Open,
    Succeeded,
    Failed,
    Abandoned,
}

#[derive(Clone, Debug)]
struct World {
    config: GatherConfig,
    gather: Gather,
    now: Instant,
    calls: Vec<Seen>,
    done: Option<GatherOutcome>,
    client_gone: bool,
    rest_rejected: bool,
    path: Vec<GatherEvent>,
    reasons: BTreeSet<&'static str>,
}

impl World {
    fn new(config: GatherConfig) -> Self {
        let mut world = Self {
            config,
            gather: Gather::new(config),
            now: Instant::ZERO,
            calls: Vec::new(),
            done: None,
            client_gone: false,
            rest_rejected: false,
            path: Vec::new(),
            reasons: BTreeSet::new(),
        };
        world.step(GatherEvent::Arrived);
        world
    }

    fn count(&self, seen: Seen) -> u32 {
        self.calls.iter().filter(|call| **call == seen).count() as u32
    }

    fn is_waiting(&self) -> bool {
        self.done.is_none() && !self.client_gone
    }

    /// Everything that could happen next.
    fn moves(&self) -> Vec<GatherEvent> {
        let mut moves = Vec::new();
        for (nth, _) in self.calls.iter().enumerate().filter(|(_, call)| **call == Seen::Open) {
            let call = CallId(nth as u32);
            moves.extend([true, false].map(|success| GatherEvent::CallEnded { call, success }));
        }
        if self.is_waiting() {
            moves.push(GatherEvent::Abandoned);
            moves.extend(self.gather.poll_timeout().map(|_| GatherEvent::Woke));
        } else if self.count(Seen::Open) > 0 {
            moves.push(GatherEvent::RestRejected);
        }
        moves
    }

    fn step(&mut self, event: GatherEvent) {
        self.path.push(event);
        if event == GatherEvent::Woke {
            self.now = self.gather.poll_timeout().expect("only then is it a move");
        }
        if let GatherEvent::CallEnded { call, success } = event {
            self.calls[call.0 as usize] = if success { Seen::Succeeded } else { Seen::Failed };
        }
        self.client_gone |= event == GatherEvent::Abandoned && self.done.is_none();
        self.rest_rejected |= event == GatherEvent::RestRejected;
        self.gather.handle(self.now, event);
        while let Some(decided) = self.gather.poll_effect() {
            self.reasons.insert(decided.reason.name());
            self.effect(decided.effect);
        }
        self.check();
    }

    fn effect(&mut self, effect: GatherEffect) {
        let (config, path) = (self.config, &self.path);
        match effect {
            GatherEffect::StartCall { call } => {
                assert!(self.is_waiting(), "exactly-one-done: {path:?}");
                assert_eq!(call.0 as usize, self.calls.len(), "started-once: {path:?}");
                let canaries = &self.calls[..self.calls.len().min(config.canaries as usize)];
                let may_start = call.0 < config.canaries
                    || canaries.iter().all(|canary| *canary == Seen::Succeeded);
                assert!(may_start, "canaries-first: {config:?} {path:?}");
                self.calls.push(Seen::Open);
            }
            GatherEffect::AbandonCall { call } => {
                let seen = &mut self.calls[call.0 as usize];
                assert_eq!(*seen, Seen::Open, "abandoned-are-open: {path:?}");
                assert!(self.client_gone || self.done.is_some(), "{path:?}");
                *seen = Seen::Abandoned;
            }
            GatherEffect::Done { outcome } => {
                assert_eq!(self.done, None, "exactly-one-done: {path:?}");
                assert!(!self.client_gone, "{path:?}");
                let (succeeded, failed) = (self.count(Seen::Succeeded), self.count(Seen::Failed));
                match outcome {
                    GatherOutcome::Complete => assert!(succeeded >= config.needed, "{path:?}"),
                    GatherOutcome::Partial => {
                        assert!(succeeded < config.needed, "{path:?}");
                        assert_eq!(self.now, Instant::ZERO + DEADLINE, "{path:?}");
                    }
                    GatherOutcome::Failed => {
                        let is_canary = self.calls.len() as u32 == config.canaries;
                        let too_many = failed > config.calls - config.needed;
                        assert!(too_many || (is_canary && failed > 0), "{config:?} {path:?}");
                    }
                }
                self.done = Some(outcome);
            }
        }
    }

    fn check(&self) {
        let (config, path) = (self.config, &self.path);
        let (open, failed) = (self.count(Seen::Open), self.count(Seen::Failed));
        assert!(self.calls.len() as u32 <= config.calls, "started-once: {path:?}");
        if self.is_waiting() {
            assert!(self.count(Seen::Succeeded) < config.needed, "{config:?} {path:?}");
            assert!(failed <= config.calls - config.needed, "{config:?} {path:?}");
            assert!(open > 0, "it waits for something: {config:?} {path:?}");
        } else if self.client_gone || self.rest_rejected || config.rest == RestMode::Cancel {
            assert_eq!(open, 0, "abandoned-are-open: {config:?} {path:?}");
        } else {
            assert_eq!(self.count(Seen::Abandoned), 0, "abandoned-are-open: {path:?}");
        }
        assert_eq!(self.gather.is_over(), !self.is_waiting() && open == 0, "{path:?}");
        let has_timer = self.is_waiting() && config.deadline.is_some();
        assert_eq!(self.gather.poll_timeout().is_some(), has_timer, "{path:?}");
    }

    /// Late and repeated news, and waking too early, decide nothing.
    fn check_unimportant_events(&self) {
        let mut events: Vec<_> = (0..self.calls.len())
            .filter(|nth| self.calls[*nth] != Seen::Open)
            .map(|nth| GatherEvent::CallEnded { call: CallId(nth as u32), success: true })
            .collect();
        let success = true;
        events.push(GatherEvent::CallEnded { call: CallId(self.calls.len() as u32), success });
        events.push(GatherEvent::Arrived);
        if !self.is_waiting() {
            events.push(GatherEvent::Abandoned);
        }
        if self.is_waiting() || self.count(Seen::Open) == 0 {
            events.push(GatherEvent::RestRejected);
        }
        if self.gather.poll_timeout().is_none_or(|at| self.now < at) {
            events.push(GatherEvent::Woke);
        }
        for event in events {
            let mut gather = self.gather.clone();
            gather.handle(self.now, event);
            assert_eq!(gather.poll_effect(), None, "{event:?} after {:?}", self.path);
            assert_eq!(gather.succeeded, self.gather.succeeded, "{:?}", self.path);
        }
    }
}

/// Walks all worlds that follow from this one; counts those that have ended, and adds the reasons.
fn explore(world: &World, reasons: &mut BTreeSet<&'static str>) -> u64 {
    world.check_unimportant_events();
    let moves = world.moves();
    if moves.is_empty() {
        assert!(world.gather.is_over(), "it never ends: {:?}", world.path);
        reasons.extend(&world.reasons);
        return 1;
    }
    let follow = |event| {
        let mut next = world.clone();
        next.step(event);
        explore(&next, reasons)
    };
    moves.into_iter().map(follow).sum()
}

#[test]
fn all_orders_of_events_with_up_to_four_calls() {
    let (mut reasons, mut ends) = (BTreeSet::new(), 0);
    for calls in 1..=4 {
        for (needed, canaries) in (1..=calls).flat_map(|k| (0..=calls).map(move |c| (k, c))) {
            for deadline in [None, Some(DEADLINE)] {
                for rest in [RestMode::Cancel, RestMode::Finish] {
                    let config = GatherConfig { calls, needed, canaries, deadline, rest };
                    ends += explore(&World::new(config), &mut reasons);
                }
            }
        }
    }
    let names = reasons.into_iter().collect::<Vec<_>>().join("\n");
    let expected = expect![[r#"
        33332 ends
        canaries_succeeded
        canary_failed
        client_gone
        deadline
        enough
        first_wave
        rest_rejected
        too_many_failed"#]];
    expected.assert_eq(&alloc::format!("{ends} ends\n{names}"));
}
