//! When sources are asked: the lookups of names, and the sessions with all other sources.
//!
//! A lookup or a session ends with a response or a failure; the next one begins when the list of endpoints says so. A
//! reload that removes a source ends its session.

use super::feed::Feed;
use super::{Discovery, Resolver, Response, eds, kubernetes, polled};
use crate::config::{AddressFamilies, DiscoverySource, DnsSource};
use crate::driver::Upstream;
use crate::snapshot::ConfigSnapshot;
use crate::worker::Shared;
use curtail_units::Instant;
use std::sync::Arc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// Maximum time of a lookup: that of many SRV targets at name servers that do not respond.
const LOOKUP_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// Lookups and sessions in progress, at most one for each source.
#[derive(Debug, Default)]
struct Inquiries {
    tasks: JoinSet<()>,
    of: Vec<(Arc<Discovery>, AbortHandle)>,
}

/// Asks the sources of all upstreams when they are due, until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let clock = shared.process_state.clock;
    let mut inquiries = Inquiries::default();
    loop {
        let snapshot = shared.snapshot.load_full();
        let (now, mut next) = (clock.now(), Instant::from_ns(u64::MAX));
        let discoveries: Vec<Arc<Discovery>> =
            snapshot.upstreams.iter().filter_map(|upstream| upstream.discovery()).collect();
        inquiries.end_all_except(&discoveries);
        for discovery in discoveries {
            match discovery.begin_if_due(now) {
                Some(due) => next = next.min(due),
                None => inquiries.begin(&shared, snapshot.resolver.as_ref(), discovery),
            }
        }
        let due = async {
            match clock.deadline(next) {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = inquiries.tasks.join_next_with_id() => inquiries.ended(ended, clock.now()),
            () = shared.discoveries.changed.notified() => {}
            () = due => {}
        }
    }
}

impl Inquiries {
    fn begin(
        &mut self,
        shared: &Arc<Shared>,
        resolver: Option<&Arc<Resolver>>,
        discovery: Arc<Discovery>,
    ) {
        let (shared, of) = (Arc::clone(shared), Arc::clone(&discovery));
        let task = match (&discovery.config.source, resolver) {
            (DiscoverySource::Dns(source), Some(resolver)) => {
                let lookup = (source.clone(), discovery.config.addresses);
                self.tasks.spawn(look_up(shared, Arc::clone(resolver), of, lookup))
            }
            // A snapshot with a name has a resolver.
            (DiscoverySource::Dns(_), None) => return,
            (
                DiscoverySource::Kubernetes(_)
                | DiscoverySource::Eds(_)
                | DiscoverySource::File(_)
                | DiscoverySource::Http(_),
                _,
            ) => self.tasks.spawn(run_session(Feed::new(shared, of))),
        };
        self.of.push((discovery, task));
    }

    fn end_all_except(&mut self, discoveries: &[Arc<Discovery>]) {
        self.of.retain(|(discovery, task)| {
            let is_wanted = discoveries.iter().any(|one| Arc::ptr_eq(one, discovery));
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>, now: Instant) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        let place = self.of.iter().position(|(_, task)| task.id() == id);
        let Some((discovery, _)) = place.map(|place| self.of.swap_remove(place)) else { return };
        if ended.is_err() {
            let source = &discovery.config;
            tracing::error!(%source, "a lookup panicked: discovery goes on later");
            discovery.postpone(now);
        }
    }
}

async fn look_up(
    shared: Arc<Shared>,
    resolver: Arc<Resolver>,
    discovery: Arc<Discovery>,
    (source, families): (DnsSource, AddressFamilies),
) {
    let looked_up = tokio::time::timeout(LOOKUP_MAX, resolver.look_up(&source, families)).await;
    let parts =
        looked_up.unwrap_or_else(|_| Err(format!("no response within {} s", LOOKUP_MAX.as_secs())));
    apply(&shared, &discovery, Response { parts, summary: None, is_last: true });
}

/// A session with a source, from its connection to the first failure.
async fn run_session(mut feed: Feed) {
    let discovery = Arc::clone(feed.discovery());
    let ended = match &discovery.config.source {
        DiscoverySource::Kubernetes(source) => kubernetes::run(source, &mut feed).await,
        DiscoverySource::Eds(source) => eds::run(source, &mut feed).await,
        DiscoverySource::File(source) => polled::run_file(source, &mut feed).await,
        DiscoverySource::Http(source) => polled::run_http(source, &mut feed).await,
        // Names have no sessions.
        DiscoverySource::Dns(_) => return,
    };
    let Err(error) = ended;
    feed.end(error);
}

/// Returns the upstream of a source; [`None`] if a reload has replaced the upstream or its source.
pub(super) fn find_upstream(
    snapshot: &ConfigSnapshot,
    discovery: &Arc<Discovery>,
) -> Option<Arc<Upstream>> {
    let has_it = |upstream: &&Arc<Upstream>| {
        upstream.discovery().is_some_and(|of| Arc::ptr_eq(&of, discovery))
    };
    snapshot.upstreams.iter().find(has_it).cloned()
}

/// Applies a response to the replicas.
pub(super) fn apply(shared: &Shared, discovery: &Arc<Discovery>, response: Response) {
    let _membership = shared.discoveries.lock_membership();
    let snapshot = shared.snapshot.load_full();
    let Some(upstream) = find_upstream(&snapshot, discovery) else { return };
    let now = shared.process_state.clock.now();
    let limits = discovery.limits(&snapshot.config.dns);
    if discovery.take_response(&upstream.name, now, response, &limits) {
        upstream.apply_discovered();
        shared.health_checks.wake();
    }
    discovery.lock().is_applied = true;
    discovery.applied.notify_all();
}
