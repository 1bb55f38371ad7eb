//! OTLP receivers: what OpenTelemetry sends, over gRPC and HTTP, acknowledged when it is durable.
//!
//! A request's way through the files: [`listen`] accepts its connection, [`request`] finds out what it is of
//! and how it is written, [`body`] reads it and [`encoding`] decompresses it, [`receive`] has it decoded and
//! waits for [`commit`], which writes it to the log together with others and syncs them once; [`answer`] says
//! what became of it. Whatever goes wrong on the way is a [`refusal`], with who should do what.
//!
//! **Back-pressure**: batches that are being received take from one store of bytes. When it is empty, or the
//! log cannot write, a sender must retry later (`RESOURCE_EXHAUSTED` or `UNAVAILABLE`, 429 or 503, each
//! with a time). Nothing that was taken is dropped.
//!
//! **Source**: the OTLP specification 1.x; gRPC over HTTP/2.

mod answer;
mod body;
mod commit;
mod config;
mod encoding;
mod listen;
mod metrics;
mod origin;
mod receive;
mod refusal;
mod request;
mod room;

pub use commit::{Committer, Sink, Taken, Why};
pub use config::{Config, Limits};
pub use listen::{Running, StartError, start};
pub use metrics::{IngestCounts, IngestMetrics, LogCounts, LogMetrics};
