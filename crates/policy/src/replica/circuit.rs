//! The circuit of a replica, as circuit breakers name the states of outlier ejection.
//!
//! A circuit opens when the replica is ejected. After that time it is half open: the replica gets attempts, and the next
//! failure ejects it again, for twice the time. A success of an attempt that was sent after the last failure closes it.

use super::{EJECTION_FAILURES, Replica};
use crate::{Failure, ReplicaId};
use curtail_units::{Duration, Instant};

/// The state of a replica's circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CircuitState {
    /// The replica gets attempts.
    #[default]
    Closed,
    /// The replica gets attempts, and is ejected at the next failure.
    HalfOpen,
    /// The replica is ejected.
    Open,
}

curtail_units::labels!(CircuitState {
    Closed => "closed",
    HalfOpen => "half_open",
    Open => "open",
});

/// The circuit of a replica now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circuit {
    /// The state.
    pub state: CircuitState,
    /// The number of failures since the last success.
    pub failures: u32,
    /// The time until the ejection ends; zero if the replica is not ejected.
    pub open_for: Duration,
}

impl Circuit {
    /// Whether the ejection, of a circuit that has just opened, is the first one since the last success.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.failures <= EJECTION_FAILURES
    }
}

/// The failure that ejects a replica, the last of several in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionReason {
    /// The attempt was not executed, for example because there was no connection.
    NotSent,
    /// The attempt broke off.
    Broken,
    /// The response was not good.
    BadResponse,
    /// The request timed out.
    TimedOut,
    /// The attempt was overdue when another one responded.
    Overdue,
}

curtail_units::labels!(EjectionReason {
    NotSent => "not_sent",
    Broken => "broken",
    BadResponse => "bad_response",
    TimedOut => "timed_out",
    Overdue => "overdue",
});

impl EjectionReason {
    /// The reason of a failed attempt; [`None`] if the failure says nothing about the replica.
    pub(crate) const fn of(failure: Failure) -> Option<Self> {
        match failure {
            Failure::NotSent => Some(Self::NotSent),
            Failure::BadResponse => Some(Self::BadResponse),
            Failure::Broken => Some(Self::Broken),
            Failure::ConnectionLimit
            | Failure::Unprocessed
            | Failure::BodyNotKept
            | Failure::Refused
            | Failure::TwinLost => None,
        }
    }
}

/// A change of a circuit, for the driver's log and counters. The end of an ejection is not reported, because only time ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitChange {
    /// The replica is ejected.
    Opened {
        /// The replica.
        replica: ReplicaId,
        /// The last failure.
        reason: EjectionReason,
        /// The circuit from now on.
        circuit: Circuit,
    },
    /// The replica has succeeded.
    Closed {
        /// The replica.
        replica: ReplicaId,
    },
}

impl Replica {
    /// The circuit now.
    pub(crate) fn circuit(&self, now: Instant) -> Circuit {
        let state = if self.is_ejected(now) {
            CircuitState::Open
        } else if self.is_circuit_closed() {
            CircuitState::Closed
        } else {
            CircuitState::HalfOpen
        };
        Circuit { state, failures: self.failures, open_for: self.ejected_until.since(now) }
    }

    /// Whether further failures are needed to eject the replica.
    pub(crate) const fn is_circuit_closed(&self) -> bool {
        self.failures < EJECTION_FAILURES
    }
}
