//! Reads values from a file: a number a line, or a column of CSV (RFC 4180, without line breaks in fields).
//!
//! **Limits**: [`VALUES_MAX`] values, [`LINE_BYTES_MAX`] bytes in a line, decompressed. Blank lines are skipped. The
//! first invalid line is an error, because the quantiles of half a file would differ from those of the whole file.

use super::Unit;
use crate::input;
use anyhow::Context as _;
use curtail_load::buckets::Values;
use curtail_units::Duration;
use std::io::{self, BufRead, Error, ErrorKind, Read as _};
use std::path::Path;

#[cfg(test)]
mod tests;

/// Maximum number of values: 400 MB.
const VALUES_MAX: usize = 50_000_000;

const LINE_BYTES_MAX: usize = 1 << 20;

pub(super) fn read(file: &Path, column: Option<&str>, unit: Unit) -> anyhow::Result<Values> {
    let (name, raw) = input::open(file)?;
    let read = input::decompress(raw).and_then(|lines| read_lines(lines, column, unit));
    read.context(name)
}

fn read_lines(mut lines: impl BufRead, column: Option<&str>, unit: Unit) -> io::Result<Values> {
    let mut values = Vec::new();
    let mut place = None;
    let (mut line, mut at) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        at += 1;
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = lines.by_ref().take(limit).read_until(b'\n', &mut line);
        if read.map_err(|error| Error::new(error.kind(), format!("line {at}: {error}")))? == 0 {
            break;
        }
        let wrong = |what: &str| Error::new(ErrorKind::InvalidData, format!("line {at}: {what}"));
        if line.len() > LINE_BYTES_MAX {
            return Err(wrong(&format!("expected at most {LINE_BYTES_MAX} bytes")));
        }
        let text = std::str::from_utf8(&line).map_err(|_| wrong("expected text in UTF-8"))?;
        // Some programs put a byte order mark in front of a file.
        let text = text.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            continue;
        }
        match (column, place) {
            (Some(column), None) => place = Some(find(text, column).map_err(|what| wrong(&what))?),
            (_, place) => {
                let value = value(text, place, unit).map_err(|what| wrong(&what))?;
                if values.len() == VALUES_MAX {
                    return Err(wrong(&format!("expected at most {VALUES_MAX} values")));
                }
                values.push(value);
            }
        }
    }
    if values.is_empty() {
        return Err(Error::new(ErrorKind::InvalidData, "expected values, found none"));
    }
    Ok(Values::new(values))
}

fn value(line: &str, place: Option<usize>, unit: Unit) -> Result<Duration, String> {
    let Some(place) = place else { return unit.read(line) };
    let fields = fields(line)?;
    let field = fields
        .get(place)
        .ok_or_else(|| format!("expected at least {} fields, found {}", place + 1, fields.len()))?;
    unit.read(field).map_err(|what| format!("field {}: {what}", place + 1))
}

/// Returns the index of the column in the first line.
fn find(line: &str, column: &str) -> Result<usize, String> {
    let fields = fields(line)?;
    let place = fields.iter().position(|name| name.trim() == column);
    place.ok_or_else(|| {
        let names = fields.join(", ");
        format!("there is no column {column:?}: expected one of {names:.300}")
    })
}

/// Splits a line of CSV into its fields. In quotes, a comma is text and two quotes are one quote.
fn fields(line: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars().peekable();
    let mut is_quoted = false;
    while let Some(letter) = letters.next() {
        let field = fields.last_mut().expect("there is one from the start");
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' if is_quoted || field.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            letter => field.push(letter),
        }
    }
    if is_quoted {
        return Err("expected a closing quote before the end of the line".to_owned());
    }
    Ok(fields)
}
