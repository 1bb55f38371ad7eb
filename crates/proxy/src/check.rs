//! Checks beyond the text of a configuration: certificates, keys and authorities that cannot be used, and host names
//! that no certificate can have.
//!
//! A start runs the same checks. The checks open no socket and start no thread, and continue after a failure. They bind
//! no address, because a running proxy uses the addresses.

use crate::StartError;
use crate::access_log::writer;
use crate::config::{Config, ConnectConfig, ReplicaUrl, load_listener_tls, load_trust};
use crate::snapshot;
use crate::spans::receiver::Receiver;
use curtail_http::connect::Connector;
use curtail_otlp::Signal;

/// All errors with which a start with `config` would fail, except addresses that cannot be bound.
#[must_use]
pub fn check(config: &Config) -> Vec<StartError> {
    let mut refused = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let tls = listener.tls.as_ref().map(load_listener_tls).transpose();
        refused
            .extend(tls.err().map(|error| StartError::from(error).within(listener_section(index))));
    }
    refused.extend(snapshot::resolver(config).err());
    let mut add = |errors: Vec<StartError>, section: String| {
        refused.extend(errors.into_iter().map(|error| error.within(section.clone())));
    };
    for upstream in &config.upstreams {
        let urls = upstream.urls();
        add(check_connections(urls.iter(), &upstream.connect), upstream_section(&upstream.name));
    }
    for leaf in &config.leaves {
        let server = std::iter::once(&leaf.server);
        add(check_connections(server, &leaf.connect), leaf_section(&leaf.name));
    }
    if let Some(spans) = &config.spans {
        add(
            Receiver::new(spans, Signal::Traces).err().into_iter().collect(),
            SPANS_SECTION.to_owned(),
        );
    }
    if let Some(access_log) = &config.access_log {
        refused.extend(writer::check(access_log).err());
    }
    refused
}

fn check_connections<'u>(
    replicas: impl Iterator<Item = &'u ReplicaUrl> + Clone,
    connect: &ConnectConfig,
) -> Vec<StartError> {
    let trust = match load_trust(connect, replicas.clone()) {
        Ok(trust) => trust,
        Err(error) => return vec![error.into()],
    };
    let connector =
        |replica: &ReplicaUrl| Connector::new(replica, connect, &trust).err().map(Into::into);
    replicas.filter_map(connector).collect()
}

/// The configuration section of the span exporter.
pub(crate) const SPANS_SECTION: &str = "spans";

pub(crate) fn listener_section(index: usize) -> String {
    format!("listeners[{index}].tls")
}

pub(crate) fn upstream_section(name: &str) -> String {
    format!("upstreams.{name}")
}

pub(crate) fn leaf_section(name: &str) -> String {
    format!("leaf {name}")
}
