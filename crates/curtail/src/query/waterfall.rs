//! A trace as a waterfall: a line for each span, below its parent, with a bar at its time.

use super::found::{duration, list, ns, text};
use curtail_text::{Columns, Left, Page, Rest, Right, cut, cut_middle};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of lines; JSON has all spans.
const LINES_MAX: usize = 1_000;

/// The widths of the bar, and of everything after the label: a space, the duration, the left edge and the bar.
const BAR_LEN: usize = 22;
const AFTER_LABEL_LEN: usize = 1 + 10 + 2 + BAR_LEN + 1;

/// Minimum width of a service, to leave room for the name of the span.
const SERVICE_LEN_MIN: usize = 8;

/// Maximum indentation.
const INDENT_MAX: usize = 12;

#[derive(Debug)]
struct Span {
    id: String,
    parent: String,
    service: String,
    /// The name and the proxy's decision.
    name: String,
    is_error: bool,
    start_ns: i64,
    end_ns: i64,
}

impl Span {
    /// Renders at most `len` columns; the service is cut before the name is.
    fn label(&self, has_service: bool, len: usize) -> String {
        let mark = if self.is_error { "! " } else { "" };
        let service = if has_service && !self.service.is_empty() {
            let room = len.saturating_sub(mark.len() + self.name.chars().count() + ": ".len());
            cut_middle(&self.service, room.max(SERVICE_LEN_MIN)) + ": "
        } else {
            String::new()
        };
        cut(&format!("{mark}{service}{}", self.name), len)
    }
}

/// Renders the proxy's reason for an attempt, and whether the attempt won or was cancelled, in parentheses. Then follows
/// the replica of an attempt, or the upstream of a request.
fn decision(attributes: &[Value]) -> String {
    let of = |key: &str| attributes.iter().find(|attribute| attribute["key"] == key);
    let text_of = |key: &str| of(key).map(|attribute| text(&attribute["value"]["stringValue"]));
    let reason = text_of("curtail.reason");
    let has_won = of("curtail.won").is_some_and(|won| won["value"]["boolValue"] == true);
    let end = if has_won {
        Some("won".to_owned())
    } else {
        of("curtail.cancelled").map(|_| "cancelled".to_owned())
    };
    let parts: Vec<String> = reason.into_iter().chain(end).collect();
    if parts.is_empty() {
        return String::new();
    }
    let port = of("server.port").map(|port| format!(":{}", text(&port["value"]["intValue"])));
    let replica = text_of("server.address").map(|host| host + &port.unwrap_or_default());
    let target = replica.or_else(|| text_of("curtail.upstream")).unwrap_or_default();
    format!(" ({}) {target}", parts.join(", ")).trim_end().to_owned()
}

/// Renders a trace in Tempo's JSON, `columns` wide.
pub(super) fn of(trace: &Value, columns: usize) -> String {
    let label_len = columns.saturating_sub(AFTER_LABEL_LEN);
    let mut spans = spans(trace);
    spans.sort_by_key(|span| span.start_ns);
    let start = spans.iter().map(|span| span.start_ns).min().unwrap_or_default();
    let end = spans.iter().map(|span| span.end_ns).max().unwrap_or_default();
    let table = Columns::new([Left(label_len), Right(10), Rest]);
    let mut page = Page::new(columns);
    page.line(format!("{} spans, {}", spans.len(), duration(end.saturating_sub(start))));
    let services: BTreeMap<&str, &str> =
        spans.iter().map(|span| (&*span.id, &*span.service)).collect();
    for (depth, span) in in_order(&spans).into_iter().take(LINES_MAX) {
        let indent = depth.min(INDENT_MAX);
        // A service is named if it differs from its parent's.
        let above = services.get(&*span.parent).filter(|_| depth > 0);
        let label = span.label(above != Some(&&*span.service), label_len - indent);
        let label = format!("{:indent$}{label}", "");
        let took = duration(span.end_ns.saturating_sub(span.start_ns));
        let bar = bar((span.start_ns, span.end_ns), (start, end));
        page.row(&table, [label, took, format!("|{bar}")]);
    }
    if spans.len() > LINES_MAX {
        page.line(format!("and {} more: --format json has all", spans.len() - LINES_MAX));
    }
    page.finish()
}

fn spans(trace: &Value) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in list(&trace["resourceSpans"]) {
        let attributes = list(&of_resource["resource"]["attributes"]);
        let service = attributes.iter().find(|attribute| attribute["key"] == "service.name");
        let service =
            service.map_or(String::new(), |service| text(&service["value"]["stringValue"]));
        for span in list(&of_resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"]))
        {
            spans.push(Span {
                id: text(&span["spanId"]),
                parent: text(&span["parentSpanId"]),
                service: service.clone(),
                name: format!("{}{}", text(&span["name"]), decision(list(&span["attributes"]))),
                is_error: span["status"]["code"] == "STATUS_CODE_ERROR",
                start_ns: ns(&span["startTimeUnixNano"]),
                end_ns: ns(&span["endTimeUnixNano"]),
            });
        }
    }
    spans
}

/// Orders spans so that each follows its parent, and adds their depths. A span of a cycle may count as a root.
fn in_order(spans: &[Span]) -> Vec<(usize, &Span)> {
    let ids: BTreeSet<_> = spans.iter().map(|span| &*span.id).collect();
    let mut children = BTreeMap::<&str, Vec<usize>>::new();
    let mut roots = Vec::new();
    for (nth, span) in spans.iter().enumerate() {
        if ids.contains(&*span.parent) {
            children.entry(&span.parent).or_default().push(nth);
        } else {
            roots.push(nth);
        }
    }
    let mut is_placed = vec![false; spans.len()];
    let mut order = Vec::new();
    // Spans of a cycle come last, as if they had no parent.
    for first in roots.into_iter().chain(0..spans.len()) {
        let mut waiting = vec![(0, first)];
        while let Some((depth, nth)) = waiting.pop() {
            if std::mem::replace(&mut is_placed[nth], true) {
                continue;
            }
            order.push((depth, &spans[nth]));
            let beneath = children.get(&*spans[nth].id).into_iter().flatten();
            waiting.extend(beneath.rev().map(|child| (depth + 1, *child)));
        }
    }
    order
}

fn bar(of: (i64, i64), whole: (i64, i64)) -> String {
    let len = i128::from(whole.1) - i128::from(whole.0);
    let at = |ns: i64| {
        let at = (i128::from(ns) - i128::from(whole.0)) * BAR_LEN as i128 / len.max(1);
        usize::try_from(at).unwrap_or_default().min(BAR_LEN)
    };
    let from = at(of.0).min(BAR_LEN - 1);
    let to = at(of.1).max(from + 1);
    format!("{}{}", " ".repeat(from), "=".repeat(to - from))
}

#[cfg(test)]
mod tests {
    use super::of;
    use serde_json::{Value, json};

    fn span(id: &str, parent: &str, start: u64, end: u64) -> Value {
        json!({ "spanId": id, "parentSpanId": parent, "name": id,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string() })
    }

    fn lines(spans: &[Value]) -> Vec<String> {
        let trace = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] });
        of(&trace, 80).lines().map(str::to_owned).collect()
    }

    #[test]
    fn spans_stand_beneath_their_parents_where_they_were() {
        let lines = lines(&[
            span("late", "root", 500, 1_000),
            span("root", "", 0, 1_000),
            span("early", "root", 0, 250),
            span("inner", "early", 100, 200),
        ]);
        assert_eq!(lines[0], "4 spans, 1 us");
        let labels: Vec<_> = lines[1..].iter().map(|line| line[..12].trim_end()).collect();
        assert_eq!(labels, ["root", " early", "  inner", " late"]);
        assert!(lines[1].ends_with("|======================"));
        assert!(lines[4].ends_with("|           ==========="));
        assert!(lines.iter().all(|line| line.len() <= 80));
    }

    #[test]
    fn a_circle_and_a_lost_parent_lose_no_span() {
        let lines = lines(&[
            span("a", "b", 0, 10),
            span("b", "a", 0, 10),
            span("c", "gone", 0, 10),
            span("d", "d", 0, 10),
            span("d", "d", 0, 10),
        ]);
        assert_eq!(lines.len(), 6);
    }

    fn of_service(service: &str, spans: &[Value]) -> Value {
        let name = json!({ "key": "service.name", "value": { "stringValue": service } });
        json!({ "resource": { "attributes": [name] }, "scopeSpans": [{ "spans": spans }] })
    }

    #[test]
    fn attempts_say_why_they_were_sent_and_which_won() {
        let attempt = |id: &str, reason: &str, end: Value| {
            let mut attempt = span(id, "root", 0, 10);
            attempt["name"] = "GET".into();
            attempt["attributes"] = json!([
                { "key": "curtail.reason", "value": { "stringValue": reason } },
                { "key": "server.address", "value": { "stringValue": "10.0.0.1" } },
                { "key": "server.port", "value": { "intValue": "80" } },
                end
            ]);
            attempt
        };
        let mut request = span("root", "", 0, 10);
        request["attributes"] = json!([
            { "key": "curtail.reason", "value": { "stringValue": "first_accepted" } },
            { "key": "curtail.upstream", "value": { "stringValue": "shard-1" } },
        ]);
        let cancelled = json!({ "key": "curtail.cancelled", "value": { "stringValue": "lost" } });
        let won = json!({ "key": "curtail.won", "value": { "boolValue": true } });
        let spans =
            [request, attempt("a", "first", cancelled), attempt("b", "slower_than_quantile", won)];
        let trace = json!({ "resourceSpans": [of_service("curtail-proxy", &spans)] });
        let shown = of(&trace, 80);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].starts_with("curtail-proxy: root (first_accepted) shard-1 "), "{shown}");
        assert!(lines[2].starts_with(" GET (first, cancelled) 10.0.0.1:80 "), "{shown}");
        assert!(lines[3].starts_with(" GET (slower_than_quantile, won) 10.0.0.1:80 "), "{shown}");
    }

    #[test]
    fn a_long_service_is_cut_before_the_name_of_the_span() {
        let service = "a-service-with-a-name-of-forty-four-letters-";
        let above = of_service("frontend", &[span("root", "", 0, 10)]);
        let below = of_service(service, &[span("GET /cart/checkout", "root", 0, 10)]);
        let trace = json!({ "resourceSpans": [above, below] });
        let shown = of(&trace, 80);
        assert!(shown.contains("…"), "{shown}");
        assert!(shown.contains(": GET /cart/checkout "), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(of(&trace, 120).contains(&format!(" {service}: GET /cart/checkout ")), "{shown}");
    }
}
