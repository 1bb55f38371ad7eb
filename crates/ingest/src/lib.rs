//! OTLP receivers over gRPC and HTTP. A batch is acknowledged when it is durable.
//!
//! | file | step of a request |
//! |---|---|
//! | [`listen`] | accepts and serves the connection |
//! | [`request`] | reads signal, format, compression and tenant from the head |
//! | [`body`], [`encoding`] | read and decompress the body within [`memory_limit`] |
//! | [`receive`] | decodes the batch and waits for the commit |
//! | [`commit`] | writes many batches to the log and syncs them once |
//! | [`response`], [`rejection`] | write the response, or the reason of a rejection |
//!
//! **Backpressure**: all batches in progress share one memory limit. Beyond the limit, or while the log cannot write, a
//! batch is rejected (`RESOURCE_EXHAUSTED` or `UNAVAILABLE`, 429 or 503), and the sender retries after a delay. No
//! accepted batch is dropped.
//!
//! **Source**: the OTLP specification 1.x; gRPC over HTTP/2.

mod body;
mod commit;
mod config;
mod encoding;
mod listen;
mod memory_limit;
mod metrics;
mod origin;
mod receive;
mod rejection;
mod request;
mod response;

pub use commit::{Committer, DurableBatch, Sink, StallReason};
pub use config::{Config, Limits};
pub use listen::{Running, StartError, start};
pub use metrics::{IngestMetrics, LogMetrics};
pub use rejection::RejectReason;
