//! Batches with their due times.
//!
//! Without a rate a thread encodes batches while others are sent, a million spans ahead. At a rate all batches are
//! encoded before the first is due, so encoding delays none.

use super::LoadOptions;
use super::batches::batches;
use bytes::Bytes;
use curtail_otlp::{Limits, Spans};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The spans that are encoded at a time.
const CHUNK: usize = 1_000_000;

/// The distance between two batches whose trace ID is written.
const IDS_EVERY: usize = 10;

/// A batch that is to be sent.
#[derive(Debug)]
pub(crate) struct Due {
    /// When; without a rate, whenever a sender is free.
    pub(crate) at: Option<Instant>,
    pub(crate) batch: Bytes,
}

/// Starts a task that supplies the senders. It ends when all is supplied, or when no sender is left.
pub(crate) fn start(
    options: &LoadOptions,
    jobs: mpsc::Sender<Due>,
) -> Result<JoinHandle<Result<(), String>>, String> {
    let (spans, seed, protocol) = (options.spans, options.seed, options.protocol);
    let (made, chunks) = sync_channel(1);
    std::thread::spawn(move || {
        for (nth, seed) in (0..spans.div_ceil(CHUNK)).zip(seed..) {
            let chunk = batches(CHUNK.min(spans - nth * CHUNK), seed);
            let framed = chunk.into_iter().map(|batch| protocol.framed(batch)).collect::<Vec<_>>();
            if made.send(framed).is_err() {
                return;
            }
        }
    });
    let ids = options.ids.as_ref().map(File::create).transpose();
    let ids = ids.map_err(|error| format!("ids: {error}"))?.map(BufWriter::new);
    let supply = Supply { jobs, ids, prefix: protocol.prefix() };
    match options.rate {
        None => Ok(std::thread::spawn(move || supply.at_once(&chunks))),
        Some(rate) => {
            let (all, schedule) = (chunks.into_iter().flatten().collect::<Vec<_>>(), options.times);
            let batch_every = spans as f64 / rate / all.len() as f64;
            let every = Duration::try_from_secs_f64(batch_every);
            let every = every.map_err(|error| format!("rate={rate}: {error}"))?;
            Ok(std::thread::spawn(move || supply.at_a_rate(&all, schedule, every)))
        }
    }
}

struct Supply {
    jobs: mpsc::Sender<Due>,
    ids: Option<BufWriter<File>>,
    /// Bytes before the message in a body.
    prefix: usize,
}

impl Supply {
    fn at_once(mut self, chunks: &Receiver<Vec<Bytes>>) -> Result<(), String> {
        for (nth, batch) in chunks.iter().flatten().enumerate() {
            self.write_id(nth, &batch)?;
            if self.jobs.blocking_send(Due { at: None, batch }).is_err() {
                break;
            }
        }
        self.finish()
    }

    fn at_a_rate(mut self, all: &[Bytes], times: usize, every: Duration) -> Result<(), String> {
        for (nth, batch) in all.iter().enumerate() {
            self.write_id(nth, batch)?;
        }
        let mut at = Instant::now();
        for (time, batch) in (0..times).flat_map(|time| all.iter().map(move |batch| (time, batch)))
        {
            at += every;
            let batch = if time == 0 { batch.clone() } else { with_other_traces(batch, time) };
            #[expect(clippy::disallowed_methods, reason = "this thread is the schedule")]
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if self.jobs.blocking_send(Due { at: Some(at), batch }).is_err() {
                break;
            }
        }
        self.finish()
    }

    /// Writes down the ID of the first span's trace.
    fn write_id(&mut self, nth: usize, batch: &Bytes) -> Result<(), String> {
        let Some(ids) = self.ids.as_mut().filter(|_| nth.is_multiple_of(IDS_EVERY)) else {
            return Ok(());
        };
        let decoded = Spans::decode(&batch[self.prefix..], &Limits::default());
        let (spans, _) = decoded.map_err(|malformed| format!("batch {nth}: {malformed}"))?;
        let first = spans.spans.first().ok_or(format!("batch {nth} is empty"))?;
        writeln!(ids, "{:032x}", first.trace_id).map_err(|error| format!("ids: {error}"))
    }

    fn finish(mut self) -> Result<(), String> {
        let flushed = self.ids.as_mut().map_or(Ok(()), |ids| ids.flush());
        flushed.map_err(|error| format!("ids: {error}"))
    }
}

/// The same batch with other trace IDs, because a server stores identical batches once.
fn with_other_traces(batch: &Bytes, time: usize) -> Bytes {
    let mut batch = batch.to_vec();
    // A trace ID of 16 bytes, then the span ID of 8, as OTLP encodes them.
    for at in 0..batch.len().saturating_sub(20) {
        if batch[at..].starts_with(&[0x0A, 16]) && batch[at + 18..].starts_with(&[0x12, 8]) {
            batch[at + 2] ^= time.to_le_bytes()[0];
        }
    }
    batch.into()
}
