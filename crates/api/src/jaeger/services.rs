//! Services and their operations.

use super::envelope;
use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use crate::query_service::{ApiResponse, ApiResult};
use curtail_store::query::{Aggregate, AggregateQuery, Condition, Filter, SpanField, Test};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::{KIND, NAME};
use curtail_store::tree::{Tree, Unread};
use serde_json::json;
use std::collections::BTreeSet;

const SERVICES_MAX: usize = 10_000;

/// `/api/v3/services`.
pub(super) async fn third(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let (names, unread) = services(spans, request).await;
    Ok(ApiResponse::json(&json!({ "services": names })).without(&unread))
}

/// `/api/services`.
pub(super) async fn legacy(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let (names, unread) = services(spans, request).await;
    let names = names.into_iter().map(Into::into).collect();
    Ok(ApiResponse::json(&envelope(names)).without(&unread))
}

async fn services(spans: &Tree, request: &QueryRequest<'_>) -> (BTreeSet<String>, Vec<Unread>) {
    let filter = Filter::of(request.tenant);
    let counts = spans.values(&filter, &SpanField::Column(SERVICE), SERVICES_MAX).await;
    (counts.values.into_iter().map(|value| value.text).collect(), counts.unread)
}

/// `/api/v3/operations`.
pub(super) async fn operations_third(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let (found, unread) = of(spans, request, service(request)?).await?;
    let each = found.iter().map(|(name, kind)| json!({ "name": name, "spanKind": kind }));
    let operations: Vec<_> = each.collect();
    Ok(ApiResponse::json(&json!({ "operations": operations })).without(&unread))
}

/// `/api/operations`.
pub(super) async fn operations(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let (found, unread) = of(spans, request, service(request)?).await?;
    let each = found.iter().map(|(name, kind)| json!({ "name": name, "spanKind": kind }));
    Ok(ApiResponse::json(&envelope(each.collect())).without(&unread))
}

/// `/api/services/{service}/operations`: names alone.
pub(super) async fn of_service(
    spans: &Tree,
    request: &QueryRequest<'_>,
    service: &str,
) -> ApiResult {
    let (found, unread) = of(spans, request, service).await?;
    let names: BTreeSet<_> = found.into_iter().map(|(name, _)| name).collect();
    Ok(ApiResponse::json(&envelope(names.into_iter().map(Into::into).collect())).without(&unread))
}

fn service<'a>(request: &'a QueryRequest<'_>) -> Result<&'a str, ApiError> {
    request.get("service").ok_or_else(|| ApiError::wrong("service: expected the name of a service"))
}

/// The names and kinds of the operations of a service.
async fn of(
    spans: &Tree,
    request: &QueryRequest<'_>,
    service: &str,
) -> Result<(BTreeSet<(String, String)>, Vec<Unread>), ApiError> {
    let mut filter = Filter::of(request.tenant);
    filter.conditions.push(Condition::Is(SpanField::Column(SERVICE), Test::Is(service.into())));
    let kind = request.get("spanKind").or(request.get("span_kind"));
    if let Some(kind) = kind {
        filter.conditions.push(Condition::Is(SpanField::Column(KIND), Test::Is(kind.into())));
    }
    let by = vec![SpanField::Column(NAME), SpanField::Column(KIND)];
    let of = AggregateQuery { filter, what: Aggregate::Count, by, step_ns: None };
    let measured = spans.measure(&of).await?;
    let mut found = BTreeSet::new();
    for group in measured.groups {
        let mut values = group.values.into_iter().map(Option::unwrap_or_default);
        let (name, kind) = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
        found.insert((name, if kind == "unspecified" { String::new() } else { kind }));
    }
    Ok((found, measured.unread))
}
