//! The trace store as a service: OTLP receivers, the log, maintenance of the tables, and the query API.
//!
//! | thread | does |
//! |---|---|
//! | `ingest-…` | receives and decodes batches |
//! | `log` | writes the log, inserts rows into memtables |
//! | `maintenance` | flushes, compacts, expires |
//! | `server` | serves the query API, ends log segments, stops the server if a thread panics |
//!
//! **Invariant**: [`start`] returns after all addresses are bound. [`Running::stop`] first waits for batches in flight,
//! then flushes all acknowledged rows; rows whose flush fails stay in the log. No thread outlives a failed start.
//! **Limits**: [`curtail_ingest::Limits`] of receivers, and [`curtail_api::Limits`] of queries. While four full
//! memtables wait for a flush, senders wait.

mod backpressure;
mod config;
mod data_folder;
mod error;
mod listener_security;
mod maintenance;
mod metrics;
mod origin;
mod reload;
mod running;

pub use config::{ApiConfig, Config, OtlpConfig};
pub use error::{ServerPanicked, StartError};
pub use metrics::metrics_reference;
pub use origin::WebOrigin;
pub use reload::ReloadError;
pub use running::{Running, start};
