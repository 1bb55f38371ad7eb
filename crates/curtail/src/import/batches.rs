//! Merges the records of files into batches.
//!
//! A line is a JSON object, whose key names its signal (`resourceSpans`). The line is converted to protobuf, and
//! checked as the server would check it. In protobuf, the concatenation of two batches is a valid batch.

use super::records::Records;
use crate::input;
use curtail_otlp::{Decoded, Limits, Signal, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Maximum size of a merged batch; a larger record is a batch alone.
const BATCH_BYTES: usize = 1 << 20;

const KEYS: [(&str, Signal); 3] = [
    ("\"resourceSpans\"", Signal::Traces),
    ("\"resourceLogs\"", Signal::Logs),
    ("\"resourceMetrics\"", Signal::Metrics),
];

#[derive(Debug)]
pub(crate) enum ReaderEvent {
    /// A record was read, valid or not.
    Record,
    /// A record is not a valid batch; whether the rest of its file is lost.
    Malformed(RecordPosition, String, bool),
    Batch(Batch),
}

/// A position for messages: a file and a record in it.
#[derive(Clone, Debug)]
pub(crate) struct RecordPosition {
    file: Arc<str>,
    /// The number of the record, from 1; absent for the whole file.
    nth: Option<u64>,
}

/// Rows of one signal, in protobuf.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) signal: Signal,
    pub(crate) bytes: Vec<u8>,
    /// The number of rows, including rows that the server will reject.
    pub(super) rows: u64,
    pub(super) first: RecordPosition,
    pub(super) last: RecordPosition,
}

struct Gone;

impl fmt::Display for RecordPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.nth.map_or(Ok(()), |nth| write!(f, ":{nth}"))
    }
}

impl Batch {
    pub(super) fn positions(&self) -> String {
        match (self.first.nth, self.last.nth) {
            (Some(first), Some(last)) if first != last => format!("{}-{last}", self.first),
            _ => self.first.to_string(),
        }
    }
}

/// Reads all files, unless the receiver of events is dropped; `signal` is the signal of protobuf messages.
pub(super) fn read(files: &[PathBuf], signal: Option<Signal>, events: &mpsc::Sender<ReaderEvent>) {
    for file in files {
        let name = input::name(file).into();
        let mut reader = FileReader { file: name, signal, events, pending: [None, None, None] };
        if reader.read(file).is_err() {
            return;
        }
    }
}

struct FileReader<'a> {
    file: Arc<str>,
    signal: Option<Signal>,
    events: &'a mpsc::Sender<ReaderEvent>,
    /// The incomplete batch of each of [`KEYS`].
    pending: [Option<Batch>; KEYS.len()],
}

impl FileReader<'_> {
    fn read(&mut self, file: &Path) -> Result<(), Gone> {
        let mut records = match Records::open(file) {
            Ok(records) => records,
            Err(error) => return self.report(None, error.root_cause().to_string(), true),
        };
        let has_lengths = records.has_lengths;
        while let Some((nth, record)) = records.next() {
            self.send(ReaderEvent::Record)?;
            match record.and_then(|bytes| to_batches(&bytes, has_lengths, self.signal)) {
                Ok(batches) => {
                    for (key, bytes, rows) in batches {
                        self.append(key, nth, &bytes, rows)?;
                    }
                }
                Err(error) => self.report(Some(nth), error, records.is_lost)?,
            }
        }
        (0..KEYS.len()).try_for_each(|key| self.flush(key))
    }

    /// Appends rows to the pending batch of a key.
    fn append(&mut self, key: usize, nth: u64, bytes: &[u8], rows: u64) -> Result<(), Gone> {
        let len = self.pending[key].as_ref().map_or(0, |pending| pending.bytes.len());
        if len > 0 && len + bytes.len() > BATCH_BYTES {
            self.flush(key)?;
        }
        let position = RecordPosition { file: Arc::clone(&self.file), nth: Some(nth) };
        let pending = self.pending[key].get_or_insert_with(|| Batch {
            signal: KEYS[key].1,
            bytes: Vec::new(),
            rows: 0,
            first: position.clone(),
            last: position.clone(),
        });
        pending.bytes.extend_from_slice(bytes);
        pending.rows += rows;
        pending.last = position;
        Ok(())
    }

    fn flush(&mut self, key: usize) -> Result<(), Gone> {
        self.pending[key].take().map_or(Ok(()), |batch| self.send(ReaderEvent::Batch(batch)))
    }

    fn report(&self, nth: Option<u64>, error: String, is_lost: bool) -> Result<(), Gone> {
        let position = RecordPosition { file: Arc::clone(&self.file), nth };
        self.send(ReaderEvent::Malformed(position, error, is_lost))
    }

    fn send(&self, event: ReaderEvent) -> Result<(), Gone> {
        self.events.blocking_send(event).map_err(|_| Gone)
    }
}

/// Returns the batches of a record, at most one for each of [`KEYS`]: index of the key, rows in protobuf, their number.
fn to_batches(
    bytes: &[u8],
    is_message: bool,
    signal: Option<Signal>,
) -> Result<Vec<(usize, Vec<u8>, u64)>, String> {
    if is_message && !bytes.starts_with(b"{") {
        let signal = signal.ok_or("a message in protobuf: pass its signal with --of")?;
        let key = KEYS.iter().position(|(_, known)| *known == signal).expect("all signals");
        return Ok(vec![(key, bytes.to_vec(), count_rows(bytes, signal)?)]);
    }
    let bytes = if is_message { bytes } else { bytes.trim_ascii_end() };
    let has = |key: &str| memchr::memmem::find(bytes, key.as_bytes()).is_some();
    let mut found = Vec::new();
    for (nth, (key, signal)) in KEYS.into_iter().enumerate().filter(|(_, (key, _))| has(key)) {
        let batch = json::to_protobuf(bytes, signal, &Limits::default());
        let batch = batch.map_err(|error| format!("byte {}: {}", error.byte(), error.what()))?;
        let rows = count_rows(&batch, signal)?;
        // The key may also be part of a text.
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

/// Counts the rows of a batch, including rows that cannot be stored.
fn count_rows(batch: &[u8], signal: Signal) -> Result<u64, String> {
    let decoded = Decoded::of(signal, batch, &Limits::default());
    let (rows, refused) = decoded.map_err(|malformed| malformed.to_string())?;
    Ok(rows.len() as u64 + refused.count)
}

#[cfg(test)]
mod tests;
