//! The numbers of the result in JSON: times in milliseconds, trace IDs in hexadecimal digits.

use crate::cause::Cause;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use curtail_units::Quantile;
use serde::{Serialize, Serializer};

pub(crate) fn ms<S: Serializer>(ns: &f64, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(ns / 1e6)
}

pub(crate) fn optional_ms<S: Serializer>(ns: &Option<f64>, s: S) -> Result<S::Ok, S::Error> {
    ns.map(|ns| ns / 1e6).serialize(s)
}

pub(crate) fn pair_ms<S: Serializer>(pair: &(f64, f64), s: S) -> Result<S::Ok, S::Error> {
    [pair.0 / 1e6, pair.1 / 1e6].serialize(s)
}

pub(crate) fn trace_ids<S: Serializer>(ids: &[u128], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(ids.iter().map(|id| format!("{id:032x}")))
}

pub(crate) fn cause<S: Serializer>(cause: &Cause, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(cause.name())
}

pub(crate) fn quantile<S: Serializer>(quantile: &Quantile, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(quantile.get())
}

pub(crate) fn optional_quantile<S: Serializer>(
    quantile: &Option<Quantile>,
    s: S,
) -> Result<S::Ok, S::Error> {
    quantile.map(|quantile| quantile.get()).serialize(s)
}

/// Operations as objects.
pub(crate) fn operations<S: Serializer>(
    operations: &[(String, u64)],
    s: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Operation<'a> {
        operation: &'a str,
        slow_traces: u64,
    }
    let operations: Vec<_> = operations
        .iter()
        .map(|(operation, slow_traces)| Operation { operation, slow_traces: *slow_traces })
        .collect();
    operations.serialize(s)
}
