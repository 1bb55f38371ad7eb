//! Metrics: what is counted, and the page that Prometheus scrapes.
//!
//! **Holds** atomics and sketches that the drivers add to ([`UpstreamMetrics`], [`ConnectionCounters`](curtail_http::connection_counts::ConnectionCounters),
//! [`LeafMetrics`], [`ListenerMetrics`], [`ProcessMetrics`]); each addition is one relaxed instruction on
//! an array that is indexed by a small enumeration. A scrape reads them into a [`Snapshot`], and
//! [`render`] makes text of that.
//! **Limits**: the number of series follows from the configuration alone (upstreams, replicas, leaves,
//! listeners), never from what clients send.
//! A scraper that accepts Prometheus's protobuf gets native histograms of schema 4 ([`native`]). Any other scraper gets
//! classic histograms of 80 buckets, 13 a decade from 100 µs to 100 s ([`exposition`]).
//! **Hurts when** a quantile is computed from the buckets of a scrape: it may be off by 2.6 % with native buckets, and
//! by a fifth with classic ones. Spans have the exact quantiles.

mod catalogue;
mod exposition;
mod families;
mod labels;
mod leaf;
mod native;
mod negotiation;
mod process;
mod snapshot;
mod upstream;

pub(crate) use labels::{ClientTimeout, ResponseClass};
pub(crate) use leaf::LeafMetrics;
pub(crate) use negotiation::{MetricsForm, form_for};
pub(crate) use process::{ListenerMetrics, ProcessMetrics, Usage};
pub(crate) use snapshot::{
    ConnectionsSnapshot, LeafSnapshot, ReplicaSnapshot, Snapshot, UpstreamSnapshot,
};
pub(crate) use upstream::UpstreamMetrics;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use std::fmt::Write as _;

/// The media type of the text format.
const TEXT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type and the bytes of one scrape.
pub(crate) fn render_as(form: MetricsForm, snapshot: Snapshot) -> (&'static str, Vec<u8>) {
    match form {
        MetricsForm::Text => (TEXT_TYPE, render(snapshot).into_bytes()),
        MetricsForm::Protobuf => (native::CONTENT_TYPE, native::render(&snapshot)),
    }
}

/// The text of one scrape.
fn render(snapshot: Snapshot) -> String {
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
