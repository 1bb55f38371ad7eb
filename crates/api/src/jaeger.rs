//! The requests of Jaeger's UI and of Grafana's data source for Jaeger, below `/jaeger`.
//!
//! **Source**: the API of Jaeger 2.20 and the data model of its UI.

mod legacy;
mod search;
mod services;

use crate::Limits;
use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use crate::query_service::{ApiResponse, ApiResult};
use crate::response_chunks::{OtlpChunks, OtlpForm, SPANS, find_trace};
use curtail_store::Store;
use legacy::JaegerChunks;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn respond(
    store: &Arc<Store>,
    limits: &Limits,
    request: &QueryRequest<'_>,
) -> ApiResult {
    let spans = store.spans();
    match request.path.strip_prefix("/jaeger").unwrap_or_default() {
        "/api/v3/services" => {
            return services::services(spans, request, |names| json!({ "services": names })).await;
        }
        "/api/services" => return services::services(spans, request, envelope).await,
        "/api/v3/operations" => {
            return services::operations(spans, request, |all| json!({ "operations": all })).await;
        }
        "/api/operations" => return services::operations(spans, request, envelope).await,
        "/api/v3/trace-summaries" => return search::summaries(spans, limits, request).await,
        "/api/traces" => return search::legacy(store, limits, request).await,
        "/api/dependencies" => return services::dependencies(spans, request).await,
        path if path.starts_with("/api/metrics/") => {
            return Err(ApiError::unsupported("metrics are served at /api/metrics/query_range"));
        }
        _ => {}
    }
    if let Some(rest) = request.after("/jaeger/api/services/")
        && let Some(service) = rest.strip_suffix("/operations")
    {
        return services::operation_names(spans, request, service).await;
    }
    if let Some(id) = request.after("/jaeger/api/v3/traces/") {
        let found = find_trace(spans, limits, request, &id).await?;
        let form = OtlpForm::json(r#"{"result":{"resourceSpans":["#, "]}");
        return ApiResponse::of_chunks(OtlpChunks::new(found, SPANS, form, limits)?).await;
    }
    if let Some(id) = request.after("/jaeger/api/traces/") {
        let found = find_trace(spans, limits, request, &id).await?;
        return ApiResponse::of_chunks(JaegerChunks::of_one(store, found, limits)).await;
    }
    Err(ApiError::not_found("there is nothing of this name"))
}

/// The envelope of all responses, except those of Jaeger's API version 3.
fn envelope(data: Vec<Value>) -> Value {
    let total = data.len();
    json!({ "data": data, "total": total, "limit": 0, "offset": 0, "errors": null })
}
