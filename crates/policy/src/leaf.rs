//! The leaf: the queue in front of one server.
//!
//! A leaf composes a [`limiter`] (how many requests are in service), a [`queue`] (which one is next), its side of ties,
//! and the load for probes.
//! **Decides** which request starts, which is refused, and which copy of a tie is dropped.
//! **Inputs**: arrivals with class and tie, ends of service, cancels, and messages from the leaf of a twin.
//! **Limits**: [`LeafConfig::concurrency`] requests in service, [`LeafConfig::queue_len_max`] waiting,
//! [`started::TIES_MAX`] ties. Each event costs O(log(concurrency + queue)).
//! **Invariants**
//! - `leaf-concurrency-bounded`, `leaf-queue-bounded`: service and queue never exceed their limits, and no request
//!   waits while the server has room.
//! - `started-once-dropped-or-refused`: each request gets exactly one of `Start`, `Drop` and `Refuse`, or none if its
//!   root goes away while it waits.
//! - `class-order`, see [`queue`]: to accept a more urgent request, a full queue refuses the youngest request of its
//!   least urgent class.
//! - `tie-at-most-one-duplicate`: a copy never starts after the start of its twin is known.
//!
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 76–78.
//! **Hurts when** urgent requests alone fill the server: less urgent requests then wait without end, and are pushed out
//! of a full queue first.

mod limiter;
mod queue;
mod reason;
mod started;

use crate::{Class, Decided, Load, LoadTracker, TieId};
use alloc::collections::{BTreeMap, VecDeque};
use curtail_units::Instant;
use limiter::Limiter;
use queue::{Queue, Ticket};
pub use reason::LeafReason;
use serde::{Deserialize, Serialize};
use started::StartedTwins;

/// The limits of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafConfig {
    /// Maximum number of requests in service; 0 counts as 1.
    pub concurrency: u32,
    /// Maximum number of queued requests. In a full queue, a more urgent request pushes out a less urgent one.
    pub queue_len_max: u32,
}

impl Default for LeafConfig {
    fn default() -> Self {
        Self { concurrency: 64, queue_len_max: 1024 }
    }
}

/// The driver's number for a request at a leaf, used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeafRequestId(pub u64);

/// An event at a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum LeafEvent {
    /// A request arrived.
    Arrived { request: LeafRequestId, class: Class, tie: Option<TieId> },
    /// The leaf of the twin reports that the twin has started.
    TwinStarted { tie: TieId },
    /// The server has finished a request, or failed it.
    Finished { request: LeafRequestId },
    /// The root has disconnected, or has cancelled the request.
    Gone { request: LeafRequestId },
}

/// An action for the driver of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum LeafEffect {
    /// Hand the request to the server.
    Start { request: LeafRequestId },
    /// Tell the twin's leaf that this copy has started.
    TellTwin { request: LeafRequestId, tie: TieId },
    /// Respond that the twin has started; the server never sees this copy.
    Drop { request: LeafRequestId },
    /// Respond that there is no room; the server never sees the request.
    Refuse { request: LeafRequestId },
}

/// The stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Queued(Ticket),
    InService,
}

/// A request that has arrived and not left.
#[derive(Clone, Copy, Debug)]
struct Present {
    place: Place,
    tie: Option<TieId>,
    arrived: Instant,
    in_flight_on_arrival: u32,
}

/// The machine of one leaf: limiter, queue, ties and load.
#[derive(Clone, Debug)]
pub struct Leaf {
    limiter: Limiter,
    queue: Queue,
    present: BTreeMap<LeafRequestId, Present>,
    /// The tied requests of `present`.
    ties: BTreeMap<TieId, LeafRequestId>,
    started_twins: StartedTwins,
    load: LoadTracker,
    effects: VecDeque<Decided<LeafEffect, LeafReason>>,
}

impl Leaf {
    /// A leaf with an empty queue.
    #[must_use]
    pub fn new(config: LeafConfig) -> Self {
        Self {
            limiter: Limiter::new(config.concurrency),
            queue: Queue::new(config.queue_len_max),
            present: BTreeMap::new(),
            ties: BTreeMap::new(),
            started_twins: StartedTwins::default(),
            load: LoadTracker::default(),
            effects: VecDeque::with_capacity(4),
        }
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Instant, event: LeafEvent) {
        debug_assert!(self.effects.is_empty(), "effects are drained before the next event");
        match event {
            LeafEvent::Arrived { request, class, tie } => self.arrived(now, request, class, tie),
            LeafEvent::TwinStarted { tie } => self.twin_started(now, tie),
            LeafEvent::Finished { request } => self.finished(now, request),
            LeafEvent::Gone { request } => self.request_gone(now, request),
        }
    }

    /// The next action for the driver, with its reason. The driver drains all actions before the next event.
    pub fn poll_effect(&mut self) -> Option<Decided<LeafEffect, LeafReason>> {
        self.effects.pop_front()
    }

    /// The load to report to a probe.
    #[must_use]
    pub fn load(&self, now: Instant) -> Load {
        self.load.load(now)
    }

    /// The number of queued requests.
    #[must_use]
    pub fn queue_len(&self) -> u32 {
        self.queue.len()
    }

    /// The number of requests in service.
    #[must_use]
    pub const fn in_service(&self) -> u32 {
        self.limiter.in_service()
    }

    fn arrived(&mut self, now: Instant, request: LeafRequestId, class: Class, tie: Option<TieId>) {
        debug_assert!(!self.present.contains_key(&request), "a number is used once");
        if let Some(why) = tie.and_then(|tie| self.why_drop(now, tie)) {
            self.decide(LeafEffect::Drop { request }, why);
            return;
        }
        let starts = self.limiter.has_room();
        if !starts && self.queue.is_full() && !self.displace(now, class) {
            let (len, max) = (self.queue.len(), self.queue.len_max());
            self.decide(LeafEffect::Refuse { request }, LeafReason::QueueFull { len, max });
            return;
        }
        if let Some(tie) = tie {
            self.ties.insert(tie, request);
        }
        let in_flight_on_arrival = self.load.arrived();
        let place =
            if starts { Place::InService } else { Place::Queued(self.queue.push(class, request)) };
        self.present.insert(request, Present { place, tie, arrived: now, in_flight_on_arrival });
        if starts {
            let concurrency = self.limiter.concurrency();
            let in_service = self.limiter.in_service() + 1;
            self.start(request, LeafReason::BelowLimit { in_service, concurrency });
        }
    }

    /// The reason to drop a copy that arrives now, if there is one.
    fn why_drop(&self, now: Instant, tie: TieId) -> Option<LeafReason> {
        if self.started_twins.contains(now, tie) {
            Some(LeafReason::TwinStartedBefore)
        } else if self.ties.contains_key(&tie) {
            Some(LeafReason::TwinIsHere)
        } else {
            None
        }
    }

    /// Refuses the youngest of the least urgent queued requests, if it is less urgent than `class`.
    fn displace(&mut self, now: Instant, class: Class) -> bool {
        let Some(request) = self.queue.less_urgent(class) else { return false };
        let waited = now.since(self.leave(request).arrived);
        self.decide(LeafEffect::Refuse { request }, LeafReason::PushedOut { by: class, waited });
        true
    }

    fn twin_started(&mut self, now: Instant, tie: TieId) {
        let Some(&request) = self.ties.get(&tie) else {
            self.started_twins.note(now, tie);
            return;
        };
        // When both copies have started, the root stops one of them: it alone knows which one responds first.
        if matches!(self.place(request), Some(Place::Queued(_))) {
            let waited = now.since(self.leave(request).arrived);
            self.decide(LeafEffect::Drop { request }, LeafReason::TwinStarted { waited });
        }
    }

    fn finished(&mut self, now: Instant, request: LeafRequestId) {
        // A request that its root cancelled is no longer known when the server is done with it.
        if self.place(request) == Some(Place::InService) {
            let Present { arrived, in_flight_on_arrival, .. } = self.leave(request);
            self.load.observe(now, in_flight_on_arrival, now.since(arrived));
            self.start_next(now);
        }
    }

    fn request_gone(&mut self, now: Instant, request: LeafRequestId) {
        let Some(place) = self.place(request) else { return };
        let Present { arrived, in_flight_on_arrival, .. } = self.leave(request);
        self.load.observe_cancelled(now, in_flight_on_arrival, now.since(arrived));
        if place == Place::InService {
            self.start_next(now);
        }
    }

    /// Starts the next request, because one has left service.
    fn start_next(&mut self, now: Instant) {
        let Some(Ticket { class, request, .. }) = self.queue.pop() else { return };
        let waited = now.since(self.present[&request].arrived);
        self.start(request, LeafReason::NextInClass { class, waited });
    }

    fn start(&mut self, request: LeafRequestId, why: LeafReason) {
        let present = self.present.get_mut(&request).expect("only what has arrived starts");
        present.place = Place::InService;
        let tie = present.tie;
        self.limiter.start();
        self.decide(LeafEffect::Start { request }, why);
        if let Some(tie) = tie {
            self.decide(LeafEffect::TellTwin { request, tie }, LeafReason::TieStarted);
        }
    }

    fn place(&self, request: LeafRequestId) -> Option<Place> {
        self.present.get(&request).map(|present| present.place)
    }

    /// Removes a present request from the queue or from service, and from the ties and the load.
    fn leave(&mut self, request: LeafRequestId) -> Present {
        let left = self.present.remove(&request).expect("the caller has seen that it is present");
        match left.place {
            Place::Queued(ticket) => self.queue.remove(ticket),
            Place::InService => self.limiter.end(),
        }
        if let Some(tie) = left.tie {
            self.ties.remove(&tie);
        }
        self.load.ended();
        left
    }

    fn decide(&mut self, effect: LeafEffect, reason: LeafReason) {
        self.effects.push_back(Decided { effect, reason });
    }
}

#[cfg(test)]
mod against_a_list;
#[cfg(test)]
mod tests;
