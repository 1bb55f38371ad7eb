//! One tied request, one root and two leaves: every order of all messages and mishaps.
//!
//! Messages are delivered in any order, except that a cancel never overtakes its request. Cancels and messages
//! between leaves may be lost; messages between leaves may also come twice. In some worlds a leaf crashes, or a
//! request breaks off on its way, once at any point. In every order, a copy does not start after its leaf knows that
//! its twin has started. Each execution beyond the first is due to a mishap, or to a message between leaves that came
//! too late. With at most one mishap there is always a response.

use super::{TieConfig, TieId};
use crate::{
    AttemptId, BalanceConfig, Call, Class, Effect, Event, Failure, Leaf, LeafConfig, LeafEffect,
    LeafEvent, LeafRequestId, Outcome, Request, Upstream, UpstreamConfig,
};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Rng};

/// The request that keeps a leaf busy when the tie arrives.
const BUSY: LeafRequestId = LeafRequestId(100);

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Request { leaf: usize, attempt: AttemptId, tie: Option<TieId> },
    Cancel { leaf: usize, attempt: AttemptId },
    Tell { leaf: usize, tie: TieId },
    Response { attempt: AttemptId, outcome: Outcome },
    Failure { attempt: AttemptId, failure: Failure },
}

impl Message {
    /// The attempt that it sends out, if it does.
    const fn request_of(&self) -> Option<AttemptId> {
        match self {
            Self::Request { attempt, .. } => Some(*attempt),
            Self::Cancel { .. }
            | Self::Tell { .. }
            | Self::Response { .. }
            | Self::Failure { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Deliver(usize),
    Lose(usize),
    Double(usize),
    Finish(usize, LeafRequestId),
    Crash(usize),
    Wake,
}

/// How often what may go wrong.
#[derive(Clone, Copy, Debug)]
struct Mishaps {
    lost_news: u32,
    doubled_news: u32,
    /// A leaf crashes, or a request breaks off.
    faults: u32,
}

#[derive(Clone, Debug)]
struct World {
    upstream: Upstream,
    call: Call,
    now: Instant,
    leaves: [Option<Leaf>; 2],
    in_service: [Option<LeafRequestId>; 2],
    messages: Vec<Message>,
    /// Where each attempt went, and whether it is over for the root.
    attempts: Vec<(usize, bool)>,
    left: Mishaps,
    /// Whether a leaf knows that the twin of its copy has started.
    knows_twin_started: [bool; 2],
    executions: u32,
    /// Executions that a mishap or late news may have made needless.
    excused: u32,
    is_done: bool,
    path: Vec<Move>,
}

impl World {
    fn new(busy: [bool; 2], left: Mishaps) -> Self {
        let config = UpstreamConfig {
            tie: Some(TieConfig::default()),
            ..UpstreamConfig::plain(BalanceConfig::LEAST_REQUEST)
        };
        let mut world = Self {
            upstream: Upstream::new(config, 2, &Rng::new(1)),
            call: Call::new(Request::READ),
            now: Instant::ZERO,
            leaves: [(); 2]
                .map(|()| Some(Leaf::new(LeafConfig { concurrency: 1, queue_len_max: 8 }))),
            in_service: [None; 2],
            messages: Vec::new(),
            attempts: Vec::new(),
            left,
            knows_twin_started: [false; 2],
            executions: 0,
            excused: 0,
            is_done: false,
            path: Vec::new(),
        };
        for leaf in (0..2).filter(|leaf| busy[*leaf]) {
            let (request, class, tie) = (BUSY, Class::Interactive, None);
            world.leaf(leaf, LeafEvent::Arrived { request, class, tie });
        }
        world.root(Event::Arrived);
        world
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (place, message) in self.messages.iter().enumerate() {
            match *message {
                Message::Cancel { attempt, .. } => {
                    let request = |m: &Message| m.request_of() == Some(attempt);
                    if !self.messages.iter().any(request) {
                        moves.push(Move::Deliver(place));
                        moves.extend((self.left.lost_news > 0).then_some(Move::Lose(place)));
                    }
                }
                Message::Tell { .. } => {
                    moves.push(Move::Deliver(place));
                    moves.extend((self.left.lost_news > 0).then_some(Move::Lose(place)));
                    moves.extend((self.left.doubled_news > 0).then_some(Move::Double(place)));
                }
                Message::Request { .. } => {
                    moves.push(Move::Deliver(place));
                    moves.extend((self.left.faults > 0).then_some(Move::Lose(place)));
                }
                Message::Response { .. } | Message::Failure { .. } => {
                    moves.push(Move::Deliver(place));
                }
            }
        }
        for leaf in 0..2 {
            moves.extend(self.in_service[leaf].map(|request| Move::Finish(leaf, request)));
            let may_crash = self.left.faults > 0 && self.leaves[leaf].is_some();
            moves.extend(may_crash.then_some(Move::Crash(leaf)));
        }
        // Only the second copy is waited for: a request that runs into its timeout has no response.
        let near = self.now + Duration::from_secs(1);
        moves.extend(self.call.poll_timeout().filter(|at| *at < near).map(|_| Move::Wake));
        moves
    }

    fn step(&mut self, step: Move) {
        self.path.push(step);
        match step {
            Move::Deliver(place) => {
                let message = self.messages.swap_remove(place);
                self.deliver(message);
            }
            Move::Lose(place) => match self.messages.swap_remove(place) {
                Message::Request { attempt, .. } => {
                    self.left.faults -= 1;
                    self.excused += 1;
                    let failure = Failure::Broken;
                    self.messages.push(Message::Failure { attempt, failure });
                }
                Message::Tell { .. } | Message::Cancel { .. } => {
                    self.left.lost_news -= 1;
                    self.excused += 1;
                }
                Message::Response { .. } | Message::Failure { .. } => {
                    panic!("the end of a connection is always noticed: {:?}", self.path)
                }
            },
            Move::Double(place) => {
                self.left.doubled_news -= 1;
                self.messages.push(self.messages[place]);
            }
            Move::Finish(leaf, request) => {
                self.in_service[leaf] = None;
                self.leaf(leaf, LeafEvent::Finished { request });
                if let Some(attempt) = attempt(request) {
                    let outcome = Outcome::Good;
                    self.messages.push(Message::Response { attempt, outcome });
                }
            }
            Move::Crash(leaf) => self.crash(leaf),
            Move::Wake => {
                self.now = self.call.poll_timeout().expect("only then is it a move");
                self.root(Event::Woke);
            }
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Request { leaf, attempt, tie } if self.leaves[leaf].is_some() => {
                let (request, class) = (LeafRequestId(attempt.0.into()), Class::Interactive);
                self.leaf(leaf, LeafEvent::Arrived { request, class, tie });
            }
            Message::Request { attempt, .. } => {
                self.messages.push(Message::Failure { attempt, failure: Failure::NotSent });
            }
            Message::Cancel { leaf, attempt } => {
                let request = LeafRequestId(attempt.0.into());
                if self.in_service[leaf] == Some(request) {
                    self.in_service[leaf] = None;
                }
                self.leaf(leaf, LeafEvent::Gone { request });
            }
            Message::Tell { leaf, tie } => {
                self.knows_twin_started[leaf] = true;
                self.leaf(leaf, LeafEvent::TwinStarted { tie });
            }
            Message::Response { attempt, outcome } => {
                self.root(Event::Responded { attempt, outcome })
            }
            Message::Failure { attempt, failure } => self.root(Event::Failed { attempt, failure }),
        }
    }

    fn crash(&mut self, leaf: usize) {
        self.left.faults -= 1;
        self.excused += 1;
        self.leaves[leaf] = None;
        self.in_service[leaf] = None;
        // The root sees its connections break, but for those that carry a response already, or nothing yet.
        for (index, (_, over)) in self.attempts.iter().enumerate().filter(|(_, a)| a.0 == leaf) {
            let attempt = AttemptId::at(index);
            let on_its_way = self.messages.iter().any(|message| match message {
                Message::Request { attempt: a, .. }
                | Message::Response { attempt: a, .. }
                | Message::Failure { attempt: a, .. } => *a == attempt,
                Message::Cancel { .. } | Message::Tell { .. } => false,
            });
            if !over && !on_its_way {
                self.messages.push(Message::Failure { attempt, failure: Failure::Broken });
            }
        }
    }

    /// Hands an event to the root and sends what it decides.
    fn root(&mut self, event: Event) {
        if let Event::Responded { attempt, .. } | Event::Failed { attempt, .. } = event {
            self.attempts[attempt.index()].1 = true;
        }
        self.call.handle(&mut self.upstream, self.now, event);
        while let Some(decided) = self.upstream.poll_effect() {
            match decided.effect {
                Effect::Send { attempt, replica, tie, .. } => {
                    let (leaf, tie) = (replica.index(), tie.map(|tie| tie.id));
                    self.attempts.push((leaf, false));
                    self.messages.push(Message::Request { leaf, attempt, tie });
                }
                Effect::Cancel { attempt } => {
                    let (leaf, over) = &mut self.attempts[attempt.index()];
                    *over = true;
                    self.messages.push(Message::Cancel { leaf: *leaf, attempt });
                }
                Effect::Respond { attempt } => {
                    self.is_done = true;
                    let ended = Event::Ended { attempt, whole: true };
                    let nothing_left = self.upstream.poll_effect().is_none();
                    assert!(nothing_left, "the response ends the request: {:?}", self.path);
                    self.call.handle(&mut self.upstream, self.now, ended);
                }
                Effect::Fail { .. }
                | Effect::Skip
                | Effect::SetRemedy { .. }
                | Effect::Probe { .. } => {}
            }
        }
    }

    /// Hands an event to a leaf, if it lives, and sends what it decides.
    fn leaf(&mut self, leaf: usize, event: LeafEvent) {
        let Some(machine) = &mut self.leaves[leaf] else { return };
        machine.handle(self.now, event);
        while let Some(decided) = machine.poll_effect() {
            match decided.effect {
                LeafEffect::Start { request } => {
                    assert_eq!(
                        self.in_service[leaf], None,
                        "leaf-concurrency-bounded: {:?}",
                        self.path
                    );
                    self.in_service[leaf] = Some(request);
                    self.executions += u32::from(request != BUSY);
                }
                LeafEffect::TellTwin { tie, .. } => {
                    let kept = !self.knows_twin_started[leaf];
                    assert!(kept, "tie-at-most-one-duplicate: {:?}", self.path);
                    // Both copies start while the news of each is on its way.
                    self.excused += u32::from(self.messages.contains(&Message::Tell { leaf, tie }));
                    self.messages.push(Message::Tell { leaf: 1 - leaf, tie });
                }
                LeafEffect::Drop { request } => {
                    let attempt = attempt(request).expect("only copies are dropped");
                    let outcome = Outcome::TwinStarted;
                    self.messages.push(Message::Response { attempt, outcome });
                }
                LeafEffect::Refuse { .. } => panic!("there is room: {:?}", self.path),
            }
        }
    }

    /// What the future depends on. The path does not matter, nor does the order in which messages were
    /// sent; the upstream is left out, because with two replicas and no retries it follows from the rest.
    fn fingerprint(&self) -> String {
        let mut messages: Vec<String> = self.messages.iter().map(|m| format!("{m:?}")).collect();
        messages.sort_unstable();
        let Self { call, now, leaves, in_service, attempts, .. } = self;
        let counts =
            (self.left, self.knows_twin_started, self.executions, self.excused, self.is_done);
        format!("{call:?} {now:?} {leaves:?} {in_service:?} {attempts:?} {messages:?} {counts:?}")
    }

    /// Nothing more can happen.
    fn check_end(&self) {
        let path = &self.path;
        assert!(self.is_done && self.call.is_over(), "exactly-one-response: {path:?}");
        let needless = self.executions - 1;
        assert!(needless <= self.excused, "tie-at-most-one-duplicate: {needless}, {path:?}");
        assert!(needless <= 1, "tie-at-most-one-duplicate: {needless}, {path:?}");
        for leaf in self.leaves.iter().flatten() {
            let left = (leaf.in_service(), leaf.queue_len(), leaf.load(self.now).in_flight);
            assert_eq!(left, (0, 0, 0), "something is left at a leaf: {path:?}");
        }
    }
}

fn attempt(request: LeafRequestId) -> Option<AttemptId> {
    (request != BUSY).then(|| AttemptId(u8::try_from(request.0).expect("a few attempts")))
}

/// Walks all worlds that come of this one, each once; counts the ends by their executions.
fn explore(world: &World, seen: &mut BTreeSet<String>, ends: &mut [u32; 4]) {
    if !seen.insert(world.fingerprint()) {
        return;
    }
    let moves = world.moves();
    if moves.is_empty() {
        world.check_end();
        ends[world.executions as usize] += 1;
    }
    for step in moves {
        let mut next = world.clone();
        next.step(step);
        explore(&next, seen, ends);
    }
}

/// Walks every world, for each way in which the leaves may be busy when the tie arrives.
fn explore_all(left: Mishaps) {
    for busy in [[false, false], [true, false], [false, true], [true, true]] {
        let (mut seen, mut ends) = (BTreeSet::new(), [0; 4]);
        explore(&World::new(busy, left), &mut seen, &mut ends);
        let [never, once, twice, more] = ends;
        assert!(once > 0 && twice > 0, "both ends are met: {left:?}, busy {busy:?}, {ends:?}");
        assert_eq!((never, more), (0, 0), "tie-at-most-one-duplicate: {left:?}, busy {busy:?}");
    }
}

#[test]
fn in_any_order_without_mishap() {
    explore_all(Mishaps { lost_news: 0, doubled_news: 0, faults: 0 });
}

#[test]
fn with_news_lost_and_doubled() {
    explore_all(Mishaps { lost_news: 1, doubled_news: 1, faults: 0 });
}

#[test]
fn with_a_crash_or_a_broken_connection_at_any_point() {
    explore_all(Mishaps { lost_news: 0, doubled_news: 0, faults: 1 });
}

#[test]
fn with_everything_that_may_go_wrong_once() {
    explore_all(Mishaps { lost_news: 1, doubled_news: 1, faults: 1 });
}
