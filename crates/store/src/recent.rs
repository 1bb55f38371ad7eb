//! Which batches came in the last ten minutes, so that one that is sent again is not stored again.
//!
//! A sender whose acknowledgement was lost sends its batch once more. A batch of spans or of points is known by a keyed
//! hash of 128 bits over the tenant, the signal and the uncompressed bytes. Identical log records are
//! legitimate, so batches of these are never known. The key is random and stays in the data folder: without it
//! nobody can make two batches with the same hash, of one tenant or of two.
//!
//! **Across a restart**: what the log has is hashed again when it is read, and when a segment is removed the
//! hashes of its batches are written to a [flush record](crate::store) first.
//!
//! **Limits**: [`BATCHES_MAX`] batches, about 50 MiB. Beyond it the oldest is forgotten before its time, and
//! [counted](RecentBatches::forgotten_early). Time is that of arrival, by this machine's clock.
//!
//! **Source**: `HighwayHash`, Alakuijala, Cox and Wassenberg, "Fast keyed hash/pseudo-random function using SIMD multiply and
//! permute", 2016. It takes 0.1 to 0.2 ns a byte where `SipHash` takes 0.8 and keyed BLAKE3 0.3 to 0.5.

use crate::log::Record;
use curtail_otlp::Signal;
use highway::{HighwayHash as _, HighwayHasher, Key};
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a batch is known: ten minutes.
pub const WINDOW_NS: u64 = 600_000_000_000;

/// How many batches are known at most: 1,500 a second for ten minutes, and as many as fit a table of 2²⁰ places.
pub const BATCHES_MAX: usize = (1 << 20) / 8 * 7;

/// Whether a batch that came at a time is forgotten by now.
pub(crate) const fn is_expired(received_ns: u64, now_ns: u64) -> bool {
    received_ns.abs_diff(now_ns) > WINDOW_NS
}

/// A batch, by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchId(u128);

impl BatchId {
    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

/// What hashes are made with. It is a secret.
#[derive(Clone, Copy)]
pub struct BatchKey([u64; 4]);

impl std::fmt::Debug for BatchKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BatchKey")
    }
}

impl BatchKey {
    /// One of these random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self(std::array::from_fn(|nth| u64::from_le_bytes(words[nth])))
    }

    /// The ID of a batch; [`None`] for one of logs.
    #[must_use]
    pub fn id(&self, signal: Signal, tenant: &str, batch: &[u8]) -> Option<BatchId> {
        let signal: u8 = match signal {
            Signal::Traces => 1,
            Signal::Metrics => 3,
            Signal::Logs => return None,
        };
        let mut hasher = HighwayHasher::new(Key(self.0));
        hasher.append(&[signal, u8::try_from(tenant.len()).unwrap_or(u8::MAX)]);
        hasher.append(tenant.as_bytes());
        hasher.append(batch);
        let [low, high] = hasher.finalize128();
        Some(BatchId(u128::from(high) << 64 | u128::from(low)))
    }

    /// The same of a record.
    #[must_use]
    pub fn id_of(&self, record: &Record) -> Option<BatchId> {
        self.id(record.signal, &record.tenant, &record.batch)
    }
}

/// A batch that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecentBatch {
    pub(crate) id: BatchId,
    pub(crate) received_ns: u64,
    /// The segment of the log that it is, or was, in.
    pub(crate) segment: u64,
}

/// The batches of the last ten minutes that are durable.
#[derive(Debug)]
pub struct RecentBatches {
    key: BatchKey,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashSet<BatchId>,
    /// The same, in the order in which they were added.
    order: VecDeque<RecentBatch>,
    forgotten_early: u64,
}

impl RecentBatches {
    /// None so far.
    #[must_use]
    pub fn new(key: BatchKey) -> Self {
        Self { key, state: Mutex::default() }
    }

    /// What IDs are made with.
    #[must_use]
    pub const fn key(&self) -> BatchKey {
        self.key
    }

    /// Whether a batch that comes at a time is durable already.
    #[must_use]
    pub fn contains(&self, id: BatchId, now_ns: u64) -> bool {
        let state = &mut *self.lock();
        state.expire(now_ns);
        state.known.contains(&id)
    }

    /// Adds a batch that is durable in a segment of the log; returns whether it was not known.
    pub fn insert(&self, id: BatchId, received_ns: u64, segment: u64) -> bool {
        let state = &mut *self.lock();
        state.expire(received_ns);
        if !state.known.insert(id) {
            return false;
        }
        state.order.push_back(RecentBatch { id, received_ns, segment });
        if state.order.len() > BATCHES_MAX {
            state.forget_oldest();
            state.forgotten_early += 1;
        }
        true
    }

    /// How many batches were forgotten before their ten minutes were over.
    #[must_use]
    pub fn forgotten_early(&self) -> u64 {
        self.lock().forgotten_early
    }

    /// Those of segments after one and up to another.
    pub(crate) fn of_segments(&self, after: u64, last: u64) -> Vec<RecentBatch> {
        let is_of = |batch: &&RecentBatch| (after + 1..=last).contains(&batch.segment);
        self.lock().order.iter().filter(is_of).copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets batches that came more than ten minutes before `now_ns`, or after: then the clock was set back since.
    fn expire(&mut self, now_ns: u64) {
        while self.order.front().is_some_and(|first| is_expired(first.received_ns, now_ns)) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            self.known.remove(&oldest.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    #[test]
    fn an_id_is_of_the_key_the_tenant_the_signal_and_every_byte() {
        let key = BatchKey::new(KEY);
        let id = |signal, tenant, batch| key.id(signal, tenant, batch);
        let one = id(Signal::Traces, "shop", b"batch").expect("spans have one");
        assert_eq!(id(Signal::Traces, "shop", b"batch"), Some(one));
        for other in [
            id(Signal::Metrics, "shop", b"batch"),
            id(Signal::Traces, "shopb", b"atch"),
            id(Signal::Traces, "sho", b"pbatch"),
            id(Signal::Traces, "shop", b"batch\0"),
            BatchKey::new([8; 32]).id(Signal::Traces, "shop", b"batch"),
        ] {
            assert!(other.is_some_and(|other| other != one));
        }
        assert_eq!(id(Signal::Logs, "shop", b"batch"), None);
        assert_eq!(BatchId::from_bytes(one.to_bytes()), one);
        assert_eq!(format!("{key:?}"), "BatchKey", "a secret is not printed");
    }

    #[test]
    fn a_batch_is_known_for_ten_minutes() {
        let recent = RecentBatches::new(BatchKey::new(KEY));
        let (one, other) = (BatchId(1), BatchId(2));
        assert!(recent.insert(one, 10, 1) && recent.insert(other, 20, 2));
        assert!(!recent.insert(one, 30, 3), "it is known");
        assert!(recent.contains(one, 10 + WINDOW_NS) && !recent.contains(one, 11 + WINDOW_NS));
        assert!(recent.contains(other, 11 + WINDOW_NS));
        let of_second = RecentBatch { id: other, received_ns: 20, segment: 2 };
        assert_eq!(recent.of_segments(1, 2), [of_second]);
        assert_eq!(recent.of_segments(2, 9), []);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_batch_known_for_longer() {
        let recent = RecentBatches::new(BatchKey::new(KEY));
        let (day_ns, now_ns) = (86_400_000_000_000, 1_000_000_000_000);
        assert!(recent.insert(BatchId(1), now_ns + day_ns, 1));
        assert!(recent.insert(BatchId(2), now_ns, 2));
        assert!(!recent.contains(BatchId(1), now_ns) && recent.contains(BatchId(2), now_ns));
        assert!(!recent.contains(BatchId(2), now_ns + WINDOW_NS + 1));
    }

    #[test]
    fn the_oldest_is_forgotten_and_counted_where_there_are_too_many() {
        let recent = RecentBatches::new(BatchKey::new(KEY));
        for nth in 0..BATCHES_MAX as u128 + 3 {
            assert!(recent.insert(BatchId(nth), 10, 1));
        }
        assert_eq!(recent.forgotten_early(), 3);
        assert!(!recent.contains(BatchId(2), 10) && recent.contains(BatchId(3), 10));
    }
}
