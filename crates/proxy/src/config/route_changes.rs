//! The keys of a route that change its requests and responses: headers, path prefix and redirects.

use super::header_changes::{self, HeaderChanges, MessageKind};
use super::{RouteConfig, check_prefix};
use crate::route::path;
use curtail_config::Section;
use curtail_http::head::is_host;
use http::StatusCode;
use std::fmt;

/// The changes of the requests and responses of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteChanges {
    /// The changes of the headers of requests to replicas.
    pub request_headers: HeaderChanges,
    /// The changes of the headers of responses to clients.
    pub response_headers: HeaderChanges,
    /// The path prefix that replaces that of the route; absent: the path stays.
    pub rewrite_prefix: Option<String>,
    /// The redirect of the requests; absent: they go to the upstream.
    pub redirect: Option<RedirectConfig>,
}

/// The redirect of the requests that are not yet at its target.
#[derive(Clone, Debug, PartialEq)]
pub struct RedirectConfig {
    /// The status of the response.
    pub status: StatusCode,
    /// The scheme of the target; absent: that of the request.
    pub scheme: Option<Scheme>,
    /// The host of the target, with or without a port; absent: that of the request.
    pub host: Option<String>,
    /// The path prefix that replaces that of the route; absent: the path stays.
    pub prefix: Option<String>,
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// The name in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl fmt::Display for RedirectConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redirect {} to ", self.status.as_u16())?;
        match (self.scheme, &self.host) {
            (None, None) => {}
            (scheme, host) => {
                let scheme = scheme.map_or("<scheme>", Scheme::name);
                write!(f, "{scheme}://{}", host.as_deref().unwrap_or("<host>"))?;
            }
        }
        f.write_str(self.prefix.as_deref().unwrap_or("<path>"))
    }
}

/// Reads the keys of the section of a route.
pub(super) fn read(s: &mut Section<'_>) -> RouteChanges {
    RouteChanges {
        request_headers: s.optional_section(
            "request_headers",
            "Changes of the headers of requests, after the proxy's own changes. The headers of connections, framing, forwarding and tracing cannot be changed; `host` only by `set`.",
            |s| header_changes::read(s, MessageKind::Request),
        )
        .unwrap_or_default(),
        response_headers: s.optional_section(
            "response_headers",
            "Changes of the headers of responses, also of redirects and of errors of the proxy. Interim responses and trailers stay unchanged.",
            |s| header_changes::read(s, MessageKind::Response),
        )
        .unwrap_or_default(),
        rewrite_prefix: s
            .field("rewrite_prefix", "Path prefix that replicas get in place of `path_prefix`: /api/x becomes /v2/x. Absent: the path stays unchanged.")
            .optional(),
        redirect: s.optional_section(
            "redirect",
            "Redirect to another scheme, host or path prefix. Requests that are already there go to `upstream`, or get 404 without that key.",
            redirect,
        ),
    }
}

fn redirect(s: &mut Section<'_>) -> RedirectConfig {
    let status = s
        .field("status", "Status of the redirect: 301, 302, 303, 307 or 308. Clients repeat the method and the body after 307 and 308, and remember 301 and 308.")
        .default(307_u16);
    let config = RedirectConfig {
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::TEMPORARY_REDIRECT),
        scheme: s
            .choice("scheme", "Scheme of the target; absent: that of the request.", &[("http", Scheme::Http), ("https", Scheme::Https)])
            .optional(),
        host: s
            .field("host", "Host of the target, with or without a port; absent: that of the request, without its port if the scheme changes.")
            .optional(),
        prefix: s
            .field("prefix", "Path prefix that replaces `path_prefix`; absent: the path stays.")
            .optional(),
    };
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        s.value_error(
            "status",
            format!("{status} is no redirect: expected 301, 302, 303, 307 or 308"),
        );
    }
    if let Some(host) = config.host.as_deref().filter(|host| !is_host(host.as_bytes())) {
        let text = "expected a name or an address, with or without a port, such as www.example.org";
        s.value_error("host", format!("{host:?} is not a host: {text}"));
    }
    config
}

/// Checks the changes of a route, which was read from `s`.
pub(super) fn check(route: &RouteConfig, s: &mut Section<'_>) {
    let RouteChanges { request_headers, response_headers: _, rewrite_prefix, redirect } =
        &route.changes;
    if let Some(prefix) = rewrite_prefix {
        check_prefix(s, "rewrite_prefix", prefix);
        if crate::route::is_of_leaves(prefix) {
            let text = "is reserved for requests of roots to leaves: expected another prefix";
            s.value_error("rewrite_prefix", format!("{prefix:?} {text}"));
        }
    }
    if let Some(RedirectConfig { scheme, host, prefix, .. }) = redirect {
        if let Some(prefix) = prefix {
            check_prefix(s, "redirect.prefix", prefix);
        }
        let is_elsewhere = prefix
            .as_deref()
            .is_some_and(|prefix| !path::are_same_prefix(prefix, &route.path_prefix));
        if scheme.is_none() && host.is_none() && !is_elsewhere {
            let text =
                "redirects every request to itself: expected a scheme, a host or another prefix";
            s.conflict("redirect", &["path_prefix"], text);
        }
    }
    if route.upstream.is_none() {
        if redirect.is_none() {
            let text = "missing: expected the name of an upstream, or a redirect";
            s.conflict("upstream", &["redirect"], text);
        }
        for (key, is_set) in [
            ("request_headers", !request_headers.is_empty()),
            ("rewrite_prefix", rewrite_prefix.is_some()),
            ("fan_out", route.fan_out.is_some()),
        ] {
            if is_set && redirect.is_some() {
                let text = "has no effect, because no request goes to a replica: expected the key `upstream` as well";
                s.conflict(key, &["upstream", "redirect"], text);
            }
        }
    }
}
