//! Searches for traces.
//!
//! The newest traces come first; with `order=slowest`, or `with (slowest=true)` in the query, the slowest.

use super::any_value;
use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected};
use crate::query_service::{ApiResponse, ApiResult};
use crate::search::{MatchedSpan, Search, Summary};
use crate::{Limits, search, translation};
use curtail_store::query::{Condition, Filter, Order, SpanField, Test};
use curtail_store::tree::Tree;
use curtail_traceql::{Expression, Literal, Operand, Query};
use serde_json::{Value, json};
use std::sync::Arc;

/// The default and the maximum number of traces.
const COUNT: usize = 20;
const COUNT_MAX: usize = 1_000;

/// The default and the maximum number of spans of each trace; zero in a request means the maximum.
const SPANS: usize = 3;
const SPANS_MAX: usize = 1_000;

pub(super) async fn respond(
    spans: &Arc<Tree>,
    limits: &Limits,
    request: &QueryRequest<'_>,
) -> ApiResult {
    let query = translation::parse_query(request.get("q"))?;
    if query.measure.is_some() {
        return Err(ApiError::wrong("q: metrics are served at /api/metrics/query_range"));
    }
    let mut filter = translation::filter(&query, request.tenant, request.range()?)?;
    add_legacy_parameters(request, &mut filter)?;
    let shown = shown(&query)?;
    let search = Search {
        filter,
        order: order(request, &query)?,
        count: request.count("limit", COUNT, COUNT_MAX)?,
        per_set: request.count_or_all("spss", SPANS, SPANS_MAX)?,
        shown: shown.iter().map(|(_, of)| of.clone()).collect(),
    };
    let (mut body, mut inspected) = (br#"{"traces":["#.to_vec(), 0);
    let unread = search::search(spans, limits, search, |trace| {
        if inspected > 0 {
            body.push(b',');
        }
        inspected += 1;
        body.extend_from_slice(shape(&trace, &shown).to_string().as_bytes());
        if body.len() > limits.response_bytes {
            return Err(ApiError::large(
                "the response exceeds the maximum size: reduce limit or spss",
            ));
        }
        Ok(())
    })
    .await?;
    let metrics = json!({ "inspectedTraces": inspected, "completedJobs": 1, "totalJobs": 1 });
    body.extend_from_slice(format!(r#"],"metrics":{metrics}}}"#).as_bytes());
    Ok(ApiResponse::of("application/json", body).without(&unread))
}

/// Adds the conditions of parameters that older versions of Grafana send.
fn add_legacy_parameters(request: &QueryRequest<'_>, filter: &mut Filter) -> Result<(), ApiError> {
    let from = request.duration("minDuration")?.unwrap_or(*filter.durations.start());
    let to = request.duration("maxDuration")?.unwrap_or(*filter.durations.end());
    filter.durations = from.max(*filter.durations.start())..=to.min(*filter.durations.end());
    let Some(tags) = request.get("tags") else { return Ok(()) };
    for tag in tags.split_whitespace() {
        let Some((key, value)) = tag.split_once('=') else {
            return Err(expected("tags", tag, "key=value, divided by spaces"));
        };
        let is = Test::Is(value.trim_matches('"').into());
        filter.conditions.push(Condition::Is(SpanField::Either(key.to_owned()), is));
    }
    Ok(())
}

fn order(request: &QueryRequest<'_>, query: &Query) -> Result<Order, ApiError> {
    let is_slowest =
        |(name, value): &(String, Literal)| name == "slowest" && *value == Literal::Bool(true);
    let hinted = if query.hints.iter().any(is_slowest) { Order::Slowest } else { Order::Newest };
    Ok(request.order()?.unwrap_or(hinted))
}

/// Returns the fields to return of each span, by name: the fields in `select`, and the fields of conditions.
fn shown(query: &Query) -> Result<Vec<(String, SpanField)>, ApiError> {
    let mut operands = Vec::new();
    for operand in &query.select {
        if !operands.contains(operand) && !has_field(operand) {
            operands.push(operand.clone());
        }
    }
    let selected = operands.len();
    if let Some(expression) = &query.filter {
        add_operands(expression, &mut operands);
    }
    let mut shown = Vec::new();
    for (nth, operand) in operands.iter().enumerate() {
        match translation::span_field(operand) {
            Ok(of) => shown.push((name(operand), of)),
            Err(error) if nth < selected => return Err(error),
            // A condition may use a field that spans do not have, such as nestedSetParent.
            Err(_) => {}
        }
    }
    Ok(shown)
}

/// Whether the response has its own field for the operand.
fn has_field(operand: &Operand) -> bool {
    const FIELDS: [&str; 7] =
        ["name", "duration", "span:id", "trace:id", "rootName", "rootServiceName", "traceDuration"];
    matches!(operand, Operand::Intrinsic(name) if FIELDS.contains(name))
}

/// Adds the operands of an expression.
fn add_operands(expression: &Expression, operands: &mut Vec<Operand>) {
    match expression {
        Expression::All(each) | Expression::Any(each) => {
            each.iter().for_each(|expression| add_operands(expression, operands));
        }
        Expression::Not(negated) => add_operands(negated, operands),
        Expression::Is(operand, ..) if !operands.contains(operand) && !has_field(operand) => {
            operands.push(operand.clone());
        }
        Expression::Is(..) | Expression::Always(_) => {}
    }
}

/// Returns the name of an attribute in the response.
fn name(operand: &Operand) -> String {
    match operand {
        Operand::Attribute(_, key) => key.clone(),
        Operand::Intrinsic(name) => (*name).to_owned(),
    }
}

fn shape(trace: &Summary, shown: &[(String, SpanField)]) -> Value {
    let span = |span: &MatchedSpan| {
        let values = shown.iter().zip(&span.values);
        let attributes: Vec<_> = values
            .flat_map(|((key, _), values)| values.iter().map(move |value| (key, value)))
            .map(|(key, value)| json!({ "key": key, "value": any_value(value) }))
            .collect();
        json!({
            "spanID": format!("{:016x}", span.span_id),
            "name": span.name,
            "startTimeUnixNano": span.start_ns.to_string(),
            "durationNanos": span.duration_ns.to_string(),
            "attributes": attributes,
        })
    };
    let spans: Vec<_> = trace.matched.iter().map(span).collect();
    let set = json!({ "spans": spans, "matched": trace.matched_count });
    let services: serde_json::Map<_, _> = trace
        .services
        .iter()
        .map(|(name, of)| (name.clone(), json!({ "spanCount": of.spans, "errorCount": of.errors })))
        .collect();
    let (service, operation) = trace.root();
    let took_ms = trace.end_ns.saturating_sub(trace.start_ns) / 1_000_000;
    json!({
        "traceID": format!("{:032x}", trace.trace_id),
        "rootServiceName": service,
        "rootTraceName": operation,
        "startTimeUnixNano": trace.start_ns.to_string(),
        // The field has 32 bits.
        "durationMs": u32::try_from(took_ms).unwrap_or(u32::MAX),
        "spanSets": [set.clone()],
        "spanSet": set,
        "serviceStats": services,
    })
}
