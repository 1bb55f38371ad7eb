//! The attempts of one request, with their states.

use super::ATTEMPTS_MAX;
use crate::upstream::Sent;
use crate::{AttemptId, ReplicaId};
use arrayvec::ArrayVec;
use curtail_units::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptState {
    /// Sent; no response or failure has come yet.
    Waiting,
    /// The driver keeps its response, which is not good.
    Kept,
    /// Dropped by its leaf because its twin has started.
    Dropped,
    /// Failed, cancelled, or not chosen: nothing is left of it.
    Gone,
    /// The client gets its response.
    Won,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) sent: Sent,
    /// When the attempt becomes overdue, by the delay at the time of sending.
    pub(super) overdue_at: Option<Instant>,
    pub(super) state: AttemptState,
}

impl Attempt {
    /// Whether a response may still come.
    const fn is_open(&self) -> bool {
        matches!(self.state, AttemptState::Waiting)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    all: ArrayVec<Attempt, ATTEMPTS_MAX>,
}

impl Attempts {
    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn next_id(&self) -> AttemptId {
        AttemptId::at(self.all.len())
    }

    /// Adds an attempt; the caller has checked that there is room.
    pub(super) fn add(&mut self, sent: Sent, overdue_at: Option<Instant>) {
        self.all.push(Attempt { sent, overdue_at, state: AttemptState::Waiting });
    }

    /// The IDs of all attempts. The iterator does not borrow the list, so that its user can change attempts.
    pub(super) fn ids(&self) -> impl Iterator<Item = AttemptId> + use<> {
        (0..self.all.len()).map(AttemptId::at)
    }

    pub(super) fn get(&self, id: AttemptId) -> Attempt {
        self.all[id.index()]
    }

    pub(super) fn get_mut(&mut self, id: AttemptId) -> &mut Attempt {
        &mut self.all[id.index()]
    }

    /// Whether attempt `id` exists and is in this state. A driver may name an attempt that was never sent.
    pub(super) fn is(&self, id: AttemptId, state: AttemptState) -> bool {
        self.all.get(id.index()).is_some_and(|attempt| attempt.state == state)
    }

    /// Whether attempt `id` exists and may still get a response.
    pub(super) fn is_open(&self, id: AttemptId) -> bool {
        self.all.get(id.index()).is_some_and(Attempt::is_open)
    }

    pub(super) fn any_open(&self) -> bool {
        self.all.iter().any(Attempt::is_open)
    }

    pub(super) fn first(&self, state: AttemptState) -> Option<AttemptId> {
        self.all.iter().position(|attempt| attempt.state == state).map(AttemptId::at)
    }

    pub(super) fn last(&self, state: AttemptState) -> Option<AttemptId> {
        self.all.iter().rposition(|attempt| attempt.state == state).map(AttemptId::at)
    }

    /// The replicas that have or had an attempt of the request.
    pub(super) fn replicas(&self) -> impl Iterator<Item = ReplicaId> {
        self.all.iter().map(|attempt| attempt.sent.replica)
    }

    /// The replicas with an open attempt.
    pub(super) fn open_replicas(&self) -> impl Iterator<Item = ReplicaId> {
        self.all.iter().filter(|attempt| attempt.is_open()).map(|attempt| attempt.sent.replica)
    }
}
