use super::*;
use alloc::borrow::ToOwned;
use alloc::string::String;
use curtail_units::Rng;

/// A trace of random spans: overlapping, asynchronous, abandoned, with wrong clocks and missing parents.
fn random_rows(rng: &mut Rng) -> Vec<SpanRow<'static>> {
    const SERVICES: [&str; 4] = ["shop", "cart", "db", "mail"];
    const KINDS: [SpanKind; 6] = [
        SpanKind::Unset,
        SpanKind::Internal,
        SpanKind::Server,
        SpanKind::Client,
        SpanKind::Producer,
        SpanKind::Consumer,
    ];
    const OPERATIONS: [&str; 5] = ["work", "work", "http.getconn", "http.tls", "http.receive"];
    const PHASES: [&[(&str, AttributeValue<'_>)]; 3] = [
        &[],
        &[("curtail.connect.tls_ns", AttributeValue::Number(700.0))],
        &[
            ("curtail.connect.lookup_ns", AttributeValue::Number(1e9)),
            ("curtail.leaf.wait_ns", AttributeValue::Number(3.0)),
        ],
    ];
    let count = 1 + rng.below(30);
    let time = |rng: &mut Rng, max: usize| i64::try_from(rng.below(max)).expect("small");
    let row = |nth: usize, rng: &mut Rng| {
        let start_ns = time(rng, 10_000) - 1_000;
        let parent_id = match nth {
            0 => 0,
            _ if rng.chance(0.05) => 1_000,
            _ => 1 + rng.below(nth) as u64,
        };
        SpanRow {
            span: Span {
                id: nth as u64 + 1,
                parent_id,
                start_ns,
                end_ns: start_ns + time(rng, 5_000) - 100,
            },
            service: SERVICES[rng.below(SERVICES.len())],
            operation: OPERATIONS[rng.below(OPERATIONS.len())],
            kind: KINDS[rng.below(KINDS.len())],
            is_abandoned: rng.chance(0.1),
            attributes: PHASES[rng.below(PHASES.len())],
        }
    };
    (0..count).map(|nth| row(nth, rng)).collect()
}

#[test]
fn the_times_of_a_trace_sum_to_the_duration_of_its_root() {
    let mut rng = Rng::new(14);
    let mut traces = Traces::default();
    for nth in 0..10_000 {
        let rows = random_rows(&mut rng);
        traces.add(nth + 1, Side::Baseline, &rows);
        let last = traces.rows.last().expect("each trace has a root");
        let sum: i64 = traces.times(last).iter().map(|time| time.time_ns).sum();
        assert_eq!(sum, rows[0].span.duration_ns(), "trace {nth}: {rows:?}");
        assert_eq!(last.duration_ns, sum);
    }
    assert_eq!(traces.len(), 10_000);
}

/// As the instrumentation of Go writes it: the connection, the messages and the server are children of the call.
#[test]
fn phases_that_are_spans_divide_a_call() {
    let row = |id, parent_id, (start_ns, end_ns), service, operation, kind| SpanRow {
        span: Span { id, parent_id, start_ns, end_ns },
        service,
        operation,
        kind,
        is_abandoned: false,
        attributes: match operation {
            "http.dns" => &[("http.dns.addrs", AttributeValue::Text("127.0.0.1"))],
            "GET /items" => &[("network.peer.port", AttributeValue::Number(54_321.0))],
            "GET" => &[("network.peer.port", AttributeValue::Number(8_080.0))],
            _ => &[],
        },
    };
    let rows = [
        row(1, 0, (0, 1_000), "shop", "GET /cart", SpanKind::Server),
        row(2, 1, (100, 900), "shop", "GET", SpanKind::Client),
        row(3, 2, (100, 400), "shop", "http.getconn", SpanKind::Client),
        row(4, 3, (110, 150), "shop", "http.dns", SpanKind::Client),
        row(5, 3, (150, 160), "shop", "http.connect", SpanKind::Client),
        row(6, 3, (160, 395), "shop", "http.tls", SpanKind::Client),
        row(7, 2, (400, 410), "shop", "http.send", SpanKind::Client),
        row(8, 2, (450, 800), "cart", "GET /items", SpanKind::Server),
        row(9, 2, (820, 890), "shop", "http.receive", SpanKind::Client),
    ];
    let mut traces = Traces::default();
    traces.add(1, Side::Baseline, &rows);
    let of = |component: Component| {
        let service = traces.names.get(component.service()).as_str();
        match component {
            Component::SelfTime { .. } => (service, "self time"),
            Component::Gap { .. } => (service, "gap"),
            Component::UntracedCall { .. } => (service, "untraced call"),
            Component::Phase { phase, .. } => (service, phase.name()),
        }
    };
    let times = traces.times(&traces.rows[0]).iter();
    let mut found: Vec<_> =
        times.map(|time| (of(*traces.components.get(time.component)), time.time_ns)).collect();
    found.sort_unstable();
    let expected = [
        (("cart", "gap"), 150),
        (("cart", "self time"), 350),
        (("shop", "DNS lookup"), 40),
        (("shop", "TCP connect"), 10),
        (("shop", "TLS handshake"), 235),
        (("shop", "queue"), 15),
        (("shop", "self time"), 200),
    ];
    assert_eq!(found, expected);
    // They are no calls, and their attributes say nothing.
    let fields: Vec<&str> =
        traces.fields.values().iter().map(|field| traces.names.get(field.name).as_str()).collect();
    assert!(!fields.iter().any(|field| field.starts_with("http.dns") || *field == "http.tls"));
    assert!(fields.contains(&"GET"));
    // The port of the server is known, that of the client is not.
    let ports = fields.iter().filter(|field| **field == "network.peer.port");
    assert_eq!(ports.count(), 1);
}

#[test]
fn a_trace_without_a_root_is_counted() {
    let mut traces = Traces::default();
    let span = Span { id: 2, parent_id: 1, start_ns: 0, end_ns: 10 };
    let row = SpanRow {
        span,
        service: "cart",
        operation: "work",
        kind: SpanKind::Server,
        is_abandoned: false,
        attributes: &[],
    };
    traces.add(1, Side::Baseline, &[row]);
    assert!(traces.is_empty());
    assert_eq!(traces.unused().without_root, 1);
}

#[test]
fn operations_beyond_the_limit_are_one_component() {
    let mut traces = Traces::default();
    for nth in 0..6_000_u128 {
        let operation = format!("GET /item/{nth}");
        let span = Span { id: 1, parent_id: 0, start_ns: 0, end_ns: 10 };
        let row = SpanRow {
            span,
            service: "shop",
            operation: &operation,
            kind: SpanKind::Server,
            is_abandoned: false,
            attributes: &[],
        };
        traces.add(nth + 1, Side::Baseline, &[row]);
    }
    assert_eq!(traces.components.len(), COMPONENTS_MAX + 1);
}

/// A span of a service in milliseconds, without attributes.
fn row<'a>(
    (id, parent_id): (u64, u64),
    (start_ms, end_ms): (i64, i64),
    service: &'a str,
    operation: &'a str,
) -> SpanRow<'a> {
    let [start_ns, end_ns] = [start_ms, end_ms].map(|ms| ms * 1_000_000);
    SpanRow {
        span: Span { id, parent_id, start_ns, end_ns },
        service,
        operation,
        kind: SpanKind::Client,
        is_abandoned: false,
        attributes: &[],
    }
}

#[test]
fn services_and_fields_beyond_the_limit_add_no_components_and_fields() {
    let mut traces = Traces::default();
    let key = |nth: usize| format!("key.{nth}");
    for nth in 0..3 * COMPONENTS_MAX {
        let service = format!("service-{nth}");
        let keys: Vec<_> = (0..8).map(|of| key(nth * 8 + of)).collect();
        let attributes: Vec<_> =
            keys.iter().map(|key| (key.as_str(), AttributeValue::Number(1.0))).collect();
        let mut row = row((1, 0), (0, 1), &service, "GET /");
        row.attributes = &attributes;
        traces.add(nth as u128 + 1, Side::Baseline, &[row]);
        let last = traces.rows.last().expect("it was added");
        assert_eq!(traces.times(last).iter().map(|time| time.time_ns).sum::<i64>(), 1_000_000);
    }
    assert_eq!(traces.components.len(), 2 * COMPONENTS_MAX + 1);
    let last = traces
        .components
        .values()
        .last()
        .map(|component| traces.names.get(component.service()).as_str());
    assert_eq!(last, Some("(other services)"));
    assert_eq!(traces.fields.len(), FIELDS_MAX);
}

/// A call waits for 40 others in turn, so that it has 41 sections of 2 ms; the handshake lasts longer than one of them.
#[test]
fn a_phase_takes_its_time_from_all_sections_of_its_span() {
    let mut rows = alloc::vec![row((1, 0), (0, 122), "shop", "GET /")];
    rows[0].attributes = &[("curtail.connect.tls_ns", AttributeValue::Number(50e6))];
    rows.extend((0..40_i64).map(|nth| {
        let start_ms = 2 + nth * 3;
        row((nth.unsigned_abs() + 2, 1), (start_ms, start_ms + 1), "cart", "GET /item")
    }));
    let mut traces = Traces::default();
    traces.add(1, Side::Baseline, &rows);
    let times = traces.times(&traces.rows[0]);
    let of = |is: &dyn Fn(&Component) -> bool| -> i64 {
        let of_components = times.iter().filter(|time| is(traces.components.get(time.component)));
        of_components.map(|time| time.time_ns / 1_000_000).sum()
    };
    assert_eq!(
        of(&|component| matches!(component, Component::Phase { phase: Phase::Handshake, .. })),
        50
    );
    assert_eq!(of(&|component| matches!(component, Component::SelfTime { .. })), 82 - 50);
    assert_eq!(of(&|_| true), 122);
}

/// Each span calls the next one, each an operation of its own: the depth of a field is that of its first call.
#[test]
fn a_chain_of_calls_has_the_depth_of_each_call() {
    let count = 50_000;
    let names: Vec<_> = (0..count).map(|nth| format!("step-{nth}")).collect();
    let rows: Vec<_> =
        (0..).zip(&names).map(|(nth, name)| row((nth + 1, nth), (0, 1), "shop", name)).collect();
    let mut traces = Traces::default();
    traces.add(1, Side::Baseline, &rows);
    for (field, depth) in traces.fields.values().iter().zip(&traces.depths) {
        let name = traces.names.get(field.name);
        let step: Option<usize> = name.strip_prefix("step-").and_then(|nth| nth.parse().ok());
        assert_eq!(step.map_or(0, |nth| nth + 1), *depth, "{name}");
    }
}

/// A hedge is an effect of a slow request: neither it nor what its replica does is evidence of a cause.
#[test]
fn a_hedge_and_the_spans_below_it_add_no_attributes_and_no_calls() {
    let numbers = |reason: &'static str| {
        let port = |port| ("server.port", AttributeValue::Number(port));
        let (first, second) = (
            [port(8_081.0)],
            [
                port(8_082.0),
                (RESEND_COUNT, AttributeValue::Number(1.0)),
                ("curtail.reason", AttributeValue::Text(reason)),
            ],
        );
        let pod = [("k8s.pod.name", AttributeValue::Text("cart-2"))];
        let mut rows = alloc::vec![
            row((1, 0), (0, 100), "shop", "GET /"),
            row((2, 1), (0, 90), "shop", "GET"),
            row((3, 1), (50, 100), "shop", "GET"),
            row((4, 3), (51, 99), "cart", "GET /item"),
        ];
        (rows[1].attributes, rows[2].attributes, rows[3].attributes) = (&first, &second, &pod);
        let mut traces = Traces::default();
        traces.add(1, Side::Baseline, &rows);
        let row = &traces.rows[0];
        let name = |field: u32| {
            let field = traces.fields.get(field);
            (traces.names.get(field.name).clone(), field.is_call_count)
        };
        let numbers = traces.of_numbers[as_usize(&row.numbers)].iter();
        let numbers: Vec<_> = numbers.map(|(field, number)| (name(*field), *number)).collect();
        (numbers, row.values.len())
    };
    let of = |numbers: &[((String, bool), f64)], name: &str, is_call_count: bool| {
        let wanted = (name.to_owned(), is_call_count);
        numbers.iter().find(|(field, _)| *field == wanted).map(|(_, number)| *number)
    };
    let (hedged, hedged_values) = numbers("slower_than_quantile");
    assert_eq!(of(&hedged, "GET", true), Some(1.0));
    assert_eq!(of(&hedged, "GET /item", true), None);
    assert_eq!(of(&hedged, RESEND_COUNT, false), Some(0.0));
    let (retried, retried_values) = numbers("overdue");
    assert_eq!(of(&retried, "GET", true), Some(2.0));
    assert_eq!(of(&retried, "GET /item", true), Some(1.0));
    assert_eq!(of(&retried, RESEND_COUNT, false), Some(1.0));
    assert!(hedged_values < retried_values, "{hedged_values} and {retried_values}");
}
