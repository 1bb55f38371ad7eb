//! The query API over HTTP.
//!
//! | request | response |
//! |---|---|
//! | `GET /healthz`, `GET /readyz`, `GET /ready` | 200; 503 from `readyz` and `ready` during a drain |
//! | `GET /metrics` | metrics for Prometheus |
//! | `GET /debug/pprof/…` | profiles of the process: [`curtail_profile`] |
//! | `GET /api/echo`, `GET /api/status/buildinfo` | `echo`, the version |
//! | `GET /api/traces/{id}`, `GET /api/v2/traces/{id}` | a trace: OTLP in protobuf if the client accepts it, else Tempo's JSON (IDs in base64) |
//! | `GET /api/v1/traces/{id}/logs` | the log records of a trace: OTLP in protobuf if the client accepts it, else in JSON |
//! | `GET /api/v1/explain` | why the slow requests of a service are slow, as JSON, or as text if the client accepts that |
//! | `GET /api/v1/predict` | what each remedy would do to the tail of a service, as JSON, or as text |
//! | `GET /api/v1/scorecard` | predictions of remedies beside their measured effects, as JSON |
//! | `GET /api/search` | the newest traces, or the slowest of all traces |
//! | `GET /api/metrics/query_range`, `GET /api/metrics/query` | rates, counts, quantiles, extremes and heatmaps, over time or in total |
//! | `GET /api/v2/search/tags`, `GET /api/v2/search/tag/{tag}/values` | attributes, and the values of an attribute; also without `v2` |
//! | `POST /api/v1/sql` | the rows of a query in SQL, as JSON, lines of JSON or CSV |
//! | `GET /jaeger/api/…` | services, operations and traces, for Jaeger's UI and Grafana's data source for Jaeger |
//!
//! `HEAD` gets the response to `GET` without its body. `X-Scope-OrgID` names the tenant, as in Tempo. IDs need no
//! leading zeros. If a sorted run (a file of rows) cannot be read, the response has the rows of all other sorted runs,
//! and `curtail-incomplete` has the number of unreadable ones. Unsupported TraceQL gets a 501 that names the
//! unsupported part, and invalid TraceQL a 400 with the position. Errors are text; below `/jaeger`, they are JSON in
//! Jaeger's format, and below `/api/v1`, JSON in Curtail's own format.
//!
//! The header `curtail-quantile-error` has the maximum relative error of quantiles.
//!
//! **Limits**: a request may take a minute, from its head to the last byte of its response; then the connection is
//! closed. Traces are read and streamed in chunks, up to the maxima in [`Limits`]. Other results have fixed maxima,
//! such as 11,000 steps of a metric.
//!
//! **Source**: Grafana Tempo's documentation of its HTTP API 3.0; Jaeger 2.20's API.

mod api_error;
mod body;
mod explain;
mod jaeger;
mod listen;
mod metrics;
mod predict;
mod query_request;
mod query_service;
mod query_threads;
mod response_chunks;
mod scorecard;
mod search;
mod service_traces;
mod sql;
mod tempo;
mod translation;
mod v1;

pub use explain::{Comparison, SpanTable, SpanTableError, explanation_json, explanation_text};
pub use listen::{Api, Limits, Running, start};
pub use metrics::{KindMetrics, MetricsPage, QueryKind, QueryMetrics, QueryOutcome};
pub use query_request::duration_ns;
pub use sql::{NotStarted, Sql, SqlProgram};
