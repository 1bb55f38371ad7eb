//! Values from a file: a number a line, or a column of a CSV (RFC 4180, without fields over several lines).
//!
//! **Limits**: [`VALUES_MAX`] values, [`LINE_BYTES_MAX`] bytes in a line, decompressed. Blank lines are passed over.
//! The first line that is wrong ends it: a figure of half a file would be the figure of something else.

use super::Unit;
use anyhow::Context as _;
use curtail_load::buckets::Values;
use curtail_units::Duration;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Error, ErrorKind, Read};
use std::path::Path;

#[cfg(test)]
mod tests;

/// As many as take 400 MB.
const VALUES_MAX: usize = 50_000_000;

const LINE_BYTES_MAX: usize = 1 << 20;

/// The name of standard input.
const STDIN: &str = "-";

const GZIP: &[u8] = &[0x1F, 0x8B];
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];

/// All values of a file.
pub(super) fn read(file: &Path, column: Option<&str>, unit: Unit) -> anyhow::Result<Values> {
    let open = || {
        if file == Path::new(STDIN) {
            return read_lines(decompress(io::stdin().lock())?, column, unit);
        }
        read_lines(decompress(File::open(file)?)?, column, unit)
    };
    open().with_context(|| name(file))
}

/// What a file is called in reports and errors.
pub(super) fn name(file: &Path) -> String {
    if file == Path::new(STDIN) {
        return "standard input".to_owned();
    }
    file.display().to_string()
}

/// The lines of something that may be compressed, which its first bytes show.
fn decompress<'r>(mut raw: impl Read + 'r) -> io::Result<Box<dyn BufRead + 'r>> {
    let mut first = Vec::new();
    raw.by_ref().take(ZSTD.len() as u64).read_to_end(&mut first)?;
    let whole = Cursor::new(first.clone()).chain(raw);
    Ok(if first.starts_with(GZIP) {
        Box::new(BufReader::new(MultiGzDecoder::new(BufReader::new(whole))))
    } else if first.starts_with(ZSTD) {
        Box::new(BufReader::new(zstd::Decoder::new(whole)?))
    } else {
        Box::new(BufReader::new(whole))
    })
}

/// All values of these lines.
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
        // A mark that some programs put in front of a file.
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

/// The value in a line, or in its field at `place`.
fn value(line: &str, place: Option<usize>, unit: Unit) -> Result<Duration, String> {
    let Some(place) = place else { return unit.read(line) };
    let fields = fields(line)?;
    let field = fields
        .get(place)
        .ok_or_else(|| format!("expected at least {} fields, found {}", place + 1, fields.len()))?;
    unit.read(field).map_err(|what| format!("field {}: {what}", place + 1))
}

/// The place of a column in the first line.
fn find(line: &str, column: &str) -> Result<usize, String> {
    let fields = fields(line)?;
    let place = fields.iter().position(|name| name.trim() == column);
    place.ok_or_else(|| {
        let names = fields.join(", ");
        format!("there is no column {column:?}: expected one of {names:.300}")
    })
}

/// The fields of a line of CSV. In quotes a comma is part of a field, and two quotes are one.
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
