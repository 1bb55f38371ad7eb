//! The requests of Grafana's data source for Tempo.
//!
//! **Source**: Grafana Tempo's documentation of its HTTP API 3.0.

mod measures;
mod search;
mod tags;

use crate::Limits;
use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use crate::query_service::{ApiResponse, ApiResult};
use crate::response_chunks::{OtlpChunks, OtlpForm, SPANS, find_trace};
use curtail_store::Store;
use curtail_store::query::Value;
use serde_json::json;

pub(crate) async fn respond(
    store: &Store,
    limits: &Limits,
    request: &QueryRequest<'_>,
) -> ApiResult {
    let spans = store.spans();
    match request.path {
        "/api/echo" => return Ok(ApiResponse::of("text/plain; charset=utf-8", b"echo".to_vec())),
        "/api/status/buildinfo" => {
            let version = env!("CARGO_PKG_VERSION");
            return Ok(ApiResponse::json(
                &json!({ "version": version, "revision": "", "branch": "",
                "buildDate": "", "buildUser": "", "goVersion": "" }),
            ));
        }
        "/api/search" => return search::respond(spans, limits, request).await,
        "/api/v2/search/tags" => return tags::scopes(spans, request).await,
        "/api/search/tags" => return tags::names(spans, request).await,
        "/api/metrics/query_range" => return measures::range(spans, request).await,
        "/api/metrics/query" => return measures::instant(spans, request).await,
        _ => {}
    }
    let of_tag = |prefix| {
        request.after(prefix).and_then(|rest| rest.strip_suffix("/values").map(str::to_owned))
    };
    if let Some(tag) = of_tag("/api/v2/search/tag/") {
        return tags::values(spans, request, &tag).await;
    }
    if let Some(tag) = of_tag("/api/search/tag/") {
        return tags::texts(spans, request, &tag).await;
    }
    for (prefix, json, protobuf) in [
        ("/api/traces/", OtlpForm::TEMPO_JSON, OtlpForm::PROTOBUF),
        ("/api/v2/traces/", OtlpForm::JSON_RESPONSE, OtlpForm::PROTOBUF_RESPONSE),
    ] {
        if let Some(id) = request.after(prefix) {
            let form = if request.accepts("protobuf") { protobuf } else { json };
            let found = find_trace(spans, limits, request, &id).await?;
            return ApiResponse::of_chunks(OtlpChunks::new(found, SPANS, form, limits)?).await;
        }
    }
    Err(ApiError::not_found("there is nothing of this name"))
}

/// Writes a value in OTLP's JSON.
fn any_value(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Int(number) => json!({ "intValue": number.to_string() }),
        Value::Double(number) => json!({ "doubleValue": double(*number) }),
        Value::Bool(is) => json!({ "boolValue": is }),
        Value::Id(_) => json!({ "stringValue": value.to_string() }),
        Value::List(all) => {
            let values: Vec<_> = all.iter().map(any_value).collect();
            json!({ "arrayValue": { "values": values } })
        }
    }
}

/// Writes a double in protobuf's JSON, where infinities and NaN are text.
fn double(number: f64) -> serde_json::Value {
    match number {
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        _ if number.is_nan() => json!("NaN"),
        _ => json!(number),
    }
}
