//! The labels of metrics that no policy defines.

use curtail_units::Label;
use http::StatusCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTimeout {
    /// The TLS handshake, the HTTP/2 preface or the request headers were not complete.
    Header,
    /// The client paused within a request body.
    Body,
    /// The client did not read its response.
    Write,
    /// No byte passed in either direction (`limits.stream_idle_timeout`).
    StreamIdle,
}

curtail_units::labels!(ClientTimeout {
    Header => "header",
    Body => "body",
    Write => "write",
    StreamIdle => "stream_idle",
});

/// Why a connection was closed for its PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeaderFailure {
    /// The connection is from an address that may not send the header.
    Untrusted,
    /// The connection begins with something else.
    Absent,
    /// The header breaks the specification.
    Malformed,
    /// The other side closed the connection first, as a health check in TCP does.
    Incomplete,
}

curtail_units::labels!(ProxyHeaderFailure {
    Untrusted => "untrusted",
    Absent => "absent",
    Malformed => "malformed",
    Incomplete => "incomplete",
});

#[derive(Clone, Copy, Debug)]
pub(crate) enum ResponseClass {
    /// No response: the client disconnected first.
    None,
    /// A response with this status, complete or abandoned by the client.
    Status(StatusCode),
    /// A response with a status of gRPC that is a failure of the server.
    GrpcFailure,
    /// A response that broke off.
    Incomplete,
    /// No complete response: the fan-out cancelled the call.
    Cancelled,
}

impl Label for ResponseClass {
    const NAMES: &'static [&'static str] = &[
        "none",
        "1xx",
        "2xx",
        "3xx",
        "4xx",
        "5xx",
        "other",
        "grpc_failure",
        "incomplete",
        "cancelled",
    ];

    fn index(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Status(status) => usize::from(status.as_u16() / 100).min(6),
            Self::GrpcFailure => 7,
            Self::Incomplete => 8,
            Self::Cancelled => 9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ResponseClass;
    use curtail_policy::{
        AttemptId, Class, Failure, LeafReason, Outcome, Reason, RemedyEstimate, SlowCount,
        SlowShares,
    };
    use curtail_units::{Duration, Label, Quantile, Ratio};
    use http::StatusCode;

    const TIME: Duration = Duration::from_ms(1);

    /// Every name has a value, each value its own place, and the place the value's own name.
    fn assert_complete<L: Label>(values: &[L], name: impl Fn(&L) -> &'static str) {
        assert_eq!(values.iter().map(name).collect::<Vec<_>>(), L::NAMES);
        let indices: Vec<_> = values.iter().map(L::index).collect();
        assert_eq!(indices, (0..L::NAMES.len()).collect::<Vec<_>>());
    }

    #[test]
    fn every_reason_is_counted_under_its_own_name() {
        let failure = Failure::Broken;
        let estimate = RemedyEstimate {
            requests: 1,
            quantile: Quantile::P99,
            without: TIME,
            with: TIME,
            threshold: TIME,
            slow_without: 0,
            slow_with: 0,
            ratio_high: 1.0,
        };
        let (without, with) = (SlowCount::default(), SlowCount::default());
        let shares =
            SlowShares { threshold: TIME, without, with, ratio_low: 0.0, ratio_high: None };
        let reasons = [
            Reason::First,
            Reason::SlowerThanQuantile { age: TIME, delay: TIME, quantile: Quantile::P90 },
            Reason::SlowerThanCap { age: TIME, cap: TIME },
            Reason::BudgetSpent { extra: 1, requests: 1, ratio: Ratio::ONE },
            Reason::NoOtherReplica,
            Reason::DryRun { age: TIME, delay: TIME, other: TIME },
            Reason::TieFirst,
            Reason::TieSecond { delay: TIME },
            Reason::TieFirstLost { failure },
            Reason::TieStartedLost { failure },
            Reason::Retry { failure, nth: 1, backoff: TIME },
            Reason::Overdue { waited: TIME, delay: TIME },
            Reason::FirstAccepted,
            Reason::Lost { winner: AttemptId(0) },
            Reason::NothingBetter,
            Reason::MayNotRepeat,
            Reason::AttemptsSpent { attempts: 1 },
            Reason::RequestTimeout { age: TIME },
            Reason::ClientGone,
            Reason::NoReplica,
            Reason::GainEstimated { estimate },
            Reason::NoGainEstimated { estimate },
            Reason::GainProven { shares },
            Reason::NoGain { shares },
            Reason::GainUnproven { shares },
            Reason::TriesAgain { waited: TIME },
            Reason::ProbeForRequest,
            Reason::ProbeWhenIdle,
        ];
        assert_complete(&reasons, Reason::name);
    }

    #[test]
    fn every_reason_of_a_leaf_is_counted_under_its_own_name() {
        let class = Class::Batch;
        let reasons = [
            LeafReason::BelowLimit { in_service: 1, concurrency: 1 },
            LeafReason::NextInClass { class, waited: TIME },
            LeafReason::TieStarted,
            LeafReason::TwinStarted { waited: TIME },
            LeafReason::TwinStartedBefore,
            LeafReason::TwinIsHere,
            LeafReason::QueueFull { len: 1, max: 1 },
            LeafReason::PushedOut { by: class, waited: TIME },
        ];
        assert_complete(&reasons, LeafReason::name);
    }

    #[test]
    fn every_failure_and_outcome_is_counted_under_its_own_name() {
        let failures = [
            Failure::NotSent,
            Failure::ConnectionLimit,
            Failure::Unprocessed,
            Failure::BodyNotKept,
            Failure::Broken,
            Failure::BadResponse,
            Failure::Refused,
            Failure::TwinLost,
        ];
        assert_complete(&failures, |failure| failure.name());
        let outcomes = [Outcome::Good, Outcome::Bad, Outcome::Refused, Outcome::TwinStarted];
        let written = outcomes.map(|o| serde_json::to_string(&o).expect("a name"));
        assert_eq!(
            written,
            Outcome::NAMES.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>()[..]
        );
        assert_eq!(outcomes.map(|o| o.index()), [0, 1, 2, 3]);
    }

    #[test]
    fn a_status_is_counted_by_its_first_digit() {
        let with = |code| ResponseClass::Status(StatusCode::from_u16(code).expect("three digits"));
        let name = |class: ResponseClass| ResponseClass::NAMES[class.index()];
        let classes = [100, 204, 301, 499, 599, 600, 999].map(|code| name(with(code)));
        assert_eq!(classes, ["1xx", "2xx", "3xx", "4xx", "5xx", "other", "other"]);
        let others = [
            ResponseClass::None,
            ResponseClass::GrpcFailure,
            ResponseClass::Incomplete,
            ResponseClass::Cancelled,
        ];
        assert_eq!(others.map(name), ["none", "grpc_failure", "incomplete", "cancelled"]);
    }
}
