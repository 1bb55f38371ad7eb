//! The requests that Jaeger's page and Grafana's data source for Jaeger make, under `/jaeger`.
//!
//! **Source**: Jaeger 2.20's API and the model of its page.

mod dependencies;
mod legacy;
mod search;
mod services;

use crate::answer::Answer;
use crate::asked::{Asked, trace_id};
use crate::refusal::Refusal;
use curtail_otlp::{Signal, json};
use curtail_store::tree::{Tree, WithId};
use curtail_store::{SpanRows, Store};
use serde_json::{Value, json};

pub(crate) async fn answer(store: &Store, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let spans = store.spans();
    match asked.path.strip_prefix("/jaeger").unwrap_or_default() {
        "/api/v3/services" => return services::third(spans, asked).await,
        "/api/services" => return services::legacy(spans, asked).await,
        "/api/v3/operations" => return services::operations_third(spans, asked).await,
        "/api/operations" => return services::operations(spans, asked).await,
        "/api/v3/trace-summaries" => return search::summaries(spans, asked).await,
        "/api/traces" => return search::legacy(spans, asked).await,
        "/api/dependencies" => return dependencies::answer(spans, asked).await,
        path if path.starts_with("/api/metrics/") => {
            return Err(Refusal::unsupported("metrics are answered at /api/metrics/query_range"));
        }
        _ => {}
    }
    if let Some(rest) = asked.after("/jaeger/api/services/")
        && let Some(service) = rest.strip_suffix("/operations")
    {
        return services::of_service(spans, asked, service).await;
    }
    if let Some(id) = asked.after("/jaeger/api/v3/traces/") {
        let trace = find(spans, asked, &id).await?;
        let answer = json!({ "result": otlp(&trace)? });
        return Ok(Answer::json(&answer).without(&trace.unread));
    }
    if let Some(id) = asked.after("/jaeger/api/traces/") {
        let trace = find(spans, asked, &id).await?;
        let answer = envelope(vec![legacy::trace(&otlp(&trace)?)]);
        return Ok(Answer::json(&answer).without(&trace.unread));
    }
    Err(Refusal::not_found("there is nothing of this name"))
}

async fn find(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
    id: &str,
) -> Result<WithId<SpanRows>, Refusal> {
    let trace = spans.with_id(asked.tenant, trace_id(id)?).await;
    if trace.is_empty() && trace.unread.is_empty() {
        return Err(Refusal::not_found("there is no such trace"));
    }
    Ok(trace)
}

/// A trace as OTLP's JSON.
fn otlp(trace: &WithId<SpanRows>) -> Result<Value, Refusal> {
    let batch = trace.batch().map_err(|_| Refusal::damaged())?;
    let json = json::from_protobuf(&batch, Signal::Traces).map_err(|_| Refusal::damaged())?;
    serde_json::from_str(&json).map_err(|_| Refusal::damaged())
}

/// What everything is answered in, except by the third version.
fn envelope(data: Vec<Value>) -> Value {
    let total = data.len();
    json!({ "data": data, "total": total, "limit": 0, "offset": 0, "errors": null })
}
