use super::*;
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
            operation: "work",
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
    assert_eq!(traces.parts.len(), PARTS_MAX + 1);
}
