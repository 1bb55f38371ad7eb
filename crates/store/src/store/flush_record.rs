//! Flush records: the table versions and batch hashes of removed segments of the write-ahead log.
//!
//! A segment is removed when all its rows are in committed runs. Before that, a flush record is written: a file with
//! the name `flushed-` and the number of the last segment to remove. It has
//!
//! - the version of each table, so that the next start detects a commit that has been lost since;
//! - the batches of the segments, so that a batch that is sent again is recognized after a restart.
//!
//! The layout is a checksum, two lengths, the tables as JSON, the batches (hash and time of arrival), and zeros to the
//! end of a block. The file is written under another name and renamed once it is synced, so a crash leaves no
//! half-written record. An unreadable record is therefore damaged, and is kept as `damaged-…`. The newest record is always
//! kept, other records while they have a batch of the last ten minutes.

use crate::delta::TableVersion;
use crate::files::{BLOCK_BYTES, Files, remove_if_there};
use crate::recent::{BatchId, RecentBatch, RecentBatches, is_expired};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};

/// The length of the header: checksum of all that follows, length of the JSON, number of batches.
const HEADER_BYTES: usize = 4 + 4 + 4;

/// The length of a batch: hash and time of arrival.
const BATCH_BYTES: usize = 16 + 8;

/// The name of a record until it is synced.
const NEW: &str = "flushed.new";

/// The last known version of each table, by name.
pub(crate) type Versions = BTreeMap<String, TableVersion>;

/// The flush records of a log's folder.
#[derive(Debug, Default)]
pub(super) struct FlushRecords {
    /// The arrival of the newest batch of each record, by the last segment of the record.
    files: BTreeMap<u64, u64>,
    /// The tables' versions in the newest record.
    pub(super) versions: Versions,
}

impl FlushRecords {
    /// Reads the existing records and adds their batches. Returns also the names of unreadable ones.
    pub(super) fn open(
        files: &dyn Files,
        recent: &RecentBatches,
    ) -> io::Result<(Self, Vec<String>)> {
        let (mut records, mut unread) = (Self::default(), Vec::new());
        for name in files.list()? {
            let Some(segment) = name.strip_prefix("flushed-").and_then(|nth| nth.parse().ok())
            else {
                continue;
            };
            let Some((versions, batches)) = decode(&files.read(&name)?, segment) else {
                // If the rename fails, the next server finds the record damaged again.
                files.rename(&name, &format!("damaged-{name}")).ok();
                unread.push(name);
                continue;
            };
            for RecentBatch { id, received_ns, segment } in &batches {
                recent.insert(*id, *received_ns, *segment);
            }
            records.files.insert(segment, newest(&batches));
            records.versions = versions;
        }
        Ok((records, unread))
    }

    /// The last segment of the newest record.
    pub(super) fn last_segment(&self) -> u64 {
        self.files.last_key_value().map_or(0, |(segment, _)| *segment)
    }

    /// Writes the record of the segments up to this one, unless it exists.
    pub(super) fn write(
        &mut self,
        files: &dyn Files,
        segment: u64,
        versions: Versions,
        recent: &RecentBatches,
    ) -> io::Result<()> {
        if self.last_segment() == segment && self.versions == versions {
            return Ok(());
        }
        // A record of this segment may exist, if its segments were not removed.
        let before = self.files.range(..segment).next_back().map_or(0, |(segment, _)| *segment);
        let batches = recent.of_segments(before, segment);
        // Removes an unfinished record of an earlier attempt.
        remove_if_there(files, NEW)?;
        let mut file = files.create(NEW)?;
        file.append(&mut [IoSlice::new(&encode(&versions, &batches))])?;
        file.sync()?;
        files.rename(NEW, &name(segment))?;
        self.versions = versions;
        self.files.insert(segment, newest(&batches));
        Ok(())
    }

    /// Removes expired records.
    pub(super) fn remove_expired(&mut self, files: &dyn Files, now_ns: u64) {
        let last = self.last_segment();
        // A failed removal is retried with the next ones.
        self.files.retain(|segment, newest| {
            *segment == last
                || !is_expired(*newest, now_ns)
                || remove_if_there(files, &name(*segment)).is_err()
        });
    }
}

fn name(segment: u64) -> String {
    format!("flushed-{segment:012}")
}

fn newest(batches: &[RecentBatch]) -> u64 {
    batches.iter().map(|batch| batch.received_ns).max().unwrap_or_default()
}

fn encode(versions: &Versions, batches: &[RecentBatch]) -> Vec<u8> {
    let versions = serde_json::to_vec(versions).expect("it is plain data");
    let mut bytes = vec![0; 4];
    for len in [versions.len(), batches.len()] {
        bytes.extend(u32::try_from(len).expect("both are bounded").to_le_bytes());
    }
    bytes.extend(versions);
    for RecentBatch { id, received_ns, .. } in batches {
        bytes.extend(id.to_bytes());
        bytes.extend(received_ns.to_le_bytes());
    }
    let sum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

/// Parses a file; [`None`] when it is damaged.
fn decode(bytes: &[u8], segment: u64) -> Option<(Versions, Vec<RecentBatch>)> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let len = |at| word(at).and_then(|len| usize::try_from(len).ok());
    let (versions, count) = (len(4)?, len(8)?);
    let end = HEADER_BYTES.checked_add(versions)?.checked_add(count.checked_mul(BATCH_BYTES)?)?;
    if crc32fast::hash(bytes.get(4..end)?) != word(0)? {
        return None;
    }
    let (versions, batches) = bytes[HEADER_BYTES..end].split_at(versions);
    let (batches, _) = batches.as_chunks::<BATCH_BYTES>();
    let batch = |bytes: &[u8; BATCH_BYTES]| {
        let (id, received_ns) = bytes.split_first_chunk::<16>()?;
        let received_ns = u64::from_le_bytes(*received_ns.first_chunk()?);
        Some(RecentBatch { id: BatchId::from_bytes(*id), received_ns, segment })
    };
    Some((serde_json::from_slice(versions).ok()?, batches.iter().filter_map(batch).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::failing::Failing;
    use crate::recent::BatchKey;
    use curtail_otlp::Signal;

    fn recent() -> RecentBatches {
        RecentBatches::new(BatchKey::new([7; 32]))
    }

    fn versions(version: u64) -> Versions {
        let committed = TableVersion { id: "f0b1".to_owned(), version };
        Versions::from([("spans".to_owned(), committed)])
    }

    #[test]
    fn a_record_is_read_back_unless_it_is_truncated_or_changed() {
        let id = BatchId::from_bytes([9; 16]);
        let batches = [1, 2].map(|received_ns| RecentBatch { id, received_ns, segment: 4 });
        let bytes = encode(&versions(12), &batches);
        assert_eq!(bytes.len(), BLOCK_BYTES);
        assert_eq!(decode(&bytes, 4), Some((versions(12), batches.to_vec())));
        let len = HEADER_BYTES + serde_json::to_vec(&versions(12)).expect("JSON").len() + 48;
        for at in 0..len {
            assert_eq!(decode(&bytes[..at], 4), None, "{at} bytes");
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert_eq!(decode(&changed, 4), None, "byte {at}");
        }
    }

    #[test]
    fn recent_batches_and_the_newest_versions_survive_a_restart() {
        let files = Failing::default();
        let (mut records, _) = FlushRecords::open(&files, &recent()).expect("an empty folder");
        let now = recent();
        let id = |nth: u64| now.key().id(Signal::Traces, "shop", &nth.to_le_bytes());
        for nth in 1..=20 {
            let received_ns = nth * 60_000_000_000;
            assert!(now.insert(id(nth).expect("spans have one"), received_ns, nth));
            records.write(&files, nth, versions(nth), &now).expect("written");
            // Written again, as after a crash before the segment was removed.
            records.write(&files, nth, versions(nth), &now).expect("written");
            records.remove_expired(&files, received_ns);
        }
        assert_eq!(
            files.list().expect("a list").len(),
            11,
            "the records of ten minutes and the newest"
        );
        let later = recent();
        let (records, unread) = FlushRecords::open(&files, &later).expect("good files");
        assert_eq!((&records.versions, records.last_segment()), (&versions(20), 20));
        assert!(unread.is_empty());
        for nth in 1..=20 {
            let id = id(nth).expect("spans have one");
            assert_eq!(later.contains(id, 20 * 60_000_000_000), nth >= 10, "{nth}");
        }
        files.damage("flushed-000000000020", 40);
        let (records, unread) = FlushRecords::open(&files, &recent()).expect("good files");
        assert_eq!((&records.versions, unread.len()), (&versions(19), 1));
        let (_, unread) = FlushRecords::open(&files, &recent()).expect("good files");
        assert!(unread.is_empty(), "the damaged record is kept under another name");
    }

    #[test]
    fn a_record_is_replaced_atomically_whichever_operation_fails() {
        let now = recent();
        let id = now.key().id(Signal::Traces, "shop", b"batch").expect("spans have one");
        assert!(now.insert(id, 10, 1));
        for nth in 0.. {
            let files = Failing::default();
            let (mut records, _) = FlushRecords::open(&files, &recent()).expect("an empty folder");
            records.write(&files, 1, versions(1), &now).expect("written");
            let first = files.operations() + nth;
            files.fail(first..usize::MAX);
            let written = records.write(&files, 1, versions(2), &now);
            files.fail(0..0);
            let known = recent();
            let (read, unread) = FlushRecords::open(&files, &known).expect("good files");
            assert!(unread.is_empty() && known.contains(id, 10), "operation {nth}");
            let version = if written.is_ok() { 2 } else { 1 };
            assert_eq!(read.versions, versions(version), "operation {nth}");
            records.write(&files, 1, versions(3), &now).expect("nothing fails now");
            if written.is_ok() {
                return;
            }
        }
    }

    #[test]
    fn records_removed_by_someone_else_cause_no_error() {
        let (files, now) = (Failing::default(), recent());
        let (mut records, _) = FlushRecords::open(&files, &recent()).expect("an empty folder");
        for nth in 1..=3 {
            records.write(&files, nth, versions(nth), &now).expect("written");
            files.remove(&name(nth)).expect("removed");
            records.remove_expired(&files, u64::MAX);
        }
        assert_eq!(records.files.len(), 1);
    }
}
