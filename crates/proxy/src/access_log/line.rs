//! Writes a line: the values of its fields in JSON, or in a format of the user.
//!
//! Clients send any bytes, and no byte of theirs ends a line or a JSON text. JSON: control characters are escaped, and
//! bytes that are not UTF-8 become U+FFFD. Text: `"`, `\`, control characters and bytes beyond ASCII become `\xHH`, as in
//! nginx, so a format may put a field in quotes. An absent value has no key in JSON, and is `-` in text.

use super::field::{Facts, Value, write_members};
use super::format::FormatPart;
use crate::trace_context::write_hex;
use crate::trail::{AttemptEnd, AttemptTrail};
use curtail_text::numbers;
use curtail_units::{Duration, Instant};
use std::io::Write as _;

/// A text longer than this is cut off, in bytes: a path may be as long as all header fields together.
pub(super) const TEXT_BYTES_MAX: usize = 2_048;

/// The text of a second in RFC 3339, up to its fraction. Most lines have the second of the line before.
#[derive(Debug)]
pub(super) struct SecondText {
    /// Since 1970.
    second: u64,
    text: [u8; 20],
}

impl Default for SecondText {
    fn default() -> Self {
        Self { second: 0, text: *b"1970-01-01T00:00:00." }
    }
}

impl SecondText {
    fn set(&mut self, second: u64) {
        if self.second == second {
            return;
        }
        self.second = second;
        let [year, month, day, hour, minute, second] =
            numbers::date_and_time(second.saturating_mul(1_000_000_000));
        for (at, number) in [
            (0, year / 100),
            (2, year),
            (5, month),
            (8, day),
            (11, hour),
            (14, minute),
            (17, second),
        ] {
            self.text[at..at + 2].copy_from_slice(&two_digits(number));
        }
    }
}

/// A text of the configuration, escaped for JSON once instead of in every line.
#[derive(Debug)]
pub(crate) struct PreparedText {
    text: Box<str>,
    /// The text between the quotes of a JSON string, cut off after [`TEXT_BYTES_MAX`] bytes.
    json: Box<[u8]>,
}

impl PreparedText {
    pub(crate) fn new(text: &str) -> Self {
        let mut json = Vec::new();
        write_json_text(&mut json, text.as_bytes());
        Self { text: text.into(), json: json.into() }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Where a line goes: the lines so far, and the second of the last one.
pub(super) type Output<'a> = (&'a mut Vec<u8>, &'a mut SecondText);

/// Appends a line as JSON, with these request headers.
pub(super) fn write_json((out, second): Output<'_>, facts: &Facts<'_>, headers: &[String]) {
    let start = out.len();
    write_members((out, second), facts);
    let mut separator: &[u8] = b",\"headers\":{";
    for name in headers {
        if let Some(value) = facts.header(name) {
            out.extend_from_slice(separator);
            separator = b",";
            write_text_value(out, name.as_bytes());
            out.push(b':');
            write_text_value(out, value);
        }
    }
    if separator == b"," {
        out.push(b'}');
    }
    write_attempts((out, second), facts);
    out.extend_from_slice(b"}\n");
    // Every key begins with a comma. The time, the first key, is always there.
    out[start] = b'{';
}

/// Appends a member of a JSON object. `key` has the comma before it, and the quote after its colon that opens a text.
///
/// Inlined, so that the key is copied as a constant: a line has about forty members.
#[inline(always)]
pub(super) fn write_member((out, second): Output<'_>, key: &'static str, value: Value<'_>) {
    let is_quoted = match value {
        Value::Text(_)
        | Value::Prepared(_)
        | Value::Word(_)
        | Value::Time(_)
        | Value::TraceId(_)
        | Value::Address(_) => true,
        Value::Count(_) | Value::Flag(_) | Value::Duration(_) => false,
    };
    if !is_quoted {
        out.extend_from_slice(&key.as_bytes()[..key.len() - 1]);
        write_plain((out, second), value);
        return;
    }
    out.extend_from_slice(key.as_bytes());
    if let Value::Text(text) = value {
        write_json_text(out, text);
    } else {
        write_plain((&mut *out, second), value);
    }
    out.push(b'"');
}

fn write_attempts((out, second): Output<'_>, facts: &Facts<'_>) {
    let Some(trail) = facts.record.trail else { return };
    out.extend_from_slice(b",\"attempts\":[");
    for (index, attempt) in facts.attempts().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let start = out.len();
        write_attempt((&mut *out, &mut *second), attempt, (trail.started, facts.record.end.at));
        // As for the line: every key begins with a comma.
        out[start] = b'{';
        out.push(b'}');
    }
    out.push(b']');
}

fn write_attempt(
    (out, second): Output<'_>,
    attempt: &AttemptTrail,
    (start, latest): (Instant, Instant),
) {
    macro_rules! put {
        ($name:literal, $value:expr) => {
            write_member((&mut *out, &mut *second), concat!(",\"", $name, "\":\""), $value)
        };
    }
    put!("replica", Value::Prepared(&attempt.replica.address));
    put!("reason", Value::Word(attempt.reason.name()));
    if attempt.reason.has_detail() {
        put!("reason_detail", Value::Text(attempt.reason.to_string().as_bytes()));
    }
    put!("start_ms", Value::Duration(attempt.sent.since(start)));
    let end = attempt.end.map_or(latest, |(at, _)| at);
    put!("duration_ms", Value::Duration(end.since(attempt.sent)));
    if let Some(phases) = attempt.connect {
        put!("lookup_ms", Value::Duration(phases.lookup));
        put!("tcp_ms", Value::Duration(phases.tcp));
        put!("tls_ms", Value::Duration(phases.tls));
    }
    if let Some((at, status)) = attempt.responded {
        put!("first_byte_ms", Value::Duration(at.since(attempt.sent)));
        put!("status", Value::Count(status.as_u16().into()));
    }
    let (outcome, why) = match attempt.end.map(|(_, end)| end) {
        Some(AttemptEnd::Responded) => ("responded", None),
        Some(AttemptEnd::Failed(failure)) => ("failed", Some(failure.name())),
        Some(AttemptEnd::Cancelled(reason)) => ("cancelled", Some(reason.name())),
        None => ("unfinished", None),
    };
    put!("outcome", Value::Word(outcome));
    if let Some(why) = why {
        put!("outcome_reason", Value::Word(why));
    }
    put!("won", Value::Flag(attempt.won));
}

/// Appends a line in the format of the user.
pub(super) fn write_text((out, second): Output<'_>, facts: &Facts<'_>, parts: &[FormatPart]) {
    for part in parts {
        let value = match part {
            FormatPart::Literal(literal) => {
                out.extend_from_slice(literal.as_bytes());
                continue;
            }
            FormatPart::Field(field) => facts.value(*field),
            FormatPart::Header(name) => facts.header(name).map(Value::Text),
        };
        let text = match value {
            None => &[],
            Some(Value::Text(text)) => text,
            Some(Value::Prepared(prepared)) => prepared.text.as_bytes(),
            Some(value) => {
                write_plain((&mut *out, &mut *second), value);
                continue;
            }
        };
        if text.is_empty() { out.push(b'-') } else { write_escaped(out, cut(text)) }
    }
    out.push(b'\n');
}

/// Appends a value that needs no escapes; a prepared text has those of JSON.
#[inline(always)]
fn write_plain((out, second): Output<'_>, value: Value<'_>) {
    match value {
        Value::Text(text) => out.extend_from_slice(text),
        Value::Prepared(prepared) => out.extend_from_slice(&prepared.json),
        Value::Word(word) => out.extend_from_slice(word.as_bytes()),
        Value::Count(count) => write_digits(out, count),
        Value::Flag(true) => out.extend_from_slice(b"true"),
        Value::Flag(false) => out.extend_from_slice(b"false"),
        Value::Duration(duration) => write_ms(out, duration),
        Value::Time(unix_ns) => write_time((out, second), unix_ns),
        Value::TraceId(id) => {
            let mut digits = [0; 32];
            write_hex(&mut digits, id);
            out.extend_from_slice(&digits);
        }
        Value::Address(address) => {
            write!(out, "{address}").expect("writing to a Vec does not fail");
        }
    }
}

/// Appends milliseconds with three decimals.
pub(super) fn write_ms(out: &mut Vec<u8>, duration: Duration) {
    let us = duration.as_ns() / 1_000;
    let ([thousands, hundreds], [tens, ones]) = (two_digits(us / 100), two_digits(us));
    if us < 10_000 {
        // Most attempts are this short. A copy of a constant length needs no call.
        out.extend_from_slice(&[thousands, b'.', hundreds, tens, ones]);
    } else {
        write_digits(out, us / 1_000);
        out.extend_from_slice(&[b'.', hundreds, tens, ones]);
    }
}

/// Appends an instant as in RFC 3339, in UTC and with microseconds.
pub(super) fn write_time((out, second): Output<'_>, unix_ns: u64) {
    second.set(unix_ns / 1_000_000_000);
    let us = unix_ns / 1_000 % 1_000_000;
    let mut text = [b'Z'; 27];
    text[..20].copy_from_slice(&second.text);
    for (at, number) in [(20, us / 10_000), (22, us / 100), (24, us)] {
        text[at..at + 2].copy_from_slice(&two_digits(number));
    }
    out.extend_from_slice(&text);
}

/// Appends a number.
pub(super) fn write_digits(out: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => out.push(two_digits(number)[1]),
        // Statuses: a copy of a constant length needs no call.
        100..1_000 => {
            let ([_, hundreds], [tens, ones]) = (two_digits(number / 100), two_digits(number));
            out.extend_from_slice(&[hundreds, tens, ones]);
        }
        _ => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// The last two digits of a number.
#[inline]
fn two_digits(number: u64) -> [u8; 2] {
    /// The digits of the numbers below 100.
    static DIGITS: [[u8; 2]; 100] = {
        let mut digits = [[0; 2]; 100];
        let mut number = 0_u8;
        while number < 100 {
            digits[number as usize] = [b'0' + number / 10, b'0' + number % 10];
            number += 1;
        }
        digits
    };
    let [last, ..] = (number % 100).to_le_bytes();
    DIGITS[usize::from(last)]
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

/// Appends a JSON string.
pub(super) fn write_text_value(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    write_json_text(out, text);
    out.push(b'"');
}

/// Appends a text within the quotes of a JSON string.
fn write_json_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = cut(text);
    if is_plain(text) {
        out.extend_from_slice(text);
        return;
    }
    text.utf8_chunks().for_each(|chunk| {
        write_escaped_json(out, chunk.valid());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    });
}

/// Whether a text has only visible ASCII characters and spaces, and none that JSON escapes. Nearly every text is plain, so
/// eight bytes are compared at once.
fn is_plain(text: &[u8]) -> bool {
    if let Some(last) = text.last_chunk::<8>() {
        // The last word may overlap the one before.
        let (words, _) = text.as_chunks::<8>();
        return words.iter().fold(is_plain_word(*last), |all, word| all & is_plain_word(*word));
    }
    // Four to seven bytes: the first four and the last four, which overlap.
    if let (Some([a, b, c, d]), Some([e, f, g, h])) =
        (text.first_chunk::<4>(), text.last_chunk::<4>())
    {
        return is_plain_word([*a, *b, *c, *d, *e, *f, *g, *h]);
    }
    text.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'))
}

/// [`is_plain`] for eight bytes. A byte that is not plain sets the highest bit of itself or of a later byte; no other byte
/// does.
const fn is_plain_word(word: [u8; 8]) -> bool {
    const fn each(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    /// Whether a byte is zero ("Bit Twiddling Hacks", `haszero`), as a set bit. A borrow can set further bits.
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(each(1)) & !word
    }
    let word = u64::from_le_bytes(word);
    let control = word.wrapping_sub(each(0x20)) & !word;
    // DEL becomes 0x80, and bytes beyond ASCII have their highest bit.
    let beyond = word | word.wrapping_add(each(1));
    let escaped = zeros(word ^ each(b'"')) | zeros(word ^ each(b'\\'));
    (control | beyond | escaped) & each(0x80) == 0
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
