//! The decisions of the machines, and the IDs of the replicas, attempts and probes in the effects of the root.

use crate::{Choice, Class, Failure, RemedyState, Tie};
use serde::{Deserialize, Serialize};

/// The number of a replica, assigned when it joins its upstream. No other replica of the upstream gets this number.
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

/// The number of an attempt among the attempts of its request, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptId(pub u8);

impl AttemptId {
    /// The number as an index.
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
    /// The reason for the action, with the numbers that were compared.
    pub reason: R,
}

/// An action for the driver of a [`crate::Call`] or an [`crate::Upstream`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum Effect {
    /// Send an attempt of this class. `choice` is the reason for the replica. Only a copy of a tie has a `tie`.
    Send { attempt: AttemptId, replica: ReplicaId, choice: Choice, class: Class, tie: Option<Tie> },
    /// Stop an attempt, or discard its response.
    Cancel { attempt: AttemptId },
    /// Pass the response to this attempt on to the client.
    Respond { attempt: AttemptId },
    /// Report to the client that there is no response, and why.
    Fail { why: RequestFailure },
    /// Count a skipped extra attempt, which was due. The reason states why it is skipped.
    Skip,
    /// Follow a decision about the remedies of the upstream: begin new evidence, and draw the holdout of this state.
    SetRemedy { state: RemedyState },
    /// Ask a replica's leaf for its load.
    Probe { replica: ReplicaId },
}

/// The reason why a request ends without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFailure {
    /// The upstream has no replica, or none of those that the call is pinned to.
    NoReplica,
    /// The request's timeout passed.
    TimedOut,
    /// The last attempt failed, and no further one is allowed.
    Failed(Failure),
}
