//! The layout of a segment, and how a reader skips damage.
//!
//! | position | content |
//! |---|---|
//! | 0, and again at half a block | [`MAGIC`], the segment's salt, a checksum of both |
//! | each group | begins at a block; records one after the other, then zeros to the end of a block |
//! | each record | a header: salt, number of the record in the segment, signal, lengths, checksums of the body and of the header; then the body: the tenant's name, the batch |
//!
//! After damage, a reader searches for the salt of the next valid record. If the header of the damaged record is valid,
//! the search begins after that record. A record is valid only with the segment's salt, and a number above those
//! already read. No sender knows the salt, so a batch that contains the bytes of a record is never read as a record.

use super::{Damage, Record, Segment};
use crate::files::BLOCK_BYTES;
use bytes::Bytes;
use curtail_otlp::Signal;
use memchr::memmem;
use std::io;
use std::sync::Arc;

/// The first bytes of a segment.
const MAGIC: &[u8; 16] = b"curtail log 2\r\n\n";

/// The first bytes of a segment of the first format, which has neither salt nor numbers.
const MAGIC_1: &[u8; 16] = b"curtail log 1\r\n\n";

const SALT_BYTES: usize = 8;

/// The length of the segment's header: magic, salt, checksum.
const SEGMENT_HEADER_BYTES: usize = 16 + SALT_BYTES + 4;

/// The position of the second copy of the segment's header: a lost sector destroys only one copy.
const SECOND_COPY: usize = BLOCK_BYTES / 2;

/// The length of a record's header: salt, number, length of the body, signal, length of the tenant's name, two zero
/// bytes, time of arrival, checksum of the body, checksum of the header up to here.
pub(super) const HEADER_BYTES: usize = SALT_BYTES + 8 + 4 + 1 + 1 + 2 + 8 + 4 + 4;

/// The first block of a segment.
pub(super) fn first_block(salt: u64) -> Vec<u8> {
    let mut copy = [&MAGIC[..], &salt.to_le_bytes()].concat();
    copy.extend(crc32fast::hash(&copy).to_le_bytes());
    let mut block = vec![0; BLOCK_BYTES];
    block[..copy.len()].copy_from_slice(&copy);
    block[SECOND_COPY..][..copy.len()].copy_from_slice(&copy);
    block
}

/// The header of a record.
pub(super) fn header(salt: u64, number: u64, record: &Record) -> [u8; HEADER_BYTES] {
    let tenant = u8::try_from(record.tenant.len()).expect("a tenant's name is short");
    let body = record.tenant.len() + record.batch.len();
    let body = u32::try_from(body).expect("a batch has at most 4 GiB");
    let mut sum = crc32fast::Hasher::new();
    sum.update(record.tenant.as_bytes());
    sum.update(&record.batch);
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&salt.to_le_bytes());
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..20].copy_from_slice(&body.to_le_bytes());
    header[20] = code(record.signal);
    header[21] = tenant;
    header[24..32].copy_from_slice(&record.received_ns.to_le_bytes());
    header[32..36].copy_from_slice(&sum.finalize().to_le_bytes());
    let sum = crc32fast::hash(&header[..36]);
    header[36..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// A header with a valid checksum.
struct Header {
    number: u64,
    /// The length of the body in bytes.
    body: usize,
    body_sum: u32,
    signal: Signal,
    tenant: usize,
    received_ns: u64,
}

impl Header {
    fn parse(bytes: &[u8], salt: u64) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        let is_whole = crc32fast::hash(&bytes[..36]) == short(&bytes[36..]);
        if !is_whole || long(bytes) != salt {
            return None;
        }
        Some(Self {
            number: long(&bytes[8..]),
            body: usize::try_from(short(&bytes[16..])).ok()?,
            body_sum: short(&bytes[32..]),
            signal: signal(bytes[20])?,
            tenant: usize::from(bytes[21]),
            received_ns: long(&bytes[24..]),
        })
    }

    const fn len(&self) -> usize {
        HEADER_BYTES + self.body
    }
}

fn short(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads a segment.
///
/// # Errors
/// When another version of Curtail has written it.
pub(super) fn parse(bytes: Bytes) -> io::Result<Segment> {
    let first = &bytes[..bytes.len().min(BLOCK_BYTES)];
    let copies = [Some(first), first.get(SECOND_COPY..)].map(|copy| copy.and_then(salt_of_copy));
    // The first record begins at the second block, so these bytes are never from a sender.
    let of_record =
        bytes.get(BLOCK_BYTES..).filter(|rest| Header::parse(rest, long(rest)).is_some());
    let salt = copies[0].or(copies[1]).or_else(|| of_record.map(long));
    let Some(salt) = salt else {
        if first.starts_with(MAGIC_1) {
            let text = "an earlier version of Curtail wrote it; start that version with this folder \
                        once and stop it, which empties the log";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let damage = (!bytes.is_empty()).then(|| Damage {
            at: 0,
            bytes: bytes.len() as u64,
            records: None,
            // Nothing was acknowledged before the segment had a second block.
            is_torn: bytes.len() <= BLOCK_BYTES,
        });
        return Ok(Segment { records: Vec::new(), damage: damage.into_iter().collect() });
    };
    let mut reader = Reader { bytes: &bytes, salt, next: 0, segment: Segment::default() };
    if first != first_block(salt) {
        let (at, bytes) = (0, first.len() as u64);
        let is_torn = bytes < BLOCK_BYTES as u64;
        reader.segment.damage.push(Damage { at, bytes, records: Some(0), is_torn });
    }
    reader.read();
    Ok(reader.segment)
}

fn salt_of_copy(copy: &[u8]) -> Option<u64> {
    let copy = copy.first_chunk::<SEGMENT_HEADER_BYTES>()?;
    let (counted, sum) = copy.split_at(SEGMENT_HEADER_BYTES - 4);
    let is_whole = counted.starts_with(MAGIC) && crc32fast::hash(counted) == short(sum);
    is_whole.then(|| long(&counted[MAGIC.len()..]))
}

/// Reads the records of a segment in order.
struct Reader<'a> {
    bytes: &'a Bytes,
    salt: u64,
    /// The number of the next record.
    next: u64,
    segment: Segment,
}

impl Reader<'_> {
    fn read(&mut self) {
        let mut at = BLOCK_BYTES;
        while at < self.bytes.len() {
            at = if let Some((number, record)) = self.record(at) {
                self.record_loss(number, at, at);
                self.next = number + 1;
                let end = at + HEADER_BYTES + record.tenant.len() + record.batch.len();
                self.segment.records.push(record);
                end
            } else if let Some(end) = self.fill(at) {
                end
            } else {
                self.skip(at)
            };
        }
    }

    /// The record at a position, if it is valid and was not read before.
    fn record(&self, at: usize) -> Option<(u64, Record)> {
        let header = Header::parse(&self.bytes[at..], self.salt)?;
        let body = self.bytes.get(at + HEADER_BYTES..at + header.len())?;
        if header.number < self.next || crc32fast::hash(body) != header.body_sum {
            return None;
        }
        let (tenant, batch) = body.split_at_checked(header.tenant)?;
        let tenant = Arc::from(std::str::from_utf8(tenant).ok()?);
        let Header { number, signal, received_ns, .. } = header;
        Some((number, Record { signal, tenant, received_ns, batch: self.bytes.slice_ref(batch) }))
    }

    /// The end of the zeros that fill the last block of a group.
    fn fill(&self, at: usize) -> Option<usize> {
        let end = at.next_multiple_of(BLOCK_BYTES).min(self.bytes.len());
        let zeros = &self.bytes[at..end];
        (!zeros.is_empty() && zeros.iter().all(|byte| *byte == 0)).then_some(end)
    }

    /// Skips damage that begins at a position; returns the position of the next record, or the end.
    fn skip(&mut self, at: usize) -> usize {
        let (len, header) = (self.bytes.len(), Header::parse(&self.bytes[at..], self.salt));
        // With a valid header the length is certain, so the body is not searched.
        let from = header.as_ref().map_or(at + 1, |header| at + header.len()).min(len);
        let salt = self.salt.to_le_bytes();
        let mut places = memmem::find_iter(&self.bytes[from..], &salt).map(|place| from + place);
        let next = places.find_map(|place| Some((place, self.record(place)?.0)));
        if let Some((place, number)) = next {
            if !self.record_loss(number, at, place) {
                let bytes = (place - at) as u64;
                let damage = Damage { at: at as u64, bytes, records: Some(0), is_torn: false };
                self.segment.damage.push(damage);
            }
            self.next = number;
            return place;
        }
        let is_cut_off = header.map_or(len - at < HEADER_BYTES, |header| at + header.len() > len);
        let mut blocks =
            self.bytes[at.next_multiple_of(BLOCK_BYTES).min(len)..].chunks(BLOCK_BYTES);
        let is_torn = is_cut_off || blocks.any(|block| block.iter().all(|byte| *byte == 0));
        let damage = Damage { at: at as u64, bytes: (len - at) as u64, records: None, is_torn };
        self.segment.damage.push(damage);
        len
    }

    /// Reports records that are missing between the last one and this one, found at `end`; returns whether any are.
    fn record_loss(&mut self, number: u64, at: usize, end: usize) -> bool {
        let missing = number - self.next;
        if missing > 0 {
            let (at, bytes) = (at as u64, (end - at) as u64);
            let damage = Damage { at, bytes, records: Some(missing), is_torn: false };
            self.segment.damage.push(damage);
        }
        missing > 0
    }
}

const fn code(signal: Signal) -> u8 {
    match signal {
        Signal::Traces => 1,
        Signal::Logs => 2,
        Signal::Metrics => 3,
    }
}

fn signal(of_record: u8) -> Option<Signal> {
    let signals = [Signal::Traces, Signal::Logs, Signal::Metrics];
    signals.into_iter().find(|signal| code(*signal) == of_record)
}
