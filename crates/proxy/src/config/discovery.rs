//! The key `discovery` of an upstream: the source of replicas that are not in the file.

mod control_plane;
mod dns;
mod polled;

pub use control_plane::{ControlPlaneAccess, EdsSource, KubernetesSource, PortSelector};
pub(super) use dns::read_dns;
pub use dns::{DnsConfig, DnsRecords, DnsSource};
pub use polled::{FileSource, HttpSource};

use super::{Placement, ReplicaConfig, ReplicaUrl};
use curtail_config::Section;
use curtail_http::origin::ServerOrigin;
use curtail_units::Duration;
use std::net::SocketAddr;

/// The source of an upstream's replicas that are not in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// The source.
    pub source: DiscoverySource,
    /// The addresses that become replicas.
    pub addresses: AddressFamilies,
    /// The name that certificates of the replicas must have, if the source does not have it; absent: clear text.
    pub tls_server_name: Option<String>,
    /// Time for which replicas stay while the source fails; absent: that of the section `dns`.
    pub stale_max: Option<Duration>,
    /// Time for which the source must have no replicas before the last ones leave; absent: that of the section `dns`.
    pub empty_max: Option<Duration>,
}

/// The source of the addresses of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySource {
    /// Records of a name.
    Dns(DnsSource),
    /// `EndpointSlices` of a Kubernetes service.
    Kubernetes(KubernetesSource),
    /// Endpoints of a cluster of Envoy's discovery services.
    Eds(EdsSource),
    /// A file in the format of Prometheus' `file_sd`.
    File(FileSource),
    /// A URL that serves the format of Prometheus' `http_sd`.
    Http(HttpSource),
}

/// The addresses that become replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamilies {
    /// IPv4 and IPv6: A and AAAA records.
    Both,
    /// IPv4: A records.
    Ipv4,
    /// IPv6: AAAA records.
    Ipv6,
}

impl AddressFamilies {
    /// Whether this address becomes a replica.
    pub(crate) const fn has(self, address: &SocketAddr) -> bool {
        match self {
            Self::Both => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }
}

impl DiscoverySource {
    /// Whether the proxy reads the source again and again.
    pub(crate) const fn is_polled(&self) -> bool {
        matches!(self, Self::File(_) | Self::Http(_))
    }

    /// Whether the proxy stays connected to a server, which reports changes.
    pub(crate) const fn has_server(&self) -> bool {
        matches!(self, Self::Kubernetes(_) | Self::Eds(_))
    }
}

impl DiscoveryConfig {
    /// The scheme of the replicas, and the host whose name their certificates must have. In clear text, the host of a
    /// source without names is a placeholder: [`Self::replica_at`] has the address instead.
    #[must_use]
    pub fn server_url(&self) -> ReplicaUrl {
        let name = self.tls_server_name.as_ref();
        match (&self.source, name) {
            (DiscoverySource::Dns(dns), _) => dns.server_url(),
            (_, Some(name)) => {
                ReplicaUrl::of(ServerOrigin { tls: true, host: name.clone(), port: 443 })
            }
            (_, None) => {
                ReplicaUrl::of(ServerOrigin { tls: false, host: "localhost".to_owned(), port: 80 })
            }
        }
    }

    /// The replica at a discovered address.
    #[must_use]
    pub fn replica_at(&self, address: SocketAddr, placement: Placement) -> ReplicaConfig {
        let is_dns = matches!(self.source, DiscoverySource::Dns(_));
        let url = match is_dns || self.tls_server_name.is_some() {
            true => self.server_url(),
            false => ReplicaUrl::of(ServerOrigin::from(address)),
        };
        ReplicaConfig::discovered(url, address, placement)
    }
}

impl std::fmt::Display for DiscoveryConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            DiscoverySource::Dns(dns) => return dns.fmt(f, self.addresses),
            DiscoverySource::Kubernetes(kubernetes) => kubernetes.fmt(f)?,
            DiscoverySource::Eds(eds) => eds.fmt(f)?,
            DiscoverySource::File(file) => write!(f, "targets in {}", file.path.display())?,
            DiscoverySource::Http(http) => write!(f, "targets at {}", http.url)?,
        }
        match self.addresses {
            AddressFamilies::Both => Ok(()),
            AddressFamilies::Ipv4 => f.write_str(", IPv4 only"),
            AddressFamilies::Ipv6 => f.write_str(", IPv6 only"),
        }
    }
}

/// The keys of the sources.
const SOURCES: [&str; 6] = ["dns", "srv", "kubernetes", "eds", "file", "http"];

/// The one source of a discovery.
fn read_source(s: &mut Section<'_>) -> DiscoverySource {
    let sources = [
        dns::read(s).map(DiscoverySource::Dns),
        s.optional_section(
            "kubernetes",
            "EndpointSlices of a Kubernetes service, which the proxy watches: the replicas are its ready endpoints.",
            control_plane::kubernetes,
        )
        .map(DiscoverySource::Kubernetes),
        s.optional_section(
            "eds",
            "Endpoints of a cluster from a control plane of Envoy (EDS over ADS, xDS version 3, state of the world).",
            control_plane::eds,
        )
        .map(DiscoverySource::Eds),
        s.optional_section(
            "file",
            "File with the addresses of the replicas, in the JSON of Prometheus' file_sd.",
            polled::file,
        )
        .map(DiscoverySource::File),
        s.optional_section(
            "http",
            "URL that serves the addresses of the replicas, in the JSON of Prometheus' http_sd.",
            polled::http,
        )
        .map(DiscoverySource::Http),
    ];
    let mut sources = sources.into_iter().flatten();
    let source = sources.next();
    if source.is_none() || sources.next().is_some() {
        let text = "expected one source: dns, srv, kubernetes, eds, file or http";
        s.conflict("dns", &SOURCES, text);
    }
    source.unwrap_or_else(|| {
        let url = <ReplicaUrl as curtail_config::Value>::placeholder();
        DiscoverySource::Dns(DnsSource { records: DnsRecords::Addresses, url })
    })
}

pub(super) fn read(s: &mut Section<'_>) -> DiscoveryConfig {
    let config = DiscoveryConfig {
        source: read_source(s),
        addresses: s
            .choice(
                "addresses",
                "Addresses that become replicas. With `both`, a server with an IPv4 and an IPv6 address is two replicas.",
                &[
                    ("both", AddressFamilies::Both),
                    ("ipv4", AddressFamilies::Ipv4),
                    ("ipv6", AddressFamilies::Ipv6),
                ],
            )
            .default(AddressFamilies::Both),
        tls_server_name: s
            .field("tls_server_name", "Name that the certificates of the replicas must have; absent: the replicas are reached in clear text. Not for `dns` and `srv`, whose URL has scheme and name.")
            .optional(),
        stale_max: s
            .field("stale_max", "Time for which replicas stay while the source fails; absent: `dns.stale_max`.")
            .optional(),
        empty_max: s
            .field("empty_max", "Time for which the source must have no replicas before the last ones leave; absent: `dns.empty_max`.")
            .optional(),
    };
    if let Some(name) = &config.tls_server_name {
        if matches!(config.source, DiscoverySource::Dns(_)) {
            let text = "the URL of dns or srv has the name: expected no tls_server_name";
            s.conflict("tls_server_name", &SOURCES, text);
        } else if !super::is_host(name) {
            let text = "expected a name without a port, such as search.example.org";
            s.value_error("tls_server_name", format!("{name:?} is not a name: {text}"));
        }
    }
    config
}

#[cfg(test)]
mod tests;
