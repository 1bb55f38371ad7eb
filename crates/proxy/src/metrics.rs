//! Metrics: counters, histograms, and the page that Prometheus scrapes.
//!
//! The drivers add to atomics, indexed by a small enumeration. A scrape reads the atomics into a [`Snapshot`], which
//! [`curtail_metrics`] writes as a page.
//! **Limits**: the number of series follows from the configuration alone, never from what clients send. Of the decades of
//! tenants there are at most twenty.

mod catalogue;
mod families;
mod fan_out;
mod labels;
mod leaf;
mod process;
mod route_limits;
mod snapshot;
mod upstream;

pub(crate) use fan_out::{FanOutMetrics, FanOutResult};
pub(crate) use labels::{ClientTimeout, ProxyHeaderFailure, ResponseClass};
pub(crate) use leaf::LeafMetrics;
pub(crate) use process::{ListenerMetrics, ProcessMetrics};
pub(crate) use route_limits::{LimitReason, LimitTable, RouteLimitMetrics};
pub(crate) use snapshot::{
    ConnectionsSnapshot, LeafSnapshot, ReplicaSnapshot, RouteLimitsSnapshot, Snapshot,
    UpstreamSnapshot,
};
pub(crate) use upstream::UpstreamMetrics;

/// The reference page of all metrics, in Markdown.
#[must_use]
pub fn reference() -> String {
    curtail_metrics::reference_table(catalogue::ALL)
}

#[cfg(test)]
pub(crate) mod tests;
