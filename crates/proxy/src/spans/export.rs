//! The exporter: takes spans from the buffers and sends them to their receiver.
//!
//! **Decides** when spans are sent: every second, or as soon as a thread has filled a buffer. A batch that is not
//! accepted is sent again after a doubling, jittered time, or the time that the receiver asks for. The exporter drops a
//! batch after `tries_max` attempts, or at once if the receiver rejects it.
//! **Limits**: one batch in flight; the rest waits in the bounded buffers ([`super::SpanSink`]). If a response is lost,
//! the batch may be sent twice.
//! **Source**: OTLP 1.x, sections "OTLP/gRPC Throttling" and "OTLP/HTTP Throttling".

use super::envelope::Envelope;
use super::receiver::{Receiver, Verdict};
use super::{Batch, Settled, SpanSink};
use crate::StartError;
use crate::config::SpansConfig;
use crate::trace_context::entropy_rng;
use curtail_otlp::Signal;
use curtail_units::{Duration, Rng};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

/// The times and limits of an exporter.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Spans wait this long at most before they are sent.
    every: Duration,
    /// Maximum size of a batch. It is sent whole or not at all, and receivers reject long messages: gRPC servers
    /// commonly those above 4 MiB.
    batch_bytes: usize,
    /// Maximum time of an exchange, including the connection attempt.
    timeout: Duration,
    /// Maximum attempts to send a batch.
    tries_max: u32,
    /// The mean time before the second attempt; it doubles with each further attempt.
    backoff: Duration,
    /// Maximum of the backoff, and of the time that a receiver can ask for.
    backoff_max: Duration,
}

/// A batch is given up about a minute after the receiver has gone away.
const PACE: Pace = Pace {
    every: Duration::from_secs(1),
    batch_bytes: 1 << 20,
    timeout: Duration::from_secs(10),
    tries_max: 8,
    backoff: Duration::from_ms(500),
    backoff_max: Duration::from_secs(30),
};

/// The handle to the task that sends spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: oneshot::Sender<Instant>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts to send what is written to `sink`, on the runtime of the caller.
    ///
    /// # Errors
    /// When the TLS configuration towards the receiver cannot be used.
    pub(crate) fn start(config: &SpansConfig, sink: Arc<SpanSink>) -> Result<Self, StartError> {
        Self::start_at_pace(config, sink, PACE)
    }

    fn start_at_pace(
        config: &SpansConfig,
        sink: Arc<SpanSink>,
        pace: Pace,
    ) -> Result<Self, StartError> {
        let export = Export {
            sink,
            envelope: Envelope::new(config),
            receiver: Receiver::new(config, Signal::Traces)?,
            pace,
            rng: entropy_rng(),
            failure: None,
        };
        let (stop, stopped) = oneshot::channel();
        Ok(Self { stop, task: tokio::spawn(export.run(stopped)) })
    }

    /// Sends the remaining spans until `deadline`, then stops. The spans that are left are counted as undelivered.
    pub(crate) async fn flush(self, deadline: Instant) {
        // A task that has ended by itself has nothing left to send.
        self.stop.send(deadline).ok();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the exporter of spans did not end by itself");
        }
    }
}

/// The task that sends spans.
struct Export {
    sink: Arc<SpanSink>,
    envelope: Envelope,
    receiver: Receiver,
    pace: Pace,
    rng: Rng,
    /// The error of the last exchange, if it failed. Each change is one line in the log.
    failure: Option<String>,
}

impl Export {
    async fn run(mut self, stopped: oneshot::Receiver<Instant>) {
        let sink = Arc::clone(&self.sink);
        let mut stopped = pin!(stopped);
        let every = self.pace.every.into();
        let deadline = loop {
            tokio::select! {
                biased;
                deadline = &mut stopped => break deadline,
                () = sink.handed.notified() => {}
                () = sleep(every) => {}
            }
            let mut sending = pin!(self.send_all());
            tokio::select! {
                biased;
                deadline = &mut stopped => {
                    if let Ok(deadline) = deadline {
                        timeout_at(deadline, sending).await.ok();
                    }
                    break deadline;
                }
                _ = &mut sending => {}
            }
        };
        // Without a deadline the proxy has been dropped, and waits no more.
        if let Ok(deadline) = deadline {
            let rest = async { while self.send_all().await {} };
            timeout_at(deadline, rest).await.ok();
        }
        let spans = sink.abandon();
        if spans > 0 {
            let endpoint = self.receiver.endpoint();
            tracing::warn!(endpoint, spans, "the exporter stops: spans are dropped");
        }
    }

    /// Sends everything written so far; returns whether there was anything.
    async fn send_all(&mut self) -> bool {
        self.sink.hand_over_all();
        let mut any = false;
        while let Some(batch) = self.sink.take(self.pace.batch_bytes) {
            any = true;
            let settled = self.send(&batch).await;
            self.sink.settle(batch, settled);
        }
        any
    }

    async fn send(&mut self, batch: &Batch) -> Settled {
        let body = self.envelope.wrap(batch);
        let mut backoff = self.pace.backoff;
        let endpoint = self.receiver.endpoint().to_owned();
        for nth in 1..=self.pace.tries_max {
            match self.receiver.send(body.clone(), self.pace.timeout).await {
                Verdict::Accepted { rejected } => {
                    self.note_accepted(rejected);
                    return Settled::Sent { rejected };
                }
                Verdict::Rejected { why } => {
                    if self.is_new_failure(&why) {
                        tracing::warn!(
                            endpoint,
                            why,
                            "the receiver rejects spans; they are dropped"
                        );
                    }
                    return Settled::Sent { rejected: batch.spans };
                }
                Verdict::RetryLater { why, after } => {
                    if self.is_new_failure(&why) {
                        tracing::warn!(
                            endpoint,
                            why,
                            "the receiver is unavailable; spans wait, up to a maximum"
                        );
                    }
                    if nth < self.pace.tries_max {
                        let jittered = backoff.mul_f64(0.5 + self.rng.unit());
                        let wait = after.unwrap_or(jittered).min(self.pace.backoff_max);
                        sleep(wait.into()).await;
                        backoff = (backoff + backoff).min(self.pace.backoff_max);
                    }
                }
            }
        }
        let why = &self.failure;
        tracing::warn!(
            endpoint,
            why,
            spans = batch.spans,
            "spans are dropped after the last retry"
        );
        Settled::GivenUp
    }

    fn note_accepted(&mut self, rejected: u64) {
        if rejected > 0 {
            tracing::debug!(rejected, "the receiver rejected some spans");
        }
        if self.failure.take().is_some() {
            tracing::info!(endpoint = self.receiver.endpoint(), "the receiver accepts spans again");
        }
    }

    fn is_new_failure(&mut self, why: &str) -> bool {
        self.sink.counters.exports_failed.add(1);
        let is_new = self.failure.as_deref() != Some(why);
        self.failure = Some(why.to_owned());
        is_new
    }
}

#[cfg(test)]
mod tests;
