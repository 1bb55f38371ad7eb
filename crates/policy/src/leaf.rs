//! The leaf: the queue in front of one server.

use crate::{Class, TieId};
use serde::{Deserialize, Serialize};

/// How a leaf queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafConfig {
    /// Requests that the server works on at once.
    pub slots: u32,
    /// Requests that may wait; one more is refused.
    pub queue_len_max: u32,
}

impl Default for LeafConfig {
    fn default() -> Self {
        Self { slots: 64, queue_len_max: 1024 }
    }
}

/// A request at a leaf; the driver's own number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeafRequestId(pub u64);

/// Something happened at a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafEvent {
    /// A request arrived.
    Arrived {
        /// Its number.
        request: LeafRequestId,
        /// Its class.
        class: Class,
        /// Its tie, if it is one of two copies.
        tie: Option<TieId>,
    },
    /// The twin's leaf says that the twin has started.
    TwinStarted {
        /// Whose twin.
        tie: TieId,
    },
    /// The server has finished a request, or failed it.
    Finished {
        /// Which one.
        request: LeafRequestId,
    },
    /// The root has gone away, or cancelled.
    Gone {
        /// Which request.
        request: LeafRequestId,
    },
    /// The polled instant has come.
    Woke,
}

/// What the driver of a leaf is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafEffect {
    /// Hand the request to the server.
    Start {
        /// Which one.
        request: LeafRequestId,
    },
    /// Tell the twin's leaf that this copy has started.
    TellTwin {
        /// The copy that started.
        request: LeafRequestId,
        /// The tie.
        tie: TieId,
    },
    /// Answer that the twin has started; the server never sees this copy.
    Drop {
        /// Which one.
        request: LeafRequestId,
    },
    /// Answer that there is no room; the server never sees the request.
    Refuse {
        /// Which one.
        request: LeafRequestId,
    },
}

/// Why a leaf decided as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafReason {
    /// The server had room.
    SlotFree {
        /// Requests the server works on, this one included.
        in_service: u32,
        /// The most it works on.
        slots: u32,
    },
}

/// The machine of one leaf.
#[derive(Clone, Debug)]
pub struct Leaf {
    config: LeafConfig,
}

impl Leaf {
    /// A leaf with an empty queue.
    #[must_use]
    pub fn new(config: LeafConfig) -> Self {
        Self { config }
    }

    /// Takes note of an event.
    pub fn handle(&mut self, _now: curtail_units::Instant, _event: LeafEvent) {}

    /// What to do next, and why; drained before the next event.
    pub fn poll_effect(&mut self) -> Option<crate::Decided<LeafEffect, LeafReason>> {
        let _ = self.config;
        None
    }

    /// When to send [`LeafEvent::Woke`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<curtail_units::Instant> {
        None
    }

    /// What a probe is answered with.
    pub fn load(&mut self, _now: curtail_units::Instant) -> crate::Load {
        crate::Load { in_flight: 0, latency: curtail_units::Duration::ZERO }
    }
}
