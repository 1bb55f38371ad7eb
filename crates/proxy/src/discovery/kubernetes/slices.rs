//! The `EndpointSlices` of a service, and the endpoints that follow from them.
//!
//! An endpoint is used if it is ready; a missing condition `ready` counts as ready. If no endpoint of the service is
//! ready, those that still serve while they terminate are used, as kube-proxy does. An endpoint may be in two slices
//! while the control plane moves it; it is one replica.
//!
//! A slice that cannot be used is a part that failed: its earlier endpoints stay, and the other slices are used.
//! **Source**: Kubernetes API reference, "`EndpointSlice`" (discovery.k8s.io/v1).
//! An endpoint is meant for the zones of its topology hints, if all used endpoints have hints, else for its own zone.
//! kube-proxy ignores incomplete hints, too.
//! **Limits**: only the first address of an endpoint is used, as the reference says.

use super::super::endpoint_list::{Endpoint, Part, Validity};
use super::super::feed::{ENDPOINTS_MAX, Parts};
use super::super::is_of_server;
use super::cut;
use crate::config::{Placement, PortSelector};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The slices of a service by name.
#[derive(Debug)]
pub(super) struct Slices {
    port: Option<PortSelector>,
    slices: BTreeMap<String, Result<Vec<SliceEndpoint>, String>>,
}

/// An endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SliceEndpoint {
    address: SocketAddr,
    state: EndpointState,
    zone: Option<String>,
    /// The zones that topology hints name.
    hints: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndpointState {
    Ready,
    /// It terminates and still serves.
    Draining,
    NotReady,
}

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) version: String,
    /// The token of the next page; [`None`]: it is the last one.
    pub(super) next: Option<String>,
}

/// The effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Endpoints,
    /// Only the version has changed.
    Version,
    /// The server no longer has the events since the version.
    Expired,
}

#[derive(Debug, Deserialize)]
struct ListBody {
    #[serde(default)]
    metadata: Metadata,
    items: Option<Vec<Object>>,
}

#[derive(Debug, Deserialize)]
struct EventBody {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

/// An `EndpointSlice`, or the Status of an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
    address_type: String,
    endpoints: Option<Vec<EndpointBody>>,
    ports: Option<Vec<PortBody>>,
    code: Option<u16>,
    message: Option<String>,
    reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndpointBody {
    addresses: Vec<String>,
    conditions: Option<Conditions>,
    zone: Option<String>,
    hints: Option<Hints>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Hints {
    for_zones: Option<Vec<ForZone>>,
}

#[derive(Debug, Deserialize)]
struct ForZone {
    name: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PortBody {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<i64>,
}

/// HTTP status and code of "the events since this version are gone".
const GONE: u16 = 410;

impl Slices {
    pub(super) const fn new(port: Option<PortSelector>) -> Self {
        Self { port, slices: BTreeMap::new() }
    }

    /// Adds the slices of a page.
    ///
    /// # Errors
    /// When the page is no list of `EndpointSlices`, or there are too many endpoints.
    pub(super) fn add_page(&mut self, body: &[u8]) -> Result<Page, String> {
        let list: ListBody = serde_json::from_slice(body)
            .map_err(|error| format!("expected an EndpointSliceList: {error}"))?;
        for slice in list.items.into_iter().flatten() {
            self.replace(slice)?;
        }
        let Metadata { resource_version: version, next, .. } = list.metadata;
        Ok(Page { version, next: Some(next).filter(|next| !next.is_empty()) })
    }

    /// Applies an event of a watch; `version` becomes that of the event.
    ///
    /// # Errors
    /// When the event is an error, or cannot be read.
    pub(super) fn apply(&mut self, event: &[u8], version: &mut String) -> Result<Change, String> {
        let EventBody { kind, mut object } = serde_json::from_slice(event)
            .map_err(|error| format!("expected an event, found {:?}: {error}", start_of(event)))?;
        if kind == "ERROR" {
            let is_expired =
                object.code == Some(GONE) || object.reason.as_deref() == Some("Expired");
            if is_expired {
                return Ok(Change::Expired);
            }
            let message = object.message.or(object.reason).unwrap_or_default();
            return Err(format!("the server reports: {}", cut(&message)));
        }
        let new_version = std::mem::take(&mut object.metadata.resource_version);
        let change = match kind.as_str() {
            "ADDED" | "MODIFIED" => {
                self.replace(object)?;
                Change::Endpoints
            }
            "DELETED" => {
                self.slices.remove(&object.metadata.name);
                Change::Endpoints
            }
            "BOOKMARK" => Change::Version,
            other => return Err(format!("an event has the unknown type {:?}", cut(other))),
        };
        *version = new_version;
        Ok(change)
    }

    fn replace(&mut self, slice: Object) -> Result<(), String> {
        if slice.metadata.name.is_empty() {
            return Err("an EndpointSlice has no metadata.name".to_owned());
        }
        let endpoints = self.endpoints(&slice);
        let endpoints =
            endpoints.map_err(|error| format!("EndpointSlice {}: {error}", slice.metadata.name));
        self.slices.insert(slice.metadata.name, endpoints);
        let count: usize =
            self.slices.values().map(|slice| 1 + slice.as_ref().map_or(0, Vec::len)).sum();
        if count > ENDPOINTS_MAX {
            return Err(format!("expected at most {ENDPOINTS_MAX} EndpointSlices and endpoints"));
        }
        Ok(())
    }

    fn endpoints(&self, slice: &Object) -> Result<Vec<SliceEndpoint>, String> {
        let of_family = |ip: &IpAddr| match slice.address_type.as_str() {
            "IPv4" => ip.is_ipv4(),
            "IPv6" => ip.is_ipv6(),
            _ => false,
        };
        if !matches!(slice.address_type.as_str(), "IPv4" | "IPv6") {
            let found = cut(&slice.address_type);
            return Err(format!("addressType {found:?} is not supported: expected IPv4 or IPv6"));
        }
        let endpoints = slice.endpoints.as_deref().unwrap_or_default();
        if endpoints.is_empty() {
            return Ok(Vec::new());
        }
        let port = self.port_of(slice.ports.as_deref().unwrap_or_default())?;
        let endpoint = |(place, endpoint): (usize, &EndpointBody)| {
            let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
            let ip: Option<IpAddr> = text.parse().ok().filter(of_family);
            let ip = ip.ok_or_else(|| {
                let kind = &slice.address_type;
                format!("endpoints[{place}]: {:?} is no {kind} address", cut(text))
            })?;
            let address = SocketAddr::new(ip, port);
            if !is_of_server(&address) {
                return Err(format!("endpoints[{place}]: no server can have {address}"));
            }
            Ok(SliceEndpoint {
                address,
                state: endpoint.state(),
                zone: endpoint.zone.clone(),
                hints: endpoint.hints(),
            })
        };
        endpoints.iter().enumerate().map(endpoint).collect()
    }

    /// The number of the port: that which the configuration selects, or the only one.
    fn port_of(&self, ports: &[PortBody]) -> Result<u16, String> {
        let is_tcp = |port: &&PortBody| port.protocol.as_deref().is_none_or(|name| name == "TCP");
        let number = |port: &PortBody| port.port.and_then(|port| u16::try_from(port).ok());
        let mut tcp = ports.iter().filter(is_tcp);
        let selected = match &self.port {
            Some(PortSelector::Name(name)) => {
                tcp.find(|port| port.name.as_deref() == Some(name)).and_then(number)
            }
            Some(PortSelector::Number(wanted)) => {
                tcp.filter_map(number).find(|port| port == wanted)
            }
            None => {
                let only = tcp.next();
                only.filter(|_| tcp.next().is_none()).and_then(number)
            }
        };
        selected.filter(|port| *port != 0).ok_or_else(|| {
            let names = ports.iter().take(10).map(|port| {
                let name = port.name.as_deref().unwrap_or_default();
                let protocol = port.protocol.as_deref().unwrap_or("TCP");
                let number = port.port.map_or("none".to_owned(), |port| port.to_string());
                cut(&format!("{name:?} {number}/{protocol}"))
            });
            let names = names.collect::<Vec<_>>().join(", ");
            match &self.port {
                Some(port) => format!("it has the ports [{names}]: expected {port} with TCP"),
                None => {
                    format!("it has the ports [{names}]: expected one with TCP, or the key port")
                }
            }
        })
    }

    /// The endpoints that are used, a part for each slice.
    pub(super) fn parts(&self) -> Parts {
        let has_ready = self.count(EndpointState::Ready) > 0;
        let used = if has_ready { EndpointState::Ready } else { EndpointState::Draining };
        let is_used = |endpoint: &&SliceEndpoint| endpoint.state == used;
        let mut all = self.slices.values().flatten().flatten().filter(is_used);
        let are_hinted = all.all(|endpoint| !endpoint.hints.is_empty());
        let part = |slice: &Vec<SliceEndpoint>| {
            let used = slice.iter().filter(is_used);
            Part {
                endpoints: used.map(|endpoint| endpoint.placed(are_hinted)).collect(),
                validity: Validity::UntilFailure,
            }
        };
        let slices = self.slices.iter();
        slices
            .map(|(name, slice)| (name.clone(), slice.as_ref().map(part).map_err(Clone::clone)))
            .collect()
    }

    /// What there is, in words.
    pub(super) fn summary(&self) -> String {
        let slices = self.slices.len();
        let states = [EndpointState::Ready, EndpointState::NotReady, EndpointState::Draining];
        let [ready, not_ready, draining] = states.map(|state| self.count(state));
        if slices == 0 {
            return "0 slices have the name of the service in this namespace: check service and namespace".to_owned();
        }
        format!(
            "{slices} slices: {ready} endpoints ready, {not_ready} not ready, {draining} terminating and serving"
        )
    }

    fn count(&self, state: EndpointState) -> usize {
        let endpoints = self.slices.values().flatten().flatten();
        endpoints.filter(|endpoint| endpoint.state == state).count()
    }
}

impl SliceEndpoint {
    fn placed(&self, are_hinted: bool) -> Endpoint {
        let zones = if are_hinted { &self.hints[..] } else { self.zone.as_slice() };
        let placement = Placement { zones: zones.into(), ..Placement::default() };
        Endpoint { address: self.address, placement }
    }
}

impl EndpointBody {
    fn hints(&self) -> Vec<String> {
        let zones = self.hints.as_ref().and_then(|hints| hints.for_zones.as_deref());
        zones.unwrap_or_default().iter().map(|zone| zone.name.clone()).collect()
    }

    fn state(&self) -> EndpointState {
        let Conditions { ready, serving, terminating } = self.conditions.unwrap_or_default();
        if ready.unwrap_or(true) {
            EndpointState::Ready
        } else if terminating == Some(true) && serving == Some(true) {
            EndpointState::Draining
        } else {
            EndpointState::NotReady
        }
    }
}

/// The message of a Status, if the body is one.
pub(super) fn status_message(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Object>(body).ok()?.message
}

fn start_of(event: &[u8]) -> String {
    let start = &event[..event.len().min(60)];
    String::from_utf8_lossy(start).into_owned()
}

#[cfg(test)]
mod tests;
