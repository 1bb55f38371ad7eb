//! The keys `dns` and `srv` of a discovery, and the section `dns` of the file: replicas that come from a name.

use super::AddressFamilies;
use crate::config::ReplicaUrl;
use curtail_config::{Scalar, ScalarError, Section, displayed_value};
use curtail_units::Duration;
use std::net::{IpAddr, SocketAddr};

/// A name whose records are replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSource {
    /// The records that have the replicas.
    pub records: DnsRecords,
    /// The scheme of the replicas and the name to look up. The port is that of the replicas, except with SRV records,
    /// which have ports of their own.
    pub url: ReplicaUrl,
}

/// The records that have the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsRecords {
    /// A and AAAA: the addresses of the name.
    Addresses,
    /// SRV: ports and names, whose addresses are looked up in turn.
    Srv,
}

impl DnsSource {
    /// The URL whose host the certificates of the replicas must name. That of SRV records is the domain of the service
    /// (RFC 6125, section 6.2.1): the name of a target comes from the network, and proves nothing.
    pub(super) fn server_url(&self) -> ReplicaUrl {
        let host = self.url.host.trim_end_matches('.');
        let host = match self.records {
            DnsRecords::Addresses => host,
            DnsRecords::Srv => host.splitn(3, '.').nth(2).unwrap_or(host),
        };
        self.url.with_host(host)
    }
}

/// The lookup of names for `discovery`.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsConfig {
    /// The name servers; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
    /// Time after which a query without a response fails.
    pub timeout: Duration,
    /// Minimum time between two lookups of a name, whatever its TTL.
    pub refresh_min: Duration,
    /// Maximum time between two lookups of a name, whatever its TTL.
    pub refresh_max: Duration,
    /// Maximum age of a response while lookups fail.
    pub stale_max: Duration,
    /// Time for which a name must have no records before its last replicas leave.
    pub empty_max: Duration,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            timeout: Duration::from_secs(2),
            refresh_min: Duration::from_secs(1),
            refresh_max: Duration::from_secs(300),
            // The shortest value that RFC 8767, section 5 suggests: longer than an outage of a name server in one night.
            stale_max: Duration::from_secs(86_400),
            empty_max: Duration::from_secs(60),
        }
    }
}

pub(in crate::config) fn read_dns(s: &mut Section<'_>) -> DnsConfig {
    let default = DnsConfig::default();
    let config = DnsConfig {
        servers: s.values("servers", "Name servers; none: those of /etc/resolv.conf, with its search domains."),
        timeout: s
            .field("timeout", "Time after which a query without a response fails. The proxy sends each query up to 3 times.")
            .range(Duration::from_ms(10)..=Duration::from_secs(60))
            .default(default.timeout),
        refresh_min: s
            .field("refresh_min", "Minimum time between two lookups of a name, if the TTL of its records is shorter.")
            .at_least(Duration::from_ms(100))
            .default(default.refresh_min),
        refresh_max: s
            .field("refresh_max", "Maximum time between two lookups of a name, if the TTL of its records is longer.")
            .at_least(Duration::from_ms(100))
            .default(default.refresh_max),
        stale_max: s
            .field("stale_max", "Time for which replicas stay when lookups fail: the name server does not respond, or responds with an error.")
            .default(default.stale_max),
        empty_max: s
            .field("empty_max", "Time for which a name must not exist, or have no records, before its last replicas leave.")
            .default(default.empty_max),
    };
    s.check_order(("refresh_min", config.refresh_min), ("refresh_max", config.refresh_max));
    config
}

/// The URL of servers by a name that is looked up.
struct NameUrl(ReplicaUrl);

impl NameUrl {
    fn parse(text: &str) -> Option<Self> {
        ReplicaUrl::parse(text).filter(|url| url.unix_path().is_none()).map(Self)
    }
}

impl std::fmt::Display for NameUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

displayed_value!(
    NameUrl,
    "the name of servers with a scheme",
    "such as http://search.example.org, without a path",
    |scalar: &Scalar| scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind),
    Self(ReplicaUrl::placeholder()),
    { "type": "string", "pattern": "^https?://[^/]+/?$" },
    |text| ReplicaUrl::defect(text).or_else(|| Some("has no name".to_owned()))
);

pub(super) fn read(s: &mut Section<'_>) -> Option<DnsSource> {
    let dns: Option<NameUrl> = s
        .field("dns", "Name whose A and AAAA records are the addresses of the replicas, with scheme and port. Certificates are checked for the name.")
        .optional();
    let srv: Option<NameUrl> = s
        .field("srv", "Name of SRV records, which have the ports and names of the replicas, with a scheme. The targets with the lowest priority value become replicas, with the weights of their records.")
        .optional();
    let (records, key, url) = match (dns, srv) {
        (None, None) => return None,
        (Some(NameUrl(url)), None) => (DnsRecords::Addresses, "dns", url),
        (None, Some(NameUrl(url))) => (DnsRecords::Srv, "srv", url),
        (Some(NameUrl(url)), Some(_)) => {
            s.conflict("dns", &["srv"], "expected either dns or srv");
            (DnsRecords::Addresses, "dns", url)
        }
    };
    if let Some(defect) = defect(records, &url) {
        s.value_error(key, defect);
    }
    Some(DnsSource { records, url })
}

fn defect(records: DnsRecords, url: &ReplicaUrl) -> Option<String> {
    if url.host.parse::<IpAddr>().is_ok() {
        return Some(format!("{url} is an address: expected a name, or the key replicas"));
    }
    if hickory_resolver::proto::rr::Name::from_ascii(&url.host).is_err() {
        return Some(format!("{:?} is not a valid domain name", url.host));
    }
    let mut labels = url.host.splitn(3, '.');
    let mut has_underscore = || labels.next().is_some_and(|label| label.starts_with('_'));
    let is_service = has_underscore() && has_underscore() && labels.next().is_some();
    let has_port = url.port != if url.tls { 443 } else { 80 };
    let example = "such as http://_http._tcp.search.example.org";
    match records {
        DnsRecords::Srv if !is_service => Some(format!("{url}: expected a service, {example}")),
        DnsRecords::Srv if has_port => {
            Some(format!("{url}: the records have the ports, expected none, {example}"))
        }
        DnsRecords::Srv | DnsRecords::Addresses => None,
    }
}

impl DnsSource {
    /// Names the records of these families.
    pub(super) fn fmt(
        &self,
        f: &mut std::fmt::Formatter<'_>,
        families: AddressFamilies,
    ) -> std::fmt::Result {
        let scheme = if self.url.tls { "https" } else { "http" };
        match (self.records, families) {
            (DnsRecords::Srv, _) => write!(f, "SRV records of {scheme}://{}", self.url.host),
            (DnsRecords::Addresses, AddressFamilies::Both) => {
                write!(f, "A and AAAA records of {}", self.url)
            }
            (DnsRecords::Addresses, AddressFamilies::Ipv4) => {
                write!(f, "A records of {}", self.url)
            }
            (DnsRecords::Addresses, AddressFamilies::Ipv6) => {
                write!(f, "AAAA records of {}", self.url)
            }
        }
    }
}
