//! The log: batches as they came, on disk before they are acknowledged.
//!
//! It is a row of segments, files that are written one after the other and removed once all that they hold
//! is in a committed run. A record is a batch with its tenant and the time at which it came; a group of
//! records is written with one call and synced with one more, so many senders share what a sync costs.
//!
//! A group begins with a block of the disk and is filled up with zeros to the end of one, so that nothing that
//! was synced is ever written again.
//!
//! **Whole or not at all**: each record has a checksum over all of it. What follows the last whole record of
//! a segment was being written when the process ended, and was acknowledged to nobody; or the disk has
//! damaged it, which cannot be told apart from within. So it is reported either way ([`Damage`]).
//!
//! **When writing fails** nothing of the group is acknowledged, the segment is cut back to what was synced,
//! and the next group begins another one: after a sync that failed, no system says what is on disk. Where
//! even the cut fails, records that were not acknowledged may come back after a restart.
//!
//! **Limits**: a tenant's name has 255 bytes, a batch 4 GiB with it.
//!
//! **Source**: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

use crate::files::{BLOCK_BYTES, Files, GrowingFile};
use bytes::{Buf, Bytes};
use curtail_otlp::Signal;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// What every segment begins with.
const MAGIC: &[u8; 16] = b"curtail log 1\r\n\n";

/// The length of what follows, its checksum; then signal, length of the tenant's name, time of arrival.
const HEADER_BYTES: usize = 4 + 4 + 1 + 1 + 8;

/// The length and the checksum do not count themselves.
const UNCOUNTED_BYTES: usize = 8;

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
    /// What follows them.
    pub damage: Option<Damage>,
}

/// Bytes of a segment that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin.
    pub at: u64,
    /// How many there are.
    pub bytes: u64,
}

/// The log, as it is written.
#[derive(Debug)]
pub struct Log {
    files: Arc<dyn Files>,
    /// The segment that the next group goes to, unless it must begin one.
    open: Option<Open>,
    /// That of the next segment.
    next: u64,
}

#[derive(Debug)]
struct Open {
    number: u64,
    file: Box<dyn GrowingFile>,
    /// All of it is synced.
    len: u64,
}

impl Log {
    /// A log that goes on after the segments that are there: it never writes to one of those, nor to one up
    /// to `after`, which may have been removed.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(files: Arc<dyn Files>, after: u64) -> io::Result<Self> {
        let last = segments(&*files)?.last().copied().unwrap_or_default();
        Ok(Self { files, open: None, next: last.max(after) + 1 })
    }

    /// Writes records and syncs them: when this returns they are durable. Returns the segment.
    ///
    /// # Errors
    /// What the system says. None of them is durable then, and the next group may well be.
    ///
    /// # Panics
    /// When a record is longer than the limits.
    pub fn append(&mut self, records: &[Record]) -> io::Result<u64> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        let headers: Vec<_> = records.iter().map(header).collect();
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
    pub fn end_segment(&mut self) {
        self.open = None;
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
        let mut parts = vec![IoSlice::new(MAGIC)];
        let len = fill_up(&mut parts);
        let mut open = Open { number, file, len };
        match open.file.append(&mut parts) {
            // The first records are synced with it.
            Ok(()) => Ok(open),
            Err(error) => {
                self.give_up(open);
                Err(error)
            }
        }
    }

    /// Leaves a segment to what it has synced. What fails here fails later as well, and is said there.
    fn give_up(&self, mut open: Open) {
        let has_records = open.len > BLOCK_BYTES as u64;
        if has_records {
            open.file.cut(open.len).ok();
        } else {
            self.files.remove(&name(open.number)).ok();
        }
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
    let name = name(segment);
    files.rename(&name, &format!("damaged-{name}"))
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
/// What the system says.
pub fn read(files: &dyn Files, segment: u64) -> io::Result<Segment> {
    let mut rest = Bytes::from(files.read(&name(segment))?);
    let len = rest.len();
    let mut segment = Segment::default();
    if rest.starts_with(MAGIC) {
        rest.advance(MAGIC.len());
        loop {
            if let Some(record) = take_record(&mut rest) {
                segment.records.push(record);
            } else if !take_zeros(&mut rest, len) {
                break;
            }
        }
    }
    if !rest.is_empty() {
        let bytes = rest.len() as u64;
        segment.damage = Some(Damage { at: len as u64 - bytes, bytes });
    }
    Ok(segment)
}

fn name(segment: u64) -> String {
    format!("log-{segment:012}")
}

fn header(record: &Record) -> [u8; HEADER_BYTES] {
    let tenant_len = u8::try_from(record.tenant.len()).expect("a tenant's name is short");
    let counted = HEADER_BYTES - UNCOUNTED_BYTES + record.tenant.len() + record.batch.len();
    let counted = u32::try_from(counted).expect("a batch has at most 4 GiB");
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&counted.to_le_bytes());
    header[8] = code(record.signal);
    header[9] = tenant_len;
    header[10..].copy_from_slice(&record.received_ns.to_le_bytes());
    let sum = checksum([&header[..4], &header[8..], record.tenant.as_bytes(), &record.batch]);
    header[4..8].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Takes a record, if the next one is whole.
fn take_record(rest: &mut Bytes) -> Option<Record> {
    let (header, _) = rest.split_first_chunk::<HEADER_BYTES>()?;
    let (len, sum) = (&header[..4], &header[4..8]);
    let counted = usize::try_from(u32::from_le_bytes(len.try_into().ok()?)).ok()?;
    let body = rest.get(UNCOUNTED_BYTES..UNCOUNTED_BYTES + counted)?;
    if checksum([len, body]).to_le_bytes() != sum {
        return None;
    }
    let received_ns = u64::from_le_bytes(header[10..].try_into().ok()?);
    let signal = signal(header[8])?;
    let named = body.get(HEADER_BYTES - UNCOUNTED_BYTES..)?;
    let (tenant, batch) = named.split_at_checked(usize::from(header[9]))?;
    let tenant = Arc::from(std::str::from_utf8(tenant).ok()?);
    let batch = rest.slice_ref(batch);
    rest.advance(UNCOUNTED_BYTES + counted);
    Some(Record { signal, tenant, received_ns, batch })
}

/// Fills a group up to the end of a block; returns how long it is.
fn fill_up(parts: &mut Vec<IoSlice<'_>>) -> u64 {
    const ZEROS: &[u8] = &[0; BLOCK_BYTES];
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let whole = bytes.next_multiple_of(BLOCK_BYTES);
    parts.push(IoSlice::new(&ZEROS[..whole - bytes]));
    whole as u64
}

/// Takes what a group of a segment with so many bytes was filled up with; returns whether that was anything.
fn take_zeros(rest: &mut Bytes, len: usize) -> bool {
    let at = len - rest.len();
    let zeros = rest.get(..at.next_multiple_of(BLOCK_BYTES) - at).unwrap_or(rest);
    let is_any = !zeros.is_empty() && zeros.iter().all(|byte| *byte == 0);
    if is_any {
        rest.advance(zeros.len());
    }
    is_any
}

fn checksum<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

const fn code(signal: Signal) -> u8 {
    match signal {
        Signal::Traces => 1,
        Signal::Logs => 2,
        Signal::Metrics => 3,
    }
}

const fn signal(code: u8) -> Option<Signal> {
    match code {
        1 => Some(Signal::Traces),
        2 => Some(Signal::Logs),
        3 => Some(Signal::Metrics),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
