//! The query API over HTTP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /ready`, `GET /api/echo` | that it answers |
//! | `GET /api/traces/{id}`, `GET /api/v2/traces/{id}` | a trace, with what came a moment ago: OTLP in protobuf if that is accepted, in JSON else |
//!
//! Whose trace it is says `X-Scope-OrgID`, as in Tempo. An ID may be written without its leading zeros. Where a
//! run cannot be read, the rest of the trace is answered, and `curtail-unread` names how many runs.
//!
//! **Source**: Grafana Tempo's documentation of its HTTP API 3.0.

mod answer;
mod listen;

pub use listen::{Running, start};
