//! The log records of the scorecard: predictions that were kept, and effects of remedies that a proxy measured.
//!
//! | event name | body |
//! |---|---|
//! | [`PREDICTION`] | JSON: `upstream`, and `prediction` of the schema `curtail.predict/1` |
//! | [`EFFECT`] | JSON of the schema `curtail.effect/1` |
//!
//! All of them have the same trace ID, by which a store finds them without reading other records.

use crate::encode::{BadRow, BatchWriter, LogRow, PlainValue, ResourceText, ScopeText};

/// The name of the event that keeps a prediction.
pub const PREDICTION: &str = "curtail.prediction";

/// The name of the event with a measured effect.
pub const EFFECT: &str = "curtail.effect";

/// The trace ID of all events of the scorecard.
pub const TRACE_ID: u128 = u128::from_be_bytes(*b"curtailscorecard");

/// The severity of an event that is no fault.
const INFO: i32 = 9;

/// A batch of logs with events of one name, each with a body in JSON. `resource` is the attributes of the resource in
/// plain JSON; `time_ns` is since 1970.
///
/// # Errors
/// When `resource` is no object.
pub fn events(
    resource: &str,
    time_ns: u64,
    event_name: &str,
    bodies: &[String],
) -> Result<Vec<u8>, BadRow> {
    let mut writer = BatchWriter::new();
    let resource = ResourceText { attributes: resource, ..ResourceText::default() };
    let scope = ScopeText { name: "curtail.scorecard", ..ScopeText::default() };
    for body in bodies {
        let row = LogRow {
            time_ns,
            observed_ns: time_ns,
            trace_id: TRACE_ID,
            severity: INFO,
            body: Some(PlainValue::Text(body)),
            event_name,
            ..LogRow::default()
        };
        writer.record(&resource, &scope, &row)?;
    }
    Ok(writer.finish())
}
