//! Routes: the choice of the upstream for a request.
//!
//! A path prefix is a boundary: a server behind one route never gets a path that it may read as a path of another
//! route ([`path`]).

pub(crate) mod changes;
pub(crate) mod path;
pub(crate) mod redirect;
mod rewrite;

use crate::config::RouteConfig;
use crate::driver::Upstream;
use crate::fan_out::FanOut;
use crate::route_limits::RouteLimits;
use crate::spans::prepared::PreparedRoute;
use changes::MessageChanges;
use curtail_http::head::Fault;
use curtail_units::{Duration, Instant, Ratio};
use http::StatusCode;
use path::{PathReading, Prefix};
use redirect::Redirect;
use std::borrow::Cow;
use std::sync::Arc;

/// Paths that only leaves serve; clients must not reach them.
const LEAF_PATHS: &[u8] = b"/.curtail/";

/// All routes, the most specific first: routes with a host before routes without one, and longer path prefixes before
/// shorter ones.
#[derive(Debug)]
pub(crate) struct Routes {
    routes: Vec<Route>,
}

#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) host: Option<String>,
    path_prefix: Prefix,
    pub(crate) requests: RouteRequests,
    /// The changes of the messages; absent: there are none.
    pub(crate) changes: Option<Box<MessageChanges>>,
    pub(crate) redirect: Option<Box<Redirect>>,
    /// Where the requests go; absent: the route redirects all of them.
    target: Option<Target>,
    /// Absent: the route has no limits.
    pub(crate) limits: Option<Arc<RouteLimits>>,
    pub(crate) prepared: Arc<PreparedRoute>,
}

/// The properties of the requests of a route; the default is that of a leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteRequests {
    /// Whether servers may execute them twice, whatever their method.
    pub(crate) idempotent: bool,
    /// The maximum time to a response, instead of that of the upstream.
    pub(crate) timeout: Option<Duration>,
    /// The maximum number of retries, if it is less than that of the upstream.
    pub(crate) retries_max: Option<u8>,
    /// The statuses that count as failed attempts, instead of 502, 503 and 504.
    pub(crate) failed_statuses: Option<Arc<[StatusCode]>>,
    /// The maximum time without a byte on a stream, instead of that in `limits`.
    pub(crate) stream_idle_timeout: Option<Duration>,
    /// Whether `grpc-timeout` is a deadline.
    pub(crate) has_grpc_deadline: bool,
}

impl From<&RouteConfig> for RouteRequests {
    fn from(config: &RouteConfig) -> Self {
        let overrides = &config.overrides;
        Self {
            idempotent: config.idempotent,
            timeout: config.timeout,
            retries_max: overrides.retries_max,
            failed_statuses: overrides.failed_statuses.as_deref().map(Into::into),
            stream_idle_timeout: overrides.stream_idle_timeout,
            has_grpc_deadline: overrides.grpc_timeout,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Upstream(Arc<Upstream>),
    FanOut(Arc<FanOut>),
}

impl Target {
    /// Whether a switchback has switched hedges and ties off for requests that arrive now.
    pub(crate) fn is_switched_off(&self, now: Instant) -> bool {
        let switchback = match self {
            Self::Upstream(upstream) => upstream.switchback.as_ref(),
            Self::FanOut(fan_out) => fan_out.switchback.as_deref(),
        };
        switchback.is_some_and(|switchback| switchback.is_off(now))
    }

    /// The share of the requests that is in the holdout, if there is one.
    pub(crate) fn holdout_ratio(&self) -> Option<Ratio> {
        match self {
            Self::Upstream(upstream) => upstream.holdout_ratio(),
            Self::FanOut(fan_out) => fan_out.holdout_ratio(),
        }
    }
}

pub(crate) const NO_ROUTE: Fault =
    Fault { status: StatusCode::NOT_FOUND, error: "no_route", why: "" };

const AMBIGUOUS_PATH: Fault = Fault {
    status: StatusCode::BAD_REQUEST,
    error: "ambiguous_path",
    why: "servers may interpret the request path in different ways, which match different routes",
};

impl Routes {
    pub(crate) fn new(mut routes: Vec<Route>) -> Self {
        routes.sort_by_key(|route| {
            std::cmp::Reverse((route.host.is_some(), route.path_prefix.encoded.len()))
        });
        Self { routes }
    }

    /// The route of a request; `host` may carry a port.
    ///
    /// # Errors
    /// When no route matches, or servers may disagree on the route.
    pub(crate) fn find(&self, host: Option<&str>, path: &str) -> Result<&Route, Fault> {
        let host = host.map(host_name);
        // `OPTIONS *` asks about the server as a whole (RFC 9110, section 9.3.7).
        let path = if path == "*" { "/" } else { path };
        let found = if path::is_plain(path) {
            self.under(
                host,
                &PathReading { path: Cow::Borrowed(path.as_bytes()), is_decoded: false },
            )
        } else {
            let mut found = path::readings(path).map(|reading| self.under(host, &reading));
            let first = found.next().flatten();
            let place = |route: Option<&Route>| route.map(std::ptr::from_ref);
            if found.any(|other| place(other) != place(first)) {
                return Err(AMBIGUOUS_PATH);
            }
            first
        };
        found.ok_or(NO_ROUTE)
    }

    /// The first route of this host whose prefix contains the path.
    fn under(&self, host: Option<&str>, reading: &PathReading<'_>) -> Option<&Route> {
        if reading.path.starts_with(LEAF_PATHS) {
            return None;
        }
        self.routes.iter().find(|route| {
            route.path_prefix.contains(reading)
                && route
                    .host
                    .as_deref()
                    .is_none_or(|wanted| host.is_some_and(|host| host.eq_ignore_ascii_case(wanted)))
        })
    }
}

/// Whether a path prefix is one of those that only leaves serve.
pub(crate) fn is_of_leaves(prefix: &str) -> bool {
    Prefix::new(prefix).encoded.starts_with(LEAF_PATHS)
        || path::are_same_prefix(prefix, "/.curtail")
}

/// The host without its port and without the trailing dot of a DNS name.
pub(crate) fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

impl Route {
    pub(crate) fn new(
        config: &RouteConfig,
        target: Option<Target>,
        limits: Option<Arc<RouteLimits>>,
    ) -> Self {
        let upstream = match &target {
            Some(Target::Upstream(upstream)) => Some(&*upstream.name),
            Some(Target::FanOut(_)) | None => None,
        };
        let prepared = PreparedRoute::new(&config.path_prefix, upstream);
        Self {
            host: config.host.as_deref().map(|host| host_name(host).to_owned()),
            path_prefix: Prefix::new(&config.path_prefix),
            requests: config.into(),
            changes: MessageChanges::new(config).map(Box::new),
            redirect: config
                .changes
                .redirect
                .as_ref()
                .map(|redirect| Box::new(Redirect::new(redirect, &config.path_prefix))),
            target,
            limits,
            prepared: Arc::new(prepared),
        }
    }

    /// Where the requests go that the route does not redirect.
    ///
    /// # Errors
    /// When the route redirects all requests.
    pub(crate) fn target(&self) -> Result<&Target, Fault> {
        self.target.as_ref().ok_or(NO_ROUTE)
    }
}
