//! Takes the records of a simulation as a recording.

use super::{AttemptEnd, RecordedAttempt, RecordedRequest, Recording, UNKNOWN};
use curtail_policy::{Outcome, UpstreamConfig};
use curtail_sim::{AttemptRecord, RequestRecord};

impl Recording {
    /// The calls of simulated requests to one upstream of `replicas` replicas, as a proxy with `policy` would record
    /// them. With `has_service`, the servers report their time in service, as servers with spans do.
    #[must_use]
    pub fn from_records(
        records: &[RequestRecord],
        replicas: u32,
        policy: UpstreamConfig,
        has_service: bool,
    ) -> Self {
        let mut recording = Self {
            source: "simulation".to_owned(),
            replicas: (0..replicas).map(|nth| format!("replica-{nth}")).collect(),
            policy: Some(policy),
            has_arrivals: true,
            ..Self::default()
        };
        let calls = records.iter().flat_map(|record| &record.calls);
        let rows = calls.map(|call| {
            let request = RecordedRequest {
                arrived: call.began,
                latency: Some(call.ended.since(call.began)).filter(|_| call.is_complete),
                kind: 0,
                attempts: 0,
                caller: UNKNOWN,
                is_holdout: false,
            };
            let attempt = |attempt: &AttemptRecord| recorded(attempt, has_service);
            (request, call.attempts.iter().map(attempt).collect())
        });
        recording.fill(rows.collect());
        recording
    }
}

fn recorded(attempt: &AttemptRecord, has_service: bool) -> RecordedAttempt {
    let end = match attempt.end {
        Some(curtail_sim::AttemptEnd::Responded(Outcome::Good)) => AttemptEnd::Responded,
        Some(
            curtail_sim::AttemptEnd::Responded(Outcome::Bad | Outcome::Refused)
            | curtail_sim::AttemptEnd::Failed(_),
        ) => AttemptEnd::Failed,
        Some(
            curtail_sim::AttemptEnd::Responded(Outcome::TwinStarted)
            | curtail_sim::AttemptEnd::Cancelled(_),
        )
        | None => AttemptEnd::Cancelled,
    };
    let ended = attempt.ended.unwrap_or(attempt.sent);
    let service = attempt.started.zip(attempt.left).map(|(started, left)| left.since(started));
    RecordedAttempt {
        replica: attempt.replica,
        sent: attempt.sent,
        lasted: ended.since(attempt.sent),
        end,
        service: service.filter(|_| has_service && end == AttemptEnd::Responded),
    }
}
