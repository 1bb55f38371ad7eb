//! Services, their operations, and the calls between them.

use super::envelope;
use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected};
use crate::query_service::{ApiResponse, ApiResult};
use curtail_store::query::{Aggregate, AggregateQuery, Condition, Filter, SpanField, Test};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::{KIND, NAME};
use curtail_store::tree::{Tree, Unread};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SERVICES_MAX: usize = 10_000;

const MS_NS: i64 = 1_000_000;

/// Responds with the names of services; `shape` is that of the API version.
pub(super) async fn services(
    spans: &Tree,
    request: &QueryRequest<'_>,
    shape: fn(Vec<Value>) -> Value,
) -> ApiResult {
    let filter = Filter::of(request.tenant);
    let counts = spans.values(&filter, &SpanField::Column(SERVICE), SERVICES_MAX).await;
    let names: BTreeSet<_> = counts.values.into_iter().map(|value| value.text).collect();
    let names = names.into_iter().map(Value::from).collect();
    Ok(ApiResponse::json(&shape(names)).without(&counts.unread))
}

/// Responds with the names and kinds of a service's operations; `shape` is that of the API version.
pub(super) async fn operations(
    spans: &Tree,
    request: &QueryRequest<'_>,
    shape: fn(Vec<Value>) -> Value,
) -> ApiResult {
    let Some(service) = request.get("service") else {
        return Err(ApiError::wrong("service: expected the name of a service"));
    };
    let (found, unread) = find_operations(spans, request, service).await?;
    let each = found.iter().map(|(name, kind)| json!({ "name": name, "spanKind": kind }));
    Ok(ApiResponse::json(&shape(each.collect())).without(&unread))
}

/// `/api/services/{service}/operations`: the names of operations, without kinds.
pub(super) async fn operation_names(
    spans: &Tree,
    request: &QueryRequest<'_>,
    service: &str,
) -> ApiResult {
    let (found, unread) = find_operations(spans, request, service).await?;
    let names: BTreeSet<_> = found.into_iter().map(|(name, _)| name).collect();
    Ok(ApiResponse::json(&envelope(names.into_iter().map(Into::into).collect())).without(&unread))
}

/// Finds the names and kinds of the operations of a service.
async fn find_operations(
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

/// `/api/dependencies`: the calls in the time `lookback` before `endTs`, both in milliseconds; by default all calls.
pub(super) async fn dependencies(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
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
