//! Batches as services send them: traces of eight spans across six services, 11 attributes a span, a million
//! spans a minute.

use curtail_otlp::{BatchWriter, PlainValue, ResourceText, ScopeText, SpanRow};
use curtail_units::Rng;
use std::time::Duration;

/// How many spans a trace has.
const TRACE: usize = 8;

/// So often a trace begins: a million spans a minute.
const TRACE_EVERY_NS: u64 = 480_000;

/// An SDK sends what gathered in a while, from many traces.
const BATCH: usize = 512;

const SERVICES: [&str; 6] = ["gateway", "cart", "items", "users", "prices", "stock"];
const ROUTES: [&str; 5] =
    ["/api/items/{item}", "/api/cart", "/api/users/{user}", "/api/prices", "/api/stock/{item}"];

/// A span that waits in its service to be sent.
struct Waiting {
    row: SpanRow<'static>,
    attributes: Vec<(&'static str, Text)>,
}

enum Text {
    Same(&'static str),
    Own(String),
    Int(i64),
}

/// Makes batches of `spans` spans in all, in the order in which they would come. With the next seed come others,
/// which begin where these end.
pub(crate) fn batches(spans: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    let mut waiting: Vec<Vec<Waiting>> = SERVICES.iter().map(|_| Vec::new()).collect();
    let mut batches = Vec::new();
    let traces = (spans / TRACE) as u64;
    for nth in seed * traces..(seed + 1) * traces {
        let began = 1_750_000_000_000_000_000 + TRACE_EVERY_NS * nth;
        trace(&mut rng, began, &mut waiting);
        for (service, waiting) in waiting.iter_mut().enumerate() {
            if waiting.len() >= BATCH {
                batches.push(batch(service, &std::mem::take(waiting)));
            }
        }
    }
    let rest = waiting.iter().enumerate().filter(|(_, waiting)| !waiting.is_empty());
    batches.extend(rest.map(|(service, waiting)| batch(service, waiting)));
    batches
}

/// A request that comes to the gateway and goes on to three services, one of which asks a database.
fn trace(rng: &mut Rng, began: u64, waiting: &mut [Vec<Waiting>]) {
    let trace_id = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
    let root = rng.next_u64();
    let route = rng.below(ROUTES.len());
    let user = rng.below(100_000);
    let mut span = |service: usize, parent_id: u64, kind: i32, name, at: u64, ms: f64| {
        let span_id = if parent_id == 0 { root } else { rng.next_u64() };
        let start_ns = began + at;
        let took = Duration::from_secs_f64(ms / 1e3 * rng.exponential()).as_nanos();
        let took = u64::try_from(took).expect("less than a century");
        let attributes = attributes(rng, kind, route, user);
        let row = SpanRow {
            trace_id,
            span_id,
            parent_id,
            start_ns,
            end_ns: start_ns + took,
            name,
            kind,
            status: i32::from(rng.chance(0.002)) * 2,
            flags: 257,
            ..SpanRow::default()
        };
        waiting[service].push(Waiting { row, attributes });
        span_id
    };
    span(0, 0, 2, ROUTES[route], 0, 40.0);
    for call in 0..3 {
        let service = 1 + (route + call) % 5;
        let at = 1_000_000 + 200_000 * call as u64;
        let client = span(0, root, 3, "GET", at, 12.0);
        let server = span(service, client, 2, ROUTES[(route + call) % 5], at + 300_000, 10.0);
        if call == 0 {
            span(service, server, 3, "SELECT shop.items", at + 500_000, 6.0);
        }
    }
}

fn attributes(rng: &mut Rng, kind: i32, route: usize, user: usize) -> Vec<(&'static str, Text)> {
    let peer = format!("10.0.{}.{}", rng.below(4), rng.below(250));
    let item = rng.below(10_000);
    let mut all = vec![
        ("http.request.method", Text::Same("GET")),
        ("url.scheme", Text::Same("http")),
        ("http.response.status_code", Text::Int(if rng.chance(0.01) { 404 } else { 200 })),
        ("server.address", Text::Own(format!("shop-{}.example", rng.below(40)))),
        ("server.port", Text::Int(8_080)),
        ("network.peer.address", Text::Own(peer)),
        ("http.response.body.size", Text::Int(rng.below(100_000) as i64)),
        ("enduser.id", Text::Own(format!("user-{user}"))),
        ("user_agent.original", Text::Same("checkout/3.14 (linux; x86_64)")),
    ];
    if kind == 2 {
        all.push(("url.path", Text::Own(format!("/api/items/{item}"))));
        all.push(("http.route", Text::Same(ROUTES[route])));
    } else {
        all.push(("url.full", Text::Own(format!("http://items.example:8080/api/items/{item}"))));
        all.push(("shop.attempt", Text::Int(1 + i64::from(rng.chance(0.01)))));
    }
    all
}

fn batch(service: usize, waiting: &[Waiting]) -> Vec<u8> {
    let name = SERVICES[service];
    let attributes = format!(
        r#"{{"service.name":"{name}","service.namespace":"shop","service.version":"1.{service}.2","host.name":"node-{service}","telemetry.sdk.language":"go","telemetry.sdk.name":"opentelemetry"}}"#
    );
    let resource = ResourceText { attributes: &attributes, ..ResourceText::default() };
    let scope = ScopeText { name: "otelhttp", version: "0.61.0", ..ScopeText::default() };
    let mut writer = BatchWriter::new();
    for Waiting { row, attributes } in waiting {
        let attributes: Vec<_> = attributes
            .iter()
            .map(|(key, value)| match value {
                Text::Same(text) => (*key, PlainValue::Text(text)),
                Text::Own(text) => (*key, PlainValue::Text(text)),
                Text::Int(number) => (*key, PlainValue::Int(*number)),
            })
            .collect();
        let row = SpanRow { attributes: &attributes, ..*row };
        writer.span(&resource, &scope, &row).expect("plain JSON");
    }
    writer.finish()
}
