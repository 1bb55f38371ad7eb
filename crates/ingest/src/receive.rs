//! Responds to a request: reads, decompresses and decodes the batch, and waits until the batch is durable.

use crate::body::read;
use crate::commit::{CommitError, Committer, DurableBatch, Outcome};
use crate::config::{Config, Limits};
use crate::encoding::Encoding;
use crate::memory_limit::MemoryLimit;
use crate::metrics::IngestMetrics;
use crate::origin::{self, Origins};
use crate::rejection::{RejectReason, Rejection};
use crate::request::{self, ExportRequest, WireFormat};
use crate::response::{self, ResponseBody};
use bytes::Bytes;
use curtail_http::access::Access;
use curtail_http::clock::unix_time;
use curtail_http::grpc::unframe;
use curtail_otlp::{Decoded, Malformed, Refused, Signal, json};
use curtail_store::log::Record;
use curtail_store::recent::{BatchId, BatchKey};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

/// The length above which a batch is decoded on a blocking thread, so that other requests of the worker do not wait.
const LONG_BYTES: u32 = 512 << 10;

/// The reserved bytes for each byte of a batch: the batch itself, and its rows, which need about as much memory.
const MEMORY_PER_BYTE: usize = 2;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct Receiver {
    access: Arc<Access>,
    origins: Origins,
    pub(crate) limits: Limits,
    committer: Committer,
    pub(crate) metrics: Arc<IngestMetrics>,
    memory: Arc<MemoryLimit>,
    /// Limits the number of long batches that are decoded at once.
    long_decodes: Semaphore,
}

impl Receiver {
    pub(crate) fn new(config: &Config, committer: Committer, metrics: Arc<IngestMetrics>) -> Self {
        Self {
            access: Arc::clone(&config.access),
            origins: Origins(config.origins.clone()),
            limits: config.limits.clone(),
            committer,
            metrics,
            memory: Arc::new(MemoryLimit::new(config.limits.receiving_bytes)),
            long_decodes: Semaphore::new(config.workers.max(1)),
        }
    }

    /// Responds to a request.
    pub(crate) async fn respond<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        let (head, body) = request.into_parts();
        let origin = self.origins.allowed(&head.headers);
        let mut response = self.respond_to_any(head, body).await;
        if let Some(origin) = origin {
            origin::allow(&mut response, origin);
        }
        response
    }

    /// Responds to a request without headers for its origin.
    async fn respond_to_any<B>(&self, head: Parts, body: B) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        let began = Instant::now();
        let form = WireFormat::of(&head.headers).unwrap_or(WireFormat::Protobuf);
        let stored = if origin::is_preflight(&head) {
            match self.origins.check(&head.headers) {
                Ok(()) => return origin::preflight_response(&head.headers),
                Err(rejection) => Err(rejection),
            }
        } else {
            match request::parse(&head, &self.access) {
                Ok(request) => {
                    self.store(&request, body).await.map(|refused| (request.signal, refused))
                }
                Err(rejection) => Err(rejection),
            }
        };
        match stored {
            Ok((signal, refused)) => {
                self.metrics.acknowledged(began.elapsed(), refused.count);
                response::acknowledge(form, signal, refused)
            }
            Err(rejection) => {
                self.metrics.rejected.add(&rejection.reason, 1);
                tracing::debug!(reason = ?rejection.reason, message = rejection.message, "rejected");
                response::reject(form, &rejection)
            }
        }
    }

    /// Stores a batch; returns when the batch is durable.
    async fn store<B>(&self, request: &ExportRequest, body: B) -> Result<Refused, Rejection>
    where
        B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        // A sender that waited would give up before the commit, and send the batch again.
        self.committer.check_stall(self.limits.full_for).map_err(rejection)?;
        let bytes_max = self.limits.batch.batch_bytes;
        let tenant: Arc<str> = Arc::from(&*request.tenant);
        let mut reservation = self.memory.reserve(Arc::clone(&tenant));
        let timeout = self.limits.body_timeout;
        let body = tokio::time::timeout(timeout, read(body, &mut reservation, bytes_max)).await;
        let body = body.unwrap_or_else(|_| {
            Err(RejectReason::Slow.reject(format!("the body did not arrive within {timeout:?}")))
        })?;
        let (body, encoding) = match request.form {
            WireFormat::Grpc => {
                match unframe(body).map_err(|why| RejectReason::Malformed.reject(why))? {
                    (message, true) => (message, request.encoding),
                    (message, false) => (message, Encoding::Identity),
                }
            }
            WireFormat::Protobuf | WireFormat::Json => (body, request.encoding),
        };
        let limits = self.limits.batch;
        let job = DecodeJob {
            is_json: request.form == WireFormat::Json,
            signal: request.signal,
            tenant: Arc::clone(&tenant),
            key: self.committer.recent.key(),
            limits,
        };
        let DecodedBatch { batch, id, rows, refused } =
            match encoding.decompress(body.clone(), bytes_max.min(LONG_BYTES)) {
                Ok(batch) => {
                    reservation.grow(MEMORY_PER_BYTE * batch.len())?;
                    job.run(batch)?
                }
                Err(rejection) if rejection.reason == RejectReason::TooLong => {
                    let _turn = self.long_decodes.acquire().await.map_err(|_| stopping())?;
                    let body = body.clone();
                    let batch = run_blocking(move || encoding.decompress(body, bytes_max)).await?;
                    reservation.grow(MEMORY_PER_BYTE * batch.len())?;
                    run_blocking(move || job.run(batch)).await?
                }
                Err(rejection) => return Err(rejection),
            };
        // Of equal batches the log thread keeps one, and releases the memory of the others.
        drop(body);
        if rows.is_empty() {
            return Ok(refused);
        }
        let (count, bytes) = (rows.len(), batch.len());
        let received_ns = unix_time().as_ns();
        let record = Record { signal: request.signal, tenant, received_ns, batch };
        let _waiting = self.metrics.waiting.enter();
        let batch = DurableBatch { record, rows };
        let committed = self.committer.commit(batch, (id, reservation), self.limits.full_for).await;
        match committed.map_err(rejection)? {
            Outcome::Written => self.metrics.stored(request.signal, count, bytes),
            Outcome::Duplicate => self.metrics.duplicates.add(1),
        }
        Ok(refused)
    }
}

fn rejection(error: CommitError) -> Rejection {
    let reason = match error {
        CommitError::BacklogFull | CommitError::BacklogFullDiskFull => RejectReason::Exhausted,
        CommitError::DiskFull
        | CommitError::Failed
        | CommitError::LogStalled
        | CommitError::Stopping => RejectReason::Unavailable,
    };
    reason.reject(error.to_string())
}

/// A decompressed batch that is to be decoded.
#[derive(Clone, Debug)]
struct DecodeJob {
    is_json: bool,
    signal: Signal,
    tenant: Arc<str>,
    key: BatchKey,
    limits: curtail_otlp::Limits,
}

/// A decoded batch.
struct DecodedBatch {
    /// The batch as protobuf.
    batch: Bytes,
    /// The batch's ID, if it must not be stored twice.
    id: Option<BatchId>,
    rows: Decoded,
    refused: Refused,
}

impl DecodeJob {
    fn run(self, mut batch: Bytes) -> Result<DecodedBatch, Rejection> {
        let Self { is_json, signal, tenant, key, limits } = self;
        if is_json {
            let protobuf = json::to_protobuf(&batch, signal, &limits);
            batch =
                protobuf.map_err(|error| RejectReason::Malformed.reject(error.to_string()))?.into();
        }
        let malformed =
            |malformed: Malformed| RejectReason::Malformed.reject(malformed.to_string());
        let (rows, refused) = Decoded::of(signal, &batch, &limits).map_err(malformed)?;
        let id = key.id(signal, &tenant, &batch);
        Ok(DecodedBatch { batch, id, rows, refused })
    }
}

/// Runs `work` on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Rejection> + Send + 'static,
) -> Result<T, Rejection> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => {
            tracing::error!(
                "the decoder panicked at a batch, which is a bug; the batch is rejected"
            );
            Err(RejectReason::Malformed
                .reject("the decoder panics at this batch: a bug of curtail"))
        }
        Err(_) => Err(stopping()),
    }
}

fn stopping() -> Rejection {
    RejectReason::Unavailable.reject("the receiver is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_at_which_the_decoder_panics_is_not_sent_again() {
        let rejection = run_blocking::<()>(|| panic!("planted")).await.expect_err("it panicked");
        assert!(!rejection.reason.is_retryable(), "{rejection:?}");
    }
}
