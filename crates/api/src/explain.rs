//! `GET /api/v1/explain`: why the slow requests of a service are slow.
//!
//! The request names the service at which traces begin.
//!
//! **Limits**: those of [`crate::service_traces`], and [`BYTES_MAX`] bytes of spans, attributes and texts.

mod comparison;
mod span_table;

pub use comparison::Comparison;
pub use span_table::{SpanTable, SpanTableError};

use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected, now_ns};
use crate::query_service::{ApiResponse, ApiResult};
use crate::service_traces::{self, SPANS_MAX};
use curtail_explain::{
    Explanation, NotExplained, Question, SCHEMA, Side, SlowTraces, Tenants, Traces,
};
use curtail_store::Store;
use curtail_text::WIDTH;
use curtail_threads::run_on_all_processors;
use curtail_units::Quantile;
use http::StatusCode;
use serde_json::json;
use std::ops::Range;
use tokio::sync::SemaphorePermit;

/// Maximum number of bytes of the spans of a request.
const BYTES_MAX: usize = 4 << 30;

/// The spans of a trace are looked for up to a minute before and after the root. This is longer than twice as much.
const NEAR_NS: i64 = 300_000_000_000;

/// The default length of a period.
const PERIOD_NS: i64 = 3_600_000_000_000;

/// The parameters beside those of the traces.
const PARAMETERS: [&str; 8] =
    ["quantile", "objective", "by_tenant", "baseline", "slow", "period", "seed", "width"];

pub(crate) async fn respond(store: &Store, request: &QueryRequest<'_>) -> ApiResult {
    service_traces::check_parameters(request, &PARAMETERS)?;
    let service = service_traces::service(request)?;
    let question = Parameters::of(request)?;
    let width = request.count("width", WIDTH, 1_000)?;
    let times = question.times(request)?;
    let turn = service_traces::turn().await;
    let mut table = SpanTable::new(SPANS_MAX, BYTES_MAX);
    let (mut unread, mut not_found) = (Vec::new(), None);
    let are_apart = times.len() > 1;
    for times in times {
        let read = service_traces::read(store, request, (service, times), |batch| {
            table.add(batch).map_err(|error| match error {
                SpanTableError::TooManySpans => service_traces::too_many_spans(),
                SpanTableError::TooManyBytes => too_many_bytes(),
                SpanTableError::Malformed(_) => ApiError::damaged(),
            })
        });
        match read.await {
            Ok(more) => unread.extend(more),
            // The comparison says which of two times has no traces.
            Err(error) if are_apart && error.status == StatusCode::NOT_FOUND => {
                not_found = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = not_found.filter(|_| table.is_empty()) {
        return Err(error);
    }
    let explained = run_in_turn(turn, move || question.explain(table)).await??;
    let response = if request.accepts("text/plain") {
        let text = explanation_text(&explained, width).into_bytes();
        ApiResponse::of("text/plain; charset=utf-8", text)
    } else {
        ApiResponse::of("application/json", explanation_json(&explained).into_bytes())
    };
    Ok(response.without(&unread))
}

/// Runs `work` on a thread of its own, so that other queries use the threads meanwhile. The work keeps its turn until its
/// end, also if the request ends before at its time limit.
async fn run_in_turn<T: Send + 'static>(
    turn: SemaphorePermit<'static>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let result = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    result.await.map_err(|_panic| ApiError::failed())
}

fn too_many_bytes() -> ApiError {
    ApiError::large(&format!(
        "the spans of the traces have more than {} GiB: expected a shorter time range",
        BYTES_MAX >> 30
    ))
}

/// The parameters of a question.
struct Parameters {
    quantile: Option<Quantile>,
    objective_ns: Option<i64>,
    period_ns: i64,
    seed: u64,
    comparison: Option<Comparison>,
    /// The attribute that names the tenants.
    by_tenant: Option<String>,
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
            by_tenant: request.get("by_tenant").map(str::to_owned),
            quantile,
            objective_ns,
            period_ns: positive("period")?.unwrap_or(PERIOD_NS),
            seed: request.number("seed")?.unwrap_or(1) as u64,
        })
    }

    /// The times in which the traces begin, apart from each other.
    fn times(&self, request: &QueryRequest<'_>) -> Result<Vec<Range<i64>>, ApiError> {
        let mut times = self.comparison.as_ref().map_or_else(Vec::new, Comparison::ranges);
        if times.len() < 2 {
            times.push(request.recent_range_until()?);
        } else if let Some(name) =
            ["start", "end", "since", "until"].into_iter().find(|name| request.get(name).is_some())
        {
            return Err(ApiError::wrong(format!(
                "expected {name}, or time ranges as baseline and slow, found both"
            )));
        }
        Ok(join_near(times))
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
        let explained =
            curtail_explain::explain(&traces, &self.of_traces(traces.len()), run_on_all_processors);
        let tenants = self.by_tenant.as_deref().map(|key| Tenants::of(&traces, key));
        Ok(explained.map(|explanation| Explanation { tenants, ..explanation }))
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

/// Joins ranges that overlap or are near each other, so that no span is read twice.
fn join_near(mut ranges: Vec<Range<i64>>) -> Vec<Range<i64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<i64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().filter(|last| range.start <= last.end.saturating_add(NEAR_NS)) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_turn() {
        static TURN: Semaphore = Semaphore::const_new(1);
        let (end, ended) = mpsc::sync_channel(1);
        let turn = TURN.acquire().await.expect("it is never closed");
        let work = run_in_turn(turn, move || ended.recv().expect("the test sends"));
        tokio::select! {
            biased;
            _ = work => unreachable!("the work waits"),
            () = std::future::ready(()) => {}
        }
        assert!(TURN.try_acquire().is_err());
        end.send(()).expect("the work waits");
        drop(TURN.acquire().await.expect("it is never closed"));
    }

    #[test]
    fn only_ranges_far_from_each_other_are_read_apart() {
        let far = 10 * NEAR_NS;
        let joined = |ranges: &[Range<i64>]| -> Vec<(i64, i64)> {
            join_near(ranges.to_vec()).iter().map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(joined(&[far..far + 1, 0..9]), [(0, 9), (far, far + 1)]);
        assert_eq!(joined(&[NEAR_NS..far, 0..9]), [(0, far)]);
        assert_eq!(joined(&[5..6, 0..9]), [(0, 9)]);
    }
}
