//! The counters of a route with limits.

use curtail_metrics::CounterVec;
use http::StatusCode;

/// The limit that rejects a request, or the reason why the limit cannot apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReason {
    RouteInFlight,
    RouteRate,
    ClientInFlight,
    ClientRate,
    TenantInFlight,
    TenantRate,
    /// The header of the client occurs several times.
    AmbiguousClient,
    /// The header of the tenant occurs several times.
    AmbiguousTenant,
}

curtail_units::labels!(LimitReason {
    RouteInFlight => "route_in_flight_limit",
    RouteRate => "route_rate_limit",
    ClientInFlight => "client_in_flight_limit",
    ClientRate => "client_rate_limit",
    TenantInFlight => "tenant_in_flight_limit",
    TenantRate => "tenant_rate_limit",
    AmbiguousClient => "ambiguous_client",
    AmbiguousTenant => "ambiguous_tenant",
});

impl LimitReason {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::RouteInFlight | Self::ClientInFlight | Self::TenantInFlight => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::RouteRate | Self::ClientRate | Self::TenantRate => StatusCode::TOO_MANY_REQUESTS,
            Self::AmbiguousClient | Self::AmbiguousTenant => StatusCode::BAD_REQUEST,
        }
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
