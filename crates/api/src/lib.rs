//! The query API over HTTP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /healthz`, `GET /readyz`, `GET /ready` | 200; 503 from `readyz` and `ready` during a drain |
//! | `GET /metrics` | metrics for Prometheus |
//! | `GET /api/echo`, `GET /api/status/buildinfo` | that it answers, and which version |
//! | `GET /api/traces/{id}`, `GET /api/v2/traces/{id}` | a trace, with what came a moment ago: OTLP in protobuf if that is accepted, in Tempo's JSON else (IDs in base64) |
//! | `GET /api/v1/traces/{id}/logs` | the log records that name a trace: OTLP in protobuf if that is accepted, in its own JSON else |
//! | `GET /api/search` | traces, the newest or the slowest first: truly those of all |
//! | `GET /api/metrics/query_range`, `GET /api/metrics/query` | rates, counts, quantiles, extremes and heatmaps, over time or in all |
//! | `GET /api/v2/search/tags`, `GET /api/v2/search/tag/{tag}/values` | which attributes there are, and which values; the same without `v2` |
//! | `POST /api/v1/sql` | the rows of a query in SQL, as JSON, lines of JSON or CSV |
//! | `GET /jaeger/api/…` | what Jaeger's page and Grafana's data source for it ask: services, operations, traces |
//!
//! Whose spans are asked for says `X-Scope-OrgID`, as in Tempo. An ID may be written without its leading zeros.
//! Where a run cannot be read, the rest is answered, and `curtail-incomplete` says how many may have more. What is
//! TraceQL and not answered is a 501 that names it; what is wrong is a 400 with the byte. Errors are text,
//! below `/jaeger` JSON in Jaeger's form, below `/api/v1` JSON in our own.
//!
//! The header `curtail-quantile-error` has the relative error that a quantile may have.
//!
//! **Limits**: a request has a minute, from its head to the last byte of its response; then the connection is closed.
//! Traces are read and streamed in pieces, up to the maxima in [`Limits`]. Values, steps and groups are bounded too.
//!
//! **Source**: Grafana Tempo's documentation of its HTTP API 3.0; Jaeger 2.20's API.

mod answer;
mod asked;
mod body;
mod jaeger;
mod limits;
mod listen;
mod metrics;
mod pieces;
mod query_threads;
mod question;
mod refusal;
mod search;
mod sql;
mod tempo;
mod v1;

pub use asked::duration_ns;
pub use limits::Limits;
pub use listen::{Api, Running, start};
pub use metrics::{MetricsPage, QueryCounts, QueryMetrics};
pub use sql::{NotStarted, Sql, SqlProgram};
