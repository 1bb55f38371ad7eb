use super::*;
use crate::limits::Limits;
use curtail_protobuf as protobuf;

fn traces(json: &str) -> Result<Vec<u8>, String> {
    to_protobuf(json.as_bytes(), Signal::Traces, &Limits::default())
        .map_err(|error| error.to_string())
}

/// A batch with one span that has these fields.
fn with_span(fields: &str) -> String {
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{fields}}}]}}]}}]}}"#)
}

#[test]
fn what_may_be_written_in_two_ways_is_read_in_both() {
    for (one, other) in [
        (r#""startTimeUnixNano":"17""#, r#""startTimeUnixNano":17"#),
        (r#""traceId":"0aFf""#, r#""traceId":"0AfF""#),
        (r#""name":"a""#, r#""name":"\u0061""#),
        (r#""name":"a""#, r#""n\u0061me":"a","later":{"unknown":[1,{"x":null}]}"#),
        (r#""name":"a""#, r#""status":null,"name":"a","events":null,"links":[null]"#),
        (
            r#""attributes":[{"key":"a","value":{"doubleValue":2.0}}]"#,
            r#""attributes":[{"key":"a","value":{"doubleValue":"2"}}]"#,
        ),
        (
            r#""attributes":[{"key":"a","value":{"doubleValue":2.0}}]"#,
            r#""attributes":[{"key":"a","value":{"doubleValue":2}}]"#,
        ),
    ] {
        assert_eq!(traces(&with_span(one)), traces(&with_span(other)), "{other}");
    }
}

#[test]
fn errors_name_their_place_and_what_was_expected() {
    for (fields, message) in [
        (
            r#""traceId":"xy""#,
            r#"invalid value: string "xy", expected text: hexadecimal digits for traceId"#,
        ),
        (
            r#""traceId":"abc""#,
            r#"invalid value: string "abc", expected text: hexadecimal digits for traceId"#,
        ),
        (
            r#""kind":"SPAN_KIND_SERVER""#,
            r#"invalid type: string "SPAN_KIND_SERVER", expected a whole number for kind"#,
        ),
        (r#""flags":-1"#, "invalid value: integer `-1`, expected a whole number for flags"),
        (
            r#""flags":4294967296"#,
            "invalid value: integer `4294967296`, expected a whole number for flags",
        ),
        (
            r#""startTimeUnixNano":"-1""#,
            r#"invalid value: string "-1", expected a whole number, as text or as it is for startTimeUnixNano"#,
        ),
        (
            r#""startTimeUnixNano":1.5"#,
            "invalid type: floating point `1.5`, expected a whole number, as text or as it is for startTimeUnixNano",
        ),
        (r#""name":5"#, "invalid type: integer `5`, expected text for name"),
        (r#""name":["a"]"#, "invalid type: sequence, expected text for name"),
        (r#""attributes":{}"#, "invalid type: map, expected a list for attributes"),
        (r#""attributes":["a"]"#, r#"invalid type: string "a", expected an object: KeyValue"#),
        (
            r#""attributes":[{"value":{"bytesValue":"*"}}]"#,
            r#"invalid value: string "*", expected text: bytes in base64 for bytesValue"#,
        ),
        (
            r#""attributes":[{"value":{"boolValue":1}}]"#,
            "invalid type: integer `1`, expected true or false for boolValue",
        ),
    ] {
        let json = with_span(fields);
        let error = traces(&json).expect_err("it is wrong");
        assert!(error.starts_with(message), "{fields}:\n{error}");
        assert!(error.contains(" at line 1 column "), "{error}");
    }
    for json in ["", "[]", "{", "{} {}", "nonsense", r#"{"resourceSpans":[}"#, "\u{feff}{}"] {
        assert!(traces(json).is_err(), "{json:?}");
    }
}

#[test]
fn of_what_lies_too_deep_is_left_what_the_decoder_refuses() {
    let nested = |lists: usize| {
        with_span(&format!(
            r#""name":"deep","attributes":[{{"value":{}{}}}]"#,
            r#"{"arrayValue":{"values":["#.repeat(lists),
            "]}}".repeat(lists)
        ))
    };
    let max = Limits::default().depth as usize;
    assert_ne!(traces(&nested(max)), traces(&nested(max + 1)));
    for lists in [max + 2, 10_000] {
        assert_eq!(traces(&nested(lists)), traces(&nested(max + 1)), "{lists}");
    }
}

#[test]
fn what_lies_too_deep_is_not_shown() {
    fn lists(out: &mut Vec<u8>, left: u32) {
        if left > 0 {
            protobuf::long_message_field(out, 5, |out| {
                protobuf::long_message_field(out, 1, |out| lists(out, left - 1))
            });
        }
    }
    let nested = |left| {
        let mut batch = Vec::new();
        protobuf::long_message_field(&mut batch, 1, |out| {
            protobuf::long_message_field(out, 1, |out| {
                protobuf::long_message_field(out, 1, |out| {
                    protobuf::long_message_field(out, 2, |out| lists(out, left))
                });
            });
        });
        from_protobuf(&batch, Signal::Traces, Mapping::Otlp)
    };
    // As deep as a batch may be by default.
    serde_json::from_str::<serde_json::Value>(&nested(16).expect("shown")).expect("JSON");
    assert!(nested(1_000).is_err());
}

#[test]
fn text_that_is_not_utf8_is_shown_as_well_as_can_be() {
    let mut batch = Vec::new();
    protobuf::long_message_field(&mut batch, 1, |out| protobuf::bytes_field(out, 3, b"a\xFFb"));
    let json = from_protobuf(&batch, Signal::Traces, Mapping::Otlp).expect("well-formed");
    assert_eq!(json, "{\"resourceSpans\":[{\"schemaUrl\":\"a\u{fffd}b\"}]}");
}

#[test]
fn protobufs_own_mapping_has_ids_in_base64_and_names_of_values() {
    let fields = r#""traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7","kind":2,"status":{"code":2}"#;
    let batch = traces(&with_span(fields)).expect("a batch");
    let shown = |mapping| from_protobuf(&batch, Signal::Traces, mapping).expect("well-formed");
    assert_eq!(shown(Mapping::Otlp), with_span(fields));
    let named = r#""traceId":"S/kvNXezTaajzpKdDg5HNg==","spanId":"APBnqgupArc=","kind":"SPAN_KIND_SERVER","status":{"code":"STATUS_CODE_ERROR"}"#;
    assert_eq!(shown(Mapping::Protobuf), with_span(named));
    // A value of a later version has no name.
    let later = traces(&with_span(r#""kind":9,"status":{"code":-1}"#)).expect("a batch");
    let shown = from_protobuf(&later, Signal::Traces, Mapping::Protobuf).expect("well-formed");
    assert_eq!(shown, with_span(r#""kind":9,"status":{"code":-1}"#));
}
