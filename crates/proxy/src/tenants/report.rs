//! The requests of all tenants in the window, for the page `/tenants` and for metrics.

use super::table::{Decades, Requests, Table};
use super::{Name, Tenants};
use curtail_units::{Duration, Quantile};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The percentiles: key in `/tenants`, name in metrics, and quantile.
const PERCENTILES: [(&str, &str, Quantile); 3] = [
    ("p50_ms", "p50", Quantile::P50),
    ("p99_ms", "p99", Quantile::P99),
    ("p999_ms", "p99.9", Quantile::P999),
];

/// The requests of all workers in the window.
#[derive(Debug)]
pub(crate) struct TenantsReport {
    header: String,
    window: Duration,
    /// The largest tenants, the largest first.
    tenants: Vec<(Name, Requests)>,
    /// The requests of all further tenants.
    other: Requests,
    unnamed: u64,
    decades: Decades,
}

/// The tenants of one decade of size, for metrics.
#[derive(Clone, Debug)]
pub(crate) struct DecadeSnapshot {
    /// The smallest number of requests of these tenants.
    pub(crate) requests_min: String,
    pub(crate) tenants: u64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) percentiles: Vec<(&'static str, Duration)>,
}

impl TenantsReport {
    pub(super) fn new(tenants: &Tenants, window: Duration) -> Self {
        Self {
            header: tenants.config.header.clone(),
            window,
            tenants: Vec::new(),
            other: Requests::default(),
            unnamed: 0,
            decades: Decades::default(),
        }
    }

    /// Adds everything of a table except its present tenants.
    pub(super) fn add_rest(&mut self, table: &Table) {
        self.unnamed += table.unnamed();
        self.decades.merge(table.replaced());
        for decade in table.replaced().0.values() {
            self.other.merge(&decade.requests);
        }
    }

    /// Adds the tenants; the `max` largest have rows of their own.
    pub(super) fn add_tenants(&mut self, tenants: HashMap<Name, Requests>, max: usize) {
        self.tenants = tenants.into_iter().collect();
        self.tenants.sort_unstable_by(|(name, requests), (other_name, other)| {
            other.count().cmp(&requests.count()).then_with(|| name.cmp(other_name))
        });
        for (_, requests) in &self.tenants {
            self.decades.add(requests);
        }
        for (_, requests) in self.tenants.drain(max.min(self.tenants.len())..) {
            self.other.merge(&requests);
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let tenant = |(name, requests): &(Name, Requests)| {
            let mut json = requests_json(requests);
            json["tenant"] = name_text(name).into();
            json
        };
        let decades = self.decades.0.iter().map(|(requests_min, decade)| {
            let mut json = requests_json(&decade.requests);
            json["requests_min"] = (*requests_min).into();
            json["tenants"] = decade.tenants.into();
            json
        });
        json!({
            "schema": "curtail.tenants/1",
            "header": self.header,
            "window_s": self.window.as_secs_f64(),
            "tenants": self.tenants.iter().map(tenant).collect::<Vec<_>>(),
            "other": requests_json(&self.other),
            "unnamed_requests": self.unnamed,
            "decades": decades.collect::<Vec<_>>(),
        })
    }

    pub(crate) fn decades(&self) -> Vec<DecadeSnapshot> {
        let decades = self.decades.0.iter();
        let snapshot = decades.map(|(requests_min, decade)| {
            let durations = &decade.requests.durations;
            let percentiles = PERCENTILES.into_iter();
            DecadeSnapshot {
                requests_min: requests_min.to_string(),
                tenants: decade.tenants,
                requests: decade.requests.count(),
                errors: decade.requests.errors,
                percentiles: percentiles
                    .filter_map(|(_, name, quantile)| Some((name, durations.quantile(quantile)?)))
                    .collect(),
            }
        });
        snapshot.collect()
    }
}

fn requests_json(requests: &Requests) -> Value {
    let mut json = json!({ "requests": requests.count(), "errors": requests.errors });
    for (key, _, quantile) in PERCENTILES {
        let latency = requests.durations.quantile(quantile);
        json[key] = latency.map(Duration::as_ms_f64).into();
    }
    json
}

/// The name as text; bytes that are not UTF-8 and control characters are escaped.
fn name_text(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() {
                text.extend(letter.escape_default());
            } else {
                text.push(letter);
            }
        }
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    text
}
