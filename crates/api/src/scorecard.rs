//! `GET /api/v1/scorecard`: for each remedy that was switched on, its prediction beside its measured effect.
//!
//! **Limits**: the last [`EVENTS_MAX`] events.

use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use crate::query_service::{ApiResponse, ApiResult};
use curtail_otlp::events::SCORECARD_ID;
use curtail_predict::{Scorecard, ScorecardEvent};
use curtail_store::Store;
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::logs::{BODY, EVENT_NAME, TIME};

/// Maximum number of events: at six an hour and upstream, those of a week of ten upstreams.
const EVENTS_MAX: usize = 10_000;

pub(crate) async fn respond(store: &Store, request: &QueryRequest<'_>) -> ApiResult {
    let service = request.get("service");
    let is_recent = request.get("since").is_some();
    let times = if is_recent { request.recent_range() } else { request.range() }?;
    let found = store.logs().rows_with_id(request.tenant, SCORECARD_ID, usize::MAX).await;
    let last = found.len().saturating_sub(EVENTS_MAX)..found.len();
    let window = found.window(&[SERVICE, TIME, BODY, EVENT_NAME], last).await;
    let (rows, mut unread) = (window.rows, window.unread);
    unread.extend(found.unread().iter().cloned());
    let (services, times_of) = (rows.coded(SERVICE), rows.longs(TIME));
    let (bodies, names) = (rows.coded(BODY), rows.coded(EVENT_NAME));
    let event = |row: usize| ScorecardEvent {
        time_ns: times_of[row].cast_unsigned(),
        service: services.text(row).to_owned(),
        name: names.text(row).to_owned(),
        // What is no JSON is counted as malformed.
        body: serde_json::from_str(bodies.text(row)).unwrap_or_default(),
    };
    let events = (0..rows.len()).filter(|row| times.contains(&times_of[*row])).map(event);
    let events = events.filter(|event| service.is_none_or(|service| event.service == service));
    let scorecard = Scorecard::of(&events.collect::<Vec<_>>());
    let json = serde_json::to_string_pretty(&scorecard).map_err(|_| ApiError::failed())?;
    Ok(ApiResponse::of("application/json", (json + "\n").into_bytes()).without(&unread))
}
