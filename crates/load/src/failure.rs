//! Failures of requests, counted by reason.
//!
//! Every quantile counts a failed request as longer than all responses, so a service that fails fast does not look quick.

use serde::{Deserialize, Serialize};

/// The reason that a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// The connection closed before the response was complete.
    Closed,
    /// The response was not complete in time.
    Timeout,
    /// The server did not follow the protocol.
    Malformed,
    /// The response was longer than allowed.
    TooLong,
    /// The status of the response is a failure.
    Status,
    /// The body of the response is not as expected.
    Check,
    /// The run ended before the response.
    Ended,
}

impl Failure {
    /// Every reason, in the order in which reports list them.
    pub const ALL: [Self; 8] = [
        Self::Connect,
        Self::Closed,
        Self::Timeout,
        Self::Malformed,
        Self::TooLong,
        Self::Status,
        Self::Check,
        Self::Ended,
    ];

    /// The name in reports and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Status => "status",
            Self::Check => "check",
            Self::Ended => "ended",
        }
    }
}

/// Failed requests by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failures([u64; Failure::ALL.len()]);

impl Failures {
    /// No failures.
    pub const NONE: Self = Self([0; Failure::ALL.len()]);

    /// Counts one more failure.
    pub fn add(&mut self, failure: Failure) {
        self.add_n(failure, 1);
    }

    /// Counts `n` more failures.
    pub fn add_n(&mut self, failure: Failure, n: u64) {
        let count = &mut self.0[failure as usize];
        *count = count.saturating_add(n);
    }

    /// The number of failures with this reason.
    #[must_use]
    pub fn of(&self, failure: Failure) -> u64 {
        self.0[failure as usize]
    }

    /// The number of all failures.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |total, count| total.saturating_add(*count))
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Failures};

    #[test]
    fn each_reason_is_counted_in_its_own_place() {
        let mut failures = Failures::default();
        for (nth, failure) in Failure::ALL.into_iter().enumerate() {
            failures.add_n(failure, 1 << nth);
        }
        for (nth, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failures.of(failure), 1 << nth, "{failure:?}");
        }
        let mut twice = failures;
        twice.merge(&failures);
        assert_eq!(twice.total(), 2 * failures.total());
    }
}
