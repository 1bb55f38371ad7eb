//! The calls between services, for Jaeger's diagram.

use super::envelope;
use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected};
use crate::query_service::{ApiResponse, ApiResult};
use curtail_store::query::Filter;
use curtail_store::tree::Tree;
use serde_json::json;

const MS_NS: i64 = 1_000_000;

/// `/api/dependencies`: calls in the time `lookback` before `endTs`, both in milliseconds; by default all calls.
pub(super) async fn respond(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let (end, lookback) = (milliseconds(request, "endTs")?, milliseconds(request, "lookback")?);
    let mut filter = Filter::of(request.tenant);
    filter.starts.end = end.unwrap_or(i64::MAX);
    filter.starts.start =
        lookback.map_or(i64::MIN, |lookback| filter.starts.end.saturating_sub(lookback));
    let calls = spans.calls(&filter).await;
    if calls.is_cut {
        return Err(ApiError::wrong(
            "lookback: there are too many services that call each other, expected a shorter time",
        ));
    }
    let link = |((parent, child), count): (&(String, String), &u64)| json!({ "parent": parent, "child": child, "callCount": count });
    let links = calls.pairs.iter().map(link).collect();
    Ok(ApiResponse::json(&envelope(links)).without(&calls.unread))
}

fn milliseconds(request: &QueryRequest<'_>, name: &str) -> Result<Option<i64>, ApiError> {
    let Some(value) = request.get(name) else { return Ok(None) };
    let ns = value.parse::<i64>().ok().filter(|ms| *ms >= 0).and_then(|ms| ms.checked_mul(MS_NS));
    ns.ok_or_else(|| expected(name, value, "milliseconds")).map(Some)
}
