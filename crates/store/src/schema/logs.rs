//! The table of logs: one row for each record, sorted by trace ID. Records without a trace come first, by time.
//!
//! A text body is in `body`, any other body in `body_json`, as [plain JSON](curtail_otlp::plain). A missing time is 0.
//!
//! **Source**: OpenTelemetry semantic conventions 1.38.

use super::{Field, Kind, Origin, Schema, Table, envelope, fields, optional, required};
use curtail_otlp::Signal;
use std::sync::LazyLock;

fields! {
    after envelope::LEN;
    TRACE_ID "trace_id" optional(Kind::Wide);
    SPAN_ID "span_id" optional(Kind::Narrow);
    TIME "time_ns" required(Kind::Long);
    OBSERVED "observed_ns" required(Kind::Long);
    SEVERITY "severity" optional(Kind::Int);
    SEVERITY_TEXT "severity_text" optional(Kind::Text);
    BODY "body" optional(Kind::Text);
    BODY_JSON "body_json" optional(Kind::Text);
    EVENT_NAME "event_name" optional(Kind::Text);
    FLAGS "flags" optional(Kind::Int);
}

/// Attributes of records with a column of their own.
const OF_LOGS: &[(&str, &str, Kind)] = &[
    ("exception.type", "exception_type", Kind::Text),
    ("exception.message", "exception_message", Kind::Text),
    ("exception.stacktrace", "exception_stacktrace", Kind::Text),
    ("error.type", "error_type", Kind::Text),
    ("code.function.name", "code_function_name", Kind::Text),
    ("code.file.path", "code_file_path", Kind::Text),
    ("code.line.number", "code_line_number", Kind::Int),
    ("thread.id", "thread_id", Kind::Int),
    ("thread.name", "thread_name", Kind::Text),
    ("log.file.path", "log_file_path", Kind::Text),
    ("log.iostream", "log_iostream", Kind::Text),
    ("http.request.method", "http_request_method", Kind::Text),
    ("http.response.status_code", "http_response_status_code", Kind::Int),
    ("http.route", "http_route", Kind::Text),
    ("url.path", "url_path", Kind::Text),
    ("user.id", "user_id", Kind::Text),
    ("session.id", "session_id", Kind::Text),
];

/// The table of logs.
pub static LOGS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "logs",
    schema: Schema::ingested(FIELDS, OF_LOGS),
    order: (TRACE_ID, TIME),
    identity: None,
    zones: &[TRACE_ID, TIME, OBSERVED],
    indexes: &[],
    origin: Origin::Ingested(Signal::Logs),
});
