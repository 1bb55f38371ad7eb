//! All spans of the traces that begin at a service, for requests that explain or predict it. No trace is sampled.
//!
//! **Limits**: one such request at a time, because they use much memory; [`TRACES_MAX`] traces and [`SPANS_MAX`] spans.

use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use curtail_store::Store;
use curtail_store::query::{Condition, Filter, RootSpans, SpanField, Test};
use curtail_store::schema::spans::NAME;
use curtail_store::tree::Unread;
use curtail_text::expectation;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of traces of a request.
const TRACES_MAX: usize = 1_000_000;

/// Maximum number of spans of a request.
pub(crate) const SPANS_MAX: usize = 4_000_000;

/// The time by which clocks of servers may differ: spans of a trace are looked for so much before and after its root.
const CLOCKS_NS: i64 = 60_000_000_000;

static TURN: Semaphore = Semaphore::const_new(1);

/// Waits until no other such request runs; the caller keeps the permit until its end.
pub(crate) async fn turn() -> SemaphorePermit<'static> {
    TURN.acquire().await.expect("it is never closed")
}

/// The service that a request names.
pub(crate) fn service<'a>(request: &'a QueryRequest<'_>) -> Result<&'a str, ApiError> {
    request.get("service").ok_or_else(|| {
        ApiError::wrong("service: expected the name of the service at which the requests begin")
    })
}

/// Reads the spans of the traces that begin at `service` in a time, batch by batch, until `add` fails. Returns what could
/// not be read.
pub(crate) async fn read(
    store: &Store,
    request: &QueryRequest<'_>,
    (service, times): (&str, Range<i64>),
    mut add: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<Vec<Unread>, ApiError> {
    let roots = store.spans().roots(&filter(request, times), service, TRACES_MAX).await;
    if roots.is_cut {
        return Err(ApiError::large(&format!(
            "more than {TRACES_MAX} traces: expected a shorter time range"
        )));
    }
    if roots.ids.is_empty() {
        return Err(not_found(service, request.get("operation"), &roots));
    }
    let mut filter = Filter::of(request.tenant);
    filter.starts =
        roots.first_ns.saturating_sub(CLOCKS_NS)..roots.last_ns.saturating_add(CLOCKS_NS);
    let mut error = None;
    let more_unread = store.spans().spans_of(&filter, Arc::new(roots.ids), |batch| {
        let added = batch.map_err(|_| ApiError::damaged()).and_then(|batch| add(&batch));
        error = added.err();
        error.is_none()
    });
    let more_unread = more_unread.await;
    let mut unread = roots.unread;
    unread.extend(more_unread);
    error.map_or(Ok(unread), Err)
}

pub(crate) fn too_many_spans() -> ApiError {
    ApiError::large(&format!(
        "the traces have more than {SPANS_MAX} spans: expected a shorter time range"
    ))
}

/// The filter of the roots.
fn filter(request: &QueryRequest<'_>, times: Range<i64>) -> Filter {
    let mut filter = Filter::of(request.tenant);
    filter.starts = times;
    if let Some(operation) = request.get("operation") {
        let is_operation = Condition::Is(SpanField::Column(NAME), Test::Is(operation.into()));
        filter.conditions.push(is_operation);
    }
    filter
}

fn not_found(service: &str, operation: Option<&str>, roots: &RootSpans) -> ApiError {
    let known: Vec<&str> = roots.services.keys().map(String::as_str).collect();
    let expected = expectation(service, &known, "no trace begins in this time");
    let with = operation.map_or_else(String::new, |name| format!(" with the operation {name:?}"));
    ApiError::not_found(format!(
        "no trace in this time begins at the service {service:?}{with}: {expected}"
    ))
}
