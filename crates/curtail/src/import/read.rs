//! From pieces to batches.
//!
//! A line says by its key what it is of. It is rewritten as protobuf, read as the server reads it, and put behind
//! what came before: two batches of protobuf, one after the other, are a batch.

use super::pieces::{BadPiece, Piece, Pieces, STDIN};
use curtail_otlp::{Decoded, Limits, Signal, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Batches are sent when they have as much.
const BATCH_BYTES: usize = 1 << 20;

/// The keys that say what a line is of.
const KEYS: [(&str, Signal); 3] = [
    ("\"resourceSpans\"", Signal::Traces),
    ("\"resourceLogs\"", Signal::Logs),
    ("\"resourceMetrics\"", Signal::Metrics),
];

/// What the sender is told.
#[derive(Debug)]
pub(super) enum Told {
    /// A line or message was read, good or bad.
    Piece,
    /// It is no batch.
    Bad(Place, String),
    Batch(Batch),
}

/// Where something stands.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: Arc<str>,
    /// The line or message, from 1; none for the file as a whole.
    nth: Option<u64>,
}

/// Rows of one signal, in protobuf.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) signal: Signal,
    pub(super) bytes: Vec<u8>,
    /// Those that cannot be kept are among them: that is for the server to say.
    pub(super) rows: u64,
    pub(super) from: Place,
    pub(super) to: Place,
}

/// Nobody takes batches any more.
struct Gone;

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.nth.map_or(Ok(()), |nth| write!(f, ":{nth}"))
    }
}

impl Batch {
    /// The lines or messages that it is made of.
    pub(super) fn places(&self) -> String {
        match (self.from.nth, self.to.nth) {
            (Some(from), Some(to)) if from != to => format!("{}-{to}", self.from),
            _ => self.from.to_string(),
        }
    }
}

/// Reads files to their ends, or until nobody takes batches any more.
pub(super) fn files(files: &[PathBuf], of: Option<Signal>, told: &mpsc::Sender<Told>) {
    for file in files {
        let name =
            if file == Path::new(STDIN) { "standard input" } else { &*file.to_string_lossy() };
        let mut reading = Reading { file: name.into(), of, told, gathered: [None, None, None] };
        if reading.read(file).is_err() {
            return;
        }
    }
}

/// One file.
struct Reading<'a> {
    file: Arc<str>,
    of: Option<Signal>,
    told: &'a mpsc::Sender<Told>,
    /// What is not enough for a batch yet, for each of [`KEYS`].
    gathered: [Option<Batch>; KEYS.len()],
}

impl Reading<'_> {
    fn read(&mut self, file: &Path) -> Result<(), Gone> {
        let pieces = match Pieces::open(file) {
            Ok(pieces) => pieces,
            Err(error) => return self.bad(None, error.to_string()),
        };
        for piece in pieces {
            self.tell(Told::Piece)?;
            match piece {
                Ok(piece) => self.take(&piece)?,
                Err(BadPiece { nth, what }) => self.bad(Some(nth), what)?,
            }
        }
        for nth in 0..self.gathered.len() {
            self.send(nth)?;
        }
        Ok(())
    }

    fn take(&mut self, piece: &Piece) -> Result<(), Gone> {
        match batches(piece, self.of) {
            Ok(batches) => batches
                .into_iter()
                .try_for_each(|(nth, bytes, rows)| self.gather(nth, piece.nth, &bytes, rows)),
            Err(what) => self.bad(Some(piece.nth), what),
        }
    }

    /// Puts rows of a signal behind what is gathered of it.
    fn gather(&mut self, of: usize, nth: u64, bytes: &[u8], rows: u64) -> Result<(), Gone> {
        let len = self.gathered[of].as_ref().map_or(0, |gathered| gathered.bytes.len());
        if len > 0 && len + bytes.len() > BATCH_BYTES {
            self.send(of)?;
        }
        let place = Place { file: Arc::clone(&self.file), nth: Some(nth) };
        let gathered = self.gathered[of].get_or_insert_with(|| Batch {
            signal: KEYS[of].1,
            bytes: Vec::new(),
            rows: 0,
            from: place.clone(),
            to: place.clone(),
        });
        gathered.bytes.extend_from_slice(bytes);
        gathered.rows += rows;
        gathered.to = place;
        Ok(())
    }

    fn send(&mut self, of: usize) -> Result<(), Gone> {
        match self.gathered[of].take() {
            Some(batch) => self.tell(Told::Batch(batch)),
            None => Ok(()),
        }
    }

    fn bad(&self, nth: Option<u64>, what: String) -> Result<(), Gone> {
        self.tell(Told::Bad(Place { file: Arc::clone(&self.file), nth }, what))
    }

    fn tell(&self, told: Told) -> Result<(), Gone> {
        self.told.blocking_send(told).map_err(|_| Gone)
    }
}

/// What a piece holds: for each of [`KEYS`] that it has, its number, the rows in protobuf, and how many they are.
fn batches(piece: &Piece, of: Option<Signal>) -> Result<Vec<(usize, Vec<u8>, u64)>, String> {
    let bytes = if piece.is_message { &*piece.bytes } else { piece.bytes.trim_ascii_end() };
    if piece.is_message && !bytes.starts_with(b"{") {
        let signal = of.ok_or("a message of protobuf: say what it is of, with --of")?;
        let nth =
            KEYS.iter().position(|(_, known)| *known == signal).expect("all signals are there");
        return Ok(vec![(nth, bytes.to_vec(), rows(bytes, signal)?)]);
    }
    let has = |key: &str| memchr::memmem::find(bytes, key.as_bytes()).is_some();
    let mut found = Vec::new();
    for (nth, (key, signal)) in KEYS.into_iter().enumerate().filter(|(_, (key, _))| has(key)) {
        let batch = json::to_protobuf(bytes, signal, &Limits::default());
        let batch = batch.map_err(|wrong| format!("byte {}: {}", wrong.byte(), wrong.what()))?;
        let rows = rows(&batch, signal)?;
        // The key may also stand in a text.
        if rows > 0 || bytes.trim_ascii_start()[1..].trim_ascii_start().starts_with(key.as_bytes())
        {
            found.push((nth, batch, rows));
        }
    }
    if found.is_empty() {
        let what = "expected an object with resourceSpans, resourceLogs or resourceMetrics";
        return Err(format!("byte 1: {what}"));
    }
    Ok(found)
}

/// How many rows a batch has, with those that cannot be kept.
fn rows(batch: &[u8], signal: Signal) -> Result<u64, String> {
    let decoded = Decoded::of(signal, batch, &Limits::default());
    let (rows, refused) = decoded.map_err(|malformed| malformed.to_string())?;
    Ok(rows.len() as u64 + refused.count)
}

#[cfg(test)]
mod tests;
