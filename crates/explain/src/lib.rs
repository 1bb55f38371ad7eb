//! Explain: what slow requests have in common, and where their time went.
#![no_std]

extern crate alloc;

mod cause;
mod component;
mod counterfactual;
mod dominant_delays;
mod excess;
mod explanation;
mod factors;
mod fan_outs;
mod interner;
mod json;
mod long_traces;
mod populations;
mod replica_pattern;
mod slower_components;

mod table;
mod tenants;
mod traces;
mod writer;

pub use cause::Cause;
pub use component::Phase;
pub use explanation::{
    ComponentShare, Explanation, Finding, NotExplained, PopulationSummary, QuantileEffect,
    Question, SCHEMA, ServiceShare, TRACES_MIN, explain,
};
pub use populations::SlowTraces;

pub use table::table;
pub use tenants::{DecadeLatency, TENANTS_MAX, TenantLatency, Tenants};
pub use traces::{
    AttributeValue, SPANS_MAX, Side, SpanKind, SpanRow, TRACES_MAX, Traces, UnusedTraces,
};
