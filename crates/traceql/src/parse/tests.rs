use super::*;
use curtail_units::Rng;

const SEED: u64 = 3_001;

fn span(key: &str) -> Operand {
    Operand::Attribute(Scope::Span, key.to_owned())
}

fn is(operand: Operand, comparison: Comparison, literal: Literal) -> Expression {
    Expression::Is(operand, comparison, literal)
}

fn filter(query: &str) -> Expression {
    let parsed = parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    assert!(parsed.measure.is_none());
    parsed.filter.expect("a condition")
}

#[test]
fn conditions_are_read_with_their_operands_and_literals() {
    use Comparison::{AtLeast, AtMost, Equal, Greater, Less, Matches, MatchesNot, NotEqual};
    let text = |text: &str| Literal::Text(text.to_owned());
    let any = |key: &str| Operand::Attribute(Scope::Any, key.to_owned());
    let resource = Operand::Attribute(Scope::Resource, "service.name".to_owned());
    let cases = [
        (r#"{ resource.service.name = "cart" }"#, is(resource.clone(), Equal, text("cart"))),
        ("{resource.service.name!=`a\\b`}", is(resource, NotEqual, text("a\\b"))),
        (
            r#"{ span.http.status_code >= 500 }"#,
            is(span("http.status_code"), AtLeast, Literal::Int(500)),
        ),
        ("{ .ratio < -0.5 }", is(any("ratio"), Less, Literal::Double(-0.5))),
        ("{ .a.b-c/d = .5 }", is(any("a.b-c/d"), Equal, Literal::Double(0.5))),
        (
            "{ duration > 1m30s }",
            is(Operand::Intrinsic("duration"), Greater, Literal::Duration(90_000_000_000)),
        ),
        (
            "{ span:duration <= 1.5ms }",
            is(Operand::Intrinsic("duration"), AtMost, Literal::Duration(1_500_000)),
        ),
        (
            "{ 100us < duration }",
            is(Operand::Intrinsic("duration"), Greater, Literal::Duration(100_000)),
        ),
        ("{ status = error }", is(Operand::Intrinsic("status"), Equal, text("error"))),
        ("{ kind != server }", is(Operand::Intrinsic("kind"), NotEqual, text("server"))),
        (r#"{ name =~ "GET .*\\d" }"#, is(Operand::Intrinsic("name"), Matches, text(r"GET .*\d"))),
        (r#"{ name !~ "a\"b" }"#, is(Operand::Intrinsic("name"), MatchesNot, text("a\"b"))),
        (r#"{ span."my key".part = true }"#, is(span("my key.part"), Equal, Literal::Bool(true))),
        ("{ span.ok }", is(span("ok"), Equal, Literal::Bool(true))),
        ("{ .x != nil }", is(any("x"), NotEqual, Literal::Nil)),
        (r#"{ trace:id = "ab12" }"#, is(Operand::Intrinsic("trace:id"), Equal, text("ab12"))),
        ("{ true }", Expression::Always(true)),
    ];
    for (query, want) in cases {
        assert_eq!(filter(query), want, "{query}");
    }
    assert_eq!(parse("{}").expect("all spans").filter, None);
}

#[test]
fn a_text_in_double_quotes_has_the_escapes_of_go_and_one_in_backquotes_has_none() {
    for (query, text) in [
        (r#"{ .a = "caf\u00e9" }"#, "café"),
        (r#"{ .a = "\x41\x42\103" }"#, "ABC"),
        (r#"{ .a = "\xc3\xa9\303\251" }"#, "éé"),
        (r#"{ .a = "\U0001F980" }"#, "🦀"),
        (r#"{ .a = "\a\b\f\n\r\t\v" }"#, "\u{7}\u{8}\u{c}\n\r\t\u{b}"),
        (r#"{ .a = "\\\"'\\" }"#, r#"\"'\"#),
        (r#"{ .a = "größer\u0000" }"#, "größer\0"),
        (r"{ .a = `\u00e9\q\` }", r"\u00e9\q\"),
        // Go drops carriage returns in backquotes.
        ("{ .a = `one\r\ntwo` }", "one\ntwo"),
        (r#"{ span."caf\u00e9" = "\u00e9" }"#, "é"),
    ] {
        let Expression::Is(operand, _, literal) = filter(query) else { panic!("{query}") };
        assert_eq!(literal, Literal::Text(text.to_owned()), "{query}");
        assert!(operand == span("café") || !query.contains("span"), "{operand:?}");
    }
}

#[test]
fn an_escape_that_go_does_not_have_is_refused_with_its_byte() {
    let escapes = r#"expected \\, \", \a, \b, \f, \n, \r, \t, \v, \x41, \101, \u00e9 or \U0001f980 (a text in backquotes has no escapes), found "#;
    for (query, at, found) in [
        (r#"{ .a = "a\qb" }"#, 9, r"\q"),
        (r#"{ name =~ "GET \d+" }"#, 15, r"\d"),
        (r#"{ .a = "\'" }"#, 8, r"\'"),
        (r#"{ .a = "\x4g" }"#, 8, r"\x"),
        (r#"{ .a = "\x+1" }"#, 8, r"\x"),
        (r#"{ .a = "\x4" }"#, 8, r"\x"),
        (r#"{ .a = "\08" }"#, 8, r"\0"),
        (r#"{ .a = "\400" }"#, 8, r"\4"),
        (r#"{ .a = "\8" }"#, 8, r"\8"),
        (r#"{ .a = "\u12" }"#, 8, r"\u"),
        (r#"{ .a = "\ud800" }"#, 8, r"\u"),
        (r#"{ .a = "\U00110000" }"#, 8, r"\U"),
        (r#"{ .a = "\é" }"#, 8, r"\é"),
        (r#"{ .a = "\uéé" }"#, 8, r"\u"),
        (r#"{ .a = "\"#, 8, r"\"),
        (r#"{ span."a\d" = 1 }"#, 9, r"\d"),
    ] {
        let error = parse(query).expect_err(query);
        assert_eq!(error.to_string(), format!("byte {at}: {escapes}{found}"), "{query}");
    }
    for (query, want) in [
        (r#"{ .a = "\xff" }"#, "byte 7: expected a text whose escaped bytes are UTF-8, found '\"'"),
        (
            "{ .a = \"one\ntwo\" }",
            "byte 11: expected \\n for the end of a line, or a text in backquotes, found '\\n'",
        ),
    ] {
        assert_eq!(parse(query).expect_err(query).to_string(), want, "{query}");
    }
}

#[test]
fn and_binds_closer_than_or() {
    let one = |key: &str| is(span(key), Comparison::Equal, Literal::Int(1));
    let want = Expression::Any(vec![one("a"), Expression::All(vec![one("b"), one("c"), one("d")])]);
    assert_eq!(filter("{ span.a=1 || span.b=1 && span.c=1 && span.d=1 }"), want);
    let want = Expression::All(vec![Expression::Any(vec![one("a"), one("b")]), one("c")]);
    assert_eq!(filter("{ (span.a=1 || span.b=1) && (span.c=1) }"), want);
}

#[test]
fn functions_are_read() {
    let measure = |query: &str| {
        let parsed = parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        parsed.measure.expect("a function")
    };
    let duration = || Operand::Intrinsic("duration");
    let service = Operand::Attribute(Scope::Resource, "service.name".to_owned());
    assert_eq!(measure("{} | rate()"), Measure { function: Function::Rate, by: vec![] });
    let by = vec![service, Operand::Intrinsic("name")];
    assert_eq!(
        measure("{ status = error } | count_over_time() by (resource.service.name, name)"),
        Measure { function: Function::Count, by }
    );
    assert_eq!(
        measure("{} | quantile_over_time(duration, .5, 0.99, 1)").function,
        Function::Quantiles(duration(), vec![0.5, 0.99, 1.0])
    );
    assert_eq!(
        measure("{} | histogram_over_time(duration)").function,
        Function::Histogram(duration())
    );
    assert_eq!(measure("{} | max_over_time(span.size)").function, Function::Max(span("size")));
    let parsed =
        parse("{ .a = 1 } | select(span.b, name) with (most_recent=true, n=3)").expect("a search");
    assert_eq!(parsed.select, [span("b"), Operand::Intrinsic("name")]);
    let hints =
        [("most_recent".to_owned(), Literal::Bool(true)), ("n".to_owned(), Literal::Int(3))];
    assert_eq!(parsed.hints, hints);
}

#[test]
fn a_negation_applies_to_the_condition_after_it() {
    let is = |key: &str| Expression::Is(span(key), Comparison::Equal, Literal::Int(1));
    let not = |negated| Expression::Not(Box::new(negated));
    for (text, want) in [
        ("{ !(span.a = 1) && span.b = 1 }", Expression::All(vec![not(is("a")), is("b")])),
        ("{ !!(span.a = 1) }", not(not(is("a")))),
        ("{ !(span.a = 1 || span.b = 1) }", not(Expression::Any(vec![is("a"), is("b")]))),
    ] {
        assert_eq!(parse(text).expect(text).filter, Some(want), "{text}");
    }
}

#[test]
fn durations_are_exact() {
    for (text, ns) in [
        ("9007199254740993ns", 9_007_199_254_740_993),
        ("1.5s", 1_500_000_000),
        ("1h0.5m", 3_630_000_000_000),
        ("9223372036854775807d", i64::MAX),
    ] {
        let query = parse(&format!("{{ .a > {text} }}")).expect(text);
        let Some(Expression::Is(_, _, literal)) = query.filter else { panic!("{text}") };
        assert_eq!(literal, Literal::Duration(ns), "{text}");
    }
}

#[test]
fn syntax_errors_and_unsupported_syntax_differ_and_name_the_byte() {
    let cases = [
        ("", "byte 0: expected {, found the end"),
        (
            "{ span.a = }",
            "byte 11: expected a text, a number, a duration, true, false or nil, found \"}\"",
        ),
        ("{ span.a 1 }", "byte 9: expected a comparison, found 1"),
        (
            "{ foo = 1 }",
            "byte 2: expected a scope (span., resource., event., link., instrumentation., or .), found \"foo\"",
        ),
        ("{ span. = 1 }", "byte 7: expected the name of an attribute, found ' '"),
        ("{ span.a = \"x }", "byte 11: expected a text that ends with its quote, found '\"'"),
        ("{ duration > 5x }", "byte 15: expected ns, us, ms, s, m, h or d, found ' '"),
        ("{ span.a = 1 ", "byte 13: expected }, && or ||, found the end"),
        ("{ span.a = 1 } rate()", "byte 15: expected the end of the query, found \"rate\""),
        (
            "{} | quantile_over_time(duration, 99)",
            "byte 34: expected a quantile from 0 to 1 (0.99, not 99), found 99",
        ),
        (
            "{} | quantile_over_time(duration)",
            "byte 32: expected , and a quantile from 0 to 1, found \")\"",
        ),
        ("{ .a = 1 } >> { .b = 1 }", "byte 11: a relation between sets of spans is not supported"),
        ("{ .a = 1 } && { .b = 1 }", "byte 11: a relation between sets of spans is not supported"),
        ("{ !( ) }", "byte 5: expected a condition such as duration > 100ms, found \")\""),
        ("{ .a + 1 = 2 }", "byte 5: arithmetic is not supported"),
        ("{ .a = .b }", "byte 7: a comparison of two values of a span is not supported"),
        ("{ parent.a = 1 }", "byte 2: an attribute of the parent is not supported"),
        ("{} | compare({.a = 1})", "byte 5: compare is not supported"),
        ("{} | count() > 2", "byte 5: a function of a set of spans is not supported"),
        ("{} | rate() | topk(3)", "byte 14: a function of what was measured is not supported"),
        (
            "{} | bogus()",
            "byte 5: expected rate, count_over_time, min_over_time, max_over_time, avg_over_time, sum_over_time, \
             quantile_over_time, histogram_over_time or select, found \"bogus\"",
        ),
        (
            "{} | rate() | bogus()",
            "byte 14: expected select or the end of the query, found \"bogus\"",
        ),
        ("{ status = bogus }", "byte 11: expected error, ok or unset, found \"bogus\""),
        ("{ span:status != server }", "byte 17: expected error, ok or unset, found \"server\""),
        ("{ server = status }", "byte 2: expected error, ok or unset, found \"server\""),
        (
            "{ kind = bogus }",
            "byte 9: expected unspecified, internal, server, client, producer or consumer, found \"bogus\"",
        ),
        (
            "{ kind = error }",
            "byte 9: expected unspecified, internal, server, client, producer or consumer, found \"error\"",
        ),
        (
            "{ name = bogus }",
            "byte 9: expected a text, a number, a duration, true, false or nil, found \"bogus\"",
        ),
        ("{ status = .a }", "byte 11: a comparison of two values of a span is not supported"),
        ("{ .a = parent.b }", "byte 7: a comparison of two values of a span is not supported"),
    ];
    for (query, want) in cases {
        let error = parse(query).expect_err(query);
        assert_eq!(error.to_string(), want, "{query}");
    }
}

#[test]
fn long_and_deep_queries_are_refused() {
    let deep = format!("{{ {}.a = 1{} }}", "(".repeat(65), ")".repeat(65));
    assert_eq!(parse(&deep).expect_err("deep").fault, Fault::Too("deep"));
    let deep = format!("{{ {}.a }}", "!".repeat(65));
    assert_eq!(parse(&deep).expect_err("deep").fault, Fault::Too("deep"));
    let long = format!("{{ .a = \"{}\" }}", "x".repeat(17_000));
    assert_eq!(parse(&long).expect_err("long").fault, Fault::Too("long"));
}

#[test]
fn noise_is_read_or_refused() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let words = [
        "{",
        "}",
        "(",
        ")",
        "&&",
        "||",
        "=",
        "!=",
        ">",
        "=~",
        "|",
        ",",
        "-",
        ".a",
        "span.b",
        "duration",
        "5ms",
        "1",
        ".5",
        "\"t\"",
        "`",
        "\"",
        "\\",
        "rate()",
        "by",
        "select",
        "with",
        "quantile_over_time",
        "true",
        "nil",
        "ü",
        "µ",
        ":",
        ".",
        " ",
    ];
    let mut read = 0;
    for _ in 0..50_000 {
        let mut query = "{".to_owned();
        for _ in 0..rng.below(12) {
            query.push_str(words[rng.below(words.len())]);
        }
        if let Err(error) = parse(&query) {
            assert!(
                error.at <= query.len() && query.is_char_boundary(error.at),
                "{query}: {error}"
            );
        } else {
            read += 1;
        }
    }
    assert!(read > 100, "{read}");
}
