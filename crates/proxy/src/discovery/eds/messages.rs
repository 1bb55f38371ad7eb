//! The messages of EDS: requests are encoded, responses and their assignments are decoded.
//!
//! An assignment with anything that cannot be used is rejected as a whole, because a proxy that leaves out what it
//! does not understand sends requests elsewhere than its operator intends.
//!
//! | part of an assignment | use |
//! |---|---|
//! | `lb_endpoints` | the endpoints with health status UNKNOWN, HEALTHY and DEGRADED |
//! | `priority` | the lowest value that has such endpoints; the others are not used |
//! | `load_balancing_weight` of an endpoint | its weight, 1 if it has none |
//! | `load_balancing_weight` of a locality | divided among its endpoints, also those that are not used, by their weights. If one locality has a weight, one without a weight gets no requests |
//! | `locality.zone` | the zone of its endpoints |
//! | `locality.region` and `sub_zone`, metadata, proximity | ignored |
//! | `policy.drop_overloads` | ignored, and named in `/state` |
//! | names, pipes, UDP, `endpoint_name`, LEDS | rejected |
//!
//! **Source**: `discovery.proto`, `endpoint.proto`, `endpoint_components.proto` and `address.proto` in the repository of
//! Envoy, API version 3.

use super::super::endpoint_list::{Endpoint, Part, Validity};
use super::super::feed::ENDPOINTS_MAX;
use super::super::is_of_server;
use super::cut;
use crate::USER_AGENT;
use crate::config::{EdsSource, Placement};
use curtail_policy::Weight;
use curtail_protobuf::{Fields, Value, bytes_field, message_field, varint_field};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const TYPE_URL: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// `google.rpc.Code.INVALID_ARGUMENT`.
const INVALID_ARGUMENT: u64 = 3;

/// Values of `HealthStatus` of endpoints that get no requests: UNHEALTHY, DRAINING, TIMEOUT.
const UNUSED_HEALTH: [u64; 3] = [2, 3, 4];

/// The next request of a stream.
#[derive(Debug)]
pub(super) struct DiscoveryRequest<'a> {
    source: &'a EdsSource,
    /// The last accepted version of the stream; empty before.
    version: String,
    /// The nonce of the last response.
    nonce: String,
    /// Why the last response is rejected.
    error: Option<String>,
}

impl<'a> DiscoveryRequest<'a> {
    /// The first request of a stream.
    pub(super) const fn new(source: &'a EdsSource) -> Self {
        Self { source, version: String::new(), nonce: String::new(), error: None }
    }

    /// Accepts a response, or rejects it with an error.
    pub(super) fn acknowledge(&mut self, response: &DiscoveryResponse<'_>, error: Option<String>) {
        response.nonce.clone_into(&mut self.nonce);
        if error.is_none() {
            response.version.clone_into(&mut self.version);
        }
        self.error = error;
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let text = |out: &mut Vec<u8>, field, text: &str| {
            if !text.is_empty() {
                bytes_field(out, field, text.as_bytes());
            }
        };
        let mut out = Vec::new();
        text(&mut out, 1, &self.version);
        message_field(&mut out, 2, |node| {
            text(node, 1, &self.source.node_id);
            text(node, 2, &self.source.node_cluster);
            text(node, 6, USER_AGENT);
        });
        text(&mut out, 3, &self.source.cluster);
        text(&mut out, 4, TYPE_URL);
        text(&mut out, 5, &self.nonce);
        if let Some(error) = &self.error {
            message_field(&mut out, 6, |status| {
                varint_field(status, 1, INVALID_ARGUMENT);
                text(status, 2, error);
            });
        }
        out
    }
}

/// The endpoints of a locality.
#[derive(Debug, Default)]
struct Locality {
    priority: u64,
    weight: Option<f64>,
    zones: Arc<[String]>,
    endpoints: Vec<LocalityEndpoint>,
}

#[derive(Debug)]
struct LocalityEndpoint {
    address: SocketAddr,
    weight: f64,
    /// Whether its health status allows requests.
    is_used: bool,
}

/// A response of the control plane.
#[derive(Debug, Default)]
pub(super) struct DiscoveryResponse<'a> {
    pub(super) version: &'a str,
    pub(super) nonce: &'a str,
    type_url: &'a str,
    /// Each is a `google.protobuf.Any`.
    resources: Vec<&'a [u8]>,
}

/// The usable endpoints of a cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    endpoints: Vec<Endpoint>,
    priority: u64,
    /// The number of endpoints that are left out for their health status.
    unhealthy: usize,
    has_drop_overloads: bool,
}

impl<'a> DiscoveryResponse<'a> {
    /// # Errors
    /// When the message is malformed.
    pub(super) fn decode(message: &'a [u8]) -> Result<Self, String> {
        let mut response = Self::default();
        for field in checked(message, "the DiscoveryResponse") {
            match field? {
                (1, Value::Bytes(version)) => response.version = text(version)?,
                (2, Value::Bytes(resource)) => response.resources.push(resource),
                (4, Value::Bytes(url)) => response.type_url = text(url)?,
                (5, Value::Bytes(nonce)) => response.nonce = text(nonce)?,
                _ => {}
            }
        }
        Ok(response)
    }

    /// The assignment of a cluster; [`None`] if the response has none.
    ///
    /// # Errors
    /// What cannot be used.
    pub(super) fn assignment(&self, cluster: &str) -> Result<Option<Assignment>, String> {
        expect_type(self.type_url)?;
        let mut found = None;
        for resource in &self.resources {
            let (mut url, mut value) = ("", &[][..]);
            for field in checked(resource, "a resource") {
                match field? {
                    (1, Value::Bytes(bytes)) => url = text(bytes)?,
                    (2, Value::Bytes(bytes)) => value = bytes,
                    _ => {}
                }
            }
            expect_type(url)?;
            if name_of(value)? == cluster {
                found = Some(Assignment::decode(value)?);
            }
        }
        Ok(found)
    }
}

impl Assignment {
    fn decode(message: &[u8]) -> Result<Self, String> {
        let mut by_priority: BTreeMap<u64, Vec<Locality>> = BTreeMap::new();
        let (mut unhealthy, mut count, mut has_drop_overloads) = (0, 0, false);
        for field in checked(message, "the ClusterLoadAssignment") {
            match field? {
                (2, Value::Bytes(locality)) => {
                    let locality = Locality::decode(locality)?;
                    count += locality.endpoints.len();
                    if count > ENDPOINTS_MAX {
                        return Err(format!("expected at most {ENDPOINTS_MAX} endpoints"));
                    }
                    unhealthy += locality.endpoints.iter().filter(|one| !one.is_used).count();
                    by_priority.entry(locality.priority).or_default().push(locality);
                }
                (4, Value::Bytes(policy)) => {
                    for field in checked(policy, "the policy") {
                        has_drop_overloads |= field?.0 == 2;
                    }
                }
                _ => {}
            }
        }
        let by_priority = by_priority.iter().map(|(priority, all)| (*priority, endpoints(all)));
        let used = by_priority.into_iter().find(|(_, endpoints)| !endpoints.is_empty());
        let (priority, endpoints) = used.unwrap_or_default();
        Ok(Self { endpoints, priority, unhealthy, has_drop_overloads })
    }

    /// The part of a response of discovery, and what it has in words.
    pub(super) fn into_part(self, version: &str) -> (Part, String) {
        let Self { endpoints, priority, unhealthy, has_drop_overloads } = self;
        let (version, count) = (cut(version), endpoints.len());
        let drops = if has_drop_overloads { ", drop_overloads is ignored" } else { "" };
        let summary = format!(
            "version {version:?}: {count} endpoints of priority {priority}, {unhealthy} left out by health status{drops}"
        );
        (Part { endpoints, validity: Validity::UntilFailure }, summary)
    }
}

/// The name of the cluster of an assignment.
fn name_of(message: &[u8]) -> Result<&str, String> {
    let mut name = "";
    for field in checked(message, "the ClusterLoadAssignment") {
        if let (1, Value::Bytes(bytes)) = field? {
            name = text(bytes)?;
        }
    }
    Ok(name)
}

impl Locality {
    fn decode(message: &[u8]) -> Result<Self, String> {
        let mut locality = Self::default();
        for field in checked(message, "LocalityLbEndpoints") {
            match field? {
                (1, Value::Bytes(name)) => locality.zones = decode_zone(name)?,
                (2, Value::Bytes(endpoint)) => {
                    let place = locality.endpoints.len();
                    let decoded = decode_endpoint(endpoint);
                    let decoded =
                        decoded.map_err(|error| format!("lb_endpoints[{place}]: {error}"))?;
                    locality.endpoints.push(decoded);
                }
                (3, Value::Bytes(weight)) => locality.weight = Some(decode_weight(weight)?),
                (5, Value::Int(value)) => locality.priority = value,
                (7 | 8, _) => return Err("LEDS is not supported: expected lb_endpoints".to_owned()),
                _ => {}
            }
        }
        Ok(locality)
    }

    /// The sum of the weights of the endpoints.
    fn sum(&self) -> f64 {
        self.endpoints.iter().map(|endpoint| endpoint.weight).sum()
    }
}

/// The used endpoints of localities, weighted so that the mean is that of the endpoints' own weights.
fn endpoints(localities: &[Locality]) -> Vec<Endpoint> {
    let of_localities: f64 = localities.iter().filter_map(|locality| locality.weight).sum();
    let of_endpoints: f64 = localities.iter().map(Locality::sum).sum();
    let factor = |locality: &Locality| match locality.weight {
        _ if of_localities == 0.0 => 1.0,
        Some(weight) => weight / of_localities * of_endpoints / locality.sum(),
        None => 0.0,
    };
    let weighted = localities.iter().flat_map(|locality| {
        let (factor, used) =
            (factor(locality), locality.endpoints.iter().filter(|one| one.is_used));
        used.map(move |one| (one.address, one.weight * factor, &locality.zones))
    });
    let weighted: Vec<(SocketAddr, f64, &Arc<[String]>)> = weighted.collect();
    let largest = weighted.iter().map(|(_, weight, _)| *weight).fold(0.0, f64::max);
    let scale = (Weight::MAX / largest).min(1.0);
    let endpoint = |(address, weight, zones): (SocketAddr, f64, &Arc<[String]>)| {
        // All endpoints of a locality may have the weight 0.
        let weight = Weight::new(weight * scale).unwrap_or(Weight::ZERO);
        Endpoint { address, placement: Placement { weight, zones: Arc::clone(zones) } }
    };
    weighted.into_iter().map(endpoint).collect()
}

/// The zone of a `Locality`, if it has one.
fn decode_zone(message: &[u8]) -> Result<Arc<[String]>, String> {
    let mut zone = "";
    for field in checked(message, "Locality") {
        if let (2, Value::Bytes(name)) = field? {
            zone = text(name)?;
        }
    }
    Ok(Some(zone.to_owned()).into_iter().filter(|zone| !zone.is_empty()).collect())
}

/// The value of a `google.protobuf.UInt32Value`.
fn decode_weight(message: &[u8]) -> Result<f64, String> {
    let mut weight = 0;
    for field in checked(message, "load_balancing_weight") {
        if let (1, Value::Int(value)) = field? {
            weight = value;
        }
    }
    let weight = u32::try_from(weight);
    weight.map(f64::from).map_err(|_| "load_balancing_weight: expected 32 bits".to_owned())
}

fn decode_endpoint(message: &[u8]) -> Result<LocalityEndpoint, String> {
    let (mut endpoint, mut health, mut weight) = (None, 0, 1.0);
    for field in checked(message, "LbEndpoint") {
        match field? {
            (1, Value::Bytes(bytes)) => endpoint = Some(bytes),
            (2, Value::Int(value)) => health = value,
            (4, Value::Bytes(value)) => weight = decode_weight(value)?,
            (5, _) => return Err("endpoint_name is not supported: expected endpoint".to_owned()),
            _ => {}
        }
    }
    let address = inner(endpoint.unwrap_or_default(), 1, "Endpoint")?;
    let address = address.ok_or("an endpoint without address")?;
    let socket = inner(address, 1, "Address")?;
    let socket = socket.ok_or("expected a socket_address, found a pipe or an internal address")?;
    let is_used = !UNUSED_HEALTH.contains(&health);
    Ok(LocalityEndpoint { address: decode_socket_address(socket)?, weight, is_used })
}

fn decode_socket_address(message: &[u8]) -> Result<SocketAddr, String> {
    let (mut host, mut port, mut is_udp) = ("", 0, false);
    for field in checked(message, "SocketAddress") {
        match field? {
            (1, Value::Int(protocol)) => is_udp = protocol != 0,
            (2, Value::Bytes(bytes)) => host = text(bytes)?,
            (3, Value::Int(value)) => port = value,
            (4, Value::Bytes(name)) => {
                return Err(format!("named_port {:?}: expected port_value", cut(text(name)?)));
            }
            _ => {}
        }
    }
    if is_udp {
        return Err("protocol UDP: expected TCP".to_owned());
    }
    let ip: Option<IpAddr> = host.parse().ok();
    let ip = ip.ok_or_else(|| format!("address {:?}: expected an IP address", cut(host)))?;
    let address = u16::try_from(port).ok().map(|port| SocketAddr::new(ip, port));
    let address = address.ok_or_else(|| format!("port_value {port}: expected 1 to 65535"))?;
    if is_of_server(&address) { Ok(address) } else { Err(format!("no server can have {address}")) }
}

/// The message in a field, which is one of several of a `oneof`.
fn inner<'a>(
    message: &'a [u8],
    field: u64,
    what: &'static str,
) -> Result<Option<&'a [u8]>, String> {
    let mut found = None;
    for one in checked(message, what) {
        if let (number, Value::Bytes(bytes)) = one?
            && number == field
        {
            found = Some(bytes);
        }
    }
    Ok(found)
}

/// The fields of a message, and an error where it is malformed.
fn checked<'a>(
    message: &'a [u8],
    what: &'static str,
) -> impl Iterator<Item = Result<(u64, Value<'a>), String>> {
    let mut fields = Fields(message);
    let mut is_broken = false;
    std::iter::from_fn(move || {
        if is_broken || fields.0.is_empty() {
            return None;
        }
        let byte = message.len() - fields.0.len();
        Some(fields.next().ok_or_else(|| {
            is_broken = true;
            format!("{what} is malformed at byte {byte}")
        }))
    })
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())
}

fn expect_type(url: &str) -> Result<(), String> {
    if url == TYPE_URL {
        return Ok(());
    }
    Err(format!("a resource has the type {:?}: expected {TYPE_URL}", cut(url)))
}

#[cfg(test)]
mod tests;
