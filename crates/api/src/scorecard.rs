//! `GET /api/v1/scorecard`: for each remedy that was switched on, its prediction beside its measured effect.
//!
//! **Limits**: the last [`EVENTS_MAX`] events of the service, with at most [`BODIES_BYTES_MAX`]. The response counts those
//! that were left out.

use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use crate::query_service::{ApiResponse, ApiResult};
use curtail_otlp::events::SCORECARD_ID;
use curtail_predict::{Scorecard, ScorecardEvent};
use curtail_store::Store;
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::logs::{BODY, EVENT_NAME, TIME};
use curtail_store::tree::Unread;
use curtail_text::expectation;
use std::collections::BTreeSet;

/// Maximum number of events: at six an hour and upstream, those of a week of ten upstreams.
const EVENTS_MAX: usize = 10_000;

/// Maximum size of the bodies of all events.
const BODIES_BYTES_MAX: usize = 64 << 20;

/// Maximum number of other services that an error can suggest.
const SERVICES_MAX: usize = 100;

/// The number of rows that are read at once.
const ROWS_AT_ONCE: usize = 10_000;

pub(crate) async fn respond(store: &Store, request: &QueryRequest<'_>) -> ApiResult {
    request.only(&["service", "start", "end", "since"])?;
    let is_recent = request.get("since").is_some();
    let times = if is_recent { request.recent_range() } else { request.range() }?;
    let last = LastEvents::read(store, request, times.end).await;
    if let Some(service) = request.get("service").filter(|_| !last.is_service_known)
        && !last.other_services.is_empty()
        && last.unread.is_empty()
    {
        let others: Vec<&str> = last.other_services.iter().map(String::as_str).collect();
        let expected = expectation(service, &others, "");
        return Err(ApiError::not_found(format!(
            "the scorecard has no event of the service {service:?}: {expected}"
        )));
    }
    let unread = last.unread;
    // Other queries use the thread meanwhile.
    let made = tokio::task::spawn_blocking(move || {
        let events: Vec<ScorecardEvent> = last.events.into_iter().rev().map(event).collect();
        // A remedy of this time may have an older prediction.
        let from_ns = u64::try_from(times.start).unwrap_or(0);
        let scorecard = Scorecard { left_out: last.left_out, ..Scorecard::since(&events, from_ns) };
        scorecard.json()
    });
    let made = made.await.map_err(|_panic| ApiError::failed())?;
    let json = made.map_err(|_| ApiError::failed())?;
    Ok(ApiResponse::of("application/json", (json + "\n").into_bytes()).without(&unread))
}

/// An event as it is stored.
struct EventRow {
    time_ns: u64,
    service: String,
    name: String,
    body: String,
}

fn event(EventRow { time_ns, service, name, body }: EventRow) -> ScorecardEvent {
    // What is no JSON is counted as malformed.
    let body = serde_json::from_str(&body).unwrap_or_default();
    ScorecardEvent { time_ns, service, name, body }
}

/// The last events of a service, or of all services.
struct LastEvents {
    /// The last one first.
    events: Vec<EventRow>,
    left_out: u64,
    unread: Vec<Unread>,
    /// Whether the service has events, at any time.
    is_service_known: bool,
    /// Other services, up to [`SERVICES_MAX`].
    other_services: BTreeSet<String>,
}

impl LastEvents {
    /// Reads the events before `end_ns`, from the last one on.
    async fn read(store: &Store, request: &QueryRequest<'_>, end_ns: i64) -> Self {
        let service = request.get("service");
        let found = store.logs().rows_with_id(request.tenant, SCORECARD_ID, usize::MAX).await;
        let mut last = Self {
            events: Vec::new(),
            left_out: 0,
            unread: found.unread().to_vec(),
            is_service_known: false,
            other_services: BTreeSet::new(),
        };
        let (mut bytes, mut end) = (0, found.len());
        while end > 0 {
            let start = end.saturating_sub(ROWS_AT_ONCE);
            let window = found.window(&[SERVICE, TIME, BODY, EVENT_NAME], start..end).await;
            let rows = window.rows;
            last.unread.extend(window.unread);
            let (services, times) = (rows.coded(SERVICE), rows.longs(TIME));
            let (bodies, names) = (rows.coded(BODY), rows.coded(EVENT_NAME));
            for row in (0..rows.len()).rev() {
                let is_of = service.is_none_or(|service| services.text(row) == service);
                last.is_service_known |= is_of;
                let name = services.text(row);
                let others = &mut last.other_services;
                if !is_of && others.len() < SERVICES_MAX && !others.contains(name) {
                    others.insert(name.to_owned());
                }
                if !is_of || times[row] >= end_ns {
                    continue;
                }
                let body = bodies.text(row);
                bytes += body.len();
                if last.events.len() == EVENTS_MAX || bytes > BODIES_BYTES_MAX {
                    last.left_out += 1;
                    continue;
                }
                last.events.push(EventRow {
                    time_ns: times[row].cast_unsigned(),
                    service: services.text(row).to_owned(),
                    name: names.text(row).to_owned(),
                    body: body.to_owned(),
                });
            }
            end = start;
        }
        last
    }
}
