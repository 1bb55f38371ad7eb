//! Our own paths, `/api/v1/…`; SQL, which runs as a process, is in [`crate::sql`].
//!
//! **Source**: the rules in `docs/guide/api.md`.

use crate::Limits;
use crate::answer::Answer;
use crate::asked::{Asked, trace_id};
use crate::pieces::{OtlpForm, OtlpPieces};
use crate::refusal::Refusal;
use curtail_store::Store;

/// The beginning of all our paths.
pub(crate) const PREFIX: &str = "/api/v1/";

pub(crate) async fn respond(
    store: &Store,
    limits: &Limits,
    asked: &Asked<'_>,
) -> Result<Answer, Refusal> {
    let of_trace = asked.after("/api/v1/traces/");
    if let Some(id) = of_trace.as_deref().and_then(|rest| rest.strip_suffix("/logs")) {
        return logs(store, limits, asked, id).await;
    }
    Err(Refusal::not_found("there is nothing of this name"))
}

/// The log records of a trace, as OTLP; none are no error.
async fn logs(
    store: &Store,
    limits: &Limits,
    asked: &Asked<'_>,
    id: &str,
) -> Result<Answer, Refusal> {
    let logs = store.logs();
    let found = logs.rows_with_id(asked.tenant, trace_id(id)?, limits.trace_spans).await;
    let json = OtlpForm::Json { before: r#"{"resourceLogs":["#, after: "]}" };
    let form = if asked.accepts("protobuf") { OtlpForm::Protobuf } else { json };
    Answer::of_pieces(OtlpPieces::new(found, form, limits)?).await
}
