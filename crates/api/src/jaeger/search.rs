//! Searching for traces, as Jaeger's page and Grafana do it.
//!
//! The newest come first. With `order=slowest` the slowest do: truly those, where Jaeger's own page sorts what
//! was found first.

use super::legacy::JaegerPieces;
use crate::Limits;
use crate::answer::Answer;
use crate::asked::{Asked, expected};
use crate::refusal::Refusal;
use crate::search::{Search, Summary, search};
use curtail_store::query::{Condition, Filter, HitUnit, Order, SpanField, Test};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::{NAME, STATUS};
use curtail_store::tree::Tree;
use curtail_store::{SpanRows, Store};
use serde_json::{Value, json};
use std::sync::Arc;

const COUNT: usize = 100;
const COUNT_MAX: usize = 1_500;

/// Legacy traces are returned whole. Jaeger's UI asks for up to 1,500.
const WHOLE: usize = 20;
const WHOLE_MAX: usize = 1_500;

/// `/api/v3/trace-summaries`.
pub(super) async fn summaries(
    spans: &Arc<Tree<SpanRows>>,
    limits: &Limits,
    asked: &Asked<'_>,
) -> Result<Answer, Refusal> {
    let name = |name: &str| format!("query.{name}");
    let attributes = [asked.get("query.attributes")];
    let filter = Asking {
        asked,
        service: asked.get(&name("serviceName")),
        operation: asked.get(&name("operationName")),
        starts: [name("startTimeMin"), name("startTimeMax")],
        durations: [name("durationMin"), name("durationMax")],
        tags: &attributes,
    }
    .filter()?;
    let count = asked.count("query.searchDepth", COUNT, COUNT_MAX)?;
    let asking = Search { filter, order: order(asked)?, count, per_set: 0, shown: Vec::new() };
    let mut summaries = Vec::new();
    let unread = search(spans, limits, asking, |trace| {
        summaries.push(shape(&trace));
        Ok(())
    })
    .await?;
    Ok(Answer::json(&json!({ "summaries": summaries })).without(&unread))
}

/// `/api/traces`.
pub(super) async fn legacy(
    store: &Arc<Store>,
    limits: &Limits,
    asked: &Asked<'_>,
) -> Result<Answer, Refusal> {
    let of_name = |wanted: &'static str| {
        asked.all().filter(move |(name, _)| *name == wanted).map(|(_, value)| value)
    };
    // By their IDs, which is how traces are compared.
    let ids: Vec<_> = of_name("traceID").collect();
    let found = if ids.is_empty() {
        let tags: Vec<_> = of_name("tags").chain(of_name("tag")).map(Some).collect();
        let filter = Asking {
            asked,
            service: asked.get("service"),
            operation: asked.get("operation").filter(|name| *name != "all"),
            starts: ["start".to_owned(), "end".to_owned()],
            durations: ["minDuration".to_owned(), "maxDuration".to_owned()],
            tags: &tags,
        }
        .filter()?;
        let count = asked.count_or_all("limit", WHOLE, WHOLE_MAX)?;
        let top = store.spans().top(&filter, order(asked)?, HitUnit::Trace, count).await;
        (top.hits.iter().map(|hit| hit.trace_id).collect(), top.unread)
    } else {
        let ids: Result<Vec<_>, _> =
            ids.into_iter().take(WHOLE_MAX).map(crate::asked::trace_id).collect();
        (ids?, Vec::new())
    };
    Answer::of_pieces(JaegerPieces::new(store, asked.tenant, limits, found)).await
}

fn order(asked: &Asked<'_>) -> Result<Order, Refusal> {
    match asked.get("order") {
        None | Some("newest") => Ok(Order::Newest),
        Some("slowest") => Ok(Order::Slowest),
        Some(other) => Err(expected("order", other, "slowest or newest")),
    }
}

/// What both ways to search ask for, and how it is called there.
struct Asking<'a> {
    asked: &'a Asked<'a>,
    service: Option<&'a str>,
    operation: Option<&'a str>,
    starts: [String; 2],
    durations: [String; 2],
    tags: &'a [Option<&'a str>],
}

impl Asking<'_> {
    fn filter(&self) -> Result<Filter, Refusal> {
        let Self { asked, service, operation, starts, durations, tags } = self;
        let mut filter = Filter::of(asked.tenant);
        let [from, to] = starts;
        filter.starts.start = asked.time(from)?.unwrap_or(filter.starts.start);
        filter.starts.end = asked.time(to)?.unwrap_or(filter.starts.end);
        let [from, to] = durations;
        let from = asked.duration(from)?.unwrap_or(*filter.durations.start());
        let to = asked.duration(to)?.unwrap_or(*filter.durations.end());
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

/// Tags as an object in JSON, or one as `key:value`.
fn conditions(tags: &str) -> Result<Vec<Condition>, Refusal> {
    if let Ok(Value::Object(object)) = serde_json::from_str(tags) {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return Ok(object.iter().map(|(key, value)| condition(key, &text(value))).collect());
    }
    let Some((key, value)) = tags.split_once(':') else {
        return Err(expected("tags", tags, "an object in JSON, as {\"http.route\":\"/cart\"}"));
    };
    Ok(vec![condition(key, value)])
}

/// Jaeger writes all values as texts.
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
