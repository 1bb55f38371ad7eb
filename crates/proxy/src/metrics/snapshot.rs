//! Everything that one scrape shows, as plain numbers: no lock is held while text is written.

use super::fan_out::FanOutCounts;
use super::leaf::LeafCounts;
use super::process::{ListenerCounts, ProcessCounts};
use super::route_limits::RouteLimitCounts;
use super::upstream::UpstreamCounts;
use crate::access_log::buffers::AccessLogCounts;
use crate::config::ZoneSide;
use crate::discovery::DiscoverySnapshot;
use crate::driver::InFlightSnapshot;
use crate::health::HealthSnapshot;
use crate::holdout::HoldoutSnapshot;
use crate::remedy::RemedySnapshot;
use crate::spans::SpanCounts;
use crate::tenants::DecadeSnapshot;
use curtail_http::connection_counts::ConnectionCounts;
use curtail_metrics::process::Usage;
use curtail_policy::{Circuit, RemedyMode, ReplicaId, Weight};
use curtail_units::Duration;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) upstreams: Vec<UpstreamSnapshot>,
    pub(crate) leaves: Vec<LeafSnapshot>,
    pub(crate) fan_outs: Vec<(String, FanOutCounts)>,
    /// The routes with limits.
    pub(crate) route_limits: Vec<RouteLimitsSnapshot>,
    /// The decades of tenants; absent: no header for tenants is configured.
    pub(crate) tenants: Option<Vec<DecadeSnapshot>>,
    pub(crate) listeners: Vec<(String, ListenerCounts)>,
    pub(crate) process: ProcessCounts,
    pub(crate) usage: Usage,
    /// When the process started, in nanoseconds since 1970.
    pub(crate) started_unix_ns: u64,
    /// Absent: no spans are configured.
    pub(crate) spans: Option<SpanCounts>,
    /// Absent: there is no access log.
    pub(crate) access_log: Option<AccessLogCounts>,
    /// Entries that the journal lost; absent: there is no journal.
    pub(crate) journal_lost: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct RouteLimitsSnapshot {
    pub(crate) route: String,
    pub(crate) counts: RouteLimitCounts,
    /// The requests in flight, and their maximum; absent: the route has none.
    pub(crate) in_flight: Option<(u32, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) struct UpstreamSnapshot {
    pub(crate) name: String,
    pub(crate) group: Option<String>,
    pub(crate) counts: UpstreamCounts,
    /// The requested quantiles of the recent latencies.
    pub(crate) latencies: Vec<Option<Duration>>,
    /// Absent: requests are not hedged.
    pub(crate) hedge_delay: Option<Duration>,
    /// Requests and extra attempts within the budget's window.
    pub(crate) budget: (u64, u64),
    /// Absent: there is no holdout.
    pub(crate) holdout: Option<HoldoutSnapshot>,
    /// Absent: there is no switchback.
    pub(crate) switchback: Option<HoldoutSnapshot>,
    /// Absent: there is no dry run.
    pub(crate) dry_run: Option<HoldoutSnapshot>,
    pub(crate) remedy_mode: RemedyMode,
    /// Absent: the remedies are not switched by their effect.
    pub(crate) remedy: Option<RemedySnapshot>,
    /// Absent: all replicas are in the file.
    pub(crate) discovery: Option<DiscoverySnapshot>,
    /// Absent: there is no limit.
    pub(crate) in_flight_limit: Option<InFlightSnapshot>,
    pub(crate) replicas: Vec<ReplicaSnapshot>,
}

#[derive(Clone, Debug)]
pub(crate) struct ReplicaSnapshot {
    pub(crate) id: ReplicaId,
    pub(crate) name: Option<String>,
    pub(crate) url: String,
    pub(crate) in_flight: u32,
    pub(crate) circuit: Circuit,
    /// Absent: there are no health checks.
    pub(crate) health: Option<HealthSnapshot>,
    pub(crate) weight: Weight,
    /// Its zone, or the zones that it is meant for.
    pub(crate) zones: Arc<[String]>,
    /// Absent: a zone is unknown.
    pub(crate) side: Option<ZoneSide>,
    /// The part of its weight that it gets, if it is warming up.
    pub(crate) warm_up_share: Option<f64>,
    /// The rest of the time for which the replica is suspect; zero: it is not.
    pub(crate) suspect_for: Duration,
    /// The same, for which it is full.
    pub(crate) full_for: Duration,
    pub(crate) connections: ConnectionsSnapshot,
}

#[derive(Clone, Debug)]
pub(crate) struct ConnectionsSnapshot {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) counts: ConnectionCounts,
    pub(crate) idle: usize,
    /// Requests that wait for a connection.
    pub(crate) waiting: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct LeafSnapshot {
    pub(crate) name: String,
    pub(crate) counts: LeafCounts,
    pub(crate) queue_len: u32,
    pub(crate) in_service: u32,
    pub(crate) concurrency: u32,
    /// The URL of the server.
    pub(crate) url: String,
    pub(crate) server: ConnectionsSnapshot,
}
