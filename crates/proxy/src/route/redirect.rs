//! The redirect of a route: where a request is sent instead of to the upstream.
//!
//! The target is an absolute URL. A relative one that begins with `//` would name another host, and clients choose the path.
//! A request that is already at the target is not redirected, so one route can redirect clear text and serve TLS.
//! **Source**: RFC 9110, sections 10.2.2 and 15.4.

use super::host_name;
use super::rewrite::PrefixRewrite;
use crate::client::forwarded_scheme;
use crate::config::{RedirectConfig, Scheme};
use crate::spans::prepared::PreparedRoute;
use curtail_http::head::{Fault, RequestHead};
use http::StatusCode;
use std::fmt::Write as _;
use std::sync::Arc;

const NO_HOST: Fault = Fault::bad_host("a redirect needs the host of the request");

#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    pub(crate) status: StatusCode,
    scheme: Option<Scheme>,
    host: Option<Box<str>>,
    prefix: Option<PrefixRewrite>,
    /// The route without its upstream, which redirected requests do not reach.
    pub(crate) prepared: Arc<PreparedRoute>,
}

impl Redirect {
    pub(crate) fn new(config: &RedirectConfig, path_prefix: &str) -> Self {
        let prefix = config.prefix.as_deref();
        Self {
            status: config.status,
            scheme: config.scheme,
            host: config.host.as_deref().map(Into::into),
            prefix: prefix.map(|prefix| PrefixRewrite::new(path_prefix, prefix)),
            prepared: Arc::new(PreparedRoute::new(path_prefix, None)),
        }
    }

    /// The URL to which a request is redirected; [`None`] if it is already there. The request has its forwarding headers.
    ///
    /// # Errors
    /// When the request names no host, or its path prefix cannot be replaced.
    pub(crate) fn location(&self, head: &RequestHead) -> Result<Option<String>, Fault> {
        if head.target.as_str() == "*" {
            return Ok(None);
        }
        let prefix = self.prefix.as_ref().filter(|new| !new.has_new_prefix(head.target.path()));
        let path = prefix.map(|prefix| prefix.apply(head.target.path()));
        let path = path.transpose()?.filter(|path| path != head.target.path());
        let scheme = self.scheme.filter(|scheme| *scheme != scheme_of(head));
        let host = head.host().ok_or(NO_HOST)?;
        let other_host = self.host.as_deref().filter(|other| !is_at(host, other));
        if path.is_none() && scheme.is_none() && other_host.is_none() {
            return Ok(None);
        }
        let host = other_host.unwrap_or(if scheme.is_some() { without_port(host) } else { host });
        let scheme = scheme.unwrap_or_else(|| scheme_of(head)).name();
        let target = path.map(|path| head.target.with_path(&path)).transpose()?;
        let mut location = format!("{scheme}://{host}");
        push_as_uri(&mut location, target.as_ref().unwrap_or(&head.target).as_str());
        Ok(Some(location))
    }
}

fn scheme_of(head: &RequestHead) -> Scheme {
    forwarded_scheme(head).unwrap_or(Scheme::Http)
}

/// Whether a request for `host` is at `target`, which stands for every port if it has none.
fn is_at(host: &str, target: &str) -> bool {
    let has_port = without_port(target) != target;
    let is_same_port =
        !has_port || host[without_port(host).len()..] == target[without_port(target).len()..];
    is_same_port && host_name(host).eq_ignore_ascii_case(host_name(target))
}

fn without_port(host: &str) -> &str {
    // An address of IPv6 has brackets.
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        Some(_) | None => host,
    }
}

/// Adds a target, whose bytes that are not valid in a URI are percent-encoded.
fn push_as_uri(location: &mut String, target: &str) {
    for byte in target.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            location.push(char::from(byte));
        } else {
            write!(location, "%{byte:02X}").expect("writing to a String does not fail");
        }
    }
}

#[cfg(test)]
mod tests;
