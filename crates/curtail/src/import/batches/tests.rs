use super::*;

const SPANS: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"01000000000000000000000000000002","spanId":"0300000000000004"}]}]}]}"#;
const LOGS: &str = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{}]}]}]}"#;

fn line(text: &str) -> Result<Vec<(Signal, u64)>, String> {
    signals(text.as_bytes(), false, None)
}

fn signals(
    bytes: &[u8],
    is_message: bool,
    signal: Option<Signal>,
) -> Result<Vec<(Signal, u64)>, String> {
    let found = to_batches(bytes, is_message, signal)?;
    Ok(found.into_iter().map(|(key, _, rows)| (KEYS[key].1, rows)).collect())
}

#[test]
fn the_key_of_a_line_names_its_signal() {
    assert_eq!(line(SPANS), Ok(vec![(Signal::Traces, 1)]));
    assert_eq!(line(LOGS), Ok(vec![(Signal::Logs, 2)]));
    assert_eq!(line(r#" { "resourceMetrics" : [] } "#), Ok(vec![(Signal::Metrics, 0)]));
    // Nothing is passed over that is there.
    let both = format!("{},{}", &SPANS[..SPANS.len() - 1], &LOGS[1..]);
    assert_eq!(line(&both), Ok(vec![(Signal::Traces, 1), (Signal::Logs, 2)]));
    // What a text says is no key.
    let text =
        LOGS.replacen("{}", r#"{"body":{"stringValue":"a"},"eventName":"resourceSpans"}"#, 1);
    assert_eq!(line(&text), Ok(vec![(Signal::Logs, 2)]));
}

#[test]
fn an_error_names_the_byte_and_the_expected_input() {
    let expected = "byte 1: expected an object with resourceSpans, resourceLogs or resourceMetrics";
    for wrong in ["{}", "null", "17", "GET / 200", "{\"resource\":[]}"] {
        assert_eq!(line(wrong), Err(expected.to_owned()), "{wrong}");
    }
    let cut = &SPANS[..60];
    for end in ["", "\n", "\r\n"] {
        let error = "byte 60: EOF while parsing a string".to_owned();
        assert_eq!(line(&format!("{cut}{end}")), Err(error));
    }
    let kind = SPANS.replacen("\"0300000000000004\"", "true", 1);
    let error = line(&kind).expect_err("no ID");
    assert_eq!(
        error,
        "byte 102: invalid type: boolean `true`, expected text: hexadecimal digits for spanId"
    );
}

#[test]
fn messages_in_protobuf_have_the_given_signal() {
    let batch =
        json::to_protobuf(SPANS.as_bytes(), Signal::Traces, &Limits::default()).expect("a batch");
    assert_eq!(signals(&batch, true, Some(Signal::Traces)), Ok(vec![(Signal::Traces, 1)]));
    let error = signals(&batch, true, None).expect_err("the signal is unknown");
    assert!(error.contains("--of"), "{error}");
    assert_eq!(signals(SPANS.as_bytes(), true, None), Ok(vec![(Signal::Traces, 1)]));
    let cut = signals(&batch[..batch.len() - 1], true, Some(Signal::Traces));
    assert!(cut.expect_err("cut off").starts_with("byte "));
}
