//! Metrics of spans over time, computed from TraceQL.
//!
//! The default range is the last hour, or `since` before `end`, as in Tempo. Steps begin at multiples of their length
//! since 1970. `rate` is in spans a second, durations are in seconds, and the exemplars are the slowest spans.
//!
//! The body is exactly Tempo's message, because Tempo's clients reject unknown fields. The header
//! `curtail-quantile-error` has the maximum relative error of quantiles; 0 means exact.

use super::{any_value, double};
use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected};
use crate::query_service::{ApiResponse, ApiResult};
use crate::translation;
use curtail_store::query::{
    Aggregate, AggregateQuery, AggregateResult, Filter, Group, HitUnit, Numbers, Order, SpanField,
};
use curtail_store::schema::spans::DURATION;
use curtail_store::tree::Tree;
use curtail_traceql::{Function, Measure, Operand, Scope};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The number of steps of a query without `step`.
const STEPS: i64 = 100;
/// The minimum length of a step of a query without `step`.
const STEP_MIN_NS: i64 = 1_000_000_000;
const STEPS_MAX: i64 = 11_000;
const EXEMPLARS_MAX: usize = 1_000;

const SECOND_NS: f64 = 1e9;

/// The series by their labels; a series has samples by time.
type Series = BTreeMap<Vec<(String, Label)>, BTreeMap<i64, f64>>;

/// The value of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    None,
    Text(String),
    /// The bits of a number, which is never below zero, so that the order is that of numbers.
    Number(u64),
}

/// `/api/metrics/query_range`.
pub(super) async fn range(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let query = MetricsQuery::of(request)?;
    let starts = &query.aggregate.filter.starts;
    let took = starts.end.saturating_sub(starts.start);
    let step = match request.duration("step")? {
        Some(step) if step > 0 && took / step <= STEPS_MAX => step,
        Some(_) => {
            let steps = format!("at most {STEPS_MAX} steps between start and end");
            return Err(expected("step", request.get("step").unwrap_or_default(), &steps));
        }
        None => (took / STEPS).max(STEP_MIN_NS),
    };
    let of = AggregateQuery { step_ns: u64::try_from(step).ok(), ..query.aggregate };
    let measured = spans.measure(&of).await?;
    #[expect(clippy::cast_precision_loss, reason = "a step is no longer than that")]
    let series = series(&query.measure, &measured, step as f64 / SECOND_NS);
    let mut shapes: Vec<_> = series
        .iter()
        .map(|(labels, samples)| {
            let samples: Vec<_> = samples
                .iter()
                .map(|(at, value)| {
                    json!({ "timestampMs": (at / 1_000_000).to_string(), "value": double(*value) })
                })
                .collect();
            json!({ "labels": shape(labels), "samples": samples })
        })
        .collect();
    let count = request.number("exemplars")?.unwrap_or(0).min(EXEMPLARS_MAX);
    if let Some(first) = shapes.first_mut()
        && count > 0
    {
        first["exemplars"] = exemplars(spans, &of.filter, count).await;
    }
    Ok(response(&shapes, &of.what, &measured))
}

/// `/api/metrics/query`.
pub(super) async fn instant(spans: &Tree, request: &QueryRequest<'_>) -> ApiResult {
    let query = MetricsQuery::of(request)?;
    let starts = &query.aggregate.filter.starts;
    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exacter")]
    let seconds = starts.end.saturating_sub(starts.start) as f64 / SECOND_NS;
    let measured = spans.measure(&query.aggregate).await?;
    let shapes: Vec<_> = series(&query.measure, &measured, seconds)
        .iter()
        .flat_map(|(labels, samples)| samples.values().map(move |value| (labels, value)))
        .map(|(labels, value)| json!({ "labels": shape(labels), "value": double(*value) }))
        .collect();
    Ok(response(&shapes, &query.aggregate.what, &measured))
}

fn response(series: &[Value], what: &Aggregate, measured: &AggregateResult) -> ApiResponse {
    let response = ApiResponse::json(&json!({ "series": series, "metrics": {} }));
    let response = response.without(&measured.unread);
    match what {
        Aggregate::Quantiles(..) => response.with_quantile_error(measured.error),
        Aggregate::Count | Aggregate::Extremes(_) | Aggregate::Buckets(_) => response,
    }
}

/// The query of a request.
struct MetricsQuery {
    aggregate: AggregateQuery,
    measure: Measure,
}

impl MetricsQuery {
    fn of(request: &QueryRequest<'_>) -> Result<Self, ApiError> {
        let query = translation::parse_query(request.get("q"))?;
        let filter = translation::filter(&query, request.tenant, request.recent_range()?)?;
        let Some(measure) = query.measure else {
            return Err(ApiError::wrong("q: expected a measure, as { } | rate()"));
        };
        let what = translation::aggregate(&measure.function)?;
        let by = measure.by.iter().map(translation::span_field).collect::<Result<_, _>>()?;
        Ok(Self { aggregate: AggregateQuery { filter, what, by, step_ns: None }, measure })
    }
}

/// Converts groups to series.
fn series(measure: &Measure, measured: &AggregateResult, seconds: f64) -> Series {
    let mut all = Series::new();
    for group in &measured.groups {
        let by: Vec<_> = measure
            .by
            .iter()
            .zip(&group.values)
            .map(|(operand, value)| (name(operand), value.clone().map_or(Label::None, Label::Text)))
            .collect();
        for (label, value) in values(&measure.function, group, seconds) {
            let mut labels = by.clone();
            labels.extend(label);
            if labels.is_empty() {
                labels.push((
                    "__name__".to_owned(),
                    Label::Text(function_name(&measure.function).to_owned()),
                ));
            }
            all.entry(labels).or_default().insert(group.start_ns, value);
        }
    }
    all
}

/// Returns the values of a group, each with the label that distinguishes it from the group's other values.
fn values(function: &Function, group: &Group, seconds: f64) -> Vec<(Option<(String, Label)>, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "as JSON has numbers")]
    let count = group.count as f64;
    let unit = |of: &Operand| if is_duration(of) { SECOND_NS } else { 1.0 };
    let one = |value: f64| vec![(None, value)];
    match (function, &group.numbers) {
        (Function::Rate, _) => one(count / seconds),
        (Function::Min(of), Numbers::Extremes { min, .. }) => one(min / unit(of)),
        (Function::Max(of), Numbers::Extremes { max, .. }) => one(max / unit(of)),
        (Function::Sum(of), Numbers::Extremes { sum, .. }) => one(sum / unit(of)),
        (Function::Mean(of), Numbers::Extremes { sum, .. }) => one(sum / count / unit(of)),
        (Function::Quantiles(of, at), Numbers::Quantiles(found)) => at
            .iter()
            .zip(found)
            .map(|(at, found)| {
                (Some(("p".to_owned(), Label::Number(at.to_bits()))), found / unit(of))
            })
            .collect(),
        (Function::Histogram(of), Numbers::Buckets(buckets)) => buckets
            .iter()
            .map(|(bucket, count)| {
                #[expect(clippy::cast_precision_loss, reason = "as JSON has numbers")]
                let (bucket, count) = (bucket / unit(of), *count as f64);
                (Some(("__bucket".to_owned(), Label::Number(bucket.to_bits()))), count)
            })
            .collect(),
        _ => one(count),
    }
}

fn is_duration(operand: &Operand) -> bool {
    translation::span_field(operand) == Ok(SpanField::Column(DURATION))
}

const fn function_name(function: &Function) -> &'static str {
    match function {
        Function::Rate => "rate",
        Function::Count => "count_over_time",
        Function::Min(_) => "min_over_time",
        Function::Max(_) => "max_over_time",
        Function::Mean(_) => "avg_over_time",
        Function::Sum(_) => "sum_over_time",
        Function::Quantiles(..) => "quantile_over_time",
        Function::Histogram(_) => "histogram_over_time",
    }
}

/// Returns the name of a label: the operand in TraceQL.
fn name(operand: &Operand) -> String {
    match operand {
        Operand::Intrinsic(name) => (*name).to_owned(),
        Operand::Attribute(scope, key) => {
            let scope = match scope {
                Scope::Any => "",
                Scope::Span => "span",
                Scope::Resource => "resource",
                Scope::Event => "event",
                Scope::Link => "link",
                Scope::Instrumentation => "instrumentation",
            };
            format!("{scope}.{key}")
        }
    }
}

fn shape(labels: &[(String, Label)]) -> Vec<Value> {
    let value = |label: &Label| match label {
        // Null: a text could be the value of another span.
        Label::None => json!({}),
        Label::Text(text) => any_value(&(&**text).into()),
        Label::Number(bits) => json!({ "doubleValue": double(f64::from_bits(*bits)) }),
    };
    labels.iter().map(|(key, label)| json!({ "key": key, "value": value(label) })).collect()
}

/// Returns the slowest measured spans, at most one of each trace.
async fn exemplars(spans: &Tree, filter: &Filter, count: usize) -> Value {
    let top = spans.top(filter, Order::Slowest, HitUnit::Trace, count).await;
    let exemplar = |hit: &curtail_store::query::Hit| {
        #[expect(clippy::cast_precision_loss, reason = "as JSON has numbers")]
        let seconds = hit.duration_ns.max(0) as f64 / SECOND_NS;
        json!({
            "labels": [{ "key": "trace:id",
                "value": { "stringValue": format!("{:032x}", hit.trace_id) } }],
            "value": seconds,
            "timestampMs": (hit.start_ns / 1_000_000).to_string(),
        })
    };
    top.hits.iter().map(exemplar).collect()
}
