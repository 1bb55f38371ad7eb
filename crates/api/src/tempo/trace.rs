//! A trace by its ID.

use crate::Limits;
use crate::answer::Answer;
use crate::asked::{Asked, trace_id};
use crate::pieces::{OtlpForm, OtlpPieces};
use crate::refusal::Refusal;
use curtail_store::SpanRows;
use curtail_store::tree::Tree;

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
