//! A trace as Jaeger's page has it, from OTLP's JSON.
//!
//! **When it hurts**: its times are microseconds, so nanoseconds are lost here.

use serde_json::{Map, Value, json};

/// A trace.
pub(super) fn trace(otlp: &Value) -> Value {
    let (mut spans, mut processes) = (Vec::new(), Map::new());
    let mut trace_id = Value::Null;
    for resource_spans in list(otlp, "resourceSpans") {
        let attributes = list(&resource_spans["resource"], "attributes");
        let is_service = |attribute: &&Value| attribute["key"] == "service.name";
        let service = attributes.iter().find(is_service);
        let service = service.map_or(&Value::Null, |attribute| &attribute["value"]["stringValue"]);
        let tags: Vec<_> =
            attributes.iter().filter(|attribute| !is_service(attribute)).map(tag).collect();
        let process = json!({ "serviceName": service.as_str().unwrap_or_default(), "tags": tags });
        let id = process_id(&mut processes, process);
        for scope_spans in list(resource_spans, "scopeSpans") {
            for each in list(scope_spans, "spans") {
                trace_id = each["traceId"].clone();
                spans.push(span(each, &scope_spans["scope"], &id));
            }
        }
    }
    json!({ "traceID": trace_id, "spans": spans, "processes": processes, "warnings": null })
}

/// The same process has the same ID.
fn process_id(processes: &mut Map<String, Value>, process: Value) -> String {
    if let Some((id, _)) = processes.iter().find(|(_, known)| **known == process) {
        return id.clone();
    }
    let id = format!("p{}", processes.len() + 1);
    processes.insert(id.clone(), process);
    id
}

fn span(span: &Value, scope: &Value, process: &str) -> Value {
    let (start, end) = (ns(&span["startTimeUnixNano"]), ns(&span["endTimeUnixNano"]));
    json!({
        "traceID": span["traceId"],
        "spanID": span["spanId"],
        "flags": span["flags"].as_u64().unwrap_or(0) & 0xFF,
        "operationName": span["name"].as_str().unwrap_or_default(),
        "references": references(span),
        "startTime": start / 1_000,
        "duration": end.saturating_sub(start) / 1_000,
        "tags": tags(span, scope),
        "logs": list(span, "events").iter().map(log).collect::<Vec<_>>(),
        "processID": process,
        "warnings": null,
    })
}

/// The parent, then what is linked.
fn references(span: &Value) -> Vec<Value> {
    let parent = span["parentSpanId"].as_str().filter(|id| !id.is_empty());
    let parent =
        parent.map(|id| json!({ "refType": "CHILD_OF", "traceID": span["traceId"], "spanID": id }));
    let links = list(span, "links").iter().map(|link| {
        json!({ "refType": "FOLLOWS_FROM", "traceID": link["traceId"], "spanID": link["spanId"] })
    });
    parent.into_iter().chain(links).collect()
}

/// Attributes, and what else a span says that Jaeger has no field for.
fn tags(span: &Value, scope: &Value) -> Vec<Value> {
    let text = |key: &str, value: &str| json!({ "key": key, "type": "string", "value": value });
    let mut tags: Vec<_> = list(span, "attributes").iter().map(tag).collect();
    for (key, of_scope) in [("otel.scope.name", "name"), ("otel.scope.version", "version")] {
        tags.extend(scope[of_scope].as_str().map(|value| text(key, value)));
    }
    let kind = match span["kind"].as_i64() {
        Some(1) => Some("internal"),
        Some(2) => Some("server"),
        Some(3) => Some("client"),
        Some(4) => Some("producer"),
        Some(5) => Some("consumer"),
        _ => None,
    };
    tags.extend(kind.map(|kind| text("span.kind", kind)));
    let status = &span["status"];
    match status["code"].as_i64() {
        Some(1) => tags.push(text("otel.status_code", "OK")),
        Some(2) => {
            tags.push(text("otel.status_code", "ERROR"));
            tags.push(json!({ "key": "error", "type": "bool", "value": true }));
        }
        _ => {}
    }
    tags.extend(status["message"].as_str().map(|why| text("otel.status_description", why)));
    tags.extend(span["traceState"].as_str().map(|state| text("w3c.tracestate", state)));
    tags
}

fn log(event: &Value) -> Value {
    let name = event["name"].as_str().filter(|name| !name.is_empty());
    let name = name.map(|name| json!({ "key": "event", "type": "string", "value": name }));
    let attributes = list(event, "attributes").iter().map(tag);
    let fields: Vec<_> = name.into_iter().chain(attributes).collect();
    json!({ "timestamp": ns(&event["timeUnixNano"]) / 1_000, "fields": fields })
}

/// An attribute; lists and maps are texts in JSON.
fn tag(attribute: &Value) -> Value {
    let value = &attribute["value"];
    let (kind, value) = if let Some(text) = value["stringValue"].as_str() {
        ("string", json!(text))
    } else if let Some(is) = value["boolValue"].as_bool() {
        ("bool", json!(is))
    } else if let Some(number) =
        value["intValue"].as_str().and_then(|text| text.parse::<i64>().ok())
    {
        ("int64", json!(number))
    } else if let Some(number) = value["doubleValue"].as_f64() {
        ("float64", json!(number))
    } else if let Some(bytes) = value["bytesValue"].as_str() {
        ("binary", json!(bytes))
    } else {
        ("string", json!(value.to_string()))
    };
    json!({ "key": attribute["key"], "type": kind, "value": value })
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

/// A time in nanoseconds, which is a text in JSON.
fn ns(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}
