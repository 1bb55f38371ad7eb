//! `GET /api/v1/explain`: why the slow requests of a service are slow.
//!
//! The request names the service at which traces begin. All spans of these traces are read; no trace is sampled.
//!
//! **Limits**: one request at a time, [`TRACES_MAX`] traces and [`SPANS_MAX`] spans.

mod span_table;

pub use span_table::SpanTable;

use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected};
use crate::query_service::{ApiResponse, ApiResult};
use curtail_explain::{Explanation, NotExplained, Question, SCHEMA, Side, SlowTraces, Traces};
use curtail_store::Store;
use curtail_store::query::{Condition, Filter, RootSpans, SpanField, Test};
use curtail_store::schema::spans::NAME;
use curtail_text::{WIDTH, expectation};
use curtail_units::Quantile;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of traces of a request.
const TRACES_MAX: usize = 1_000_000;

/// Maximum number of spans of a request.
const SPANS_MAX: usize = 4_000_000;

/// The time by which clocks of servers may differ: spans of a trace are looked for so much before and after its root.
const CLOCKS_NS: i64 = 60_000_000_000;

/// The default length of a period.
const PERIOD_NS: i64 = 3_600_000_000_000;

/// The requests use much memory, so that one waits for the other.
static TURN: Semaphore = Semaphore::const_new(1);

pub(crate) async fn respond(store: &Store, request: &QueryRequest<'_>) -> ApiResult {
    let service = request.get("service").ok_or_else(|| {
        ApiError::wrong("service: expected the name of the service at which the requests begin")
    })?;
    let question = Parameters::of(request)?;
    let width = request.count("width", WIDTH, 1_000)?;
    let filter = filter(request)?;
    let _turn = TURN.acquire().await.expect("it is never closed");
    let mut roots = store.spans().roots(&filter, service, TRACES_MAX).await;
    if roots.is_cut {
        return Err(ApiError::large(&format!(
            "more than {TRACES_MAX} traces: expected a shorter time range"
        )));
    }
    if roots.ids.is_empty() {
        return Err(not_found(service, request.get("operation"), &roots));
    }
    let mut unread = std::mem::take(&mut roots.unread);
    let (table, more_unread) = read_spans(store, request.tenant, roots).await?;
    unread.extend(more_unread);
    // Other queries use the threads meanwhile, and the request can end at its time limit.
    let explained = tokio::task::spawn_blocking(move || {
        let mut traces = Traces::default();
        table.add_to(&mut traces, Side::Baseline);
        curtail_explain::explain(&traces, &question.of_traces(traces.len()))
    });
    let explained = explained.await.map_err(|_panic| ApiError::failed())?;
    let response = if request.accepts("text/plain") {
        let text = explanation_text(&explained, width).into_bytes();
        ApiResponse::of("text/plain; charset=utf-8", text)
    } else {
        ApiResponse::of("application/json", explanation_json(&explained).into_bytes())
    };
    Ok(response.without(&unread))
}

/// The parameters of a question.
struct Parameters {
    quantile: Option<Quantile>,
    objective_ns: Option<i64>,
    period_ns: i64,
    seed: u64,
}

impl Parameters {
    fn of(request: &QueryRequest<'_>) -> Result<Self, ApiError> {
        let quantile = |text: &str| {
            let quantile = text.parse().ok().and_then(|number| Quantile::new(number).ok());
            quantile.ok_or_else(|| expected("quantile", text, "a quantile from 0 to 1"))
        };
        let positive = |name| match request.duration(name)? {
            Some(ns) if ns <= 0 => Err(ApiError::wrong(format!("{name}: expected more than 0"))),
            ns => Ok(ns),
        };
        let quantile = request.get("quantile").map(quantile).transpose()?;
        let objective_ns = positive("objective")?;
        if quantile.is_some() && objective_ns.is_some() {
            return Err(ApiError::wrong("expected quantile or objective, found both"));
        }
        Ok(Self {
            quantile,
            objective_ns,
            period_ns: positive("period")?.unwrap_or(PERIOD_NS),
            seed: request.number("seed")?.unwrap_or(1) as u64,
        })
    }

    fn of_traces(&self, traces: usize) -> Question {
        let slow = match self.objective_ns {
            Some(duration_ns) => SlowTraces::LongerThan { duration_ns },
            None => SlowTraces::AboveQuantile(
                self.quantile.unwrap_or_else(|| SlowTraces::quantile_for(traces)),
            ),
        };
        Question { slow, period_ns: self.period_ns, seed: self.seed }
    }
}

/// The filter of the roots.
fn filter(request: &QueryRequest<'_>) -> Result<Filter, ApiError> {
    let mut filter = Filter::of(request.tenant);
    filter.starts = request.recent_range()?;
    if let Some(operation) = request.get("operation") {
        let is_operation = Condition::Is(SpanField::Column(NAME), Test::Is(operation.into()));
        filter.conditions.push(is_operation);
    }
    Ok(filter)
}

fn not_found(service: &str, operation: Option<&str>, roots: &RootSpans) -> ApiError {
    let known: Vec<&str> = roots.services.keys().map(String::as_str).collect();
    let expected = expectation(service, &known, "no trace begins in this time");
    let with = operation.map_or_else(String::new, |name| format!(" with the operation {name:?}"));
    ApiError::not_found(format!(
        "no trace in this time begins at the service {service:?}{with}: {expected}"
    ))
}

/// Reads all spans of the traces.
async fn read_spans(
    store: &Store,
    tenant: &str,
    roots: RootSpans,
) -> Result<(SpanTable, Vec<curtail_store::tree::Unread>), ApiError> {
    let mut filter = Filter::of(tenant);
    filter.starts =
        roots.first_ns.saturating_sub(CLOCKS_NS)..roots.last_ns.saturating_add(CLOCKS_NS);
    let (mut table, mut error) = (SpanTable::new(SPANS_MAX), None);
    let unread = store.spans().spans_of(&filter, Arc::new(roots.ids), |batch| {
        error = match batch.map(|batch| table.add(&batch)) {
            Ok(Ok(true)) => return true,
            Ok(Ok(false)) => Some(ApiError::large(&format!(
                "the traces have more than {SPANS_MAX} spans: expected a shorter time range"
            ))),
            Ok(Err(_)) | Err(_) => Some(ApiError::damaged()),
        };
        false
    });
    let unread = unread.await;
    error.map_or(Ok((table, unread)), Err)
}

/// The result in JSON, also if there is nothing to explain.
///
/// # Panics
/// Never: it has texts and numbers only.
#[must_use]
pub fn explanation_json(explained: &Result<Explanation, NotExplained>) -> String {
    let json = match explained {
        Ok(explanation) => serde_json::to_string_pretty(explanation),
        Err(why) => serde_json::to_string_pretty(&json!({
            "schema": SCHEMA, "ranking": [], "findings": [], "why": why.to_string(),
        })),
    };
    json.expect("it has texts and numbers only") + "\n"
}

/// The result in lines of at most `width` columns, also if there is nothing to explain.
#[must_use]
pub fn explanation_text(explained: &Result<Explanation, NotExplained>, width: usize) -> String {
    match explained {
        Ok(explanation) => curtail_explain::table(explanation, width),
        Err(why) => format!("Nothing stands out: {why}.\n"),
    }
}
