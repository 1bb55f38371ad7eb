//! What spans say alike of all requests of a route and of all attempts at a replica.
//!
//! **Holds** these attributes as the bytes of a span, written once for each reading of the configuration:
//! a request copies them as they are.
//! **Limits**: as many as there are routes and replicas; a replica takes about as many bytes as its address
//! twice and the name of its upstream, and 100 more.

use super::attributes::{Attributes, SPAN_ATTRIBUTES};
use crate::config::ReplicaUrl;

/// A route as spans tell of it.
#[derive(Debug)]
pub(crate) struct PreparedRoute {
    /// What its paths begin with.
    pub(super) path_prefix: Box<str>,
    /// `http.route` and `curtail.upstream`.
    pub(super) attributes: Box<[u8]>,
}

/// A replica as spans tell of it.
#[derive(Debug)]
pub(crate) struct PreparedReplica {
    /// `curtail.upstream`, `server.address` and `server.port`.
    pub(super) attributes: Box<[u8]>,
    /// What its URLs begin with: everything before the path.
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
        Self { path_prefix: path_prefix.into(), attributes }
    }
}

impl PreparedReplica {
    pub(crate) fn new(upstream: &str, url: &ReplicaUrl) -> Self {
        let attributes = prepare(|attributes| {
            attributes.text(b"curtail.upstream", upstream);
            attributes.text(b"server.address", &url.host);
            attributes.int(b"server.port", url.port.into());
        });
        Self { attributes, url: url.to_string().into() }
    }
}

/// The attributes of a span that `describe` gives.
fn prepare(describe: impl FnOnce(&mut Attributes<'_>)) -> Box<[u8]> {
    let mut out = Vec::new();
    describe(&mut Attributes::new(&mut out, SPAN_ATTRIBUTES));
    out.into()
}
