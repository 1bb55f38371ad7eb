//! What the spans and lines of the access log about a route or a replica share, prepared once for each configuration.

use super::attributes::{Attributes, SPAN_ATTRIBUTES};
use crate::access_log::PreparedText;
use crate::config::ReplicaUrl;

#[derive(Debug)]
pub(crate) struct PreparedRoute {
    /// The prefix of its paths.
    pub(crate) path_prefix: PreparedText,
    /// Absent: the route fans out.
    pub(crate) upstream: Option<PreparedText>,
    /// `http.route` and `curtail.upstream`.
    pub(super) attributes: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct PreparedReplica {
    /// `curtail.upstream`, `server.address` and `server.port`, which a Unix socket does not have.
    pub(super) attributes: Box<[u8]>,
    /// `host:port`, or `unix:/path`.
    pub(crate) address: PreparedText,
    /// The prefix of its URLs: everything before the path.
    pub(super) url: Box<str>,
}

impl PreparedRoute {
    /// A route that fans out has no upstream of its own.
    pub(crate) fn new(path_prefix: &str, upstream: Option<&str>) -> Self {
        let attributes = prepare(|attributes| {
            attributes.text(b"http.route", path_prefix);
            if let Some(upstream) = upstream {
                attributes.text(b"curtail.upstream", upstream);
            }
        });
        let upstream = upstream.map(PreparedText::new);
        Self { path_prefix: PreparedText::new(path_prefix), upstream, attributes }
    }
}

impl PreparedReplica {
    pub(crate) fn new(upstream: &str, url: &ReplicaUrl) -> Self {
        let attributes = prepare(|attributes| {
            attributes.text(b"curtail.upstream", upstream);
            match url.unix_path().and_then(|path| path.to_str()) {
                Some(path) => attributes.text(b"server.address", path),
                None => {
                    attributes.text(b"server.address", &url.host);
                    attributes.int(b"server.port", url.port.into());
                }
            }
        });
        let scheme = if url.tls { "https" } else { "http" };
        let prefix = format!("{scheme}://{}", url.authority());
        Self { attributes, address: PreparedText::new(&url.address()), url: prefix.into() }
    }
}

fn prepare(describe: impl FnOnce(&mut Attributes<'_>)) -> Box<[u8]> {
    let mut out = Vec::new();
    describe(&mut Attributes::new(&mut out, SPAN_ATTRIBUTES));
    out.into()
}
