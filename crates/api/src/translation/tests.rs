use super::*;
use http::StatusCode;

fn filter_of(text: &str) -> Result<Filter, ApiError> {
    filter(&parse_query(Some(text))?, "shop", 5..7)
}

fn attribute(key: &str, test: Test) -> Condition {
    Condition::Is(SpanField::Attribute(key.to_owned()), test)
}

#[test]
fn conditions_are_those_of_the_store() {
    let cart = || Test::Is(Value::from("cart"));
    let has_parent = || Condition::Is(SpanField::Column(PARENT_ID), Test::Exists);
    for (text, want) in [
        ("{}", vec![]),
        ("{ span.a = \"cart\" }", vec![attribute("a", cart())]),
        (
            "{ .a = \"cart\" && resource.b != 3 }",
            vec![
                Condition::Is(SpanField::Either("a".to_owned()), cart()),
                Condition::Is(SpanField::Resource("b".to_owned()), Test::IsNot(Value::Int(3))),
            ],
        ),
        (
            "{ name = \"cart\" || status = error }",
            vec![Condition::Any(vec![
                Condition::Is(SpanField::Column(NAME), cart()),
                Condition::Is(SpanField::Column(STATUS), Test::Is(Value::from("error"))),
            ])],
        ),
        ("{ span.a >= 500 }", vec![attribute("a", Test::AtLeast(Value::Int(500)))]),
        ("{ span.a < 1.5 }", vec![attribute("a", Test::Less(Value::Double(1.5)))]),
        (
            "{ name > \"a\" }",
            vec![Condition::Is(SpanField::Column(NAME), Test::Greater("a".into()))],
        ),
        (
            "{ !(span.a = 1) }",
            vec![Condition::Not(Box::new(attribute("a", Test::Is(Value::Int(1)))))],
        ),
        ("{ span.a != nil }", vec![attribute("a", Test::Exists)]),
        ("{ span.a = nil }", vec![Condition::Not(Box::new(attribute("a", Test::Exists)))]),
        ("{ nestedSetParent < 0 }", vec![Condition::Not(Box::new(has_parent()))]),
        ("{ nestedSetParent >= 0 && true }", vec![has_parent(), Condition::All(vec![])]),
        (
            "{ trace:id = \"1f\" }",
            vec![Condition::Is(SpanField::Column(TRACE_ID), Test::Is(Value::Id(0x1f)))],
        ),
        (
            "{ event:name =~ \"ca.*\" }",
            vec![Condition::Is(
                SpanField::Entry(Entry::EventName),
                Test::Matches(Pattern::new("ca.*").expect("a pattern")),
            )],
        ),
        ("{ false }", vec![Condition::Any(vec![])]),
    ] {
        let got = filter_of(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(got.conditions, want, "{text}");
        assert_eq!((got.starts, got.durations), (5..7, i64::MIN..=i64::MAX), "{text}");
    }
}

#[test]
fn durations_that_all_must_have_are_bounds() {
    let filter =
        filter_of("{ duration > 100ms && duration <= 2s && span.a = 1 }").expect("a query");
    assert_eq!(filter.durations, 100_000_001..=2_000_000_000);
    assert_eq!(filter.conditions.len(), 1);
    let filter = filter_of("{ duration < 1ms || span.a = 1 }").expect("a query");
    assert_eq!(filter.durations, i64::MIN..=i64::MAX);
    let less = Test::Less(Value::Int(1_000_000));
    let any = vec![
        Condition::Is(SpanField::Column(DURATION), less),
        attribute("a", Test::Is(Value::Int(1))),
    ];
    assert_eq!(filter.conditions, [Condition::Any(any)]);
}

#[test]
fn unsupported_queries_differ_from_wrong_ones() {
    for (text, status, message) in [
        ("{", StatusCode::BAD_REQUEST, "byte 1"),
        ("{ rootName = \"a\" }", StatusCode::NOT_IMPLEMENTED, "rootName"),
        ("{ traceDuration > 1s }", StatusCode::NOT_IMPLEMENTED, "traceDuration"),
        ("{ } >> { }", StatusCode::NOT_IMPLEMENTED, "byte 4"),
        ("{ nestedSetParent = 3 }", StatusCode::NOT_IMPLEMENTED, "nestedSetParent"),
        ("{ name =~ \"(\" }", StatusCode::BAD_REQUEST, "unclosed group"),
        ("{ name =~ 3 }", StatusCode::BAD_REQUEST, "a pattern"),
        ("{ span.a > true }", StatusCode::BAD_REQUEST, "= or !="),
        ("{ duration =~ 100ms }", StatusCode::BAD_REQUEST, "for duration"),
        ("{ duration =~ \"1.*\" }", StatusCode::BAD_REQUEST, "for duration"),
        ("{ status = bogus }", StatusCode::BAD_REQUEST, "error, ok or unset"),
        (
            "{ kind = bogus }",
            StatusCode::BAD_REQUEST,
            "internal, server, client, producer or consumer",
        ),
        ("{} | bogus()", StatusCode::BAD_REQUEST, "rate, "),
        ("{ rootName = \"a\" && name = bogus }", StatusCode::BAD_REQUEST, "a text"),
        ("{ trace:id > \"1\" }", StatusCode::NOT_IMPLEMENTED, "an order"),
        ("{ duration > \"a\" }", StatusCode::BAD_REQUEST, "100ms"),
        ("{ trace:id = \"xyz\" }", StatusCode::BAD_REQUEST, "a trace ID"),
        ("{ span.a > nil }", StatusCode::BAD_REQUEST, "= or !="),
    ] {
        let error = filter_of(text).expect_err(text);
        assert_eq!(error.status, status, "{text}: {}", error.message);
        assert!(error.message.contains(message), "{text}: {}", error.message);
    }
}

#[test]
fn measures_are_those_of_the_store() {
    let measured = |text: &str| {
        let query = parse_query(Some(text)).expect("a query");
        aggregate(&query.measure.expect("it measures").function)
    };
    let duration = || SpanField::Column(DURATION);
    let quantiles = vec![Quantile::P50, Quantile::P99];
    for (text, want) in [
        ("{} | rate()", Aggregate::Count),
        ("{} | max_over_time(duration)", Aggregate::Extremes(duration())),
        ("{} | histogram_over_time(duration)", Aggregate::Buckets(duration())),
        ("{} | quantile_over_time(duration, .5, .99)", Aggregate::Quantiles(duration(), quantiles)),
        ("{} | sum_over_time(span.a)", Aggregate::Extremes(SpanField::Attribute("a".to_owned()))),
    ] {
        assert_eq!(measured(text).as_ref(), Ok(&want), "{text}");
    }
    let error = measured("{} | max_over_time(name)").expect_err("no number");
    assert_eq!(error.status, StatusCode::BAD_REQUEST);
}
