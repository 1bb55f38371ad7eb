//! Which attributes there are, and which values they have: what Grafana offers to whoever writes a query.

use crate::answer::Answer;
use crate::asked::Asked;
use crate::question;
use crate::refusal::Refusal;
use curtail_store::SpanRows;
use curtail_store::query::{AttributeKeys, Filter, ValueCounts};
use curtail_store::tree::Tree;
use curtail_traceql::{Expression, parse};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Values, where it is not said how many, and the most.
const COUNT: usize = 1_000;
const COUNT_MAX: usize = 10_000;

/// What is answered of what every span has.
const INTRINSICS: [&str; 13] = [
    "duration",
    "event:name",
    "instrumentation:name",
    "instrumentation:version",
    "kind",
    "link:spanID",
    "link:traceID",
    "name",
    "span:id",
    "span:parentID",
    "status",
    "statusMessage",
    "trace:id",
];

/// `/api/v2/search/tags`.
pub(super) async fn scopes(spans: &Tree<SpanRows>, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (keys, count) = (spans.keys(&filter(asked)?).await, count(asked)?);
    let only = asked.get("scope").filter(|scope| *scope != "none");
    let scopes: Vec<_> = by_scope(&keys)
        .into_iter()
        .filter(|(scope, tags)| only.is_none_or(|only| only == *scope) && !tags.is_empty())
        .map(|(scope, tags)| json!({ "name": scope, "tags": &tags[..tags.len().min(count)] }))
        .collect();
    Ok(Answer::json(&json!({ "scopes": scopes, "metrics": {} })))
}

/// `/api/search/tags`.
pub(super) async fn names(spans: &Tree<SpanRows>, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (keys, count) = (spans.keys(&filter(asked)?).await, count(asked)?);
    let names: BTreeSet<_> = keys.spans.union(&keys.resources).collect();
    let names: Vec<_> = names.into_iter().take(count).collect();
    Ok(Answer::json(&json!({ "tagNames": names, "metrics": {} })))
}

fn by_scope(keys: &AttributeKeys) -> Vec<(&'static str, Vec<&str>)> {
    fn all(keys: &BTreeSet<String>) -> Vec<&str> {
        keys.iter().map(String::as_str).collect()
    }
    vec![
        ("span", all(&keys.spans)),
        ("resource", all(&keys.resources)),
        ("event", all(&keys.events)),
        ("link", all(&keys.links)),
        ("instrumentation", all(&keys.scopes)),
        ("intrinsic", INTRINSICS.to_vec()),
    ]
}

/// `/api/v2/search/tag/{tag}/values`.
pub(super) async fn values(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
    tag: &str,
) -> Result<Answer, Refusal> {
    let counts = counted(spans, asked, tag).await?;
    let is_keyword = ["status", "kind", "span:status", "span:kind"].contains(&tag);
    let value = |of: &curtail_store::query::ValueCount| {
        let kind = match of.kind {
            "text" if is_keyword => "keyword",
            "text" => "string",
            "double" => "float",
            other => other,
        };
        json!({ "type": kind, "value": of.text })
    };
    let values: Vec<_> = counts.values.iter().map(value).collect();
    Ok(shape("tagValues", values, &counts))
}

/// `/api/search/tag/{tag}/values`: a tag without its scope.
pub(super) async fn texts(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
    tag: &str,
) -> Result<Answer, Refusal> {
    let scoped = if INTRINSICS.contains(&tag) { tag.to_owned() } else { format!(".{tag}") };
    let counts = counted(spans, asked, &scoped).await?;
    let values: Vec<_> = counts.values.iter().map(|value| json!(value.text)).collect();
    Ok(shape("tagValues", values, &counts))
}

fn shape(name: &str, values: Vec<Value>, counts: &ValueCounts) -> Answer {
    Answer::json(&json!({ name: values, "metrics": {} })).without(&counts.unread)
}

async fn counted(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
    tag: &str,
) -> Result<ValueCounts, Refusal> {
    // A condition is what names a tag in the language.
    let query = parse(&format!("{{ {tag} != nil }}"));
    let wrong = |why| Refusal::wrong(format!("expected a tag, as span.http.route: {why}"));
    let query = query.map_err(|error| wrong(error.to_string()))?;
    let Some(Expression::Is(operand, ..)) = &query.filter else {
        return Err(wrong("found none".to_owned()));
    };
    let of = question::of(operand)?;
    Ok(spans.values(&filter(asked)?, &of, count(asked)?).await)
}

/// Maximum number of tags of each scope; zero asks for all, as in Tempo.
fn count(asked: &Asked<'_>) -> Result<usize, Refusal> {
    asked.count_or_all("limit", COUNT, COUNT_MAX)
}

/// The spans in whose tags one is interested. A query that is still being written asks for all.
fn filter(asked: &Asked<'_>) -> Result<Filter, Refusal> {
    let query = asked.get("q").and_then(|text| parse(text).ok());
    let all = question::query(None)?;
    question::filter(query.as_ref().unwrap_or(&all), asked.tenant, asked.range()?)
}
