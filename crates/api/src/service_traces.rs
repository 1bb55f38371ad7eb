//! All spans of the traces that begin at a service, for requests that explain or predict it. No trace is sampled.
//!
//! **Limits**: one such request at a time, because they use much memory; [`TRACES_MAX`] traces and [`SPANS_MAX`] spans.

use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use curtail_store::Store;
use curtail_store::query::{Condition, Filter, RootSpans, SpanField, Test};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::{NAME, PARENT_ID};
use curtail_store::tree::Unread;
use curtail_text::expectation;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of traces of a request.
const TRACES_MAX: usize = 1_000_000;

/// Maximum number of spans of a request.
pub(crate) const SPANS_MAX: usize = 4_000_000;

/// Maximum number of operations among which an error looks for a name.
const OPERATIONS_MAX: usize = 1_000;

/// The time by which clocks of servers may differ: spans of a trace are looked for so much before and after its root.
const CLOCKS_NS: i64 = 60_000_000_000;

static TURN: Semaphore = Semaphore::const_new(1);

/// Waits until no other such request runs; the caller keeps the permit until its end.
pub(crate) async fn turn() -> SemaphorePermit<'static> {
    TURN.acquire().await.expect("it is never closed")
}

/// Rejects a parameter that does not select traces, and is not one of `others`.
pub(crate) fn check_parameters(
    request: &QueryRequest<'_>,
    others: &[&str],
) -> Result<(), ApiError> {
    let own = ["service", "operation", "start", "end", "since", "until"];
    request.only(&[&own[..], others].concat())
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
    let operation = request.get("operation");
    let of_operation = filter(request.tenant, times.clone(), operation);
    let roots = store.spans().roots(&of_operation, service, TRACES_MAX).await;
    if roots.is_cut {
        return Err(ApiError::large(&format!(
            "more than {TRACES_MAX} traces: expected a shorter time range"
        )));
    }
    if roots.ids.is_empty() {
        let all = filter(request.tenant, times, None);
        return Err(match operation {
            Some(operation) => unknown_operation(store, all, (service, operation)).await,
            None => unknown_service(service, &roots),
        });
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
fn filter(tenant: &str, times: Range<i64>, operation: Option<&str>) -> Filter {
    let conditions = operation.map(|operation| column_is(NAME, operation)).into_iter().collect();
    Filter { starts: times, conditions, ..Filter::of(tenant) }
}

fn column_is(column: usize, text: &str) -> Condition {
    Condition::Is(SpanField::Column(column), Test::Is(text.into()))
}

/// The error if no trace of the `all` filter begins with an operation of a service; names the operations with which traces
/// begin there.
async fn unknown_operation(
    store: &Store,
    mut all: Filter,
    (service, operation): (&str, &str),
) -> ApiError {
    // The scan may end with the second trace of the service.
    let roots = store.spans().roots(&all, service, 1).await;
    if roots.ids.is_empty() {
        return unknown_service(service, &roots);
    }
    let has_parent = Condition::Is(SpanField::Column(PARENT_ID), Test::Exists);
    all.conditions = vec![column_is(SERVICE, service), Condition::Not(Box::new(has_parent))];
    let counts = store.spans().values(&all, &SpanField::Column(NAME), OPERATIONS_MAX).await;
    let known: Vec<&str> = counts.values.iter().map(|value| &*value.text).collect();
    let expected = expectation(operation, &known, "its operations cannot be read");
    ApiError::not_found(format!(
        "no trace in this time begins at the service {service:?} with the operation {operation:?}: {expected}"
    ))
}

fn unknown_service(service: &str, roots: &RootSpans) -> ApiError {
    let known: Vec<&str> = roots.services.keys().map(String::as_str).collect();
    let expected = expectation(service, &known, "no trace begins in this time");
    ApiError::not_found(format!(
        "no trace in this time begins at the service {service:?}: {expected}"
    ))
}
