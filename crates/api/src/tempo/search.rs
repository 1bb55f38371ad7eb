//! Searching for traces.
//!
//! The newest come first; `order=slowest`, or `with (slowest=true)` in the query, has the slowest first. Either
//! way they are those of all spans that there are.

use super::any_value;
use crate::answer::Answer;
use crate::asked::{Asked, expected};
use crate::refusal::Refusal;
use crate::search::{Search, Summary, text};
use crate::{question, search};
use curtail_store::SpanRows;
use curtail_store::query::{Condition, Filter, Of, Order, Test};
use curtail_store::schema::spans::{DURATION, NAME, SPAN_ID, START};
use curtail_store::tree::Tree;
use curtail_traceql::{Expression, Literal, Operand, Query};
use serde_json::{Value, json};

/// Traces, where it is not said how many, and the most.
const COUNT: usize = 20;
const COUNT_MAX: usize = 1_000;

/// Spans of each, in the same way.
const SPANS: usize = 3;
const SPANS_MAX: usize = 1_000;

pub(super) async fn answer(spans: &Tree<SpanRows>, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let query = question::query(asked.get("q"))?;
    if query.measure.is_some() {
        return Err(Refusal::wrong("q: a measure is asked for at /api/metrics/query_range"));
    }
    let mut filter = question::filter(&query, asked.tenant, asked.range()?)?;
    older(asked, &mut filter)?;
    let mut operands = query.select.clone();
    if let Some(expression) = &query.filter {
        named(expression, &mut operands);
    }
    let shown: Vec<_> = operands
        .iter()
        .filter(|operand| matches!(operand, Operand::Attribute(..)))
        .map(|operand| Ok((name(operand), question::of(operand)?)))
        .collect::<Result<_, Refusal>>()?;
    let search = Search {
        filter,
        order: order(asked, &query)?,
        count: asked.count("limit", COUNT, COUNT_MAX)?,
        shown: shown.iter().map(|(_, of)| of.clone()).collect(),
    };
    let per_set = asked.count("spss", SPANS, SPANS_MAX)?;
    let found = search::search(spans, &search).await;
    let traces: Vec<_> =
        found.traces.iter().map(|trace| shape(trace, &search, &shown, per_set)).collect();
    let inspected = traces.len();
    Ok(Answer::json(&json!({ "traces": traces, "metrics": { "inspectedTraces": inspected,
        "completedJobs": 1, "totalJobs": 1 } }))
    .without(&found.unread))
}

/// What older versions of Grafana ask for.
fn older(asked: &Asked<'_>, filter: &mut Filter) -> Result<(), Refusal> {
    let from = asked.duration("minDuration")?.unwrap_or(*filter.durations.start());
    let to = asked.duration("maxDuration")?.unwrap_or(*filter.durations.end());
    filter.durations = from.max(*filter.durations.start())..=to.min(*filter.durations.end());
    let Some(tags) = asked.get("tags") else { return Ok(()) };
    for tag in tags.split_whitespace() {
        let Some((key, value)) = tag.split_once('=') else {
            return Err(expected("tags", tag, "key=value, divided by spaces"));
        };
        let is = Test::Is(value.trim_matches('"').into());
        filter.conditions.push(Condition::Is(Of::Either(key.to_owned()), is));
    }
    Ok(())
}

fn order(asked: &Asked<'_>, query: &Query) -> Result<Order, Refusal> {
    match asked.get("order") {
        Some("slowest") => return Ok(Order::Slowest),
        Some("newest") => return Ok(Order::Newest),
        Some(other) => return Err(expected("order", other, "slowest or newest")),
        None => {}
    }
    let is_slowest =
        |(name, value): &(String, Literal)| name == "slowest" && *value == Literal::Bool(true);
    Ok(if query.hints.iter().any(is_slowest) { Order::Slowest } else { Order::Newest })
}

/// What an expression looks at.
fn named(expression: &Expression, operands: &mut Vec<Operand>) {
    match expression {
        Expression::All(each) | Expression::Any(each) => {
            each.iter().for_each(|expression| named(expression, operands));
        }
        Expression::Is(operand, ..) if !operands.contains(operand) => {
            operands.push(operand.clone());
        }
        Expression::Is(..) | Expression::Always(_) => {}
    }
}

/// The name under which an attribute is shown.
fn name(operand: &Operand) -> String {
    match operand {
        Operand::Attribute(_, key) => key.clone(),
        Operand::Intrinsic(name) => (*name).to_owned(),
    }
}

fn shape(trace: &Summary, search: &Search, shown: &[(String, Of)], per_set: usize) -> Value {
    let rows = &trace.spans;
    let mut matched = trace.matched.clone();
    match search.order {
        Order::Slowest => matched.sort_by_key(|row| std::cmp::Reverse(rows.longs(DURATION)[*row])),
        Order::Newest => {}
    }
    let span = |row: &usize| {
        let attributes: Vec<_> = shown
            .iter()
            .filter_map(|(key, of)| Some((key, of.of_row(rows, *row)?)))
            .map(|(key, value)| json!({ "key": key, "value": any_value(&value) }))
            .collect();
        json!({
            "spanID": format!("{:016x}", rows.narrow(SPAN_ID)[*row]),
            "name": text(rows, NAME, *row),
            "startTimeUnixNano": rows.longs(START)[*row].to_string(),
            "durationNanos": rows.longs(DURATION)[*row].to_string(),
            "attributes": attributes,
        })
    };
    let spans: Vec<_> = matched.iter().take(per_set).map(span).collect();
    let set = json!({ "spans": spans, "matched": matched.len() });
    let services: serde_json::Map<_, _> = trace
        .services
        .iter()
        .map(|(name, of)| (name.clone(), json!({ "spanCount": of.spans, "errorCount": of.errors })))
        .collect();
    let (service, operation) = trace.root();
    let took_ns = trace.end_ns.saturating_sub(trace.start_ns);
    json!({
        "traceID": format!("{:032x}", trace.trace_id),
        "rootServiceName": service,
        "rootTraceName": operation,
        "startTimeUnixNano": trace.start_ns.to_string(),
        "durationMs": took_ns / 1_000_000,
        "spanSets": [set.clone()],
        "spanSet": set,
        "serviceStats": services,
    })
}
