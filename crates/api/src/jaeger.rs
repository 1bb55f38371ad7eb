//! The requests that Jaeger's page and Grafana's data source for Jaeger make, under `/jaeger`.
//!
//! **Source**: Jaeger 2.20's API and the model of its page.

mod dependencies;
mod legacy;
mod search;
mod services;

use crate::Limits;
use crate::answer::Answer;
use crate::asked::{Asked, trace_id};
use crate::pieces::{OtlpForm, OtlpPieces};
use crate::refusal::Refusal;
use curtail_store::tree::RowsWithId;
use curtail_store::{SpanRows, Store};
use legacy::JaegerPieces;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn answer(
    store: &Arc<Store>,
    limits: &Limits,
    asked: &Asked<'_>,
) -> Result<Answer, Refusal> {
    let spans = store.spans();
    match asked.path.strip_prefix("/jaeger").unwrap_or_default() {
        "/api/v3/services" => return services::third(spans, asked).await,
        "/api/services" => return services::legacy(spans, asked).await,
        "/api/v3/operations" => return services::operations_third(spans, asked).await,
        "/api/operations" => return services::operations(spans, asked).await,
        "/api/v3/trace-summaries" => return search::summaries(spans, limits, asked).await,
        "/api/traces" => return search::legacy(store, limits, asked).await,
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
        let found = find(store, limits, asked, &id).await?;
        let form = OtlpForm::Json { before: r#"{"result":{"resourceSpans":["#, after: "]}}" };
        return Answer::of_pieces(OtlpPieces::new(found, form, limits)?).await;
    }
    if let Some(id) = asked.after("/jaeger/api/traces/") {
        let found = find(store, limits, asked, &id).await?;
        return Answer::of_pieces(JaegerPieces::of_one(store, found, limits)).await;
    }
    Err(Refusal::not_found("there is nothing of this name"))
}

async fn find(
    store: &Store,
    limits: &Limits,
    asked: &Asked<'_>,
    id: &str,
) -> Result<RowsWithId<SpanRows>, Refusal> {
    let spans = store.spans();
    let found = spans.rows_with_id(asked.tenant, trace_id(id)?, limits.trace_spans).await;
    if found.is_empty() && found.unread().is_empty() {
        return Err(Refusal::not_found("there is no such trace"));
    }
    Ok(found)
}

/// What everything is answered in, except by the third version.
fn envelope(data: Vec<Value>) -> Value {
    let total = data.len();
    json!({ "data": data, "total": total, "limit": 0, "offset": 0, "errors": null })
}
