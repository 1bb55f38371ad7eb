//! A request, and the events of a request and of its attempts.

use crate::{AttemptId, Class};
use curtail_units::Duration;
use serde::{Deserialize, Serialize};

/// A request, as the policies know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The urgency of the request.
    pub class: Class,
    /// Whether the request may be executed more than once: it is a read, or its route declares it idempotent.
    pub repeatable: bool,
    /// Whether the request is in the holdout: it gets neither hedges nor ties, but retries. The driver draws it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_holdout: bool,
    /// The maximum time from the request to its response, instead of that of the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The maximum time from the request to its response that its client states. Unlike a timeout, it ejects no replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// The maximum number of retries, if it is less than that of the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_max: Option<u8>,
}

impl Request {
    /// An interactive read with the limits of its upstream.
    pub const READ: Self = Self {
        class: Class::Interactive,
        repeatable: true,
        is_holdout: false,
        timeout: None,
        deadline: None,
        retries_max: None,
    };

    /// Returns the timeout, where `default` is that of the upstream.
    #[must_use]
    pub fn timeout_or(&self, default: Duration) -> Duration {
        self.timeout.unwrap_or(default)
    }

    /// Returns the timeout or the deadline of the client, whichever is less.
    #[must_use]
    pub fn time_limit(&self, default: Duration) -> Duration {
        let timeout = self.timeout_or(default);
        self.deadline.map_or(timeout, |deadline| deadline.min(timeout))
    }
}

/// The result of an attempt with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A success, or an error that any other replica would return too (such as a 404).
    Good,
    /// The server could not serve the request, but another replica may be able to.
    Bad,
    /// The leaf had no room; the server has not seen the request.
    Refused,
    /// The leaf dropped this copy of a tie, because the other copy has started.
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
    /// The server provably did not execute the attempt: there was no connection, or the connection accepted no byte
    /// of the request.
    NotSent,
    /// A limit of the driver's own connections to the replica rejected the attempt; the replica did not see it.
    ConnectionLimit,
    /// The server said that it did not process the attempt (over HTTP/2, `REFUSED_STREAM` or `GOAWAY`), and the driver
    /// did not get it processed over another connection.
    Unprocessed,
    /// The driver could not send the request to its end: it no longer had the whole body, because another attempt has
    /// read further.
    BodyNotKept,
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
    ConnectionLimit => "connection_limit",
    Unprocessed => "unprocessed",
    BodyNotKept => "body_not_kept",
    Broken => "broken",
    BadResponse => "bad_response",
    Refused => "refused",
    TwinLost => "twin_lost",
});

impl Failure {
    /// Whether the server provably did not execute the attempt.
    #[must_use]
    pub const fn is_unexecuted(self) -> bool {
        match self {
            Self::NotSent | Self::ConnectionLimit | Self::Unprocessed | Self::Refused => true,
            Self::BodyNotKept | Self::Broken | Self::BadResponse | Self::TwinLost => false,
        }
    }

    /// Whether the attempt has certainly caused no load outside the driver.
    pub(super) const fn is_free(self) -> bool {
        match self {
            Self::NotSent | Self::ConnectionLimit | Self::Unprocessed => true,
            Self::BodyNotKept
            | Self::Broken
            | Self::BadResponse
            | Self::Refused
            | Self::TwinLost => false,
        }
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotSent => "was not executed",
            Self::ConnectionLimit => "was rejected by a limit of connections",
            Self::Unprocessed => "was not processed by the server",
            Self::BodyNotKept => "had no complete request body",
            Self::Broken => "no complete and valid response",
            Self::BadResponse => "got a bad response",
            Self::Refused => "was refused for lack of room",
            Self::TwinLost => "was dropped for a twin that failed",
        })
    }
}

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum Event {
    /// The request arrived. This is the first event, and comes once.
    Arrived,
    /// An attempt has a response: its headers, or all of it if the driver buffers it (`limits.response_buffer` in the
    /// proxy). The driver keeps the response until an effect passes it on or cancels it.
    Responded { attempt: AttemptId, outcome: Outcome },
    /// An attempt failed.
    Failed { attempt: AttemptId, failure: Failure },
    /// The response to the client has ended, whole or broken off.
    Ended { attempt: AttemptId, whole: bool },
    /// The request body is too long for the replay buffer, so no further attempt can be sent.
    ReplayLost,
    /// The client has gone away.
    Abandoned,
    /// The instant of [`Call::poll_timeout`](crate::Call::poll_timeout) has come.
    Woke,
}
