//! A summary of a correct configuration: listeners, routes, policies, and the maximum number of attempts for a request.
//!
//! Notes name valid settings without effect (a hedge without a second replica), and settings that are expensive if the
//! deployment does not match them (a tie, which is executed twice unless each replica is a leaf). Durations are written as
//! in the file. No line is wider than 80 columns.

mod notes;

use curtail_config::Value as _;
use curtail_load::holdout::time_to_state;
use curtail_load::switchback::{BLOCK, time_to_state as time_to_state_by_blocks};
use curtail_policy::{
    BalanceConfig, QuantileDelay, RemedyMode, RequestLimit, RestMode, UpstreamConfig,
};
use curtail_proxy::{
    Config, FanOutConfig, HealthCheckConfig, HealthCheckKind, Limits, Merge, NamedUpstream,
    RouteChanges, RouteConfig, RouteLimitsConfig, RouteOverrides,
};
use curtail_text::lines::{WIDTH, wrapped};
use curtail_text::numbers;
use curtail_units::{Duration, Quantile, Ratio};
use std::fmt::Write as _;

pub(super) fn lines(config: &Config) -> String {
    let mut text = String::new();
    write(&mut text, config).expect("a String takes everything");
    text
}

fn write(text: &mut String, config: &Config) -> std::fmt::Result {
    for listener in &config.listeners {
        let over = match &listener.tls {
            None => "clear text",
            Some(tls) if tls.client_ca_file.is_some() => "TLS with client certificates",
            Some(_) => "TLS",
        };
        let mode = listener.mode.map(|mode| format!(", mode {:04o}", mode.0)).unwrap_or_default();
        let after = if listener.proxy_protocol.is_some() { ", after a PROXY header" } else { "" };
        let (name, address) = (&listener.name, &listener.address);
        put(text, &format!("listener {name}: {address}{mode}, {over}{after}"))?;
        put_notes(text, &notes::listener_notes(listener, config))?;
    }
    match config.admin {
        Some(address) => writeln!(text, "admin: {address}")?,
        None => writeln!(
            text,
            "admin: none, so no metrics and no state page; `admin: {{}}` opens port 7301"
        )?,
    }
    if let Some(zone) = &config.zone {
        writeln!(text, "zone: {zone}")?;
    }
    put(text, &limits(&config.limits))?;
    if let Some(spans) = &config.spans {
        put(text, &format!("spans: to {} as {}", spans.endpoint, spans.service_name))?;
    }
    if let Some(log) = &config.access_log {
        let file = log.file.display();
        let to = if log.is_stdout() { "standard output".to_owned() } else { file.to_string() };
        let slow = log.slower_than.map(|limit| format!(", those slower than {}", limit.write()));
        let slow = slow.unwrap_or_default();
        let others = match log.sample {
            Ratio::ONE => "all others".to_owned(),
            Ratio::ZERO => "no others".to_owned(),
            sample => format!("a share of {sample} of the others"),
        };
        put(text, &format!("access log: to {to}; failed requests{slow}, and {others}"))?;
    }
    for leaf in &config.leaves {
        let queue = &leaf.queue;
        let (name, address, server) = (&leaf.name, leaf.address, &leaf.server);
        let (at_once, waiting) = (queue.concurrency, queue.queue_len_max);
        let to = format!("leaf {name}: {address} -> {server}");
        put(text, &format!("{to}, {at_once} at once, {waiting} may wait"))?;
    }
    if !config.trusted_proxies.is_empty() {
        let trusted: Vec<_> = config.trusted_proxies.iter().map(ToString::to_string).collect();
        put(text, &format!("trusted proxies: {}", trusted.join(", ")))?;
        put_notes(text, &notes::trusted_proxies_notes(config))?;
    }
    for route in &config.routes {
        let calls = route.calls(&config.upstreams);
        let fan_out = route.fan_out.as_ref().map(|fan_out| gathered(fan_out, calls));
        let fan_out = fan_out.unwrap_or_default();
        let redirect = route.changes.redirect.as_ref().map(ToString::to_string);
        let upstream =
            route.upstream.as_ref().map(|upstream| format!("upstream {upstream}{fan_out}"));
        let to: Vec<String> = redirect.into_iter().chain(upstream).collect();
        put(text, &format!("route {} -> {}", condition(route), to.join(", then ")))?;
    }
    config.upstreams.iter().enumerate().try_for_each(|(place, upstream)| {
        let mut routes = config.routes.iter();
        let is_used = routes.any(|route| route.shards(&config.upstreams).any(|one| one == place));
        write_upstream(text, upstream, is_used)
    })
}

/// Appends a line, wrapped at 80 columns.
fn put(text: &mut String, line: &str) -> std::fmt::Result {
    wrapped("", line, WIDTH).iter().try_for_each(|line| writeln!(text, "{line}"))
}

/// Appends the value of a key of an upstream; further lines begin below the value.
fn put_value(text: &mut String, key: &str, value: &str) -> std::fmt::Result {
    const INDENT: usize = 13;
    let mut key = format!("  {key}");
    wrapped("", value, WIDTH - INDENT).iter().try_for_each(|line| {
        let key = std::mem::take(&mut key);
        writeln!(text, "{key:INDENT$}{}", line.trim_start())
    })
}

fn put_notes(text: &mut String, notes: &[String]) -> std::fmt::Result {
    let mut lines = notes.iter().flat_map(|note| wrapped("  ", &format!("note: {note}"), WIDTH));
    lines.try_for_each(|line| writeln!(text, "{line}"))
}

/// The limits on clients that are changed most often.
fn limits(limits: &Limits) -> String {
    let connections = numbers::thousands(limits.connections_max as u64);
    let (headers, within) = (limits.headers.write(), limits.header_timeout.write());
    let idle =
        limits.stream_idle_timeout.map(|idle| format!(", streams idle for {}", idle.write()));
    let (idle, drain) = (idle.unwrap_or_default(), limits.drain.write());
    format!("limits: {connections} connections, headers {headers} in {within}{idle}, drain {drain}")
}

/// The condition of a route.
fn condition(route: &RouteConfig) -> String {
    let host = route.host.as_deref().unwrap_or("any host,");
    let twice = if route.idempotent { " (any method may be sent twice)" } else { "" };
    let timeout = route.timeout.map(|timeout| format!(" (timeout {})", timeout.write()));
    let timeout = timeout.unwrap_or_default();
    let (overrides, changes) = (overrides(&route.overrides), changes(&route.changes));
    let limits = route.limits.as_ref().map(route_limits).unwrap_or_default();
    let prefix = &route.path_prefix;
    // A prefix without a trailing slash is a path as well.
    let below = if prefix.ends_with('/') { String::new() } else { format!(" and {prefix}/...") };
    format!("{host} {prefix}{below}{twice}{timeout}{overrides}{limits}{changes}")
}

/// The limits of a route.
fn route_limits(limits: &RouteLimitsConfig) -> String {
    let client = limits.per_client.as_ref().map(|each| (&each.limit, " per client"));
    let tenant = limits.per_tenant.as_ref().map(|each| (&each.limit, " per tenant"));
    let each = [Some((&limits.route, "")), client, tenant].into_iter().flatten();
    let describe = |(limit, per): (&RequestLimit, &str)| {
        let in_flight = limit.in_flight_max.map(|max| format!("{max} in flight{per}"));
        let rate =
            limit.rate.map(|rate| format!("{} a second{per}", notes::rounded(rate.per_second())));
        in_flight.into_iter().chain(rate)
    };
    let limits: Vec<String> = each.flat_map(describe).collect();
    format!(" (at most {})", limits.join(", "))
}

/// Describes the settings of a route that override its upstream and `limits`.
fn overrides(overrides: &RouteOverrides) -> String {
    let RouteOverrides { retries_max, failed_statuses, stream_idle_timeout, grpc_timeout } =
        overrides;
    let mut text = String::new();
    if let Some(max) = retries_max {
        text += &format!(" (retries_max {max})");
    }
    if let Some(statuses) = failed_statuses {
        let statuses: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
        let statuses = if statuses.is_empty() { "none".to_owned() } else { statuses.join(", ") };
        text += &format!(" (failed statuses: {statuses})");
    }
    if let Some(timeout) = stream_idle_timeout {
        text += &format!(" (stream_idle_timeout {})", timeout.write());
    }
    if *grpc_timeout {
        text += " (grpc-timeout is a deadline)";
    }
    text
}

/// The changes of the messages of a route, without its redirect.
fn changes(changes: &RouteChanges) -> String {
    let RouteChanges { request_headers, response_headers, rewrite_prefix, redirect: _ } = changes;
    let mut text = String::new();
    if let Some(prefix) = rewrite_prefix {
        text += &format!(" (as {prefix})");
    }
    for (of, headers) in [("request", request_headers), ("response", response_headers)] {
        if !headers.is_empty() {
            text += &format!(
                " ({} changed in each {of})",
                numbers::counted(headers.count() as u64, "header")
            );
        }
    }
    text
}

/// Describes a fan-out: the needed shards or replicas, the merge of their bodies, and the deadline.
fn gathered(fan_out: &FanOutConfig, calls: Option<usize>) -> String {
    let needed = fan_out.rule.needed.map_or_else(|| "all".to_owned(), |needed| needed.to_string());
    let bodies = match fan_out.merge {
        Merge::Concatenate => "concatenated",
        Merge::JsonArray => "as one JSON array",
    };
    let deadline = fan_out.rule.deadline.map(|after| format!(", partial after {}", after.write()));
    let recipients = fan_out.to.noun();
    let rest = if fan_out.rule.rest == RestMode::Finish { ", the rest finishes" } else { "" };
    let calls = calls.map_or_else(|| "the discovered".to_owned(), |calls| calls.to_string());
    format!(", {needed} of {calls} {recipients} {bodies}{}{rest}", deadline.unwrap_or_default())
}

fn write_upstream(text: &mut String, upstream: &NamedUpstream, is_used: bool) -> std::fmt::Result {
    let replicas: Vec<String> = upstream.replicas.iter().map(ToString::to_string).collect();
    let listed = match replicas.len() {
        0 => None,
        1 => Some(format!("1 replica: {}", replicas[0])),
        count => Some(format!("{count} replicas: {}", replicas.join(", "))),
    };
    let discovered = upstream.discovery.as_ref().map(|discovery| format!("the {discovery}"));
    let replicas: Vec<String> = listed.into_iter().chain(discovered).collect();
    writeln!(text)?;
    put(text, &format!("upstream {}: {}", upstream.name, replicas.join(", and ")))?;
    let policy = &upstream.policy;
    put_value(text, "balance", &balance(policy.balance))?;
    put_value(text, "hedge", &hedge(policy))?;
    put_value(text, "tie", &tie(policy))?;
    put_value(text, "retry", &retry(policy))?;
    put_value(text, "timeout", &policy.timeout.write())?;
    let in_flight = upstream.in_flight_max.map(|max| format!("at most {max}"));
    let idle_min = Some(upstream.connect.idle_min).filter(|min| *min > 0);
    let optional = [
        ("in flight", in_flight),
        ("idle", idle_min.map(|min| format!("at least {min} connections"))),
        ("health", upstream.health_check.as_ref().map(health_check)),
        ("slow start", policy.slow_start.map(|time| time.write())),
        ("remedy", remedy(policy.remedy).map(str::to_owned)),
        ("holdout", upstream.holdout.map(holdout)),
        ("switchback", upstream.switchback.map(switchback)),
        ("at worst", Some(at_worst(policy))),
    ];
    for (key, value) in optional {
        value.map_or(Ok(()), |value| put_value(text, key, &value))?;
    }
    put_notes(text, &notes::upstream_notes(upstream, is_used))
}

fn health_check(check: &HealthCheckConfig) -> String {
    let HealthCheckConfig { kind, interval, timeout, unhealthy_after, healthy_after } = check;
    let request = match kind {
        HealthCheckKind::Http { path, .. } => format!("GET {path}"),
        HealthCheckKind::Grpc { service } if service.is_empty() => {
            "gRPC health of the server".to_owned()
        }
        HealthCheckKind::Grpc { service } => format!("gRPC health of {service}"),
        HealthCheckKind::Tcp => "a TCP connection".to_owned(),
    };
    format!(
        "{request} every {}, timeout {}; unhealthy after {unhealthy_after} failures, healthy after {healthy_after}",
        interval.write(),
        timeout.write()
    )
}

fn balance(config: BalanceConfig) -> String {
    let text = config.to_string();
    match config {
        BalanceConfig::PeakEwma { decay } => text.replace(&decay.to_string(), &decay.write()),
        BalanceConfig::RoundRobin
        | BalanceConfig::Random
        | BalanceConfig::LeastRequest { .. }
        | BalanceConfig::Prequal(_) => text,
    }
}

fn hedge(policy: &UpstreamConfig) -> String {
    policy.hedge.map_or_else(off, |hedge| {
        format!(
            "when slower than quantile {} of recent attempts, after {} to {}; at most {}",
            hedge.delay.quantile,
            hedge.delay.min.write(),
            hedge.delay.max.write(),
            hedge.hedges_max
        )
    })
}

/// Describes the mode of the remedies, unless it is the default.
fn remedy(mode: RemedyMode) -> Option<&'static str> {
    match mode {
        RemedyMode::On => None,
        RemedyMode::Off => Some("off: no hedge and no tie is sent"),
        RemedyMode::DryRun => Some("dry run: hedges are counted, and no hedge and no tie is sent"),
        RemedyMode::Auto => {
            Some("auto: hedges and ties are sent as long as a holdout proves that they help")
        }
    }
}

fn tie(policy: &UpstreamConfig) -> String {
    policy.tie.map_or_else(off, |tie| match tie.delay {
        Some(delay) => format!("the second copy after {}", delay.write()),
        None => "the second copy after two mean message delays".to_owned(),
    })
}

/// Describes a holdout: its share, and the number of requests until it states a percentile.
fn holdout(ratio: Ratio) -> String {
    let until = |quantile| {
        // At one request a second, the time is the number of requests.
        let ns = time_to_state(ratio.get(), 1.0, quantile).as_ns();
        numbers::thousands((ns + 500_000_000) / 1_000_000_000)
    };
    format!(
        "{} of requests; states p99 after {} requests, p99.9 after {}",
        numbers::percent(ratio.get()),
        until(Quantile::P99),
        until(Quantile::P999)
    )
}

/// Describes a switchback: its share, and the time until it can state a percentile.
fn switchback(share: Ratio) -> String {
    let minutes = (time_to_state_by_blocks(share).as_ns() + 30_000_000_000) / 60_000_000_000;
    format!(
        "{} of blocks of {} without hedges and ties; states nothing before {}",
        numbers::percent(share.get()),
        BLOCK.write(),
        Duration::from_secs(60 * minutes).write(),
    )
}

fn retry(policy: &UpstreamConfig) -> String {
    policy.retry.map_or_else(off, |retry| {
        let overdue = retry.overdue.map_or_else(String::new, |overdue| {
            let QuantileDelay { quantile, min, max } = overdue;
            let (min, max) = (min.write(), max.write());
            format!("; overdue when slower than quantile {quantile}, after {min} to {max}")
        });
        format!(
            "at most {}, backoff {} to {}{overdue}",
            retry.retries_max,
            retry.backoff.write(),
            retry.backoff_max.write()
        )
    })
}

fn off() -> String {
    "off".to_owned()
}

/// Describes the maximum number of attempts, for one request and on average.
fn at_worst(policy: &UpstreamConfig) -> String {
    let amplification = policy.amplification();
    let (budget, window) = (policy.budget, policy.budget.window.write());
    let mut text = format!(
        "{} attempts for one request; {:.2} on average over {window}",
        amplification.attempts_max, amplification.average_max
    );
    if policy.retry.is_some() && budget.reserve > 0 {
        let reserve = budget.reserve;
        let ratio = budget.ratio.get();
        // The reserve adds nothing when the ratio allows as much.
        if ratio > 0.0 {
            let enough = (f64::from(reserve) / ratio).ceil();
            text += &format!(", or {reserve} retries if {window} has fewer than {enough} requests");
        } else {
            text += &format!(", and {reserve} retries in {window}");
        }
    }
    text
}
