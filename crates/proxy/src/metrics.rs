//! Metrics: what is counted, and the page that Prometheus scrapes.
//!
//! **Holds** atomics and sketches that the drivers add to ([`UpstreamMetrics`], [`ReplicaMetrics`],
//! [`LeafMetrics`], [`ListenerMetrics`], [`ProcessMetrics`]); each addition is one relaxed instruction on
//! an array that is indexed by a small enumeration. A scrape reads them into a [`Snapshot`], and
//! [`render`] makes text of that.
//! **Limits**: the number of series follows from the configuration alone (upstreams, replicas, leaves,
//! listeners), never from what clients send.
//! **Hurts when** a quantile is computed from the buckets of a scrape: with five buckets a decade it may
//! be off by a quarter. The buckets are for heatmaps and alerts; exact quantiles come from the spans.

mod catalogue;
mod exposition;
mod labels;
mod leaf;
mod process;
mod snapshot;
mod upstream;

pub(crate) use leaf::LeafMetrics;
pub(crate) use process::{ListenerMetrics, ProcessMetrics, Usage};
pub(crate) use snapshot::{
    ConnectionsSnapshot, LeafSnapshot, ReplicaSnapshot, Snapshot, UpstreamSnapshot,
};
pub(crate) use upstream::{ReplicaMetrics, UpstreamMetrics};

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::fmt::Write as _;

/// The media type of [`render`]'s text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of one scrape.
pub(crate) fn render(snapshot: Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("a string takes everything");
    text
}

/// The reference page of all metrics, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in catalogue::ALL {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels) = (metric.name(), metric.kind.as_str(), labels.join(", "));
        writeln!(page, "| `{name}` | {kind} | {labels} | {} |", metric.help)
            .expect("a string takes everything");
    }
    page
}
