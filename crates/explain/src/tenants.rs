//! Percentiles by tenant: whose requests these are, by any attribute; and by the decade of a tenant's size.
//!
//! A few large tenants may be far slower than all requests together show, and so may many small ones. A decade has the
//! tenants with 1 to 9 requests, those with 10 to 99, and so on.
//!
//! **Limits**: all traces count; the result has the [`TENANTS_MAX`] tenants with the most requests.

use crate::json;
use crate::traces::{Field, TraceRow, Traces};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use curtail_sketch::rank;
use curtail_units::Quantile;
use serde::Serialize;

/// Maximum number of tenants in a result.
pub const TENANTS_MAX: usize = 100;

/// The percentiles of each tenant and of each decade.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tenants {
    /// The attribute that names the tenant, on a span of the critical path.
    pub key: String,
    /// The tenants with the most requests, the largest first.
    pub tenants: Vec<TenantLatency>,
    /// The decades, the smallest tenants first.
    pub decades: Vec<DecadeLatency>,
    /// The number of tenants in all.
    pub count: u64,
    /// The number of requests without the attribute.
    pub unnamed_requests: u64,
}

/// The latency of the requests of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantLatency {
    /// The value of the attribute.
    pub tenant: String,
    /// The number of requests.
    pub requests: u64,
    /// The median.
    #[serde(rename = "p50_ms", serialize_with = "json::ms")]
    pub p50_ns: f64,
    /// The 99th percentile.
    #[serde(rename = "p99_ms", serialize_with = "json::ms")]
    pub p99_ns: f64,
}

/// The latency of the requests of all tenants of one decade.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecadeLatency {
    /// The smallest number of requests of its tenants; ten times as many are the next decade.
    pub requests_min: u64,
    /// The number of tenants.
    pub tenants: u64,
    /// The number of their requests.
    pub requests: u64,
    /// The median.
    #[serde(rename = "p50_ms", serialize_with = "json::ms")]
    pub p50_ns: f64,
    /// The 99th percentile.
    #[serde(rename = "p99_ms", serialize_with = "json::ms")]
    pub p99_ns: f64,
}

impl Tenants {
    /// The percentiles by the values of an attribute. Without a trace that has it, there are no tenants.
    #[must_use]
    pub fn of(traces: &Traces, key: &str) -> Self {
        let mut durations_ns: BTreeMap<TenantValue, Vec<i64>> = BTreeMap::new();
        let mut unnamed_requests = 0;
        let fields = fields_of(traces, key);
        for row in &traces.rows {
            match value_of(traces, row, &fields) {
                Some(value) => durations_ns.entry(value).or_default().push(row.duration_ns),
                None => unnamed_requests += 1,
            }
        }
        let count = durations_ns.len() as u64;
        let mut of_decades: BTreeMap<u64, (u64, Vec<i64>)> = BTreeMap::new();
        let mut tenants = Vec::with_capacity(durations_ns.len());
        for (value, mut durations_ns) in durations_ns {
            let tenant = match value {
                TenantValue::Text(text) => traces.names.get(text).clone(),
                TenantValue::Number(bits) => f64::from_bits(bits).to_string(),
            };
            durations_ns.sort_unstable();
            let requests = durations_ns.len() as u64;
            let [p50_ns, p99_ns] = percentiles(&durations_ns);
            tenants.push(TenantLatency { tenant, requests, p50_ns, p99_ns });
            let of_decade = of_decades.entry(10_u64.pow(requests.ilog10())).or_default();
            of_decade.0 += 1;
            of_decade.1.append(&mut durations_ns);
        }
        tenants.sort_by_key(|of| core::cmp::Reverse(of.requests));
        tenants.truncate(TENANTS_MAX);
        let decade = |(requests_min, (tenants, mut durations_ns)): (u64, (u64, Vec<i64>))| {
            durations_ns.sort_unstable();
            let [p50_ns, p99_ns] = percentiles(&durations_ns);
            let requests = durations_ns.len() as u64;
            DecadeLatency { requests_min, tenants, requests, p50_ns, p99_ns }
        };
        let decades = of_decades.into_iter().map(decade).collect();
        Self { key: key.to_owned(), tenants, decades, count, unnamed_requests }
    }
}

/// A value of the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TenantValue {
    /// The number of the text.
    Text(u32),
    /// The bits of the number.
    Number(u64),
}

/// The fields of an attribute, one for each service.
fn fields_of(traces: &Traces, key: &str) -> BTreeSet<u32> {
    let fields = (0..).zip(traces.fields.values());
    let has_key = |field: &Field| !field.is_call_count && traces.names.get(field.name) == key;
    fields.filter(|(_, field)| has_key(field)).map(|(number, _)| number).collect()
}

/// The first value that a trace has of the fields.
fn value_of(traces: &Traces, row: &TraceRow, fields: &BTreeSet<u32>) -> Option<TenantValue> {
    let texts = traces.values_of(row).iter().map(|value| *traces.values.get(*value));
    let mut texts = texts.filter(|(field, _)| fields.contains(field));
    let mut numbers = traces.numbers_of(row).iter().filter(|(field, _)| fields.contains(field));
    let number = || numbers.next().map(|(_, number)| TenantValue::Number(number.to_bits()));
    texts.next().map(|(_, text)| TenantValue::Text(text)).or_else(number)
}

/// The median and the 99th percentile of sorted durations.
fn percentiles(sorted_ns: &[i64]) -> [f64; 2] {
    [Quantile::P50, Quantile::P99].map(|quantile| {
        let rank = rank(quantile, sorted_ns.len() as u64);
        let index = usize::try_from(rank - 1).expect("a rank is at most the length");
        sorted_ns[index] as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::{AttributeValue, Side, SpanKind, SpanRow};
    use alloc::vec;
    use curtail_trace::Span;

    /// A request of one span that lasts some milliseconds, if it names a tenant.
    fn add(traces: &mut Traces, nth: i64, ms: i64, tenant: Option<AttributeValue<'_>>) {
        let span = Span { id: 1, parent_id: 0, start_ns: nth, end_ns: nth + ms * 1_000_000 };
        let attributes: Vec<_> = tenant.into_iter().map(|tenant| ("tenant", tenant)).collect();
        let (service, operation, kind) = ("shop", "GET /", SpanKind::Server);
        let row = SpanRow {
            span,
            service,
            operation,
            kind,
            is_abandoned: false,
            attributes: &attributes,
        };
        traces.add(u128::from(nth.unsigned_abs()) + 1, Side::Baseline, &[row]);
    }

    #[test]
    fn percentiles_are_those_of_each_tenant_and_decade() {
        let mut traces = Traces::default();
        for ms in 1..=100 {
            add(&mut traces, ms, ms, Some(AttributeValue::Text("large")));
        }
        for (nth, tenant) in [(101, 17.0), (102, 18.0)] {
            add(&mut traces, nth, 500, Some(AttributeValue::Number(tenant)));
        }
        add(&mut traces, 103, 900, None);
        let of = Tenants::of(&traces, "tenant");
        let names: Vec<_> = of.tenants.iter().map(|of| (&*of.tenant, of.requests)).collect();
        assert_eq!(names, [("large", 100), ("17", 1), ("18", 1)]);
        assert_eq!((of.tenants[0].p50_ns, of.tenants[0].p99_ns), (50e6, 99e6));
        let decades: Vec<_> =
            of.decades.iter().map(|of| (of.requests_min, of.tenants, of.requests)).collect();
        assert_eq!(decades, vec![(1, 2, 2), (100, 1, 100)]);
        assert_eq!(of.decades[0].p99_ns, 500e6);
        assert_eq!((of.count, of.unnamed_requests), (3, 1));
        let none = Tenants::of(&traces, "customer");
        assert_eq!((none.count, none.unnamed_requests), (0, 103));
    }
}
