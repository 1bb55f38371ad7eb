//! Which services there are, and what they do.

use super::envelope;
use crate::answer::Answer;
use crate::asked::Asked;
use crate::refusal::Refusal;
use curtail_store::SpanRows;
use curtail_store::query::{Aggregate, AggregateQuery, Condition, Filter, SpanField, Test};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::{KIND, NAME};
use curtail_store::tree::{Tree, Unread};
use serde_json::json;
use std::collections::BTreeSet;

const SERVICES_MAX: usize = 10_000;

/// `/api/v3/services`.
pub(super) async fn third(spans: &Tree<SpanRows>, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (names, unread) = services(spans, asked).await;
    Ok(Answer::json(&json!({ "services": names })).without(&unread))
}

/// `/api/services`.
pub(super) async fn legacy(spans: &Tree<SpanRows>, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (names, unread) = services(spans, asked).await;
    let names = names.into_iter().map(Into::into).collect();
    Ok(Answer::json(&envelope(names)).without(&unread))
}

async fn services(spans: &Tree<SpanRows>, asked: &Asked<'_>) -> (BTreeSet<String>, Vec<Unread>) {
    let filter = Filter::of(asked.tenant);
    let counts = spans.values(&filter, &SpanField::Column(SERVICE), SERVICES_MAX).await;
    (counts.values.into_iter().map(|value| value.text).collect(), counts.unread)
}

/// `/api/v3/operations`.
pub(super) async fn operations_third(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
) -> Result<Answer, Refusal> {
    let (found, unread) = of(spans, asked, service(asked)?).await?;
    let each = found.iter().map(|(name, kind)| json!({ "name": name, "spanKind": kind }));
    let operations: Vec<_> = each.collect();
    Ok(Answer::json(&json!({ "operations": operations })).without(&unread))
}

/// `/api/operations`.
pub(super) async fn operations(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
) -> Result<Answer, Refusal> {
    let (found, unread) = of(spans, asked, service(asked)?).await?;
    let each = found.iter().map(|(name, kind)| json!({ "name": name, "spanKind": kind }));
    Ok(Answer::json(&envelope(each.collect())).without(&unread))
}

/// `/api/services/{service}/operations`: names alone.
pub(super) async fn of_service(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
    service: &str,
) -> Result<Answer, Refusal> {
    let (found, unread) = of(spans, asked, service).await?;
    let names: BTreeSet<_> = found.into_iter().map(|(name, _)| name).collect();
    Ok(Answer::json(&envelope(names.into_iter().map(Into::into).collect())).without(&unread))
}

fn service<'a>(asked: &'a Asked<'_>) -> Result<&'a str, Refusal> {
    asked.get("service").ok_or_else(|| Refusal::wrong("service: expected the name of one"))
}

/// Names and kinds of what a service does.
async fn of(
    spans: &Tree<SpanRows>,
    asked: &Asked<'_>,
    service: &str,
) -> Result<(BTreeSet<(String, String)>, Vec<Unread>), Refusal> {
    let mut filter = Filter::of(asked.tenant);
    filter.conditions.push(Condition::Is(SpanField::Column(SERVICE), Test::Is(service.into())));
    let kind = asked.get("spanKind").or(asked.get("span_kind"));
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
