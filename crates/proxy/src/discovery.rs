//! Discovery: replicas that join and leave as a source says, instead of a file.
//!
//! A source gives a list of endpoints, the addresses of servers: [`endpoint_list`] is what every source feeds, and the
//! upstream turns the list into replicas (`driver/membership.rs`). The one source so far is [`dns`]. Another one (a file, an
//! API of endpoints) needs a variant in [`DiscoveryConfig`], and [`look_up`] must ask it.
//!
//! One thread asks all sources, for all workers. No request waits for a source: it finds the replicas that are known, and
//! fails with `no_replica` if there are none.
//! **Invariant**: replicas change under one lock ([`Discoveries::lock_membership`]): by a reload, from its first look at
//! them to its last change, and by discovery. Neither undoes the other.

mod dns;
mod endpoint_list;

pub(crate) use dns::Resolver;
pub(crate) use endpoint_list::LookupResult;

use crate::StartError;
use crate::config::{DiscoveryConfig, DnsConfig};
use crate::driver::Upstream;
use crate::worker::Shared;
use curtail_metrics::{CounterVec, Counts};
use curtail_units::{Duration, Instant, Rng};
use endpoint_list::{EndpointList, SourceResponse};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Maximum time for which a start waits for the first responses of the sources.
const FIRST_RESPONSE_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// Maximum time of a lookup: that of many SRV targets at name servers that do not respond.
const LOOKUP_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// A failure is logged when it is the first in a row, and again after this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of addresses in a line of the log.
const LOGGED_MAX: usize = 10;

curtail_metrics::counters! {
    pub(crate) DiscoveryMetrics, DiscoveryCounts {
        lookups: CounterVec<LookupResult>,
    }
}

/// What all sources share.
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
}

#[derive(Debug)]
struct State {
    list: EndpointList,
    rng: Rng,
    is_looking_up: bool,
    /// Whether a reload came during the lookup, so that its response may be that of other name servers.
    is_outdated: bool,
    /// Whether a response or a failure has been applied to the replicas.
    is_applied: bool,
    /// The last lookup with a response.
    last_success: Option<Instant>,
    last_result: Option<LookupResult>,
    last_error: Option<String>,
    last_logged: Option<Instant>,
}

/// The state of a discovery, for metrics and `/state`.
#[derive(Clone, Debug)]
pub(crate) struct DiscoverySnapshot {
    pub(crate) source: String,
    pub(crate) lookups: Counts,
    /// Absent: no lookup has had a response.
    pub(crate) last_success_age: Option<Duration>,
    pub(crate) next_lookup_in: Duration,
    pub(crate) last_error: Option<String>,
    /// The endpoints, and how long their responses are valid; [`None`]: they have expired.
    pub(crate) endpoints: Vec<(SocketAddr, Option<Duration>)>,
}

impl Discovery {
    pub(crate) fn new(config: &DiscoveryConfig, now: Instant, rng: &Rng) -> Self {
        Self {
            config: config.clone(),
            state: Mutex::new(State {
                list: EndpointList::new(now),
                rng: rng.split("discovery"),
                is_looking_up: false,
                is_outdated: false,
                is_applied: false,
                last_success: None,
                last_result: None,
                last_error: None,
                last_logged: None,
            }),
            applied: Condvar::new(),
            metrics: DiscoveryMetrics::default(),
        }
    }

    /// The endpoints, sorted; [`None`]: the source has not responded yet, and the previous replicas stay.
    pub(crate) fn endpoints(&self) -> Option<Vec<SocketAddr>> {
        self.lock().list.endpoints().map(<[_]>::to_vec)
    }

    /// Looks up again at once: a reload may have changed the name servers.
    pub(crate) fn make_due(&self, now: Instant) {
        let mut state = self.lock();
        state.is_outdated = state.is_looking_up;
        state.list.make_due(now);
    }

    pub(crate) fn read(&self, now: Instant) -> DiscoverySnapshot {
        let state = self.lock();
        DiscoverySnapshot {
            source: self.config.to_string(),
            lookups: self.metrics.read().lookups,
            last_success_age: state.last_success.map(|at| now.since(at)),
            next_lookup_in: state.list.due().since(now),
            last_error: state.last_error.clone(),
            endpoints: state.list.with_validity(now),
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
        state.list.postpone(now);
    }

    /// Takes the response of a lookup; returns whether the endpoints have changed.
    fn take_response(
        &self,
        upstream: &str,
        now: Instant,
        response: SourceResponse,
        config: &DnsConfig,
    ) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.is_looking_up = false;
        if std::mem::take(&mut state.is_outdated) {
            return false;
        }
        let parts =
            response.as_ref().map(|parts| parts.iter().find_map(|(_, part)| part.as_ref().err()));
        state.last_error = parts.unwrap_or_else(Some).cloned();
        let before = state.list.endpoints().map(<[_]>::to_vec);
        let result = state.list.take_response(now, response, config, &mut state.rng);
        if result == LookupResult::Empty {
            state.last_error = Some("the name does not exist or has no records".to_owned());
        }
        self.metrics.lookups.add(&result, 1);
        if result != LookupResult::Failed {
            state.last_success = Some(now);
        }
        state.log(upstream, &self.config, now, result);
        state.last_result = Some(result);
        let after = state.list.endpoints();
        let is_changed = after != before.as_deref();
        if is_changed {
            log_change(upstream, &before.unwrap_or_default(), after.unwrap_or_default());
        }
        is_changed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The list never blocks, and does not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiscoverySnapshot {
    pub(crate) fn to_json(&self) -> Value {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let endpoint = |(address, valid_for): &(SocketAddr, Option<Duration>)| {
            let (valid_for, stale) = (valid_for.map(seconds), valid_for.is_none());
            json!({ "address": address, "valid_for_s": valid_for, "stale": stale })
        };
        json!({
            "source": self.source,
            "last_success_age_s": self.last_success_age.map(seconds),
            "next_lookup_in_s": seconds(self.next_lookup_in),
            "error": self.last_error,
            "endpoints": self.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        })
    }
}

impl State {
    /// Logs that lookups fail or succeed again, and names without records: each change at once, and again each
    /// [`LOG_INTERVAL`] while it lasts.
    fn log(
        &mut self,
        upstream: &str,
        source: &DiscoveryConfig,
        now: Instant,
        result: LookupResult,
    ) {
        let is_new = self.last_result != Some(result);
        let is_repeated = self.last_logged.is_none_or(|at| now >= at + LOG_INTERVAL);
        if result == LookupResult::Found {
            if is_new && self.last_result.is_some() {
                tracing::info!(upstream, %source, "discovery succeeds again");
            }
            return;
        }
        if !is_new && !is_repeated {
            return;
        }
        self.last_logged = Some(now);
        let error = self.last_error.as_deref().unwrap_or_default();
        let replicas = self.list.endpoints().map_or(0, <[_]>::len);
        let what = match result {
            LookupResult::Partial => "a part of discovery failed; its replicas stay",
            LookupResult::Empty if replicas > 0 => {
                "discovery has no replicas; the last ones leave after dns.empty_max"
            }
            LookupResult::Failed | LookupResult::Found if replicas > 0 => {
                "discovery failed; its last replicas stay"
            }
            LookupResult::Failed | LookupResult::Found | LookupResult::Empty => {
                "discovery failed; there are no replicas"
            }
        };
        tracing::warn!(upstream, %source, replicas, error, "{what}");
    }
}

fn log_change(upstream: &str, before: &[SocketAddr], after: &[SocketAddr]) {
    let names = |one: &[SocketAddr], other: &[SocketAddr]| {
        let only = one.iter().filter(|at| other.binary_search(at).is_err());
        let mut names: Vec<String> = only.map(ToString::to_string).collect();
        if names.len() > LOGGED_MAX {
            let more = names.len() - LOGGED_MAX;
            names.truncate(LOGGED_MAX);
            names.push(format!("{more} more"));
        }
        names.join(", ")
    };
    let (joined, left) = (names(after, before), names(before, after));
    tracing::info!(upstream, joined, left, replicas = after.len(), "discovered replicas changed");
}

/// Asks the sources of all upstreams when they are due, until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let clock = shared.process_state.clock;
    let mut lookups = JoinSet::new();
    loop {
        let snapshot = shared.snapshot.load_full();
        let (now, mut next) = (clock.now(), Instant::from_ns(u64::MAX));
        let discoveries = snapshot.upstreams.iter().filter_map(|upstream| upstream.discovery());
        for discovery in discoveries {
            match (discovery.begin_if_due(now), &snapshot.resolver) {
                (Some(due), _) => next = next.min(due),
                (None, Some(resolver)) => {
                    lookups.spawn(look_up(Arc::clone(&shared), Arc::clone(resolver), discovery));
                }
                (None, None) => {}
            }
        }
        let due = async {
            match clock.deadline(next) {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = lookups.join_next() => if ended.is_err() {
                tracing::error!("a lookup panicked: discovery goes on later");
                let discoveries = snapshot.upstreams.iter().filter_map(|upstream| upstream.discovery());
                discoveries.for_each(|discovery| discovery.postpone(clock.now()));
            },
            () = shared.discoveries.changed.notified() => {}
            () = due => {}
        }
    }
}

async fn look_up(shared: Arc<Shared>, resolver: Arc<Resolver>, discovery: Arc<Discovery>) {
    let looked_up = tokio::time::timeout(LOOKUP_MAX, resolver.look_up(&discovery.config)).await;
    let response =
        looked_up.unwrap_or_else(|_| Err(format!("no response within {} s", LOOKUP_MAX.as_secs())));
    let _membership = shared.discoveries.lock_membership();
    // A reload may have replaced the upstream, or its source.
    let snapshot = shared.snapshot.load_full();
    let has_it = |upstream: &&Arc<Upstream>| {
        upstream.discovery().is_some_and(|of| Arc::ptr_eq(&of, &discovery))
    };
    let Some(upstream) = snapshot.upstreams.iter().find(has_it) else { return };
    let now = shared.process_state.clock.now();
    if discovery.take_response(&upstream.name, now, response, &snapshot.config.dns) {
        upstream.apply_discovered();
        shared.health_checks.wake();
    }
    discovery.lock().is_applied = true;
    discovery.applied.notify_all();
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
            return Err(StartError::Discovery { upstream: upstream.name.clone(), error });
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
