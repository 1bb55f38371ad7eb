//! Spans: what the proxy did for a request, exported over OTLP.
//!
//! Finished requests ([`crate::finished`]) are encoded into a buffer of their thread. The exporter ([`export`]) takes
//! the buffers.
//! **Limits**: [`BUFFERED_BYTES_MAX`] in all. Further spans are dropped before they are encoded, and counted; no
//! request waits. A request that is not sampled costs nothing.
//! **Hurts when** the receiver is slow: the latest spans are lost, and counted.

mod attributes;
mod encode;
mod envelope;
pub(crate) mod export;
pub(crate) mod prepared;
pub(crate) mod receiver;

use crate::guard;
use crate::trail::Trail;
use bytes::Bytes;
use curtail_http::clock::Clock;
use curtail_metrics::Counter;
use encode::Encoder;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The number of buffers: this many threads have one to themselves, and further threads share them.
const SHARDS: usize = 16;

/// A buffer of this size is handed to the exporter at once rather than at the next second.
const CHUNK_BYTES: usize = 256 << 10;

/// Maximum size of all buffered spans together. Each thread's buffer may exceed its part by the spans of one request, and
/// [`SPARE_CHUNKS_MAX`] empty buffers are kept besides.
const BUFFERED_BYTES_MAX: usize = 8 << 20;

/// Maximum size of the spans that wait for the exporter or are being sent; the rest is for the threads' own buffers.
const WAITING_BYTES_MAX: usize = BUFFERED_BYTES_MAX - SHARDS * CHUNK_BYTES;

/// The number of buffers kept for reuse: those of one batch. New memory costs a page fault for every four requests.
const SPARE_CHUNKS_MAX: usize = 4;

/// The buffer of spans; shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct SpanSink {
    shards: [Mutex<Shard>; SHARDS],
    waiting: Mutex<Waiting>,
    /// Notifies the exporter of a buffer that was handed over.
    handed: Notify,
    counters: Arc<SpanCounters>,
    /// The request header that names the tenant of a request, in lower case.
    tenant_header: Option<Box<str>>,
}

/// The buffer of a thread.
#[derive(Debug, Default)]
struct Shard {
    chunk: Chunk,
    scratch: String,
}

/// Spans as they stand in a `ScopeSpans` message.
#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    spans: u64,
}

/// The spans that the exporter has to send.
#[derive(Debug, Default)]
struct Waiting {
    chunks: VecDeque<Chunk>,
    /// The size and the number of spans include the chunks that the exporter has taken and not yet settled.
    bytes: usize,
    spans: u64,
    /// Empty buffers of chunks that were sent.
    spare: Vec<Vec<u8>>,
}

curtail_metrics::counters! {
    /// The number of spans so far, by outcome.
    pub(crate) SpanCounters, SpanCounts {
        /// Written to a buffer.
        recorded: Counter,
        /// Accepted by the receiver.
        sent: Counter,
        /// Never written, because the buffers were full.
        dropped: Counter,
        /// Never written, because the encoder panicked.
        encoder_panicked: Counter,
        /// Given up after retries, or at the end of the process.
        undelivered: Counter,
        /// Rejected by the receiver.
        rejected: Counter,
        /// Failed exports, including retries.
        exports_failed: Counter,
    }
}

impl SpanSink {
    /// An empty buffer with the counters of `before`. `tenant_header` is in lower case.
    pub(crate) fn new(tenant_header: Option<&str>, before: Option<&Self>) -> Self {
        let counters = before.map(|before| Arc::clone(&before.counters)).unwrap_or_default();
        Self { counters, tenant_header: tenant_header.map(Into::into), ..Self::default() }
    }

    /// Writes the spans of a request that is over, unless its trace is not sampled or there is no room.
    pub(crate) fn record(&self, trail: &Trail, clock: &Clock) {
        if !trail.context.sampled {
            return;
        }
        let spans = 1 + trail.attempts.len() as u64;
        let mut shard = lock(&self.shards[this_thread() % SHARDS]);
        if shard.chunk.is_full() && !self.hand_over(&mut shard.chunk) {
            self.counters.dropped.add(spans);
            return;
        }
        let Shard { chunk, scratch } = &mut *shard;
        let tenant_header = self.tenant_header.as_deref();
        let is_written = guard::encode("span", &mut chunk.bytes, |out| {
            Encoder { out, scratch, clock, tenant_header }.trail(trail);
            #[cfg(test)]
            guard::planted::strike_encoder(&trail.request_head);
        });
        if !is_written {
            self.counters.encoder_panicked.add(spans);
            return;
        }
        chunk.spans += spans;
        self.counters.recorded.add(spans);
        if chunk.is_full() && self.hand_over(chunk) {
            self.handed.notify_one();
        }
    }

    /// The number of spans so far, by outcome.
    pub(crate) fn counts(&self) -> SpanCounts {
        self.counters.read()
    }

    /// Moves a chunk to those that wait, if there is room; an empty one takes its place.
    fn hand_over(&self, chunk: &mut Chunk) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.bytes + chunk.bytes.len() > WAITING_BYTES_MAX {
            return false;
        }
        // The next chunk will be about as long, so its memory need not grow in steps.
        let bytes = waiting.spare.pop().unwrap_or_else(|| Vec::with_capacity(chunk.bytes.len()));
        let next = Chunk { bytes, spans: 0 };
        let full = std::mem::replace(chunk, next);
        waiting.bytes += full.bytes.len();
        waiting.spans += full.spans;
        waiting.chunks.push_back(full);
        true
    }

    /// Hands over what every thread has written so far.
    fn hand_over_all(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            if shard.chunk.spans > 0 {
                self.hand_over(&mut shard.chunk);
            }
        }
    }

    /// Takes waiting chunks, the oldest first, of about `bytes` together. The caller must settle them.
    fn take(&self, bytes: usize) -> Option<Batch> {
        let mut waiting = lock(&self.waiting);
        let mut batch = Batch::default();
        batch.push(waiting.chunks.pop_front()?);
        while let Some(next) =
            waiting.chunks.pop_front_if(|next| batch.bytes + next.bytes.len() <= bytes)
        {
            batch.push(next);
        }
        Some(batch)
    }

    /// Records that a batch was sent or given up, so that there is room for others.
    fn settle(&self, batch: Batch, settled: Settled) {
        let mut waiting = lock(&self.waiting);
        waiting.bytes -= batch.bytes;
        waiting.spans -= batch.spans;
        // A transport that has been given up may still hold a chunk.
        let unshared = batch.chunks.into_iter().filter_map(|chunk| chunk.try_into_mut().ok());
        let room = SPARE_CHUNKS_MAX - waiting.spare.len();
        waiting.spare.extend(unshared.take(room).map(|mut chunk| {
            chunk.clear();
            chunk.into()
        }));
        drop(waiting);
        match settled {
            Settled::Sent { rejected } => {
                let rejected = rejected.min(batch.spans);
                self.counters.rejected.add(rejected);
                self.counters.sent.add(batch.spans - rejected);
            }
            Settled::GivenUp => {
                self.counters.undelivered.add(batch.spans);
            }
        }
    }

    /// Counts all remaining spans as undelivered, because none will be sent any more; returns their number.
    fn abandon(&self) -> u64 {
        let left = std::mem::take(&mut *lock(&self.waiting)).spans;
        let unwritten: u64 =
            self.shards.iter().map(|shard| std::mem::take(&mut lock(shard).chunk).spans).sum();
        self.counters.undelivered.add(left + unwritten);
        left + unwritten
    }
}

/// The outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// The receiver has the batch, except the spans that it rejected.
    Sent { rejected: u64 },
    /// The batch was not delivered.
    GivenUp,
}

/// Chunks that are sent together.
#[derive(Debug, Default)]
struct Batch {
    /// The bytes of each chunk, which every attempt sends without a copy.
    chunks: Vec<Bytes>,
    bytes: usize,
    spans: u64,
}

impl Batch {
    fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.bytes.len();
        self.spans += chunk.spans;
        self.chunks.push(chunk.bytes.into());
    }
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK_BYTES
    }
}

/// A number for this thread, counted up from zero.
fn this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = THREADS.fetch_add(1, Relaxed));
    NUMBER.with(|number| *number)
}

/// Nothing panics while it holds one of these locks; should it ever, tracing goes on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod decoded;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
