//! DNS as a source of endpoints: all A and AAAA records of a name, or the targets of its SRV records.
//!
//! Search domains are applied here and not by the library, which takes the last response of any of them: the failure of
//! one domain and "no such name" from the next would read as "no such name".
//! **Limits**: the library has no prefetch and no stale responses: [`super::endpoint_list`] decides when to look up,
//! and what a failure means. `/etc/hosts` is not read.
//! **Source**: RFC 2782 for priorities and weights of SRV records.

use super::endpoint_list::{EMPTY_RETRY_MAX, Endpoint, Part, PartName, SourceResponse, Validity};
use super::is_of_server;
use crate::StartError;
use crate::config::{AddressFamilies, DnsConfig, DnsRecords, DnsSource};
use curtail_policy::{REPLICAS_MAX, Weight};
use curtail_units::Duration;
use futures_util::StreamExt as _;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// Repeats of a query after a failure, so that a lost datagram does not count as one.
const REPEATS: usize = 2;
/// Maximum number of responses in the library's cache. It saves queries for names and types without records.
const CACHE_RESPONSES: u64 = 8_192;
/// Maximum number of targets of SRV records that are looked up at once.
const TARGETS_AT_ONCE: usize = 16;

/// Looks names up at name servers.
#[derive(Debug)]
pub(crate) struct Resolver {
    resolver: TokioResolver,
    /// The addresses of the name servers, for messages.
    servers: String,
    search: Vec<Name>,
    /// The number of dots from which on a name is tried before the search domains.
    ndots: usize,
}

/// Records of one name and type, and how long they are valid.
type Records = (Vec<RData>, Duration);

type Parts = Vec<(PartName, Result<Part, String>)>;

fn unusable_servers(source: NetError) -> StartError {
    StartError::NameServers { source }.within("dns".to_owned())
}

impl Resolver {
    /// Prepares lookups, without opening a socket.
    ///
    /// # Errors
    /// When no name servers are configured, and `/etc/resolv.conf` has none.
    pub(crate) fn new(config: &DnsConfig) -> Result<Self, StartError> {
        let (servers, system_options) = if config.servers.is_empty() {
            read_system_conf().map_err(unusable_servers)?
        } else {
            let servers = config.servers.iter().map(name_server).collect();
            (ResolverConfig::from_name_servers(servers), ResolverOpts::default())
        };
        let (domain, search, servers) = servers.into_parts();
        let search = if search.is_empty() { domain.into_iter().collect() } else { search };
        let ndots = system_options.ndots;
        let addresses = servers.iter().map(|server| {
            let port = server.connections.first().map_or(0, |connection| connection.port);
            SocketAddr::new(server.ip, port).to_string()
        });
        let addresses = addresses.collect::<Vec<_>>().join(", ");
        let mut builder = TokioResolver::builder_with_config(
            ResolverConfig::from_name_servers(servers),
            TokioRuntimeProvider::default(),
        );
        let options = builder.options_mut();
        *options = system_options;
        options.timeout = config.timeout.into();
        options.attempts = REPEATS;
        options.cache_size = CACHE_RESPONSES;
        options.use_hosts_file = ResolveHosts::Never;
        options.positive_max_ttl = Some(config.refresh_max.into());
        options.negative_max_ttl = Some(EMPTY_RETRY_MAX.into());
        let resolver = builder.build().map_err(unusable_servers)?;
        Ok(Self { resolver, servers: addresses, search, ndots })
    }

    /// Looks up the endpoints of an upstream.
    pub(super) async fn look_up(
        &self,
        source: &DnsSource,
        families: AddressFamilies,
    ) -> SourceResponse {
        let mut empty = Vec::new();
        for name in self.candidates(&source.url.host) {
            let parts = match source.records {
                DnsRecords::Addresses => self.addresses(&name, source.url.port, families).await,
                DnsRecords::Srv => self.targets(&name, families).await?,
            };
            if parts.iter().any(|(_, part)| !is_empty(part)) {
                return whole(parts);
            }
            empty = parts;
        }
        Ok(empty)
    }

    /// The absolute names for a name, in the order in which they are tried (resolv.conf(5)).
    fn candidates(&self, host: &str) -> Vec<Name> {
        let Ok(name) = Name::from_ascii(host) else { return Vec::new() };
        let mut absolute = name.clone();
        absolute.set_fqdn(true);
        if name.is_fqdn() {
            return vec![absolute];
        }
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let mut names: Vec<Name> = self
            .search
            .iter()
            .filter_map(|domain| name.clone().append_domain(domain).ok())
            .collect();
        let place = if dots >= self.ndots { 0 } else { names.len() };
        names.insert(place, absolute);
        names
    }

    /// The addresses of a name, a part for each family.
    async fn addresses(&self, name: &Name, port: u16, families: AddressFamilies) -> Parts {
        let look_up = async |kind: RecordType| {
            let part = self.records(name, kind).await.and_then(|(records, valid_for)| {
                let addresses: Vec<_> = records.iter().filter_map(RData::ip_addr).collect();
                let endpoints = addresses.iter().map(|address| SocketAddr::new(*address, port));
                let endpoints: Vec<_> =
                    endpoints.filter(is_of_server).map(Endpoint::from).collect();
                match (endpoints.is_empty(), addresses.first()) {
                    (true, Some(first)) => {
                        Err(format!("{name} {kind}: no server can have {first}:{port}"))
                    }
                    _ => Ok(Part { endpoints, validity: Validity::For(valid_for) }),
                }
            });
            (format!("{name}:{port} {kind}"), part)
        };
        match families {
            AddressFamilies::Both => {
                let (mut v4, mut v6) =
                    tokio::join!(look_up(RecordType::A), look_up(RecordType::AAAA));
                lift_negative_ttl(&mut v4.1, &v6.1);
                lift_negative_ttl(&mut v6.1, &v4.1);
                vec![v4, v6]
            }
            AddressFamilies::Ipv4 => vec![look_up(RecordType::A).await],
            AddressFamilies::Ipv6 => vec![look_up(RecordType::AAAA).await],
        }
    }

    /// The addresses of the targets with the lowest priority value that has any.
    ///
    /// # Errors
    /// When the SRV records cannot be looked up.
    async fn targets(&self, name: &Name, families: AddressFamilies) -> Result<Parts, String> {
        let (records, valid_for) = self.records(name, RecordType::SRV).await?;
        let mut by_priority: BTreeMap<u16, Vec<SRV>> = BTreeMap::new();
        for record in records.into_iter().take(REPLICAS_MAX) {
            // The target "." says that there is no such service (RFC 2782).
            if let RData::SRV(srv) = record
                && !srv.target.is_root()
            {
                by_priority.entry(srv.priority).or_default().push(srv);
            }
        }
        let part = Part { endpoints: Vec::new(), validity: Validity::For(valid_for) };
        let mut parts = vec![(format!("{name} SRV"), Ok(part))];
        for targets in by_priority.into_values() {
            let are_weighted = targets.iter().any(|srv| srv.weight > 0);
            let lookups = targets.into_iter().map(|SRV { target, port, weight, .. }| async move {
                let mut found = self.addresses(&target, port, families).await;
                if are_weighted {
                    set_weights(&mut found, weight);
                }
                found
            });
            let mut lookups = futures_util::stream::iter(lookups).buffered(TARGETS_AT_ONCE);
            while let Some(found) = lookups.next().await {
                parts.extend(found);
            }
            if parts.iter().any(|(_, part)| !is_empty(part)) {
                break;
            }
        }
        Ok(parts)
    }

    /// Records of one absolute name; none if the name does not exist.
    ///
    /// # Errors
    /// When no name server has responded, or one has responded with an error.
    async fn records(&self, name: &Name, kind: RecordType) -> Result<Records, String> {
        match self.resolver.lookup(name.clone(), kind).await {
            Ok(lookup) => {
                let valid_for = lookup.valid_until().saturating_duration_since(Instant::now());
                // The addresses in other sections of the message are those of name servers.
                let records = if kind == RecordType::SRV {
                    let records = lookup.message().all_sections().map(|record| record.data.clone());
                    records.filter(|data| matches!(data, RData::SRV(_))).collect()
                } else {
                    LookupIp::from(lookup).iter().map(RData::from).collect()
                };
                Ok((records, valid_for.into()))
            }
            // A referral to other name servers is no statement about the name.
            Err(NetError::Dns(DnsError::NoRecordsFound(none)))
                if none.soa.is_some() || none.ns.is_none() =>
            {
                let ttl = none.negative_ttl.map(|seconds| Duration::from_secs(seconds.into()));
                Ok((Vec::new(), ttl.unwrap_or(EMPTY_RETRY_MAX)))
            }
            Err(error) => Err(format!("{name} {kind}: {error} (name servers: {})", self.servers)),
        }
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Divides the weight of a target by the number of its addresses. A target of weight 0 beside others has "a very small
/// chance of being selected" (RFC 2782).
fn set_weights(found: &mut Parts, weight: u16) {
    let of_all = || found.iter().filter_map(|(_, part)| part.as_ref().ok());
    let count: usize = of_all().map(|part| part.endpoints.len()).sum();
    let weight = Weight::new(f64::from(weight) / count as f64).unwrap_or_default().max(Weight::MIN);
    let parts = found.iter_mut().filter_map(|(_, part)| part.as_mut().ok());
    parts.flat_map(|part| &mut part.endpoints).for_each(|one| one.placement.weight = weight);
}

fn is_empty(part: &Result<Part, String>) -> bool {
    part.as_ref().is_ok_and(|part| part.endpoints.is_empty())
}

/// A name with addresses of one family only is looked up again when their TTL ends, not that of "no such records".
fn lift_negative_ttl(one: &mut Result<Part, String>, other: &Result<Part, String>) {
    if let (Ok(one), Ok(other)) = (one, other)
        && one.endpoints.is_empty()
        && !other.endpoints.is_empty()
    {
        one.validity = one.validity.max(other.validity);
    }
}

/// A response without any part that succeeded is a failure as a whole.
fn whole(parts: Parts) -> SourceResponse {
    let failed = parts.iter().find_map(|(_, part)| part.as_ref().err());
    match failed.filter(|_| parts.iter().all(|(_, part)| part.is_err())) {
        Some(error) => Err(error.clone()),
        None => Ok(parts),
    }
}
