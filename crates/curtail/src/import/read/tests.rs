use super::*;

const SPANS: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"01000000000000000000000000000002","spanId":"0300000000000004"}]}]}]}"#;
const LOGS: &str = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{}]}]}]}"#;

fn piece(bytes: &[u8], is_message: bool) -> Piece {
    Piece { nth: 1, bytes: bytes.to_vec(), is_message }
}

fn line(text: &str) -> Result<Vec<(Signal, u64)>, String> {
    told(&piece(text.as_bytes(), false), None)
}

fn told(piece: &Piece, of: Option<Signal>) -> Result<Vec<(Signal, u64)>, String> {
    let found = batches(piece, of)?;
    Ok(found.into_iter().map(|(nth, _, rows)| (KEYS[nth].1, rows)).collect())
}

#[test]
fn a_line_says_by_its_key_what_it_is_of() {
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
fn what_is_no_batch_is_named_with_its_byte_and_what_was_expected() {
    let expected = "byte 1: expected an object with resourceSpans, resourceLogs or resourceMetrics";
    for wrong in ["{}", "null", "17", "GET / 200", "{\"resource\":[]}"] {
        assert_eq!(line(wrong), Err(expected.to_owned()), "{wrong}");
    }
    let cut = &SPANS[..60];
    for end in ["", "\n", "\r\n"] {
        let said = "byte 60: EOF while parsing a string".to_owned();
        assert_eq!(line(&format!("{cut}{end}")), Err(said));
    }
    let kind = SPANS.replacen("\"0300000000000004\"", "true", 1);
    let said = line(&kind).expect_err("no ID");
    assert_eq!(
        said,
        "byte 102: invalid type: boolean `true`, expected text: hexadecimal digits for spanId"
    );
}

#[test]
fn messages_of_protobuf_are_what_is_said() {
    let batch =
        json::to_protobuf(SPANS.as_bytes(), Signal::Traces, &Limits::default()).expect("a batch");
    let message = piece(&batch, true);
    assert_eq!(told(&message, Some(Signal::Traces)), Ok(vec![(Signal::Traces, 1)]));
    let unsaid = told(&message, None).expect_err("nobody knows");
    assert!(unsaid.contains("--of"), "{unsaid}");
    assert_eq!(told(&piece(SPANS.as_bytes(), true), None), Ok(vec![(Signal::Traces, 1)]));
    let cut = told(&piece(&batch[..batch.len() - 1], true), Some(Signal::Traces));
    assert!(cut.expect_err("cut off").starts_with("byte "));
}
