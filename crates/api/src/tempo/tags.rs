//! Attributes and their values, for completion in Grafana.

use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use crate::query_service::{ApiResponse, ApiResult};
use crate::translation;
use curtail_store::query::{AttributeKeys, Filter, ValueCounts};
use curtail_store::tree::Tree;
use curtail_traceql::{Expression, parse};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The default and the maximum number of values.
const COUNT: usize = 1_000;
const COUNT_MAX: usize = 10_000;

/// The intrinsics of spans.
const INTRINSICS: [&str; 13] = [
    "duration",
    "event:name",
    "instrumentation:name",
    "instrumentation:version",
    "kind",
    "link:spanID",
    "link:traceID",
    "name",
    "span:id",
    "span:parentID",
    "status",
    "statusMessage",
    "trace:id",
];

/// `/api/v2/search/tags`.
pub(super) async fn scopes(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let (keys, count) = (spans.keys(&filter(request)?).await, count(request)?);
    let only = request.get("scope").filter(|scope| *scope != "none");
    let scopes: Vec<_> = by_scope(&keys)
        .into_iter()
        .filter(|(scope, tags)| only.is_none_or(|only| only == *scope) && !tags.is_empty())
        .map(|(scope, tags)| json!({ "name": scope, "tags": &tags[..tags.len().min(count)] }))
        .collect();
    Ok(ApiResponse::json(&json!({ "scopes": scopes, "metrics": {} })).without(&keys.unread))
}

/// `/api/search/tags`.
pub(super) async fn names(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let (keys, count) = (spans.keys(&filter(request)?).await, count(request)?);
    let names: BTreeSet<_> = keys.spans.union(&keys.resources).collect();
    let names: Vec<_> = names.into_iter().take(count).collect();
    Ok(ApiResponse::json(&json!({ "tagNames": names, "metrics": {} })).without(&keys.unread))
}

fn by_scope(keys: &AttributeKeys) -> Vec<(&'static str, Vec<&str>)> {
    fn all(keys: &BTreeSet<String>) -> Vec<&str> {
        keys.iter().map(String::as_str).collect()
    }
    vec![
        ("span", all(&keys.spans)),
        ("resource", all(&keys.resources)),
        ("event", all(&keys.events)),
        ("link", all(&keys.links)),
        ("instrumentation", all(&keys.scopes)),
        ("intrinsic", INTRINSICS.to_vec()),
    ]
}

/// `/api/v2/search/tag/{tag}/values`.
pub(super) async fn values(spans: &Tree, request: &QueryRequest<'_>, tag: &str) -> ApiResult {
    let counts = counted(spans, request, tag).await?;
    let is_keyword = ["status", "kind", "span:status", "span:kind"].contains(&tag);
    let value = |of: &curtail_store::query::ValueCount| {
        let kind = match of.kind {
            "text" if is_keyword => "keyword",
            "text" => "string",
            "double" => "float",
            other => other,
        };
        json!({ "type": kind, "value": of.text })
    };
    let values: Vec<_> = counts.values.iter().map(value).collect();
    Ok(shape("tagValues", values, &counts))
}

/// `/api/search/tag/{tag}/values`: the values of a tag without scope.
pub(super) async fn texts(spans: &Tree, request: &QueryRequest<'_>, tag: &str) -> ApiResult {
    let scoped = if INTRINSICS.contains(&tag) { tag.to_owned() } else { format!(".{tag}") };
    let counts = counted(spans, request, &scoped).await?;
    let values: Vec<_> = counts.values.iter().map(|value| json!(value.text)).collect();
    Ok(shape("tagValues", values, &counts))
}

fn shape(name: &str, values: Vec<Value>, counts: &ValueCounts) -> ApiResponse {
    ApiResponse::json(&json!({ name: values, "metrics": {} })).without(&counts.unread)
}

async fn counted(
    spans: &Tree,
    request: &QueryRequest<'_>,
    tag: &str,
) -> Result<ValueCounts, ApiError> {
    // TraceQL names a tag in a condition.
    let query = parse(&format!("{{ {tag} != nil }}"));
    let wrong = |why| ApiError::wrong(format!("expected a tag, as span.http.route: {why}"));
    let query = query.map_err(|error| wrong(error.to_string()))?;
    let Some(Expression::Is(operand, ..)) = &query.filter else {
        return Err(wrong("found none".to_owned()));
    };
    let of = translation::span_field(operand)?;
    Ok(spans.values(&filter(request)?, &of, count(request)?).await)
}

/// Returns the maximum number of tags of each scope; zero in a request means all, as in Tempo.
fn count(request: &QueryRequest<'_>) -> Result<usize, ApiError> {
    request.count_or_all("limit", COUNT, COUNT_MAX)
}

/// Returns the filter of the query; an incomplete query selects all spans.
fn filter(request: &QueryRequest<'_>) -> Result<Filter, ApiError> {
    let query = request.get("q").and_then(|text| parse(text).ok());
    let all = translation::parse_query(None)?;
    translation::filter(query.as_ref().unwrap_or(&all), request.tenant, request.range()?)
}
