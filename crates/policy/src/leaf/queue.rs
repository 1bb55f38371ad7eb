//! The queue of a leaf: which request is next, and which one a more urgent request displaces from a full queue.
//!
//! **Limits**: [`LeafConfig::queue_len_max`](crate::LeafConfig) requests over all classes; O(log length) a request.
//! **Invariants** `leaf-queue-bounded`; `class-order`: by class, the most urgent first, and by arrival within a class.

use super::LeafRequestId;
use crate::Class;
use alloc::collections::BTreeSet;

/// A place in the queue, in the order in which requests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) class: Class,
    /// The place in the order of arrival.
    nth: u64,
    pub(super) request: LeafRequestId,
}

/// Queued requests.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    queued: BTreeSet<Ticket>,
    len_max: u32,
    arrivals: u64,
}

impl Queue {
    pub(super) const fn new(len_max: u32) -> Self {
        Self { queued: BTreeSet::new(), len_max, arrivals: 0 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most `len_max`, a u32")]
    pub(super) fn len(&self) -> u32 {
        self.queued.len() as u32
    }

    pub(super) const fn len_max(&self) -> u32 {
        self.len_max
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.len_max
    }

    pub(super) fn push(&mut self, class: Class, request: LeafRequestId) -> Ticket {
        debug_assert!(!self.is_full(), "leaf-queue-bounded");
        let ticket = Ticket { class, nth: self.arrivals, request };
        self.arrivals += 1;
        self.queued.insert(ticket);
        ticket
    }

    /// Removes the next request to start.
    pub(super) fn pop(&mut self) -> Option<Ticket> {
        self.queued.pop_first()
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        self.queued.remove(&ticket);
    }

    /// The youngest request of the least urgent class, if that class is less urgent than `class`.
    pub(super) fn less_urgent(&self, class: Class) -> Option<LeafRequestId> {
        self.queued.last().filter(|last| last.class > class).map(|last| last.request)
    }
}
