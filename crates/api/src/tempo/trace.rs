//! A trace by its ID, and the log records that name it.

use crate::Limits;
use crate::answer::Answer;
use crate::asked::{Asked, trace_id};
use crate::pieces::{OtlpForm, OtlpPieces};
use crate::refusal::Refusal;
use curtail_store::tree::Tree;
use curtail_store::{LogRows, SpanRows};
use http::header::ACCEPT;

pub(super) async fn answer(
    spans: &Tree<SpanRows>,
    limits: &Limits,
    asked: &Asked<'_>,
    (id, form): (&str, OtlpForm),
) -> Result<Answer, Refusal> {
    let found = spans.rows_with_id(asked.tenant, trace_id(id)?, limits.trace_spans).await;
    if found.is_empty() && found.unread().is_empty() {
        return Err(Refusal::not_found("there is no such trace"));
    }
    Answer::of_pieces(OtlpPieces::new(found, form, limits)?).await
}

/// The log records of a trace, as OTLP; none are no error.
pub(super) async fn logs(
    logs: &Tree<LogRows>,
    limits: &Limits,
    asked: &Asked<'_>,
    id: &str,
) -> Result<Answer, Refusal> {
    let found = logs.rows_with_id(asked.tenant, trace_id(id)?, limits.trace_spans).await;
    let json = OtlpForm::Json { before: r#"{"resourceLogs":["#, after: "]}" };
    let form = if accepts_protobuf(asked) { OtlpForm::Protobuf } else { json };
    Answer::of_pieces(OtlpPieces::new(found, form, limits)?).await
}

pub(super) fn accepts_protobuf(asked: &Asked<'_>) -> bool {
    let mut accepted = asked.head.get_all(ACCEPT).iter();
    accepted.any(|types| types.to_str().is_ok_and(|types| types.contains("protobuf")))
}
