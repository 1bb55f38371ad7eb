//! The records of a file: lines, or messages with a length before each.
//!
//! The first bytes of a file identify its compression, and whether it has messages. A length has four bytes, and is at
//! most 64 MiB. The first byte of a length is therefore at most 4, and no line of JSON begins with a byte up to 4.
//!
//! **Source**: the documentation of the Collector's file exporter, 0.150.

use crate::input;
use std::io::{self, BufRead, Read};
use std::path::Path;

/// Maximum size of a record; servers accept no larger batch.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;

const LENGTH_BYTES: usize = 4;

/// Reads the records of a file: the number of each record (from 1, blank lines included), and its bytes or an error.
pub(super) struct Records {
    reader: Box<dyn BufRead>,
    /// Whether the records are messages with a length before each.
    pub(super) has_lengths: bool,
    count: u64,
    /// The number of decompressed bytes before the next record.
    at: u64,
    /// Whether an error made the start of the next record unknown.
    pub(super) is_lost: bool,
}

impl Records {
    pub(super) fn open(file: &Path) -> anyhow::Result<Self> {
        Ok(Self::new(input::open(file)?.1)?)
    }

    fn new(raw: impl Read + 'static) -> io::Result<Self> {
        let mut reader = input::decompress(raw)?;
        // A byte order mark is no part of the first line.
        let mark_len = if reader.fill_buf()?.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
        reader.consume(mark_len);
        let first = reader.fill_buf()?.first();
        let has_lengths = first.is_some_and(|byte| usize::from(*byte) <= RECORD_BYTES_MAX >> 24);
        Ok(Self { reader, has_lengths, count: 0, at: mark_len as u64, is_lost: false })
    }

    fn line(&mut self) -> io::Result<Option<Result<Vec<u8>, String>>> {
        let mut line = Vec::new();
        let limit = RECORD_BYTES_MAX as u64 + 1;
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        self.at += line.len() as u64;
        if line.len() > RECORD_BYTES_MAX && !line.ends_with(b"\n") {
            self.at += self.reader.skip_until(b'\n')? as u64;
            return Ok(Some(Err(format!("the line has more than {RECORD_BYTES_MAX} bytes"))));
        }
        Ok(Some(Ok(line)))
    }

    fn message(&mut self) -> io::Result<Option<Result<Vec<u8>, String>>> {
        let mut length = Vec::new();
        self.reader.by_ref().take(LENGTH_BYTES as u64).read_to_end(&mut length)?;
        if length.is_empty() {
            return Ok(None);
        }
        let at = self.at;
        let Some(length) = length.first_chunk::<LENGTH_BYTES>() else {
            return Ok(Some(Err(format!("byte {at}: expected a length of four bytes"))));
        };
        let length = u32::from_be_bytes(*length);
        if length as usize > RECORD_BYTES_MAX {
            let error = format!(
                "byte {at}: a length of {length} bytes, expected at most {RECORD_BYTES_MAX}; the rest is not read"
            );
            return Ok(Some(Err(error)));
        }
        let mut message = Vec::new();
        let read = self.reader.by_ref().take(length.into()).read_to_end(&mut message)?;
        if read < length as usize {
            let error =
                format!("byte {at}: the file ends after {read} of {length} bytes of a message");
            return Ok(Some(Err(error)));
        }
        self.at += (LENGTH_BYTES + read) as u64;
        Ok(Some(decompress_message(message)))
    }
}

impl Iterator for Records {
    type Item = (u64, Result<Vec<u8>, String>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_lost {
            self.count += 1;
            let start = self.at;
            let read = if self.has_lengths { self.message() } else { self.line() };
            let record = match read {
                Ok(record) => record?,
                Err(error) => {
                    self.is_lost = true;
                    Err(format!("cannot be read beyond byte {}: {error}", self.at))
                }
            };
            if record.as_ref().is_ok_and(|line| !self.has_lengths && line.trim_ascii().is_empty()) {
                continue;
            }
            self.is_lost |= record.is_err() && self.at == start;
            return Some((self.count, record));
        }
        None
    }
}

/// Decompresses a message if it is compressed (zstd).
fn decompress_message(message: Vec<u8>) -> Result<Vec<u8>, String> {
    if !message.starts_with(input::ZSTD) {
        return Ok(message);
    }
    let mut decompressed = Vec::new();
    let failed = |error: io::Error| format!("the message cannot be decompressed: {error}");
    let decoder = zstd::Decoder::with_buffer(&*message).map_err(failed)?;
    decoder.take(RECORD_BYTES_MAX as u64 + 1).read_to_end(&mut decompressed).map_err(failed)?;
    if decompressed.len() > RECORD_BYTES_MAX {
        return Err(format!("the message has more than {RECORD_BYTES_MAX} bytes, decompressed"));
    }
    Ok(decompressed)
}

#[cfg(test)]
mod tests;
