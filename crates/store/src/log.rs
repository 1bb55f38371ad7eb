//! The log: batches as they arrived, durable before they are acknowledged.
//!
//! The log is a sequence of segments. A segment is removed once all its rows are in committed runs. A record is a batch
//! with its tenant and its arrival time. A group of records is written with one call and synced with one more, so
//! senders share the cost of a sync. Groups begin and end at a block boundary, so synced bytes are never rewritten.
//!
//! **Damage**: checksums cover each record, with its number and the salt of its segment. A reader skips damage, returns
//! all other records, and reports each [`Damage`]. Bytes after the last whole record of the newest segment are usually
//! an unfinished, unacknowledged write. The reader distinguishes such a torn end from damage where possible.
//!
//! **Failed writes**: nothing of the group is acknowledged, the segment is cut back to its synced length, and the next
//! group begins another segment, because the content of the disk is unknown after a failed sync. If the cut fails too,
//! no group is written and the segment does not end until a later cut succeeds. So a table never commits a segment with
//! unacknowledged records. After a restart, such records may come back.
//!
//! **Limits**: a tenant's name has at most 255 bytes. A batch and its tenant's name have less than 4 GiB.
//!
//! **Source**: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

mod segment;

use crate::files::{BLOCK_BYTES, Files, GrowingFile, remove_if_there};
use bytes::Bytes;
use curtail_otlp::Signal;
use curtail_units::Rng;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// A batch from a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The signal of its rows.
    pub signal: Signal,
    /// The tenant, of at most 255 bytes.
    pub tenant: Arc<str>,
    /// The time of arrival, in nanoseconds since 1970.
    pub received_ns: u64,
    /// OTLP in protobuf.
    pub batch: Bytes,
}

/// The content of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The valid records in the order of their writes.
    pub records: Vec<Record>,
    /// The damaged parts, in the order of their positions.
    pub damage: Vec<Damage>,
}

/// Bytes of a segment that are not a valid record, or lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The position of the first byte.
    pub at: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The number of lost records; [`None`] when no record follows, so that the number is unknown.
    pub records: Option<u64>,
    /// Whether it looks like an unfinished write: a truncated file, or blocks that were never written. That is usual at
    /// the end of the newest segment.
    pub is_torn: bool,
}

/// The writer of the log.
#[derive(Debug)]
pub struct Log {
    files: Arc<dyn Files>,
    /// The segment of the next group; [`None`] if the group must begin a segment.
    open: Option<Open>,
    /// A segment that could not be cut back after a failed write, so it may have unacknowledged records.
    uncut: Option<Open>,
    /// The number of the next segment.
    next: u64,
    /// The source of salts.
    rng: Rng,
}

#[derive(Debug)]
struct Open {
    number: u64,
    file: Box<dyn GrowingFile>,
    /// The synced length.
    len: u64,
    salt: u64,
    /// The number of records in the segment.
    records: u64,
}

impl Log {
    /// A log that begins its first segment after the existing segments, and after the segments up to `after`, which may
    /// have been removed. `rng` makes the salts of segments, so senders must not know its seed.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn open(files: Arc<dyn Files>, after: u64, rng: Rng) -> io::Result<Self> {
        let last = segments(&*files)?.last().copied().unwrap_or_default();
        Ok(Self { files, open: None, uncut: None, next: last.max(after) + 1, rng })
    }

    /// Writes and syncs a group of records, which are durable when this returns. Returns the number of the segment.
    ///
    /// # Errors
    /// Any error of the system. The records must not be acknowledged then. The next group may succeed.
    ///
    /// # Panics
    /// When a record is longer than the limits.
    pub fn append(&mut self, records: &[Record]) -> io::Result<u64> {
        self.cut_back()?;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        let headers: Vec<_> = (open.records..)
            .zip(records)
            .map(|(number, record)| segment::header(open.salt, number, record))
            .collect();
        let mut parts: Vec<_> = records
            .iter()
            .zip(&headers)
            .flat_map(|(record, header)| [&header[..], record.tenant.as_bytes(), &record.batch])
            .map(IoSlice::new)
            .collect();
        let bytes = fill_up(&mut parts);
        if let Err(error) = open.file.append(&mut parts).and_then(|()| open.file.sync()) {
            self.give_up(open);
            return Err(error);
        }
        open.len += bytes;
        open.records += records.len() as u64;
        let number = open.number;
        self.open = Some(open);
        Ok(number)
    }

    /// Ends a segment: the next group begins another one.
    ///
    /// # Errors
    /// When a segment cannot be cut back after a failed write. Then tables must not commit it.
    pub fn end_segment(&mut self) -> io::Result<()> {
        self.cut_back()?;
        self.open = None;
        Ok(())
    }

    /// The number of the last segment that was begun, or of the last one before [`Self::open`].
    #[must_use]
    pub const fn last_segment(&self) -> u64 {
        self.next - 1
    }

    fn begin(&mut self) -> io::Result<Open> {
        let number = self.next;
        self.next += 1;
        let file = self.files.create(&name(number))?;
        let salt = self.rng.next_u64();
        let first = segment::first_block(salt);
        let mut open = Open { number, file, len: first.len() as u64, salt, records: 0 };
        match open.file.append(&mut [IoSlice::new(&first)]) {
            // The first group syncs this block too.
            Ok(()) => Ok(open),
            Err(error) => {
                self.give_up(open);
                Err(error)
            }
        }
    }

    /// Abandons a segment after a failed write.
    fn give_up(&mut self, open: Open) {
        self.uncut = Some(open);
        // The next group retries a failed cut, and reports its error.
        self.cut_back().ok();
    }

    /// Cuts a segment back to its synced length, if a write to it has failed.
    fn cut_back(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.uncut else { return Ok(()) };
        let has_records = open.len > BLOCK_BYTES as u64;
        if has_records {
            open.file.cut(open.len)?;
        } else {
            remove_if_there(&*self.files, &name(open.number))?;
        }
        self.uncut = None;
        Ok(())
    }
}

/// The numbers of the existing segments, in order.
///
/// # Errors
/// Any error of the system.
pub fn segments(files: &dyn Files) -> io::Result<Vec<u64>> {
    let number = |name: &String| name.strip_prefix("log-")?.parse().ok();
    let mut all: Vec<u64> = files.list()?.iter().filter_map(number).collect();
    all.sort_unstable();
    Ok(all)
}

/// Renames a damaged segment to [`damaged_name`], under which it is not read any more.
pub(crate) fn set_aside(files: &dyn Files, segment: u64) -> io::Result<()> {
    files.rename(&name(segment), &damaged_name(segment))
}

/// The name under which a damaged segment is kept.
#[must_use]
pub fn damaged_name(segment: u64) -> String {
    format!("damaged-{}", name(segment))
}

/// Removes a segment whose rows are all in committed runs.
pub(crate) fn remove(files: &dyn Files, segment: u64) -> io::Result<()> {
    files.remove(&name(segment))
}

/// Reads a segment.
///
/// # Errors
/// Any error of the system, or a segment of another version of Curtail.
pub fn read(files: &dyn Files, segment: u64) -> io::Result<Segment> {
    let name = name(segment);
    let read = files.read(&name).and_then(|bytes| segment::parse(bytes.into()));
    read.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}

fn name(segment: u64) -> String {
    format!("log-{segment:012}")
}

/// Fills a group with zeros up to the end of a block; returns its length in bytes.
fn fill_up(parts: &mut Vec<IoSlice<'_>>) -> u64 {
    const ZEROS: &[u8] = &[0; BLOCK_BYTES];
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let whole = bytes.next_multiple_of(BLOCK_BYTES);
    parts.push(IoSlice::new(&ZEROS[..whole - bytes]));
    whole as u64
}

#[cfg(test)]
mod tests;
