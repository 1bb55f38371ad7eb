//! The log records of our own: predictions that were kept, effects of remedies that a proxy measured, and findings.
//!
//! | event name | trace ID | body |
//! |---|---|---|
//! | [`PREDICTION`] | [`SCORECARD_ID`] | JSON: `upstream`, and `prediction` of the schema `curtail.predict/1` |
//! | [`EFFECT`] | [`SCORECARD_ID`] | JSON of the schema `curtail.effect/1` |
//! | [`FINDING`] | [`FINDINGS_ID`] | JSON of the schema `curtail.watch/1` |
//!
//! A store finds the records with a trace ID without reading others.

use crate::encode::{BadRow, BatchWriter, LogRow, PlainValue, ResourceText, ScopeText};

/// The name of the event that keeps a prediction.
pub const PREDICTION: &str = "curtail.prediction";

/// The name of the event with a measured effect.
pub const EFFECT: &str = "curtail.effect";

/// The name of the event with a finding that is new or over.
pub const FINDING: &str = "curtail.finding";

/// The trace ID of all events of the scorecard.
pub const SCORECARD_ID: u128 = u128::from_be_bytes(*b"curtailscorecard");

/// The trace ID of all findings.
pub const FINDINGS_ID: u128 = u128::from_be_bytes(*b"curtail-findings");

/// The severity of an event that is no fault.
const INFO: i32 = 9;

/// A batch of logs with events of one name, each with a body in JSON. `resource` is the attributes of the resource in
/// plain JSON; `time_ns` is since 1970.
///
/// # Errors
/// When `resource` is no object.
pub fn batch(
    resource: &str,
    time_ns: u64,
    event_name: &str,
    bodies: &[String],
) -> Result<Vec<u8>, BadRow> {
    let mut writer = BatchWriter::new();
    let resource = ResourceText { attributes: resource, ..ResourceText::default() };
    let (scope, trace_id) = match event_name {
        FINDING => ("curtail.findings", FINDINGS_ID),
        _ => ("curtail.scorecard", SCORECARD_ID),
    };
    let scope = ScopeText { name: scope, ..ScopeText::default() };
    for body in bodies {
        let row = LogRow {
            time_ns,
            observed_ns: time_ns,
            trace_id,
            severity: INFO,
            body: Some(PlainValue::Text(body)),
            event_name,
            ..LogRow::default()
        };
        writer.record(&resource, &scope, &row)?;
    }
    Ok(writer.finish())
}
