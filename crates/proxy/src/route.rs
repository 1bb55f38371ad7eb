//! Routes: which upstream answers which requests.

use crate::config::RouteConfig;
use crate::driver::Upstream;
use crate::spans::prepared::PreparedRoute;
use std::sync::Arc;

/// All routes, the most specific first: those that name a host before those that do not, then by the
/// length of the path.
#[derive(Debug)]
pub(crate) struct Routes {
    routes: Vec<Route>,
}

/// One route and its upstream.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) host: Option<String>,
    pub(crate) path_prefix: String,
    pub(crate) idempotent: bool,
    pub(crate) upstream: Arc<Upstream>,
    /// What spans say of it.
    pub(crate) prepared: Arc<PreparedRoute>,
}

impl Routes {
    pub(crate) fn new(mut routes: Vec<Route>) -> Self {
        routes.sort_by_key(|route| {
            std::cmp::Reverse((route.host.is_some(), route.path_prefix.len()))
        });
        Self { routes }
    }

    /// The route of a request; `host` may carry a port.
    pub(crate) fn find(&self, host: Option<&str>, path: &str) -> Option<&Route> {
        let name = host.map(|host| match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            Some(_) | None => host,
        });
        // `OPTIONS *` asks about the server as a whole (RFC 9110, section 9.3.7).
        let path = if path == "*" { "/" } else { path };
        self.routes.iter().find(|route| {
            path.starts_with(&route.path_prefix)
                && route
                    .host
                    .as_deref()
                    .is_none_or(|wanted| name.is_some_and(|name| name.eq_ignore_ascii_case(wanted)))
        })
    }
}

impl Route {
    pub(crate) fn new(config: &RouteConfig, upstream: Arc<Upstream>) -> Self {
        let prepared = PreparedRoute::new(&config.path_prefix, Arc::clone(&upstream.prepared));
        Self {
            host: config.host.clone(),
            path_prefix: config.path_prefix.clone(),
            idempotent: config.idempotent,
            upstream,
            prepared: Arc::new(prepared),
        }
    }
}
