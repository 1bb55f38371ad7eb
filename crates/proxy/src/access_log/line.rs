//! Writes a line: the values of its fields in JSON, or in a format of the user.
//!
//! Clients send any bytes, and no byte of theirs ends a line or a JSON text. JSON: control characters are escaped, and
//! bytes that are not UTF-8 become U+FFFD. Text: `"`, `\`, control characters and bytes beyond ASCII become `\xHH`, as in
//! nginx, so a format may put a field in quotes. An absent value has no key in JSON, and is `-` in text.

use super::field::{Facts, Field, Value};
use super::format::FormatPart;
use crate::trace_context::write_hex;
use crate::trail::{AttemptEnd, AttemptTrail};
use curtail_text::numbers;
use curtail_units::{Duration, Instant};

/// A text longer than this is cut off, in bytes: a path may be as long as all header fields together.
pub(super) const TEXT_BYTES_MAX: usize = 2_048;

/// Appends a line as JSON, with these request headers.
pub(super) fn write_json(out: &mut Vec<u8>, facts: &Facts<'_>, headers: &[String]) {
    let start = out.len();
    for (field, key) in Field::KEYS {
        if let Some(value) = facts.value(*field) {
            out.extend_from_slice(key.as_bytes());
            write_value(out, value);
        }
    }
    let mut separator: &[u8] = b",\"headers\":{";
    for name in headers {
        if let Some(value) = facts.header(name) {
            out.extend_from_slice(separator);
            separator = b",";
            write_text_value(out, name.as_bytes());
            out.push(b':');
            write_value(out, value);
        }
    }
    if separator == b"," {
        out.push(b'}');
    }
    write_attempts(out, facts);
    out.extend_from_slice(b"}\n");
    // Every key begins with a comma. The time, the first key, is always there.
    out[start] = b'{';
}

fn write_attempts(out: &mut Vec<u8>, facts: &Facts<'_>) {
    let Some(trail) = facts.record.trail else { return };
    out.extend_from_slice(b",\"attempts\":[");
    for (index, attempt) in facts.attempts().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_attempt(out, attempt, (trail.started, facts.record.end.at));
    }
    out.push(b']');
}

fn write_attempt(out: &mut Vec<u8>, attempt: &AttemptTrail, (start, latest): (Instant, Instant)) {
    let mut put = |key: &str, value: Value<'_>| {
        out.extend_from_slice(key.as_bytes());
        write_value(out, value);
    };
    put("{\"replica\":", Value::Word(&attempt.replica.authority));
    put(",\"reason\":", Value::Word(attempt.reason.name()));
    if attempt.reason.has_detail() {
        put(",\"reason_detail\":", Value::Text(attempt.reason.to_string().as_bytes()));
    }
    put(",\"start_ms\":", Value::Duration(attempt.sent.since(start)));
    let end = attempt.ended_at().unwrap_or(latest);
    put(",\"duration_ms\":", Value::Duration(end.since(attempt.sent)));
    if let Some(phases) = attempt.connect {
        put(",\"lookup_ms\":", Value::Duration(phases.lookup));
        put(",\"tcp_ms\":", Value::Duration(phases.tcp));
        put(",\"tls_ms\":", Value::Duration(phases.tls));
    }
    if let Some((at, status)) = attempt.responded {
        put(",\"first_byte_ms\":", Value::Duration(at.since(attempt.sent)));
        put(",\"status\":", Value::Count(status.as_u16().into()));
    }
    let (outcome, why) = match attempt.end.map(|(_, end)| end) {
        Some(AttemptEnd::Responded) => ("responded", None),
        Some(AttemptEnd::Failed(failure)) => ("failed", Some(failure.name())),
        Some(AttemptEnd::Cancelled(reason)) => ("cancelled", Some(reason.name())),
        None => ("unfinished", None),
    };
    put(",\"outcome\":", Value::Word(outcome));
    if let Some(why) = why {
        put(",\"outcome_reason\":", Value::Word(why));
    }
    put(",\"won\":", Value::Flag(attempt.won));
    out.push(b'}');
}

/// Appends a line in the format of the user.
pub(super) fn write_text(out: &mut Vec<u8>, facts: &Facts<'_>, parts: &[FormatPart]) {
    for part in parts {
        let value = match part {
            FormatPart::Literal(literal) => {
                out.extend_from_slice(literal.as_bytes());
                continue;
            }
            FormatPart::Field(field) => facts.value(*field),
            FormatPart::Header(name) => facts.header(name),
        };
        match value {
            None | Some(Value::Text(b"")) => out.push(b'-'),
            Some(Value::Text(text)) => write_escaped(out, cut(text)),
            Some(value) => write_plain(out, value),
        }
    }
    out.push(b'\n');
}

/// Appends a value as JSON.
fn write_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Text(text) => write_text_value(out, text),
        Value::Word(_) | Value::Time(_) | Value::TraceId(_) => {
            out.push(b'"');
            write_plain(out, value);
            out.push(b'"');
        }
        Value::Count(_) | Value::Flag(_) | Value::Duration(_) => write_plain(out, value),
    }
}

/// Appends a value that has no character to escape.
fn write_plain(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Text(text) => out.extend_from_slice(text),
        Value::Word(word) => out.extend_from_slice(word.as_bytes()),
        Value::Count(count) => write_digits(out, count, 1),
        Value::Flag(flag) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
        Value::Duration(duration) => write_ms(out, duration),
        Value::Time(unix_ns) => write_time(out, unix_ns),
        Value::TraceId(id) => {
            let mut digits = [0; 32];
            write_hex(&mut digits, id);
            out.extend_from_slice(&digits);
        }
    }
}

/// Appends milliseconds with three decimals.
fn write_ms(out: &mut Vec<u8>, duration: Duration) {
    let us = duration.as_ns() / 1_000;
    write_digits(out, us / 1_000, 1);
    out.push(b'.');
    write_digits(out, us % 1_000, 3);
}

/// Appends an instant as in RFC 3339, in UTC and with microseconds.
fn write_time(out: &mut Vec<u8>, unix_ns: u64) {
    let [year, month, day, hour, minute, second] = numbers::date_and_time(unix_ns);
    let us = unix_ns / 1_000 % 1_000_000;
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    for (at, number) in [
        (0, year / 100),
        (2, year),
        (5, month),
        (8, day),
        (11, hour),
        (14, minute),
        (17, second),
        (20, us / 10_000),
        (22, us / 100),
        (24, us),
    ] {
        text[at..at + 2].copy_from_slice(&two_digits(number));
    }
    out.extend_from_slice(&text);
}

/// Appends a number with at least `len_min` digits.
pub(super) fn write_digits(out: &mut Vec<u8>, mut number: u64, len_min: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&two_digits(number));
        number /= 100;
    }
    at += usize::from(digits.get(at) == Some(&b'0'));
    out.extend_from_slice(&digits[at.min(digits.len() - len_min)..]);
}

/// The last two digits of a number.
fn two_digits(number: u64) -> [u8; 2] {
    let [last, ..] = (number % 100).to_le_bytes();
    [b'0' + last / 10, b'0' + last % 10]
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

/// Appends a JSON string.
pub(super) fn write_text_value(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    out.push(b'"');
    let text = cut(text);
    // Without a branch for each byte: nearly every text is plain.
    if text.iter().fold(true, |all, byte| all & is_plain(byte)) {
        out.extend_from_slice(text);
    } else {
        text.utf8_chunks().for_each(|chunk| {
            write_escaped_json(out, chunk.valid());
            if !chunk.invalid().is_empty() {
                out.extend_from_slice("\u{fffd}".as_bytes());
            }
        });
    }
    out.push(b'"');
}

/// Appends a text within a JSON string. Control characters that JSON allows are escaped too, because terminals obey them.
fn write_escaped_json(out: &mut Vec<u8>, text: &str) {
    for char in text.chars() {
        if char.is_control() {
            // All are below U+00A0.
            let mut digits = [0; 4];
            write_hex(&mut digits, &u32::from(char).to_be_bytes()[2..]);
            out.extend_from_slice(b"\\u");
            out.extend_from_slice(&digits);
            continue;
        }
        if matches!(char, '"' | '\\') {
            out.push(b'\\');
        }
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Appends a text of a client to a line of text.
fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        if matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\') {
            out.push(*byte);
        } else {
            let mut digits = [0; 2];
            write_hex(&mut digits, &[*byte]);
            out.extend_from_slice(&[b'\\', b'x', digits[0], digits[1]]);
        }
    }
}
