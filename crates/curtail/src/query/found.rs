//! Traces, tags and values as tables.

use curtail_text::lines::one_line;
use curtail_text::{Columns, Left, Page, Rest, Right, cut};
use curtail_units::Duration;
use serde_json::Value;
use std::fmt::Write as _;

/// Maximum width of a name, so that a line has at most 80 columns; longer names are cut.
const NAME_LEN: usize = 24;

/// One line a trace: its ID, and the duration and name of its first matching span.
pub(super) fn traces(json: &Value) -> String {
    let traces = list(&json["traces"]);
    if traces.is_empty() {
        return "none\n".to_owned();
    }
    let columns = Columns::new([Left(32), Right(10), Rest]);
    let mut page = Page::default();
    page.row(&columns, ["trace", "took", " span (of a trace of)"]);
    for trace in traces {
        let span = &trace["spanSets"][0]["spans"][0];
        let name = cut(&text(&span["name"]), NAME_LEN);
        let root = cut(&text(&trace["rootServiceName"]), NAME_LEN);
        let took = duration(ns(&span["durationNanos"]));
        page.row(&columns, [text(&trace["traceID"]), took, format!(" {name} ({root})")]);
    }
    page.finish()
}

pub(super) fn tags(json: &Value) -> String {
    let mut out = String::new();
    for scope in list(&json["scopes"]) {
        let (name, tags) = (text(&scope["name"]), list(&scope["tags"]));
        let prefix = if name == "intrinsic" { String::new() } else { format!("{name}.") };
        for tag in tags {
            writeln!(out, "{prefix}{}", text(tag)).ok();
        }
    }
    out
}

pub(super) fn values(json: &Value) -> String {
    let mut out = String::new();
    for value in list(&json["tagValues"]) {
        writeln!(out, "{}", text(&value["value"])).ok();
    }
    out
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns text without control characters, which a terminal would execute.
pub(super) fn text(value: &Value) -> String {
    one_line(value.as_str().unwrap_or_default())
}

/// Parses nanoseconds, which are text in Tempo's JSON.
pub(super) fn ns(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Formats a duration, which may be negative.
pub(super) fn duration(ns: i64) -> String {
    let took = Duration::from_ns(ns.unsigned_abs());
    if ns < 0 { format!("-{took}") } else { took.to_string() }
}
