//! Discovery: replicas that join and leave as a source says, instead of a file.
//!
//! A source gives a list of endpoints, the addresses of servers: [`endpoint_list`] is what every source feeds, and the
//! upstream turns the list into replicas (`driver/membership.rs`).
//!
//! | source | how the proxy asks |
//! |---|---|
//! | [`dns`] | a lookup whenever the last response expires |
//! | [`kubernetes`], [`eds`] | a session: a connection on which the server reports changes ([`feed`]) |
//! | [`polled`]: a file, a URL | a session that looks for changes again and again |
//!
//! [`schedule`] begins lookups and sessions, on one thread for all workers. No request waits for a source: it finds the
//! replicas that are known, and fails with `no_replica` if there are none.
//! **Invariant**: replicas change under one lock ([`Discoveries::lock_membership`]): by a reload, from its first look at
//! them to its last change, and by discovery. Neither undoes the other.

mod control_plane;
mod dns;
mod eds;
mod endpoint_list;
mod feed;
mod kubernetes;
mod polled;
mod schedule;

pub(crate) use dns::Resolver;
pub(crate) use endpoint_list::{Endpoint, LookupResult, Validity};
pub(crate) use schedule::run;

use crate::StartError;
use crate::config::{DiscoveryConfig, DiscoverySource, DnsConfig};
use crate::driver::Upstream;
use control_plane::FileReader;
use curtail_metrics::{CounterVec, Counts};
use curtail_units::{Duration, Instant, Rng};
use endpoint_list::{EndpointList, ListLimits, SourceResponse};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Maximum time for which a start waits for the first responses of the sources.
const FIRST_RESPONSE_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// A failure is logged when it is the first in a row, and again after this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of addresses in a line of the log.
const LOGGED_MAX: usize = 10;

curtail_metrics::counters! {
    pub(crate) DiscoveryMetrics, DiscoveryCounts {
        lookups: CounterVec<LookupResult>,
    }
}

/// The state that all sources share.
#[derive(Debug, Default)]
pub(crate) struct Discoveries {
    membership: Mutex<()>,
    /// Notified when a reload may have changed the sources.
    changed: Notify,
}

impl Discoveries {
    /// Holds the replicas of all upstreams as they are.
    pub(crate) fn lock_membership(&self) -> MutexGuard<'_, ()> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }
}

/// The source of one upstream's replicas, and what it last said.
#[derive(Debug)]
pub(crate) struct Discovery {
    pub(crate) config: DiscoveryConfig,
    state: Mutex<State>,
    /// Notified when the first response has been applied.
    applied: Condvar,
    metrics: DiscoveryMetrics,
    files: FileReader,
}

#[derive(Debug)]
struct State {
    list: EndpointList,
    rng: Rng,
    /// Whether a lookup or a session is in progress.
    is_looking_up: bool,
    /// Whether the session has a server that reports changes.
    is_connected: bool,
    /// Whether a reload came during the lookup, so that its response may be that of other name servers.
    is_outdated: bool,
    /// Whether a response or a failure has been applied to the replicas.
    is_applied: bool,
    /// The last response: that of a lookup, or a message of a session.
    last_success: Option<Instant>,
    /// What the last response has, in words.
    summary: Option<String>,
    last_result: Option<LookupResult>,
    last_error: Option<String>,
    last_logged: Option<Instant>,
    /// The error of the last warning in the log.
    logged_error: Option<String>,
    /// Whether the log has the present failure.
    is_failure_logged: bool,
}

/// A response of a source.
#[derive(Debug)]
struct Response {
    parts: SourceResponse,
    /// What the response has, in words; absent: unknown, or a lookup.
    summary: Option<String>,
    /// Whether the lookup or the session ends with it.
    is_last: bool,
}

/// The state of a discovery, for metrics and `/state`.
#[derive(Clone, Debug)]
pub(crate) struct DiscoverySnapshot {
    pub(crate) source: String,
    pub(crate) lookups: Counts,
    /// Absent: there has been no response.
    pub(crate) last_success_age: Option<Duration>,
    /// Whether a server reports changes; absent: the source is asked by lookups, or read again and again.
    pub(crate) is_connected: Option<bool>,
    /// Whether a session has had a response, and continues: no lookup is planned.
    pub(crate) is_read: bool,
    /// What the last response had, in words.
    pub(crate) summary: Option<String>,
    /// Whether the last response was a failure.
    pub(crate) has_failed: bool,
    pub(crate) next_lookup_in: Duration,
    pub(crate) last_error: Option<String>,
    pub(crate) endpoints: Vec<(SocketAddr, Validity)>,
}

impl Discovery {
    pub(crate) fn new(config: &DiscoveryConfig, now: Instant, rng: &Rng) -> Self {
        Self {
            config: config.clone(),
            state: Mutex::new(State {
                list: EndpointList::new(now),
                rng: rng.split("discovery"),
                is_looking_up: false,
                is_connected: false,
                is_outdated: false,
                is_applied: false,
                last_success: None,
                summary: None,
                last_result: None,
                last_error: None,
                last_logged: None,
                logged_error: None,
                is_failure_logged: false,
            }),
            applied: Condvar::new(),
            metrics: DiscoveryMetrics::default(),
            files: FileReader::default(),
        }
    }

    /// The endpoints, sorted; [`None`]: the source has not responded yet, and the previous replicas stay.
    pub(crate) fn endpoints(&self) -> Option<Vec<Endpoint>> {
        self.lock().list.endpoints().map(<[_]>::to_vec)
    }

    /// Looks up again at once: a reload may have changed the name servers. A session goes on.
    pub(crate) fn make_due(&self, now: Instant) {
        let mut state = self.lock();
        state.is_outdated = state.is_looking_up && !self.has_session();
        state.list.make_due(now);
    }

    pub(crate) fn read(&self, now: Instant) -> DiscoverySnapshot {
        let state = self.lock();
        DiscoverySnapshot {
            source: self.config.to_string(),
            lookups: self.metrics.read().lookups,
            last_success_age: state.last_success.map(|at| now.since(at)),
            is_connected: self.config.source.has_server().then_some(state.is_connected),
            is_read: self.has_session() && state.is_connected,
            summary: state.summary.clone(),
            has_failed: state.last_result == Some(LookupResult::Failed),
            next_lookup_in: state.list.due().since(now),
            last_error: state.last_error.clone(),
            endpoints: state.list.with_validity(now),
        }
    }

    /// Whether the source is asked by a session, and not by lookups.
    const fn has_session(&self) -> bool {
        !matches!(self.config.source, DiscoverySource::Dns(_))
    }

    fn limits(&self, dns: &DnsConfig) -> ListLimits {
        ListLimits {
            refresh_min: dns.refresh_min,
            refresh_max: dns.refresh_max,
            stale_max: self.config.stale_max.unwrap_or(dns.stale_max),
            empty_max: self.config.empty_max.unwrap_or(dns.empty_max),
        }
    }

    /// Waits until the first lookup has ended, and its response has been applied.
    fn wait_for_response(&self, deadline: std::time::Instant) {
        let timeout = deadline.saturating_duration_since(std::time::Instant::now());
        let is_waiting = |state: &mut State| !state.is_applied;
        let waited = self.applied.wait_timeout_while(self.lock(), timeout, is_waiting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Begins a lookup if one is due; otherwise returns when it is.
    fn begin_if_due(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        if state.is_looking_up {
            return Some(Instant::from_ns(u64::MAX));
        }
        state.is_looking_up = state.list.due() <= now;
        (!state.is_looking_up).then(|| state.list.due())
    }

    /// Looks up later, after a lookup that ended without a result: it may be that of another upstream.
    fn postpone(&self, now: Instant) {
        let mut state = self.lock();
        state.is_looking_up = false;
        state.is_connected = false;
        state.list.postpone(now);
    }

    /// The source is connected, and what it last said is still so.
    fn confirm(&self, now: Instant) {
        let mut state = self.lock();
        if !state.is_connected {
            // The session has had no response that can be used.
            return;
        }
        state.list.confirm(now);
        if state.last_result != Some(LookupResult::Failed) {
            state.last_success = Some(now);
        }
    }

    /// Takes a response; returns whether the endpoints have changed.
    fn take_response(
        &self,
        upstream: &str,
        now: Instant,
        response: Response,
        limits: &ListLimits,
    ) -> bool {
        let Response { parts: response, summary, is_last } = response;
        let mut guard = self.lock();
        let state = &mut *guard;
        state.is_looking_up = !is_last;
        state.is_connected = !is_last && (state.is_connected || response.is_ok());
        if std::mem::take(&mut state.is_outdated) {
            return false;
        }
        let parts =
            response.as_ref().map(|parts| parts.iter().find_map(|(_, part)| part.as_ref().err()));
        state.last_error = parts.unwrap_or_else(Some).cloned();
        let before = state.list.endpoints().map(<[_]>::to_vec);
        let failures = state.list.failures_in_row();
        let result = state.list.take_response(now, response, limits, &mut state.rng);
        if !is_last {
            // Only the end of a session decides how soon the next one begins.
            state.list.set_failures_in_row(failures);
        }
        if result == LookupResult::Empty {
            state.last_error = Some(match &summary {
                Some(summary) => format!("no endpoints: {summary}"),
                None => "the name does not exist or has no records".to_owned(),
            });
        }
        state.summary = summary.or(state.summary.take());
        self.metrics.lookups.add(&result, 1);
        state.log(upstream, &self.config, now, result);
        if result != LookupResult::Failed {
            state.last_success = Some(now);
        }
        state.last_result = Some(result);
        let after = state.list.endpoints();
        let is_changed = after != before.as_deref();
        // A source that has none at first is a change, but no replica has changed.
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        if before != after {
            log_change(upstream, &before, after);
        }
        is_changed
    }

    /// When the last endpoints leave, if the source has said that it has none and still does.
    fn empty_end(&self, limits: &ListLimits) -> Option<Instant> {
        let state = self.lock();
        let is_empty = state.last_result == Some(LookupResult::Empty);
        state.list.empty_end(limits).filter(|_| is_empty)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The list never blocks, and does not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiscoverySnapshot {
    /// The age of the endpoints: 0 while a server reports changes, and the proxy can use what it said.
    pub(crate) fn endpoints_age(&self) -> Option<Duration> {
        let is_current = self.is_read && !self.has_failed;
        self.last_success_age.map(|age| if is_current { Duration::ZERO } else { age })
    }

    pub(crate) fn to_json(&self) -> Value {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let endpoint = |(address, validity): &(SocketAddr, Validity)| {
            let valid_for = match validity {
                Validity::For(time) => Some(seconds(*time)),
                Validity::Expired | Validity::UntilFailure => None,
            };
            let is_stale = *validity == Validity::Expired;
            json!({ "address": address, "valid_for_s": valid_for, "stale": is_stale })
        };
        let next_lookup = (!self.is_read).then_some(self.next_lookup_in);
        json!({
            "source": self.source,
            "last_success_age_s": self.last_success_age.map(seconds),
            "connected": self.is_connected,
            "summary": self.summary,
            "next_lookup_in_s": next_lookup.map(seconds),
            "error": self.last_error,
            "endpoints": self.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        })
    }
}

impl State {
    /// Logs that lookups fail or succeed again, and names without records: each change at once, and again each
    /// [`LOG_INTERVAL`] while it lasts. A source that fails and recovers in turns has one warning in this time.
    fn log(
        &mut self,
        upstream: &str,
        source: &DiscoveryConfig,
        now: Instant,
        result: LookupResult,
    ) {
        // A list that is mended step by step has another error after each step.
        let is_other_error = source.source.is_polled() && self.logged_error != self.last_error;
        let is_new = self.last_result != Some(result) || is_other_error;
        let is_repeated = self.last_logged.is_none_or(|at| now >= at + LOG_INTERVAL);
        if result == LookupResult::Found {
            if std::mem::take(&mut self.is_failure_logged) {
                let what = match self.last_success {
                    Some(_) => "discovery succeeds again",
                    None => "discovery succeeds",
                };
                let replicas = self.list.endpoints().map_or(0, <[_]>::len);
                tracing::info!(upstream, %source, replicas, "{what}");
            }
            return;
        }
        let is_in_turns = !self.is_failure_logged && self.logged_error == self.last_error;
        if !is_repeated && (!is_new || is_in_turns) {
            return;
        }
        self.is_failure_logged = true;
        self.last_logged = Some(now);
        self.logged_error.clone_from(&self.last_error);
        let error = self.last_error.as_deref().unwrap_or_default();
        let replicas = self.list.endpoints().map_or(0, <[_]>::len);
        let what = match result {
            LookupResult::Partial => "a part of discovery failed; its replicas stay",
            LookupResult::Empty if replicas > 0 => {
                "discovery found no replicas; the last ones leave after empty_max"
            }
            LookupResult::Failed | LookupResult::Found if replicas > 0 => {
                "discovery failed; its last replicas stay"
            }
            LookupResult::Empty => "discovery found nothing; there are no replicas",
            LookupResult::Failed | LookupResult::Found => "discovery failed; there are no replicas",
        };
        tracing::warn!(upstream, %source, replicas, error, "{what}");
    }
}

fn log_change(upstream: &str, before: &[Endpoint], after: &[Endpoint]) {
    let names = |one: &[Endpoint], other: &[Endpoint]| {
        let is_in_other =
            |at: &SocketAddr| other.binary_search_by_key(at, |one| one.address).is_ok();
        let only = one.iter().map(|one| one.address).filter(|at| !is_in_other(at));
        let mut names: Vec<String> = only.map(|at| at.to_string()).collect();
        if names.len() > LOGGED_MAX {
            let more = names.len() - LOGGED_MAX;
            names.truncate(LOGGED_MAX);
            names.push(format!("{more} more"));
        }
        names.join(", ")
    };
    let (joined, left) = (names(after, before), names(before, after));
    if joined.is_empty() && left.is_empty() {
        tracing::info!(
            upstream,
            replicas = after.len(),
            "weights or zones of discovered replicas changed"
        );
        return;
    }
    let replicas = after.len();
    if replicas == 0 {
        tracing::warn!(upstream, left, replicas, "the last discovered replica has left");
    } else {
        tracing::info!(upstream, joined, left, replicas, "discovered replicas changed");
    }
}

/// Whether a server can have this address. Filters of DNS respond `0.0.0.0` for blocked names, which is this machine.
fn is_of_server(endpoint: &SocketAddr) -> bool {
    let ip = endpoint.ip().to_canonical();
    let is_broadcast = ip == Ipv4Addr::BROADCAST;
    endpoint.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}

/// Finds a source that has not responded.
///
/// # Errors
/// When there is one: a process that has its replicas must not be replaced by this one.
pub(crate) fn check_responses(upstreams: &[Arc<Upstream>]) -> Result<(), StartError> {
    for upstream in upstreams {
        let Some(discovery) = upstream.discovery() else { continue };
        let state = discovery.lock();
        if state.last_success.is_none() {
            let error = state.last_error.clone().unwrap_or_else(|| "no response yet".to_owned());
            let origin = discovery.config.to_string();
            let key = format!("upstreams.{}.discovery", upstream.name);
            return Err(StartError::Discovery { origin, error }.within(key));
        }
    }
    Ok(())
}

/// Waits until the source of each upstream has responded or failed once, so that a proxy does not begin with errors.
pub(crate) fn wait_for_responses(upstreams: &[Arc<Upstream>]) {
    let deadline = std::time::Instant::now() + FIRST_RESPONSE_MAX;
    let discoveries = upstreams.iter().filter_map(|upstream| upstream.discovery());
    discoveries.for_each(|discovery| discovery.wait_for_response(deadline));
}

#[cfg(test)]
pub(crate) mod tests;
