//! `GET /api/v1/explain`: why the slow requests of a service are slow.
//!
//! The request names the service at which traces begin.
//!
//! **Limits**: those of [`crate::service_traces`].

mod comparison;
mod span_table;

pub use comparison::Comparison;
pub use span_table::SpanTable;

use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected, now_ns};
use crate::query_service::{ApiResponse, ApiResult};
use crate::service_traces::{self, SPANS_MAX};
use curtail_explain::{Explanation, NotExplained, Question, SCHEMA, Side, SlowTraces, Traces};
use curtail_store::Store;
use curtail_text::WIDTH;
use curtail_units::Quantile;
use serde_json::json;
use std::ops::Range;

/// The default length of a period.
const PERIOD_NS: i64 = 3_600_000_000_000;

pub(crate) async fn respond(store: &Store, request: &QueryRequest<'_>) -> ApiResult {
    let service = service_traces::service(request)?;
    let question = Parameters::of(request)?;
    let width = request.count("width", WIDTH, 1_000)?;
    let _turn = service_traces::turn().await;
    let mut table = SpanTable::new(SPANS_MAX);
    let times = question.times(request)?;
    let unread =
        service_traces::read(store, request, (service, times), |batch| match table.add(batch) {
            Ok(true) => Ok(()),
            Ok(false) => Err(service_traces::too_many_spans()),
            Err(_) => Err(ApiError::damaged()),
        });
    let unread = unread.await?;
    // Other queries use the threads meanwhile, and the request can end at its time limit.
    let explained = tokio::task::spawn_blocking(move || question.explain(table));
    let explained = explained.await.map_err(|_panic| ApiError::failed())??;
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
    comparison: Option<Comparison>,
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
        let comparison = match (request.get("baseline"), request.get("slow")) {
            (None, None) => None,
            (Some(_), Some(_)) if quantile.is_some() || objective_ns.is_some() => {
                return Err(ApiError::wrong(
                    "expected baseline and slow, or quantile, or objective, found two of them",
                ));
            }
            (Some(baseline), Some(slow)) => {
                Some(Comparison::parse([baseline, slow], now_ns()).map_err(ApiError::wrong)?)
            }
            (None, Some(_)) | (Some(_), None) => {
                return Err(ApiError::wrong("expected both baseline and slow, found one of them"));
            }
        };
        Ok(Self {
            comparison,
            quantile,
            objective_ns,
            period_ns: positive("period")?.unwrap_or(PERIOD_NS),
            seed: request.number("seed")?.unwrap_or(1) as u64,
        })
    }

    /// The time in which the traces begin.
    fn times(&self, request: &QueryRequest<'_>) -> Result<Range<i64>, ApiError> {
        let compared = self.comparison.as_ref().and_then(Comparison::times);
        compared.map_or_else(|| request.recent_range(), Ok)
    }

    fn explain(mut self, table: SpanTable) -> Result<Result<Explanation, NotExplained>, ApiError> {
        let mut traces = Traces::default();
        match &mut self.comparison {
            Some(comparison) => {
                table.add_compared(&mut traces, comparison);
                comparison.check().map_err(ApiError::not_found)?;
            }
            None => table.add_to(&mut traces, Side::Baseline),
        }
        Ok(curtail_explain::explain(&traces, &self.of_traces(traces.len())))
    }

    fn of_traces(&self, traces: usize) -> Question {
        let slow = match (&self.comparison, self.objective_ns) {
            (Some(_), _) => SlowTraces::OfSide,
            (None, Some(duration_ns)) => SlowTraces::LongerThan { duration_ns },
            (None, None) => SlowTraces::AboveQuantile(
                self.quantile.unwrap_or_else(|| SlowTraces::quantile_for(traces)),
            ),
        };
        Question { slow, period_ns: self.period_ns, seed: self.seed }
    }
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
