//! Who calls whom, as Jaeger's page draws it.

use super::envelope;
use crate::answer::Answer;
use crate::asked::{Asked, expected};
use crate::refusal::Refusal;
use curtail_store::SpanRows;
use curtail_store::query::Filter;
use curtail_store::tree::Tree;
use serde_json::json;

const MS_NS: i64 = 1_000_000;

/// `/api/dependencies`: before `endTs`, for a time of `lookback`, both in milliseconds; without one of them since ever, or
/// until now.
pub(super) async fn answer(spans: &Tree<SpanRows>, asked: &Asked<'_>) -> Result<Answer, Refusal> {
    let (end, lookback) = (milliseconds(asked, "endTs")?, milliseconds(asked, "lookback")?);
    let mut filter = Filter::of(asked.tenant);
    filter.starts.end = end.unwrap_or(i64::MAX);
    filter.starts.start =
        lookback.map_or(i64::MIN, |lookback| filter.starts.end.saturating_sub(lookback));
    let calls = spans.calls(&filter).await;
    if calls.is_cut {
        return Err(Refusal::wrong(
            "lookback: there are too many services that call each other, expected a shorter time",
        ));
    }
    let link = |((parent, child), count): (&(String, String), &u64)| json!({ "parent": parent, "child": child, "callCount": count });
    let links = calls.pairs.iter().map(link).collect();
    Ok(Answer::json(&envelope(links)).without(&calls.unread))
}

fn milliseconds(asked: &Asked<'_>, name: &str) -> Result<Option<i64>, Refusal> {
    let Some(value) = asked.get(name) else { return Ok(None) };
    let ns = value.parse::<i64>().ok().filter(|ms| *ms >= 0).and_then(|ms| ms.checked_mul(MS_NS));
    ns.ok_or_else(|| expected(name, value, "milliseconds")).map(Some)
}
