//! What a machine at the root wants done, and the names of those it is done to.

use crate::{Choice, Class, Failure, Tie};
use serde::{Deserialize, Serialize};

/// A replica of an upstream: the number that it got when it joined. No other replica of the upstream gets it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u32);

impl ReplicaId {
    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a new upstream has at most REPLICAS_MAX replicas"))
    }
}

/// An attempt, by its place among the attempts of its own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptId(pub u8);

impl AttemptId {
    /// The place among the attempts.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn at(index: usize) -> Self {
        Self(u8::try_from(index).expect("a request has at most ATTEMPTS_MAX attempts"))
    }
}

/// An effect and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decided<E, R> {
    /// The action.
    pub effect: E,
    /// Why, with the numbers that were compared.
    pub reason: R,
}

/// An action for the driver of a [`crate::Call`] or an [`crate::Upstream`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum Effect {
    /// Send a new attempt, marked with the class. `choice` is the reason for the replica; `tie` is absent without a twin.
    Send { attempt: AttemptId, replica: ReplicaId, choice: Choice, class: Class, tie: Option<Tie> },
    /// Stop an attempt, or discard its response.
    Cancel { attempt: AttemptId },
    /// Pass the response to this attempt on to the client.
    Respond { attempt: AttemptId },
    /// Report to the client that there is no response, and why.
    Fail { why: RequestFailure },
    /// Do nothing: an extra attempt was due and is skipped. The reason says why, so that it can be counted.
    Skip,
    /// Ask a replica's leaf for its load.
    Probe { replica: ReplicaId },
}

/// The reason why a request ends without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFailure {
    /// The upstream has no replica, or none of those that the call is pinned to.
    NoReplica,
    /// The request's own time ran out.
    TimedOut,
    /// The last attempt failed, and no further one is allowed.
    Failed(Failure),
}
