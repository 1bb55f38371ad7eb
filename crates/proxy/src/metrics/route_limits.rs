//! The counters of a route with limits.

use curtail_metrics::CounterVec;

/// The limit that rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReason {
    RouteInFlight,
    RouteRate,
    ClientInFlight,
    ClientRate,
    TenantInFlight,
    TenantRate,
}

curtail_units::labels!(LimitReason {
    RouteInFlight => "route_in_flight_limit",
    RouteRate => "route_rate_limit",
    ClientInFlight => "client_in_flight_limit",
    ClientRate => "client_rate_limit",
    TenantInFlight => "tenant_in_flight_limit",
    TenantRate => "tenant_rate_limit",
});

impl LimitReason {
    /// Whether the limit is one of rate.
    pub(crate) const fn is_rate(self) -> bool {
        matches!(self, Self::RouteRate | Self::ClientRate | Self::TenantRate)
    }
}

/// A table of limiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitTable {
    Client,
    Tenant,
}

curtail_units::labels!(LimitTable { Client => "client", Tenant => "tenant", });

curtail_metrics::counters! {
    pub(crate) RouteLimitMetrics, RouteLimitCounts {
        rejected: CounterVec<LimitReason>,
        /// Requests whose client or tenant found no place in its table.
        table_full: CounterVec<LimitTable>,
    }
}
