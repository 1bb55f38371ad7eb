//! What a request is, and what can happen to it and to its attempts.

use crate::{AttemptId, Class};
use serde::{Deserialize, Serialize};

/// A request, as the policies know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its urgency.
    pub class: Class,
    /// Whether it may be executed more than once: a read, or what its route declares idempotent.
    pub repeatable: bool,
}

/// The result of an attempt with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be; also an error that another replica would give as well (a 404).
    Good,
    /// The server could not do it: another replica may.
    Bad,
    /// The leaf had no room; the server has not seen the request.
    Refused,
    /// The leaf dropped this copy of a tie, because the other has started.
    TwinStarted,
}

curtail_units::labels!(Outcome {
    Good => "good",
    Bad => "bad",
    Refused => "refused",
    TwinStarted => "twin_started",
});

/// The cause of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The server provably did not execute the attempt: there was no connection, the connection accepted no byte
    /// of the request, or the server said that it did not process the request.
    NotSent,
    /// The server may have executed the attempt, but sent no response or only a part of one.
    Broken,
    /// The response was not good.
    BadResponse,
    /// The leaf had no room.
    Refused,
    /// The twin of the attempt started, and then failed.
    TwinLost,
}

curtail_units::labels!(Failure {
    NotSent => "not_sent",
    Broken => "broken",
    BadResponse => "bad_response",
    Refused => "refused",
    TwinLost => "twin_lost",
});

impl Failure {
    /// Whether the server cannot have executed the attempt.
    pub(super) const fn is_unexecuted(self) -> bool {
        match self {
            Self::NotSent | Self::Refused => true,
            Self::Broken | Self::BadResponse | Self::TwinLost => false,
        }
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotSent => "was not executed",
            Self::Broken => "broke off without a response",
            Self::BadResponse => "got a bad response",
            Self::Refused => "was refused for lack of room",
            Self::TwinLost => "was dropped for a twin that failed",
        })
    }
}

/// Something happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum Event {
    /// The request arrived. The first event, once.
    Arrived,
    /// The response to an attempt has begun. The driver keeps it until an effect says to pass it on or to cancel it.
    Responded { attempt: AttemptId, outcome: Outcome },
    /// An attempt failed.
    Failed { attempt: AttemptId, failure: Failure },
    /// The response to the client has ended, whole or broken off.
    Ended { attempt: AttemptId, whole: bool },
    /// The body is too long to be kept: there can be no further attempt.
    ReplayLost,
    /// The client has gone away.
    Abandoned,
    /// The polled instant has come.
    Woke,
}
