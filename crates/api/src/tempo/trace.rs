//! A trace by its ID, and the log records that name it.

use crate::answer::Answer;
use crate::asked::{Asked, trace_id};
use crate::refusal::Refusal;
use curtail_otlp::{Signal, json};
use curtail_store::tree::{Tree, WithId};
use curtail_store::{LogRows, SpanRows};
use http::header::ACCEPT;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `Trace`, whose only field is that of OTLP.
    First,
    /// `TraceByIDResponse`, whose first field is that.
    Second,
}

pub(super) async fn answer(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
    id: &str,
    form: Form,
) -> Result<Answer, Refusal> {
    let trace = spans.with_id(asked.tenant, trace_id(id)?).await;
    if trace.is_empty() && trace.unread.is_empty() {
        return Err(Refusal::not_found("there is no such trace"));
    }
    Ok(written(&trace, form, asked)?.without(&trace.unread))
}

/// The log records of a trace, as OTLP; none are no error.
pub(super) async fn logs(
    logs: &Tree<LogRows>,
    asked: &Asked<'_>,
    id: &str,
) -> Result<Answer, Refusal> {
    let found = logs.with_id(asked.tenant, trace_id(id)?).await;
    let batch = found.batch().map_err(|_| Refusal::damaged())?;
    let answer = if accepts_protobuf(asked) {
        Answer::of("application/protobuf", batch)
    } else {
        let json = json::from_protobuf(&batch, Signal::Logs).map_err(|_| Refusal::damaged())?;
        Answer::of("application/json", json.into_bytes())
    };
    Ok(answer.without(&found.unread))
}

fn accepts_protobuf(asked: &Asked<'_>) -> bool {
    let mut accepted = asked.head.get_all(ACCEPT).iter();
    accepted.any(|types| types.to_str().is_ok_and(|types| types.contains("protobuf")))
}

fn written(trace: &WithId<SpanRows>, form: Form, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let batch = trace.batch().map_err(|_| Refusal::damaged())?;
    if accepts_protobuf(asked) {
        let body = match form {
            Form::First => batch,
            Form::Second => curtail_otlp::within(1, &batch),
        };
        return Ok(Answer::of("application/protobuf", body));
    }
    let json = json::from_protobuf(&batch, Signal::Traces).map_err(|_| Refusal::damaged())?;
    let json = match form {
        // What Tempo calls batches.
        Form::First => json.replacen("\"resourceSpans\"", "\"batches\"", 1),
        Form::Second => format!("{{\"trace\":{json}}}"),
    };
    Ok(Answer::of("application/json", json.into_bytes()))
}
