//! A summary of a correct configuration: listeners, routes, policies, and the maximum number of attempts for a request.
//!
//! Notes name valid settings without effect (a hedge without a second replica), and settings that are expensive if the
//! deployment does not match them (a tie, which is executed twice unless each replica is a leaf). Durations are written as
//! in the file.

use curtail_config::Value as _;
use curtail_load::holdout::time_to_state;
use curtail_load::switchback::{BLOCK, time_to_state as time_to_state_by_blocks};
use curtail_policy::{
    BalanceConfig, QuantileDelay, RemedyMode, RestMode, SAMPLES_MIN, UpstreamConfig,
};
use curtail_proxy::{
    Config, FanOutConfig, HealthCheckConfig, HealthCheckKind, Merge, NamedUpstream, RouteChanges,
    RouteConfig, RouteOverrides,
};
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
        let after = if listener.proxy_protocol.is_some() { ", after a PROXY header" } else { "" };
        writeln!(text, "listener {}: {}, {over}{after}", listener.name, listener.address)?;
    }
    match config.admin {
        Some(address) => writeln!(text, "admin: {address}")?,
        None => writeln!(text, "admin: nowhere, so there are no metrics and no state page")?,
    }
    if let Some(spans) = &config.spans {
        writeln!(text, "spans: to {} as {}", spans.endpoint, spans.service_name)?;
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
        writeln!(text, "access log: to {to}; failed requests{slow}, and {others}")?;
    }
    for leaf in &config.leaves {
        let queue = &leaf.queue;
        writeln!(
            text,
            "leaf {}: {} -> {}, {} at once, {} may wait",
            leaf.name, leaf.address, leaf.server, queue.concurrency, queue.queue_len_max
        )?;
    }
    if !config.trusted_proxies.is_empty() {
        let trusted: Vec<_> = config.trusted_proxies.iter().map(ToString::to_string).collect();
        writeln!(text, "trusted proxies: {}", trusted.join(", "))?;
    }
    for route in &config.routes {
        let calls = route.calls(&config.upstreams);
        let fan_out = route.fan_out.as_ref().map(|fan_out| gathered(fan_out, calls));
        let fan_out = fan_out.unwrap_or_default();
        let redirect = route.changes.redirect.as_ref().map(ToString::to_string);
        let upstream =
            route.upstream.as_ref().map(|upstream| format!("upstream {upstream}{fan_out}"));
        let to: Vec<String> = redirect.into_iter().chain(upstream).collect();
        writeln!(text, "route {} -> {}", condition(route), to.join(", then "))?;
    }
    config.upstreams.iter().enumerate().try_for_each(|(place, upstream)| {
        let mut routes = config.routes.iter();
        let is_used = routes.any(|route| route.shards(&config.upstreams).any(|one| one == place));
        write_upstream(text, upstream, is_used)
    })
}

/// The condition of a route.
fn condition(route: &RouteConfig) -> String {
    let host = route.host.as_deref().unwrap_or("any host,");
    let twice = if route.idempotent { " (any method may be sent twice)" } else { "" };
    let timeout = route.timeout.map(|timeout| format!(" (timeout {})", timeout.write()));
    let timeout = timeout.unwrap_or_default();
    let (overrides, changes) = (overrides(&route.overrides), changes(&route.changes));
    let prefix = &route.path_prefix;
    // A prefix without a trailing slash is a path as well.
    let below = if prefix.ends_with('/') { String::new() } else { format!(" and {prefix}/...") };
    format!("{host} {prefix}{below}{twice}{timeout}{overrides}{changes}")
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
    writeln!(text, "\nupstream {}: {}", upstream.name, replicas.join(", and "))?;
    let policy = &upstream.policy;
    writeln!(text, "  balance    {}", balance(policy.balance))?;
    writeln!(text, "  hedge      {}", hedge(policy))?;
    writeln!(text, "  tie        {}", tie(policy))?;
    writeln!(text, "  retry      {}", retry(policy))?;
    writeln!(text, "  timeout    {}", policy.timeout.write())?;
    if let Some(check) = &upstream.health_check {
        writeln!(text, "  health     {}", health_check(check))?;
    }
    if let Some(slow_start) = policy.slow_start {
        writeln!(text, "  slow start {}", slow_start.write())?;
    }
    if let Some(remedy) = remedy(policy.remedy) {
        writeln!(text, "  remedy     {remedy}")?;
    }
    if let Some(ratio) = upstream.holdout {
        writeln!(text, "  holdout    {}", holdout(ratio))?;
    }
    if let Some(share) = upstream.switchback {
        writeln!(text, "  switchback {}", switchback(share))?;
    }
    writeln!(text, "  at worst   {}", at_worst(policy))?;
    let has_one = upstream.replicas.len() == 1 && upstream.discovery.is_none();
    let mut notes = notes(policy, has_one, is_used);
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
    notes.iter().try_for_each(|note| writeln!(text, "  note: {note}"))
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

fn notes(policy: &UpstreamConfig, has_one_replica: bool, is_used: bool) -> Vec<String> {
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
fn rounded(percent: f64) -> f64 {
    (1_000.0 * percent).round() / 1_000.0
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
            let more = format!(
                ",\n            or {reserve} retries if {window} has fewer than {enough} requests"
            );
            text += &more;
        } else {
            text += &format!(",\n            and {reserve} retries in {window}");
        }
    }
    text
}
