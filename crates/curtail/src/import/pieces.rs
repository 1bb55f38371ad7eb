//! What stands in a file: lines, or messages with their length before them.
//!
//! What a file is, is told by its first bytes, packed or not. A length is four bytes and at most 64 MiB, so the
//! first of them is at most 4, and no line of JSON begins so.
//!
//! **Source**: the documentation of the Collector's file exporter, 0.150.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

/// The name of standard input.
pub(super) const STDIN: &str = "-";

/// A longer line or message is none: servers take no longer batches.
pub(super) const PIECE_BYTES_MAX: usize = 64 << 20;

const BUFFER_BYTES: usize = 256 << 10;
const GZIP: &[u8] = &[0x1F, 0x8B];
const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
const LENGTH_BYTES: usize = 4;

/// The pieces of a file.
pub(super) struct Pieces {
    reader: Box<dyn BufRead>,
    is_framed: bool,
    /// How many pieces there were, blank lines included.
    count: u64,
    /// How many bytes, decompressed.
    at: u64,
    /// Whether nobody knows where the next piece would begin.
    is_lost: bool,
}

/// A line or a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its number, from 1.
    pub(super) nth: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether its length stood before it.
    pub(super) is_message: bool,
}

/// A piece that is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadPiece {
    /// Its number, from 1.
    pub(super) nth: u64,
    pub(super) what: String,
}

impl Pieces {
    /// Opens a file.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        if file == Path::new(STDIN) {
            return Self::of(io::stdin());
        }
        Self::of(File::open(file)?)
    }

    /// Begins to read.
    pub(super) fn of(raw: impl Read + 'static) -> io::Result<Self> {
        let (packed, reader) = peeked(BufReader::with_capacity(BUFFER_BYTES, raw), ZSTD.len())?;
        let reader: Box<dyn BufRead> = if packed.starts_with(GZIP) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader)))
        } else if packed.starts_with(ZSTD) {
            let decoder = zstd::Decoder::with_buffer(reader)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            Box::new(reader)
        };
        let (first, reader) = peeked(reader, 1)?;
        let is_framed =
            first.first().is_some_and(|byte| usize::from(*byte) <= PIECE_BYTES_MAX >> 24);
        Ok(Self { reader: Box::new(reader), is_framed, count: 0, at: 0, is_lost: false })
    }

    /// The next line that is not blank.
    fn line(&mut self) -> io::Result<Option<Result<Vec<u8>, String>>> {
        let mut line = Vec::new();
        let limit = PIECE_BYTES_MAX as u64 + 1;
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        self.at += line.len() as u64;
        if line.len() > PIECE_BYTES_MAX && !line.ends_with(b"\n") {
            self.at += skip_line(&mut self.reader)?;
            return Ok(Some(Err(format!("the line has more than {PIECE_BYTES_MAX} bytes"))));
        }
        Ok(Some(Ok(line)))
    }

    /// The next message.
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
        if length as usize > PIECE_BYTES_MAX {
            let what = format!(
                "byte {at}: a length of {length} bytes, expected at most {PIECE_BYTES_MAX}: what follows is not read"
            );
            return Ok(Some(Err(what)));
        }
        let mut message = Vec::new();
        let came = self.reader.by_ref().take(length.into()).read_to_end(&mut message)?;
        if came < length as usize {
            let what = format!("byte {at}: a message of {length} bytes, of which {came} are there");
            return Ok(Some(Err(what)));
        }
        self.at += (LENGTH_BYTES + came) as u64;
        Ok(Some(decompress(message)))
    }
}

impl Iterator for Pieces {
    type Item = Result<Piece, BadPiece>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_lost {
            self.count += 1;
            let (nth, at_before) = (self.count, self.at);
            let read = if self.is_framed { self.message() } else { self.line() };
            match read {
                Ok(None) => return None,
                Ok(Some(Ok(bytes))) if bytes.trim_ascii().is_empty() && !self.is_framed => {}
                Ok(Some(Ok(bytes))) => {
                    return Some(Ok(Piece { nth, bytes, is_message: self.is_framed }));
                }
                Ok(Some(Err(what))) => {
                    self.is_lost = self.at == at_before;
                    return Some(Err(BadPiece { nth, what }));
                }
                Err(error) => {
                    self.is_lost = true;
                    let what = format!("cannot be read beyond byte {}: {error}", self.at);
                    return Some(Err(BadPiece { nth, what }));
                }
            }
        }
        None
    }
}

/// The first bytes, at most so many, and all of it.
fn peeked<R: BufRead>(mut reader: R, bytes: usize) -> io::Result<(Vec<u8>, impl BufRead)> {
    let mut first = Vec::new();
    reader.by_ref().take(bytes as u64).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(reader)))
}

/// Passes over the rest of a line; returns how many bytes that were.
fn skip_line(reader: &mut dyn BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(used);
        skipped += used as u64;
        if end.is_some() || used == 0 {
            return Ok(skipped);
        }
    }
}

/// Each message may be compressed.
fn decompress(message: Vec<u8>) -> Result<Vec<u8>, String> {
    if !message.starts_with(ZSTD) {
        return Ok(message);
    }
    let mut decompressed = Vec::new();
    let failed = |error: io::Error| format!("the message cannot be decompressed: {error}");
    let decoder = zstd::Decoder::with_buffer(&*message).map_err(failed)?;
    decoder.take(PIECE_BYTES_MAX as u64 + 1).read_to_end(&mut decompressed).map_err(failed)?;
    if decompressed.len() > PIECE_BYTES_MAX {
        return Err(format!("the message has more than {PIECE_BYTES_MAX} bytes, decompressed"));
    }
    Ok(decompressed)
}

#[cfg(test)]
mod tests;
