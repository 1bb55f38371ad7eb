//! The requests that Grafana's data source for Tempo makes.
//!
//! **Source**: Grafana Tempo's documentation of its HTTP API 3.0.

mod measures;
mod search;
mod tags;
mod trace;

use crate::answer::Answer;
use crate::asked::Asked;
use crate::refusal::Refusal;
use curtail_store::Store;
use curtail_store::query::Value;
use serde_json::json;
use trace::Form;

pub(crate) async fn answer(store: &Store, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let spans = store.spans();
    match asked.path {
        "/api/echo" => return Ok(Answer::of("text/plain; charset=utf-8", b"echo".to_vec())),
        "/api/status/buildinfo" => {
            let version = env!("CARGO_PKG_VERSION");
            return Ok(Answer::json(&json!({ "version": version, "revision": "", "branch": "",
                "buildDate": "", "buildUser": "", "goVersion": "" })));
        }
        "/api/search" => return search::answer(spans, asked).await,
        "/api/v2/search/tags" => return tags::scopes(spans, asked).await,
        "/api/search/tags" => return tags::names(spans, asked).await,
        "/api/metrics/query_range" => return measures::range(spans, asked).await,
        "/api/metrics/query" => return measures::instant(spans, asked).await,
        _ => {}
    }
    let of_tag = |prefix| {
        asked.after(prefix).and_then(|rest| rest.strip_suffix("/values").map(str::to_owned))
    };
    if let Some(tag) = of_tag("/api/v2/search/tag/") {
        return tags::values(spans, asked, &tag).await;
    }
    if let Some(tag) = of_tag("/api/search/tag/") {
        return tags::texts(spans, asked, &tag).await;
    }
    let of_trace = asked.after("/api/traces/");
    if let Some(id) = of_trace.as_deref().and_then(|rest| rest.strip_suffix("/logs")) {
        return trace::logs(store.logs(), asked, id).await;
    }
    for (prefix, form) in [("/api/traces/", Form::First), ("/api/v2/traces/", Form::Second)] {
        if let Some(id) = asked.after(prefix) {
            return trace::answer(spans, asked, &id, form).await;
        }
    }
    Err(Refusal::not_found("there is nothing of this name"))
}

/// A value as OTLP's JSON has it.
fn any_value(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Int(number) => json!({ "intValue": number.to_string() }),
        Value::Double(number) => json!({ "doubleValue": number }),
        Value::Bool(is) => json!({ "boolValue": is }),
        Value::Id(_) => json!({ "stringValue": value.to_string() }),
    }
}
