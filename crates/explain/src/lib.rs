//! Explain: what slow requests have in common, and where their time went.
#![no_std]

extern crate alloc;

mod at_replicas;
mod cause;
mod component;
mod counterfactual;
mod excess;
mod explanation;
mod factors;
mod fan_outs;
mod json;
mod long_traces;
mod names;
mod populations;
mod shifts;
mod statistics;
mod table;
mod tenants;
mod traces;
mod waits;
mod writer;

pub use cause::Cause;
pub use component::Phase;
pub use explanation::{
    ComponentShare, Explanation, Finding, NotExplained, PopulationSummary, QuantileEffect,
    Question, SCHEMA, ServiceShare, TRACES_MIN, explain,
};
pub use populations::SlowTraces;
pub use statistics::discovery_limit;
pub use table::table;
pub use tenants::{DecadeLatency, TENANTS_MAX, TenantLatency, Tenants};
pub use traces::{
    AttributeValue, SPANS_MAX, Side, SpanKind, SpanRow, TRACES_MAX, Traces, UnusedTraces,
};
