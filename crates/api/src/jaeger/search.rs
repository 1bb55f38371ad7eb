//! Searches for traces, for Jaeger's UI and Grafana.
//!
//! The newest traces come first. `order=slowest` returns the slowest of all; Jaeger's UI sorts only returned traces.

use super::legacy::JaegerChunks;
use crate::Limits;
use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected};
use crate::query_service::{ApiResponse, ApiResult};
use crate::search::{Search, Summary, search};
use curtail_store::Store;
use curtail_store::query::{Condition, Filter, HitUnit, Order, SpanField, Test};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::{NAME, STATUS};
use curtail_store::tree::Tree;
use serde_json::{Value, json};
use std::sync::Arc;

const COUNT: usize = 100;
const COUNT_MAX: usize = 1_500;

/// The default and the maximum number of legacy traces, which are returned whole. Jaeger's UI requests up to 1,500.
const WHOLE: usize = 20;
const WHOLE_MAX: usize = 1_500;

/// `/api/v3/trace-summaries`.
pub(super) async fn summaries(
    spans: &Arc<Tree>,
    limits: &Limits,
    request: &QueryRequest<'_>,
) -> ApiResult {
    let name = |name: &str| format!("query.{name}");
    let attributes = [request.get("query.attributes")];
    let filter = SearchParameters {
        request,
        service: request.get(&name("serviceName")),
        operation: request.get(&name("operationName")),
        starts: [name("startTimeMin"), name("startTimeMax")],
        durations: [name("durationMin"), name("durationMax")],
        tags: &attributes,
    }
    .filter()?;
    let count = request.count("query.searchDepth", COUNT, COUNT_MAX)?;
    let search_query = Search {
        filter,
        order: request.order()?.unwrap_or(Order::Newest),
        count,
        per_set: 0,
        shown: Vec::new(),
    };
    let mut summaries = Vec::new();
    let unread = search(spans, limits, search_query, |trace| {
        summaries.push(shape(&trace));
        Ok(())
    })
    .await?;
    Ok(ApiResponse::json(&json!({ "summaries": summaries })).without(&unread))
}

/// `/api/traces`.
pub(super) async fn legacy(
    store: &Arc<Store>,
    limits: &Limits,
    request: &QueryRequest<'_>,
) -> ApiResult {
    let of_name = |wanted: &'static str| {
        request.all().filter(move |(name, _)| *name == wanted).map(|(_, value)| value)
    };
    // By their IDs, which is how traces are compared.
    let ids: Vec<_> = of_name("traceID").collect();
    let found = if ids.is_empty() {
        let tags: Vec<_> = of_name("tags").chain(of_name("tag")).map(Some).collect();
        let filter = SearchParameters {
            request,
            service: request.get("service"),
            operation: request.get("operation").filter(|name| *name != "all"),
            starts: ["start".to_owned(), "end".to_owned()],
            durations: ["minDuration".to_owned(), "maxDuration".to_owned()],
            tags: &tags,
        }
        .filter()?;
        let count = request.count_or_all("limit", WHOLE, WHOLE_MAX)?;
        let top = store
            .spans()
            .top(&filter, request.order()?.unwrap_or(Order::Newest), HitUnit::Trace, count)
            .await;
        (top.hits.iter().map(|hit| hit.trace_id).collect(), top.unread)
    } else {
        let ids: Result<Vec<_>, _> =
            ids.into_iter().take(WHOLE_MAX).map(crate::query_request::trace_id).collect();
        (ids?, Vec::new())
    };
    ApiResponse::of_chunks(JaegerChunks::new(store, request.tenant, limits, found)).await
}

/// The parameters of both searches, whose names differ.
struct SearchParameters<'a> {
    request: &'a QueryRequest<'a>,
    service: Option<&'a str>,
    operation: Option<&'a str>,
    starts: [String; 2],
    durations: [String; 2],
    tags: &'a [Option<&'a str>],
}

impl SearchParameters<'_> {
    fn filter(&self) -> Result<Filter, ApiError> {
        let Self { request, service, operation, starts, durations, tags } = self;
        let mut filter = Filter::of(request.tenant);
        let [from, to] = starts;
        filter.starts.start = request.time(from)?.unwrap_or(filter.starts.start);
        filter.starts.end = request.time(to)?.unwrap_or(filter.starts.end);
        let [from, to] = durations;
        let from = request.duration(from)?.unwrap_or(*filter.durations.start());
        let to = request.duration(to)?.unwrap_or(*filter.durations.end());
        filter.durations = from..=to;
        for (field, name) in [(SERVICE, service), (NAME, operation)] {
            let is =
                name.map(|name| Condition::Is(SpanField::Column(field), Test::Is(name.into())));
            filter.conditions.extend(is);
        }
        for tags in tags.iter().flatten() {
            filter.conditions.extend(conditions(tags)?);
        }
        Ok(filter)
    }
}

/// Parses tags, which are a JSON object, or one tag, which is `key:value`.
fn conditions(tags: &str) -> Result<Vec<Condition>, ApiError> {
    if let Ok(Value::Object(object)) = serde_json::from_str(tags) {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return Ok(object.iter().map(|(key, value)| condition(key, &text(value))).collect());
    }
    let Some((key, value)) = tags.split_once(':') else {
        return Err(expected("tags", tags, "an object in JSON, as {\"http.route\":\"/cart\"}"));
    };
    Ok(vec![condition(key, value)])
}

/// Returns the condition for a tag. It accepts any type of value, because Jaeger writes all values as texts.
fn condition(key: &str, text: &str) -> Condition {
    if key == "error" && text == "true" {
        return Condition::Is(SpanField::Column(STATUS), Test::Is("error".into()));
    }
    let is = |value| Condition::Is(SpanField::Either(key.to_owned()), Test::Is(value));
    let mut any = vec![is(text.into())];
    any.extend(text.parse().ok().map(|number| is(curtail_store::query::Value::Int(number))));
    any.extend(text.parse().ok().map(|number| is(curtail_store::query::Value::Double(number))));
    any.extend(text.parse().ok().map(|yes| is(curtail_store::query::Value::Bool(yes))));
    Condition::Any(any)
}

fn shape(trace: &Summary) -> Value {
    let (service, operation) = trace.root();
    let of_service = |(name, of): (&String, &crate::search::ServiceCounts)| json!({ "name": name, "spanCount": of.spans, "errorSpanCount": of.errors });
    let services: Vec<_> = trace.services.iter().map(of_service).collect();
    let errors: usize = trace.services.values().map(|of| of.errors).sum();
    json!({
        "traceId": format!("{:032x}", trace.trace_id),
        "rootServiceName": service,
        "rootOperationName": operation,
        "minStartTimeUnixNano": trace.start_ns.to_string(),
        "maxEndTimeUnixNano": trace.end_ns.to_string(),
        "spanCount": trace.span_count,
        "errorSpanCount": errors,
        "orphanSpanCount": trace.orphans,
        "services": services,
    })
}
