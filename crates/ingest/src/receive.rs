//! From a request to an answer: read, decompressed, decoded, durable.

use crate::answer::{self, AnswerBody};
use crate::body::{read, unframe};
use crate::commit::{Committer, NotWritten, Outcome, Taken};
use crate::config::{Config, Limits};
use crate::encoding::Encoding;
use crate::metrics::IngestMetrics;
use crate::origin::{self, Origins};
use crate::refusal::{Kind, Refusal};
use crate::request::{Asked, Form, asked};
use crate::room::Room;
use bytes::Bytes;
use curtail_http::access::Access;
use curtail_otlp::{Decoded, Malformed, Refused, Signal, json};
use curtail_store::log::Record;
use curtail_store::recent::{BatchId, BatchKey};
use http::{Request, Response, request};
use http_body::Body;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// Batches that are longer when decompressed are decoded beside the worker, so that others do not wait for them.
const LONG_BYTES: u32 = 512 << 10;

/// Bytes in memory for each byte of a batch: its own, and its rows, which take about as much.
const BYTES_OF_ONE: usize = 2;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Receiver {
    access: Arc<Access>,
    origins: Origins,
    limits: Limits,
    committer: Committer,
    metrics: Arc<IngestMetrics>,
    room: Room,
    /// So many long batches are decoded at once.
    long_ones: Semaphore,
}

impl Receiver {
    pub(crate) fn new(config: &Config, committer: Committer, metrics: Arc<IngestMetrics>) -> Self {
        Self {
            access: Arc::clone(&config.access),
            origins: Origins(config.origins.clone()),
            limits: config.limits.clone(),
            committer,
            metrics,
            room: Room::new(config.limits.receiving_bytes),
            long_ones: Semaphore::new(config.workers.max(1)),
        }
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn metrics(&self) -> &IngestMetrics {
        &self.metrics
    }

    /// Answers a request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        let (head, body) = request.into_parts();
        let origin = self.origins.allowed(&head.headers);
        let mut response = self.answer_any(head, body).await;
        if let Some(origin) = origin {
            origin::allow(&mut response, origin);
        }
        response
    }

    /// Responds to a request of any origin.
    async fn answer_any<B>(&self, head: request::Parts, body: B) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        let began = Instant::now();
        let form = Form::of(&head.headers).unwrap_or(Form::Protobuf);
        if origin::is_preflight(&head) {
            return match self.origins.check(&head.headers) {
                Ok(()) => origin::preflight_response(&head.headers),
                Err(refusal) => answer::refused(form, &refusal),
            };
        }
        let taken = match asked(&head, &self.access) {
            Ok(asked) => self.take(&asked, body).await.map(|refused| (asked.signal, refused)),
            Err(refusal) => Err(refusal),
        };
        match taken {
            Ok((signal, refused)) => {
                self.metrics.acknowledged(began.elapsed(), refused.count);
                answer::taken(form, signal, refused)
            }
            Err(refusal) => {
                self.metrics.rejected(refusal.kind);
                tracing::debug!(kind = ?refusal.kind, message = refusal.message, "refused");
                answer::refused(form, &refusal)
            }
        }
    }

    /// Takes a batch; when this returns it is durable.
    async fn take<B>(&self, asked: &Asked, body: B) -> Result<Refused, Refusal>
    where
        B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        // Whoever waited would be gone before it is taken, and would send it once more.
        self.committer.check_room(self.limits.full_for).map_err(refusal)?;
        let bytes_max = self.limits.batch.batch_bytes;
        let tenant: Arc<str> = Arc::from(&*asked.tenant);
        let mut held = self.room.begin(Arc::clone(&tenant));
        let body = read(body, &mut held, bytes_max, self.limits.body_timeout).await?;
        let (body, encoding) = match asked.form {
            Form::Grpc => match unframe(body)? {
                (message, true) => (message, asked.encoding),
                (message, false) => (message, Encoding::Identity),
            },
            Form::Protobuf | Form::Json => (body, asked.encoding),
        };
        let limits = self.limits.batch;
        let reading = Reading {
            is_json: asked.form == Form::Json,
            signal: asked.signal,
            tenant: Arc::clone(&tenant),
            key: self.committer.recent().key(),
            limits,
        };
        let DecodedBatch { batch, id, rows, refused } =
            match encoding.decompress(body.clone(), bytes_max.min(LONG_BYTES)) {
                Ok(batch) => {
                    held.take(BYTES_OF_ONE * batch.len())?;
                    reading.read(batch)?
                }
                Err(refusal) if refusal.kind == Kind::TooLong => {
                    let _turn = self.long_ones.acquire().await.map_err(|_| stopping())?;
                    let batch = beside(move || encoding.decompress(body, bytes_max)).await?;
                    held.take(BYTES_OF_ONE * batch.len())?;
                    beside(move || reading.read(batch)).await?
                }
                Err(refusal) => return Err(refusal),
            };
        if rows.is_empty() {
            return Ok(refused);
        }
        let (count, bytes) = (rows.len(), batch.len());
        let received_ns = unix_ns();
        let record = Record { signal: asked.signal, tenant, received_ns, batch };
        let _waiting = self.metrics.waiting().enter();
        let taken = Taken { record, rows };
        let committed = self.committer.commit(taken, id, self.limits.full_for).await;
        match committed.map_err(refusal)? {
            Outcome::Written => self.metrics.stored(asked.signal, count, bytes),
            Outcome::Duplicate => self.metrics.duplicate(),
        }
        Ok(refused)
    }
}

fn refusal(why: NotWritten) -> Refusal {
    let kind = match why {
        NotWritten::NoRoom | NotWritten::NoRoomNorDisk => Kind::Exhausted,
        NotWritten::Full | NotWritten::Failed | NotWritten::Stopping => Kind::Unavailable,
    };
    kind.refuse(why.to_string())
}

/// How a batch came.
#[derive(Clone, Debug)]
struct Reading {
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

impl Reading {
    fn read(self, mut batch: Bytes) -> Result<DecodedBatch, Refusal> {
        let Self { is_json, signal, tenant, key, limits } = self;
        if is_json {
            let protobuf = json::to_protobuf(&batch, signal, &limits);
            batch = protobuf.map_err(|error| Kind::Malformed.refuse(error.to_string()))?.into();
        }
        let malformed = |malformed: Malformed| Kind::Malformed.refuse(malformed.to_string());
        let (rows, refused) = Decoded::of(signal, &batch, &limits).map_err(malformed)?;
        let id = key.id(signal, &tenant, &batch);
        Ok(DecodedBatch { batch, id, rows, refused })
    }
}

/// Does what takes long beside the worker.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(stopping()))
}

fn stopping() -> Refusal {
    Kind::Unavailable.refuse("the receiver is stopping")
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
