//! Notes about a correct configuration: settings without effect, and settings that are expensive or wrong in some
//! deployments.

use curtail_config::Value as _;
use curtail_policy::{RemedyMode, SAMPLES_MIN, UpstreamConfig};
use curtail_proxy::{
    Config, DiscoverySource, ListenAddress, ListenerConfig, NamedUpstream, RouteConfig, Scheme,
};
use curtail_units::{Duration, Quantile, Ratio};
use std::fs::File;

/// The permission to write of a file's owner.
const OWNER_WRITES: u32 = 0o200;

pub(super) fn listener_notes(listener: &ListenerConfig, config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    let is_unix = matches!(listener.address, ListenAddress::Unix(_));
    if let Some(mode) = listener.mode.filter(|mode| mode.0 & OWNER_WRITES == 0) {
        notes.push(format!(
            "mode {:04o} does not let the owner connect; the digits are octal, such as 0660",
            mode.0
        ));
    }
    let Some(proxies) = &listener.proxy_protocol else { return notes };
    if !proxies.ranges().iter().any(|range| range.is_unix() == is_unix) {
        let expected = if is_unix { "\"unix:\"" } else { "addresses" };
        notes.push(format!(
            "proxy_protocol.from has no client of this listener, which closes all connections; \
             expected {expected}"
        ));
    }
    let to_https = |route: &&RouteConfig| {
        let redirect = route.changes.redirect.as_ref();
        redirect.is_some_and(|redirect| redirect.scheme == Some(Scheme::Https))
    };
    if listener.tls.is_none()
        && let Some(route) = config.routes.iter().find(to_https)
    {
        notes.push(format!(
            "if the load balancer terminates TLS, route {} redirects to https forever: a PROXY \
             header has no scheme; let the load balancer redirect, or pass TLS through",
            route.name()
        ));
    }
    notes
}

/// Notes about trusted proxies that no listener can have as clients.
pub(super) fn trusted_proxies_notes(config: &Config) -> Vec<String> {
    let is_unix = |listener: &ListenerConfig| matches!(listener.address, ListenAddress::Unix(_));
    let has_addresses =
        |listener: &ListenerConfig| !is_unix(listener) || listener.proxy_protocol.is_some();
    if config.listeners.is_empty() {
        return vec![
            "there is no listener, and leaves trust all clients: trusted_proxies has no effect"
                .to_owned(),
        ];
    }
    let mut notes = Vec::new();
    let trusts = |unix: bool| config.trusted_proxies.iter().any(|range| range.is_unix() == unix);
    if trusts(true) && !config.listeners.iter().any(is_unix) {
        notes.push("no listener is a Unix socket: \"unix:\" has no effect".to_owned());
    }
    if trusts(false) && !trusts(true) && !config.listeners.iter().any(has_addresses) {
        notes
            .push("clients of Unix sockets have no address: only \"unix:\" trusts them".to_owned());
    }
    notes
}

pub(super) fn upstream_notes(upstream: &NamedUpstream, is_used: bool) -> Vec<String> {
    let policy = &upstream.policy;
    let has_one = upstream.replicas.len() == 1 && upstream.discovery.is_none();
    let mut notes = policy_notes(policy, has_one, is_used);
    let is_drained = upstream.replicas.iter().all(|one| one.placement.weight.is_zero());
    if is_drained && upstream.discovery.is_none() {
        notes.push("all weights are 0: no replica gets requests".to_owned());
    }
    if !upstream.replicas.is_empty() && upstream.discovery.is_some() {
        let text = "requests go to the replicas of the file and to those of discovery; remove one of \
                    the two keys if they are the same servers";
        notes.push(text.to_owned());
    }
    let source = upstream.discovery.as_ref().map(|discovery| &discovery.source);
    if let Some(DiscoverySource::File(file)) = source
        && let Err(error) = File::open(&file.path)
    {
        let path = file.path.display();
        notes.push(format!(
            "discovery.file {path}: {error}: there are no replicas of it before it can be read"
        ));
    }
    let holdout = upstream.holdout.map(|_| "holdout");
    for of in holdout.into_iter().chain(upstream.switchback.map(|_| "switchback")) {
        if policy.hedge.is_none() && policy.tie.is_none() {
            notes.push(format!("hedge and tie are off: the {of} measures no effect"));
        }
        if matches!(policy.remedy, RemedyMode::Off | RemedyMode::DryRun) {
            notes.push(format!("hedges and ties are not sent: the {of} measures no effect"));
        }
    }
    if policy.remedy == RemedyMode::DryRun && policy.hedge.is_none() {
        notes.push("hedge is off: the dry run counts nothing".to_owned());
    }
    notes
}

fn policy_notes(policy: &UpstreamConfig, has_one_replica: bool, is_used: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if has_one_replica {
        if policy.hedge.is_some() || policy.tie.is_some() {
            notes.push("hedges and ties need a second replica".to_owned());
        }
    } else if let Some(hedge) = policy.hedge {
        notes.extend(budget_note(hedge.delay.quantile, policy.budget.ratio));
        let effect = "no request is hedged";
        notes.extend(delay_note(policy.timeout, "hedge.delay_max", hedge.delay.max, effect));
    }
    let overdue = policy.retry.and_then(|retry| retry.overdue).filter(|_| !has_one_replica);
    if let Some(overdue) = overdue {
        let effect = "no attempt is overdue";
        let key = "retry.overdue.delay_max";
        notes.extend(delay_note(policy.timeout, key, overdue.max, effect));
    }
    if policy.tie.is_some() {
        notes.push("each replica must be a leaf; else a tie is executed twice".to_owned());
    }
    if !is_used {
        notes.push("no route leads here".to_owned());
    }
    notes
}

/// Returns a note if hedges of ordinary requests leave too little of the budget to the tail.
fn budget_note(quantile: Quantile, ratio: Ratio) -> Option<String> {
    let (hedged, budget) = (100.0 * (1.0 - quantile.get()), 100.0 * ratio.get());
    if budget == 0.0 {
        return Some("budget.ratio is 0: no request is hedged".to_owned());
    }
    // Half a budget of 2 % is the quantile 0.99, however they are rounded.
    let is_spent = hedged > budget / 2.0 + 1e-9;
    let share = if hedged > budget + 1e-9 { "need more than" } else { "spend most of" };
    let (hedged, budget) = (rounded(hedged), rounded(budget));
    is_spent.then(|| {
        format!(
            "hedges of ordinary requests ({hedged} %) {share} the budget ({budget} %); \
             raise hedge.quantile or budget.ratio"
        )
    })
}

/// Rounds to three decimals, to drop the digits of binary fractions.
pub(super) fn rounded(number: f64) -> f64 {
    (1_000.0 * number).round() / 1_000.0
}

/// Returns a note if the timeout ends a request before `delay_max`, the delay while few latencies are known.
fn delay_note(timeout: Duration, key: &str, delay_max: Duration, effect: &str) -> Option<String> {
    (timeout <= delay_max).then(|| {
        format!(
            "timeout {} is not above {key} {}: \
             {effect} while fewer than {SAMPLES_MIN} latencies are known",
            timeout.write(),
            delay_max.write()
        )
    })
}
