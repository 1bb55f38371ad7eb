//! The log: batches as they came, on disk before they are acknowledged.
//!
//! It is a row of segments, files that are written one after the other and removed once all that they hold
//! is in a committed run. A record is a batch with its tenant and the time at which it came; a group of
//! records is written with one call and synced with one more, so many senders share what a sync costs.
//!
//! A group begins with a block of the disk and is filled up with zeros to the end of one, so that nothing that
//! was synced is ever written again.
//!
//! **Whole or not at all**: checksums cover each record, with its number and the salt of its segment. A reader skips
//! what is damaged, keeps all other records, and reports where the damage is and how many records it took ([`Damage`]).
//! What follows the last whole record of the newest segment was being written when the process ended, mostly,
//! and was acknowledged to nobody: such a torn end is told from damage where it can be.
//!
//! **When writing fails** nothing of the group is acknowledged, the segment is cut back to what was synced,
//! and the next group begins another one: after a sync that failed, no system says what is on disk. Where
//! even the cut fails, nothing is written and the segment does not end until a later cut succeeds. A table therefore
//! never commits a segment that holds records which were not acknowledged. After a restart such records may come back.
//!
//! **Limits**: a tenant's name has 255 bytes, a batch 4 GiB with it.
//!
//! **Source**: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

mod segment;

use crate::files::{BLOCK_BYTES, Files, GrowingFile, remove_if_there};
use bytes::Bytes;
use curtail_otlp::Signal;
use curtail_units::Rng;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// What one sender sent at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is of.
    pub signal: Signal,
    /// Whose it is; at most 255 bytes.
    pub tenant: Arc<str>,
    /// When it came, in nanoseconds since 1970.
    pub received_ns: u64,
    /// OTLP in protobuf.
    pub batch: Bytes,
}

/// What is read back from a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// In the order in which they were written.
    pub records: Vec<Record>,
    /// What is between them or after them, in the same order.
    pub damage: Vec<Damage>,
}

/// Bytes of a segment that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin.
    pub at: u64,
    /// How many there are.
    pub bytes: u64,
    /// How many records they were; [`None`] where no record follows that would tell.
    pub records: Option<u64>,
    /// Whether it looks like the end of a file that was being written: cut off, or with blocks that were never
    /// written. In the newest segment that is ordinary.
    pub is_torn: bool,
}

/// The log, as it is written.
#[derive(Debug)]
pub struct Log {
    files: Arc<dyn Files>,
    /// The segment that the next group goes to, unless it must begin one.
    open: Option<Open>,
    /// A segment that could not be cut back after a failed write: it may hold records that were not acknowledged.
    uncut: Option<Open>,
    /// That of the next segment.
    next: u64,
    /// Where salts come from.
    rng: Rng,
}

#[derive(Debug)]
struct Open {
    number: u64,
    file: Box<dyn GrowingFile>,
    /// All of it is synced.
    len: u64,
    salt: u64,
    /// How many records it has.
    records: u64,
}

impl Log {
    /// A log that goes on after the segments that are there: it never writes to one of those, nor to one up
    /// to `after`, which may have been removed. `rng` makes the salts of its segments, so senders must not know
    /// its seed.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(files: Arc<dyn Files>, after: u64, rng: Rng) -> io::Result<Self> {
        let last = segments(&*files)?.last().copied().unwrap_or_default();
        Ok(Self { files, open: None, uncut: None, next: last.max(after) + 1, rng })
    }

    /// Writes records and syncs them: when this returns they are durable. Returns the segment.
    ///
    /// # Errors
    /// What the system says. None of them is durable then, and the next group may well be.
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

    /// How many bytes the segment has that is being written.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.len)
    }

    /// Ends a segment: the next group begins another one.
    ///
    /// # Errors
    /// When a segment cannot be cut back after a failed write. It has not ended then: tables must not commit its rows.
    pub fn end_segment(&mut self) -> io::Result<()> {
        self.cut_back()?;
        self.open = None;
        Ok(())
    }

    /// The last segment that was begun; what [`Self::open`] was told of before there was any.
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
            // The first records are synced with it.
            Ok(()) => Ok(open),
            Err(error) => {
                self.give_up(open);
                Err(error)
            }
        }
    }

    /// Leaves a segment to what it has synced.
    fn give_up(&mut self, open: Open) {
        self.uncut = Some(open);
        // What fails here is tried again, and reported, with the next group.
        self.cut_back().ok();
    }

    /// Cuts a segment back to what was acknowledged, if a write to it has failed.
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

/// The numbers of the segments that there are, in their order.
///
/// # Errors
/// What the system says.
pub fn segments(files: &dyn Files) -> io::Result<Vec<u64>> {
    let number = |name: &String| name.strip_prefix("log-")?.parse().ok();
    let mut all: Vec<u64> = files.list()?.iter().filter_map(number).collect();
    all.sort_unstable();
    Ok(all)
}

/// Keeps a segment that is damaged under another name, under which it is not read any more.
///
/// # Errors
/// What the system says.
pub fn set_aside(files: &dyn Files, segment: u64) -> io::Result<()> {
    files.rename(&name(segment), &damaged_name(segment))
}

/// The name under which a damaged segment is kept.
#[must_use]
pub fn damaged_name(segment: u64) -> String {
    format!("damaged-{}", name(segment))
}

/// Removes a segment, of which all is in committed runs.
///
/// # Errors
/// What the system says.
pub fn remove(files: &dyn Files, segment: u64) -> io::Result<()> {
    files.remove(&name(segment))
}

/// Reads a segment.
///
/// # Errors
/// What the system says, or that another version of Curtail has written it.
pub fn read(files: &dyn Files, segment: u64) -> io::Result<Segment> {
    let name = name(segment);
    let read = files.read(&name).and_then(|bytes| segment::parse(bytes.into()));
    read.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}

fn name(segment: u64) -> String {
    format!("log-{segment:012}")
}

/// Fills a group up to the end of a block; returns how long it is.
fn fill_up(parts: &mut Vec<IoSlice<'_>>) -> u64 {
    const ZEROS: &[u8] = &[0; BLOCK_BYTES];
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let whole = bytes.next_multiple_of(BLOCK_BYTES);
    parts.push(IoSlice::new(&ZEROS[..whole - bytes]));
    whole as u64
}

#[cfg(test)]
mod tests;
