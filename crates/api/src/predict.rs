//! `GET /api/v1/predict`: what each remedy would do to the tail of a service, from its recorded requests.
//!
//! The request names the service at which traces begin. Its replicas are those of the proxy's upstreams in these traces,
//! or of one that `upstream` names; without a proxy, they are those of the service itself, or of one that `upstream` names.
//!
//! **Limits**: those of [`crate::service_traces`], and [`REQUESTS_MAX`] requests, the last ones; of a fan-out as many calls, or those
//! of 2,000 requests.

use crate::api_error::ApiError;
use crate::query_request::{QueryRequest, expected};
use crate::query_service::{ApiResponse, ApiResult};
use crate::service_traces;
use curtail_predict::{
    CORES, Cancelled, Candidate, CoreLimit, Fit, FitOverrides, Prediction, RecordingError,
    SpanReader,
};
use curtail_store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of requests or calls to predict from, so that a prediction takes seconds.
const REQUESTS_MAX: usize = 50_000;

/// Maximum number of replicas.
const REPLICAS_MAX: usize = 4_096;

/// The parameters beside those of the traces.
const PARAMETERS: [&str; 9] = [
    "upstream",
    "replicas",
    "intrinsic_ratio",
    "cores",
    "shared_cores",
    "cancelled",
    "remedies",
    "seed",
    "with_text",
];

pub(crate) async fn respond(store: &Store, request: &QueryRequest<'_>) -> ApiResult {
    service_traces::check_parameters(request, &PARAMETERS)?;
    let service = service_traces::service(request)?;
    let overrides = overrides(request)?;
    let seed = request.number("seed")?.unwrap_or(1) as u64;
    let remedies = request.get("remedies").map(str::to_owned);
    let times = request.recent_range_until()?;
    let turn = service_traces::turn().await;
    let mut reader = SpanReader::new();
    let unread = service_traces::read(store, request, (service, times), |batch| {
        reader.add(batch).map_err(|_| ApiError::damaged())
    });
    let unread = unread.await?;
    if reader.left_out() > 0 {
        return Err(service_traces::too_many_spans());
    }
    // Without a proxy, the replicas are those of the service itself.
    let own = (!reader.has_upstreams()).then_some(service);
    let upstream = request.get("upstream").or(own).map(str::to_owned);
    // Other queries use the threads meanwhile. If the request ends at its time limit, so does the prediction, and only then
    // the turn.
    let cancelled = Cancellation::default();
    let is_cancelled = Arc::clone(&cancelled.0);
    let predicted = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let mut recording = reader.finish(upstream.as_deref())?;
        recording.shorten(REQUESTS_MAX);
        let fit = Fit::new(&recording, overrides)?;
        let candidates = match &remedies {
            Some(names) => Candidate::named(&fit, names)?,
            None => Candidate::all(&fit),
        };
        Ok(Prediction::unless_cancelled(&recording, fit, candidates, seed, &is_cancelled))
    });
    let predicted = predicted.await.map_err(|_panic| ApiError::failed())?;
    let prediction = predicted.map_err(of_caller)?.ok_or_else(ApiError::failed)?;
    let response = if request.accepts("text/plain") {
        ApiResponse::of("text/plain; charset=utf-8", prediction.table().into_bytes())
    } else {
        let with_text = request.get("with_text") == Some("true");
        let json = if with_text { prediction.json_with_text() } else { prediction.json() };
        ApiResponse::of("application/json", (json + "\n").into_bytes())
    };
    Ok(response.without(&unread))
}

/// Sets its flag when it is dropped.
#[derive(Default)]
struct Cancellation(Arc<AtomicBool>);

impl Drop for Cancellation {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn of_caller(error: RecordingError) -> ApiError {
    match &error {
        RecordingError::Ambiguous(_) | RecordingError::NotThere { .. } => {
            ApiError::wrong(format!("upstream: {error}"))
        }
        RecordingError::NoRemedy { .. } => ApiError::wrong(format!("remedies: {error}")),
        RecordingError::Journal(_)
        | RecordingError::Io(_)
        | RecordingError::Invalid { .. }
        | RecordingError::TooFew { .. }
        | RecordingError::FanOutInJournal { .. }
        | RecordingError::TooManyLong { .. } => ApiError::wrong(error.to_string()),
    }
}

fn overrides(request: &QueryRequest<'_>) -> Result<FitOverrides, ApiError> {
    let ratio = |text: &str| {
        let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| expected("intrinsic_ratio", text, "a ratio from 0 to 1"))
    };
    let replicas = match request.number("replicas")? {
        None => None,
        Some(count @ 1..=REPLICAS_MAX) => u32::try_from(count).ok(),
        Some(count) => {
            return Err(expected(
                "replicas",
                &count.to_string(),
                &format!("a number from 1 to {REPLICAS_MAX}"),
            ));
        }
    };
    let intrinsic_ratio = request.get("intrinsic_ratio").map(ratio).transpose()?;
    let core_limit = core_limit(request)?;
    let cancelled = |text: &str| {
        let names = "stops, leaves_queue or runs_on";
        Cancelled::from_name(text).ok_or_else(|| expected("cancelled", text, names))
    };
    let cancelled = request.get("cancelled").map(cancelled).transpose()?;
    Ok(FitOverrides { replicas, intrinsic_ratio, core_limit, cancelled })
}

fn core_limit(request: &QueryRequest<'_>) -> Result<Option<CoreLimit>, ApiError> {
    let cores = |name: &str| {
        let read = |text: &str| {
            let number = text.parse().ok().filter(|number| CORES.contains(number));
            let range = format!("a number from {} to {}", CORES.start(), CORES.end());
            number.ok_or_else(|| expected(name, text, &range))
        };
        request.get(name).map(read).transpose()
    };
    match (cores("cores")?, cores("shared_cores")?) {
        (Some(_), Some(_)) => {
            Err(ApiError::wrong("cores: expected one of cores and shared_cores".to_owned()))
        }
        (Some(cores), None) => Ok(Some(CoreLimit::PerReplica(cores))),
        (None, Some(cores)) => Ok(Some(CoreLimit::AllReplicas(cores))),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_given_up_cancels_its_prediction() {
        let cancelled = Cancellation::default();
        let flag = Arc::clone(&cancelled.0);
        assert!(!flag.load(Ordering::Relaxed));
        drop(cancelled);
        assert!(flag.load(Ordering::Relaxed));
    }
}
