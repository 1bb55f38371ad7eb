//! Checks across keys: keys that contradict each other, and keys that can never take effect.
//!
//! Listeners, leaves and the admin port have distinct addresses and names. Each route is reachable and names an
//! upstream. The upstreams of a group share their keys. An upstream names each replica once: a repeated replica would
//! get hedges of its own requests.
//! **Limits**: the checks compare text. Two names of one server count as two replicas.

use super::{
    Config, LEAF_NAME_DEFAULT, ListenAddress, ReplicaConfig, ReplicaUrl, RouteConfig, fan_out,
    listener, replica, route_limits,
};
use crate::route::{self, path};
use curtail_config::Section;
use curtail_policy::GroupConfig;
use curtail_text::expectation;
use std::net::IpAddr;

/// Records an error for each contradiction in `config`, which was read from `s`.
pub(super) fn check(config: &Config, s: &mut Section<'_>) {
    if config.listeners.is_empty() && config.leaves.is_empty() {
        let text = "nothing to listen on: expected at least one listener or leaf";
        s.conflict("listeners", &["leaves"], text);
    }
    if !config.listeners.is_empty() && config.routes.is_empty() {
        let text = "listeners without routes: expected at least one route";
        s.conflict("routes", &["listeners"], text);
    }
    if let Some(Err(error)) = config.zone.as_deref().map(replica::check_name) {
        s.value_error("zone", error);
    }
    check_ports(config, s);
    check_routes(config, s);
    fan_out::check(config, s);
    route_limits::check(config, s);
    check_groups(config, s);
    for upstream in &config.upstreams {
        for (index, replica) in upstream.replicas.iter().enumerate() {
            let before = &upstream.replicas[..index];
            let is_same = |other: &ReplicaConfig| {
                is_same_server(&other.url, &replica.url) || other.identity() == replica.identity()
            };
            if let Some(first) = before.iter().position(is_same) {
                let all = format!("upstreams.{}.replicas", upstream.name);
                let text = format!(
                    "{replica} is a duplicate of replicas[{first}]: expected each replica once"
                );
                s.conflict(&format!("{all}[{index}]"), &[&all], text);
            }
        }
    }
}

/// A port that the proxy opens.
struct Port<'a> {
    /// The section that configures it.
    section: String,
    name: &'a str,
    /// The name of a port without the key `name`.
    name_default: &'static str,
    address: ListenAddress,
}

fn check_ports(config: &Config, s: &mut Section<'_>) {
    let listeners = config.listeners.iter().enumerate().map(|(index, listener)| Port {
        section: format!("listeners[{index}]"),
        name: &listener.name,
        name_default: listener::NAME_DEFAULT,
        address: listener.address.clone(),
    });
    let leaves = config.leaves.iter().enumerate().map(|(index, leaf)| Port {
        section: format!("leaves[{index}]"),
        name: &leaf.name,
        name_default: LEAF_NAME_DEFAULT,
        address: ListenAddress::Tcp(leaf.address),
    });
    let ports: Vec<Port<'_>> = listeners.chain(leaves).collect();
    for (index, port) in ports.iter().enumerate() {
        if let Some(other) = ports[..index].iter().find(|other| other.name == port.name) {
            let default = if port.name == port.name_default { ", the default," } else { "" };
            let text = format!(
                "{:?}{default} is also the name of {}: expected a unique name, because it labels the metrics",
                port.name, other.section
            );
            let others = [&*format!("{}.name", other.section)];
            s.conflict(&format!("{}.name", port.section), &others, text);
        }
        let mut before = ports[..index].iter();
        if let Some(other) = before.find(|other| are_one_port(&other.address, &port.address)) {
            let text = format!("same address as {}: expected another port", other.section);
            let others = [&*format!("{}.address", other.section)];
            s.conflict(&format!("{}.address", port.section), &others, text);
        }
    }
    let admin = config.admin.map(ListenAddress::Tcp);
    let is_admin = |port: &&Port<'_>| admin.iter().any(|a| are_one_port(&port.address, a));
    if let Some(other) = ports.iter().find(is_admin) {
        let text = format!("same address as {}: expected another port", other.section);
        s.conflict("admin.address", &[&format!("{}.address", other.section)], text);
    }
}

/// Whether only one of the two addresses can be bound.
fn are_one_port(one: &ListenAddress, other: &ListenAddress) -> bool {
    let (ListenAddress::Tcp(one), ListenAddress::Tcp(other)) = (one, other) else {
        return one == other;
    };
    // An IPv6 socket on all addresses accepts IPv4 connections too.
    let covers =
        |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let (a, b) = (one.ip(), other.ip());
    one.port() != 0 && one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

fn check_routes(config: &Config, s: &mut Section<'_>) {
    let names: Vec<&str> = config.upstreams.iter().map(|upstream| &*upstream.name).collect();
    for (index, route) in config.routes.iter().enumerate() {
        if let Some(upstream) = &route.upstream {
            let (is_defined, defect) = match &route.fan_out {
                None => (names.contains(&&**upstream), "is not defined"),
                Some(_) => {
                    (route.shards(&config.upstreams).next().is_some(), "selects no upstream")
                }
            };
            if !is_defined {
                let expected = expectation(upstream, &names, "no upstreams are defined");
                let text = format!("{upstream:?} {defect}: {expected}");
                // Other errors of an upstream do not change its name.
                let others: &[&str] = if names.is_empty() { &["upstreams"] } else { &[] };
                s.conflict(&format!("routes[{index}].upstream"), others, text);
            }
        }
        let mut before = config.routes[..index].iter();
        if let Some(first) = before.position(|other| match_the_same_requests(other, route)) {
            let text = format!("matches no request: routes[{first}] matches the same requests");
            let [host, prefix] =
                ["host", "path_prefix"].map(|key| format!("routes[{first}].{key}"));
            s.conflict(&format!("routes[{index}]"), &[&host, &prefix], text);
        }
    }
}

/// The upstreams of a group share one state, so its configuration must be the same in each.
fn check_groups(config: &Config, s: &mut Section<'_>) {
    for (index, upstream) in config.upstreams.iter().enumerate() {
        let Some(group) = &upstream.group else { continue };
        let mut before = config.upstreams[..index].iter();
        let Some(first) = before.find(|other| other.group == upstream.group) else { continue };
        if GroupConfig::from(&first.policy) != GroupConfig::from(&upstream.policy) {
            let shared = "budget, hedge.quantile and retry.overdue.quantile";
            let text = format!(
                "{group} is also the group of upstreams.{}, whose shared keys differ: expected the same \
                {shared}",
                first.name
            );
            let others = [&first.name, &upstream.name].map(|name| format!("upstreams.{name}"));
            s.conflict(
                &format!("upstreams.{}.group", upstream.name),
                &[&others[0], &others[1]],
                text,
            );
        }
    }
}

/// Whether both routes match the same requests. Of two different routes, the more specific one wins at any position in
/// the list, and the other one gets the remaining requests.
fn match_the_same_requests(one: &RouteConfig, other: &RouteConfig) -> bool {
    let host = |route: &RouteConfig| {
        route.host.as_deref().map(route::host_name).map(str::to_ascii_lowercase)
    };
    path::are_same_prefix(&one.path_prefix, &other.path_prefix) && host(one) == host(other)
}

fn is_same_server(one: &ReplicaUrl, other: &ReplicaUrl) -> bool {
    let address = |url: &ReplicaUrl| url.host.parse::<IpAddr>().ok();
    let is_same_host = match (address(one), address(other)) {
        (Some(one), Some(other)) => one == other,
        _ if one.unix_path().is_some() => one.host == other.host,
        _ => one.host.eq_ignore_ascii_case(&other.host),
    };
    is_same_host && one.port == other.port
}

#[cfg(test)]
mod tests;
