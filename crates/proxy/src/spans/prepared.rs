//! What spans say alike of all requests of a route and of all attempts at a replica.
//!
//! **Holds** these attributes as the bytes of a span, written once for each reading of the configuration:
//! a request copies them as they are.
//! **Limits**: as many as there are routes and replicas; a replica takes about as many bytes as its address
//! twice and the name of its upstream, and 100 more.

use super::attributes::{Attributes, SPAN_ATTRIBUTES};
use crate::config::{NamedUpstream, ReplicaUrl};
use curtail_policy::ReplicaId;
use std::sync::Arc;

/// A route as spans tell of it.
#[derive(Debug)]
pub(crate) struct PreparedRoute {
    /// What its paths begin with.
    pub(super) path_prefix: Box<str>,
    /// `http.route` and `curtail.upstream`.
    pub(super) attributes: Box<[u8]>,
    /// Absent: the route fans out, and each call has its upstream.
    upstream: Option<Arc<PreparedUpstream>>,
}

/// An upstream as spans tell of it.
#[derive(Debug)]
pub(crate) struct PreparedUpstream {
    name: Box<str>,
    replicas: Box<[PreparedReplica]>,
}

/// A replica as spans tell of it.
#[derive(Debug)]
pub(super) struct PreparedReplica {
    /// `curtail.upstream`, `server.address` and `server.port`.
    pub(super) attributes: Box<[u8]>,
    /// What its URLs begin with: everything before the path.
    pub(super) url: Box<str>,
}

impl PreparedRoute {
    pub(crate) fn new(path_prefix: &str, upstream: Option<Arc<PreparedUpstream>>) -> Self {
        let attributes = prepare(|attributes| {
            attributes.text(b"http.route", path_prefix);
            if let Some(upstream) = &upstream {
                attributes.text(b"curtail.upstream", &upstream.name);
            }
        });
        Self { path_prefix: path_prefix.into(), attributes, upstream }
    }

    pub(super) fn replica(&self, id: ReplicaId) -> Option<&PreparedReplica> {
        self.upstream.as_ref()?.replicas.get(id.index())
    }
}

impl PreparedUpstream {
    pub(crate) fn new(config: &NamedUpstream) -> Self {
        let replica = |url: &ReplicaUrl| PreparedReplica {
            attributes: prepare(|attributes| {
                attributes.text(b"curtail.upstream", &config.name);
                attributes.text(b"server.address", &url.host);
                attributes.int(b"server.port", url.port.into());
            }),
            url: url.to_string().into(),
        };
        Self {
            name: config.name.as_str().into(),
            replicas: config.replicas.iter().map(replica).collect(),
        }
    }
}

/// The attributes of a span that `describe` gives.
fn prepare(describe: impl FnOnce(&mut Attributes<'_>)) -> Box<[u8]> {
    let mut out = Vec::new();
    describe(&mut Attributes::new(&mut out, SPAN_ATTRIBUTES));
    out.into()
}
