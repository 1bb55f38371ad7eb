//! Curtail's own paths, `/api/v1/…`, except SQL, which is in [`crate::sql`].
//!
//! **Source**: the rules in `docs/guide/api.md`.

use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, trace_id};
use crate::query_service::{ApiResponse, ApiResult};
use crate::response_chunks::{LOGS, OtlpChunks, OtlpForm};
use crate::{Limits, explain, predict, scorecard};
use curtail_store::Store;

/// The prefix of all these paths.
pub(crate) const PREFIX: &str = "/api/v1/";

pub(crate) async fn respond(
    store: &Store,
    limits: &Limits,
    request: &QueryRequest<'_>,
) -> ApiResult {
    if request.path == "/api/v1/explain" {
        return explain::respond(store, request).await;
    }
    if request.path == "/api/v1/predict" {
        return predict::respond(store, request).await;
    }
    if request.path == "/api/v1/scorecard" {
        return scorecard::respond(store, request).await;
    }
    let of_trace = request.after("/api/v1/traces/");
    if let Some(id) = of_trace.as_deref().and_then(|rest| rest.strip_suffix("/logs")) {
        return logs(store, limits, request, id).await;
    }
    Err(ApiError::not_found("there is nothing of this name"))
}

/// Responds with the log records of a trace, as OTLP. A trace without log records is no error.
async fn logs(store: &Store, limits: &Limits, request: &QueryRequest<'_>, id: &str) -> ApiResult {
    request.only(&[])?;
    let logs = store.logs();
    let found = logs.rows_with_id(request.tenant, trace_id(id)?, limits.trace_spans).await;
    let json = OtlpForm::json(r#"{"resourceLogs":["#, "]");
    let form = if request.accepts("protobuf") { OtlpForm::PROTOBUF } else { json };
    ApiResponse::of_chunks(OtlpChunks::new(found, LOGS, form, limits)?).await
}
