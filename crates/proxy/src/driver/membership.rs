//! Replicas that join, leave and move: a reload changes an upstream's list, or discovery does.
//!
//! A replica of the new list is a replica of the old list if both have the same name, or, without names, the same URL; a
//! discovered replica has the URL of its address. The replica keeps its number, so the machine keeps its latencies and
//! failures. If its URL or `connect` changes, it gets new connections, and attempts in flight end on the old ones.

use super::{Effects, Upstream};
use crate::StartError;
use crate::config::{NamedUpstream, ReplicaConfig, load_trust};
use crate::discovery::{Discovery, Endpoint};
use crate::replica::{Replica, ReplicaPlacement, Replicas};
use crate::worker::Worker;
use curtail_http::connect::Connector;
use curtail_http::pool::Pool;
use curtail_http::tls::Trust;
use curtail_policy::journal::Entry;
use curtail_policy::{REPLICAS_MAX, ReplicaId, UpstreamEvent};
use curtail_units::Instant;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, Weak};

/// The inputs from which the replicas of an upstream follow.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) config: Arc<NamedUpstream>,
    trust: Trust,
    pub(super) discovery: Option<Arc<Discovery>>,
}

/// The replicas of a configuration or of a response of discovery, which are not applied yet.
#[derive(Debug)]
pub(crate) struct Membership {
    /// Each replica with its new placement.
    pub(super) replicas: Vec<(Arc<Replica>, ReplicaPlacement)>,
    pub(super) sources: Arc<Sources>,
}

impl Sources {
    /// # Errors
    /// When trusted certificates cannot be read, or the name of discovered replicas cannot be a TLS server name.
    fn new(
        config: &NamedUpstream,
        discovery: Option<Arc<Discovery>>,
        carried: &[ReplicaConfig],
    ) -> Result<Arc<Self>, StartError> {
        let urls = config.urls();
        let carried = carried.iter().map(|replica| &replica.url);
        let trust = load_trust(&config.connect, urls.iter().chain(carried))?;
        if let Some(discovery) = &config.discovery {
            Connector::new(&discovery.server_url(), &config.connect, &trust)?;
        }
        Ok(Arc::new(Self { config: Arc::new(config.clone()), trust, discovery }))
    }

    /// The replicas of `old` that stay until `discovery` has had a response: all, if it is a new source; otherwise, those
    /// that the file did not list.
    fn carried(&self, old: &Replicas, discovery: Option<&Arc<Discovery>>) -> Vec<ReplicaConfig> {
        let is_same = discovery.map(Arc::as_ptr) == self.discovery.as_ref().map(Arc::as_ptr);
        let listed: HashSet<String> = match is_same {
            true => self.config.replicas.iter().map(ReplicaConfig::identity).collect(),
            false => HashSet::new(),
        };
        let old = old.values().filter(|one| !listed.contains(&one.config.identity()));
        old.map(|replica| replica.present_config()).collect()
    }

    /// The replicas of the file, and those that are discovered, or `carried` until discovery has had a response.
    fn replicas(&self, carried: Vec<ReplicaConfig>) -> Vec<ReplicaConfig> {
        let mut wanted = self.config.replicas.clone();
        let mut known: HashSet<String> = wanted.iter().map(ReplicaConfig::identity).collect();
        let discovered: Vec<ReplicaConfig> = match &self.discovery {
            None => Vec::new(),
            Some(discovery) => match discovery.endpoints() {
                None => carried,
                Some(endpoints) => {
                    let config = &discovery.config;
                    let at = |one: Endpoint| config.replica_at(one.address, one.placement);
                    endpoints.into_iter().map(at).collect()
                }
            },
        };
        wanted.extend(discovered.into_iter().filter(|one| known.insert(one.identity())));
        if wanted.len() > REPLICAS_MAX {
            let (upstream, count) = (&self.config.name, wanted.len());
            tracing::warn!(%upstream, count, "discovery finds too many replicas; the first {REPLICAS_MAX} are used");
            wanted.truncate(REPLICAS_MAX);
        }
        wanted
    }
}

impl Membership {
    /// Builds the replicas of `config`; those of `old` that are reached in the same way stay. `carried` are replicas until
    /// discovery has had a response.
    ///
    /// # Errors
    /// When trusted certificates cannot be read, or a TLS configuration cannot be used.
    pub(super) fn new(
        config: &NamedUpstream,
        workers: usize,
        old: &Replicas,
        (discovery, carried): (Option<Arc<Discovery>>, Vec<ReplicaConfig>),
    ) -> Result<Self, StartError> {
        let sources = Sources::new(config, discovery, &carried)?;
        Self::of(sources, workers, old, carried)
    }

    fn of(
        sources: Arc<Sources>,
        workers: usize,
        old: &Replicas,
        carried: Vec<ReplicaConfig>,
    ) -> Result<Self, StartError> {
        let Sources { config, trust, .. } = &*sources;
        let connect = &config.connect;
        let wanted = sources.replicas(carried);
        let old: HashMap<String, &Arc<Replica>> =
            old.values().map(|replica| (replica.config.identity(), replica)).collect();
        let replicas = wanted.iter().map(|wanted| {
            let kept = old.get(&wanted.identity());
            let replica = match kept.filter(|kept| kept.is_reached_by(wanted, connect)) {
                Some(kept) => Arc::clone(kept),
                None => Replica::new(&config.name, wanted, connect, trust, workers)?.into(),
            };
            let side = wanted.placement.side(config.zone.as_deref());
            Ok((replica, ReplicaPlacement { placement: wanted.placement.clone(), side }))
        });
        let replicas = replicas.collect::<Result<_, StartError>>()?;
        Ok(Self { replicas, sources })
    }
}

impl Upstream {
    /// Prepares the replicas of a new configuration. The caller applies one at a time, under the lock of membership.
    ///
    /// # Errors
    /// When a file cannot be read or used; nothing has changed then.
    pub(crate) fn prepare(
        &self,
        config: &NamedUpstream,
        discovery: Option<Arc<Discovery>>,
    ) -> Result<Membership, StartError> {
        let carried = self.carried(discovery.as_ref());
        Membership::new(config, self.workers, &self.replicas.load(), (discovery, carried))
    }

    /// The replicas that stay until `discovery` has had a response.
    pub(crate) fn carried(&self, discovery: Option<&Arc<Discovery>>) -> Vec<ReplicaConfig> {
        self.sources.load().carried(&self.replicas.load(), discovery)
    }

    /// The source of replicas that are not in the file.
    pub(crate) fn discovery(&self) -> Option<Arc<Discovery>> {
        self.sources.load().discovery.clone()
    }

    /// Applies the endpoints of discovery. The caller holds the lock of membership.
    pub(crate) fn apply_discovered(&self) {
        let sources = self.sources.load_full();
        let carried = self.carried(sources.discovery.as_ref());
        match Membership::of(sources, self.workers, &self.replicas.load(), carried) {
            Ok(membership) => self.apply(membership),
            // A start and a reload have tried the name.
            Err(error) => {
                tracing::error!(upstream = self.name, %error, "discovered replicas cannot be used")
            }
        }
    }

    /// Replaces the replicas: each leave and join is an event of the machine, before any request can be sent there.
    pub(crate) fn apply(&self, membership: Membership) {
        let Membership { replicas: wanted, sources } = membership;
        if !Arc::ptr_eq(&sources, &self.sources.load()) {
            wanted.iter().for_each(|(replica, _)| replica.replace_trust(&sources.trust));
        }
        self.in_flight_limit.set(sources.config.in_flight_max);
        self.sources.store(sources);
        let old = self.replicas.load_full();
        let ids: HashMap<String, ReplicaId> =
            old.iter().map(|(id, replica)| (replica.config.identity(), id)).collect();
        let mut root = self.lock();
        let mut group = self.lock_group();
        let mut replicas = Replicas::default();
        let mut joined = HashMap::new();
        for (replica, placement) in wanted {
            replica.present_placement.store(placement.into());
            let name = replica.config.identity();
            let id = ids.get(&name).copied().unwrap_or_else(|| {
                let id = root.next_replica_id();
                joined.insert(id, name);
                id
            });
            replicas.insert(id, replica);
        }
        let replicas = Arc::new(replicas);
        // Stored under the lock of the machine, so that requests find every replica that the machine knows.
        self.replicas.store(Arc::clone(&replicas));
        self.retire(&old, &replicas);
        let left = old.ids().filter(|id| replicas.get(*id).is_none());
        let left = left.map(|replica| UpstreamEvent::ReplicaLeft { replica });
        let joins = replicas.ids().filter(|id| joined.contains_key(id));
        let joins = joins.map(|replica| UpstreamEvent::ReplicaJoined { replica });
        let health = self.health_events(&root, &old, &replicas);
        let generation = root.generation;
        for event in left.chain(joins).chain(health) {
            if let UpstreamEvent::ReplicaJoined { replica } = event
                && let Some((journal, machine)) = &root.journal
            {
                let name = joined[&replica].clone();
                journal.write(&Entry::<()>::Replica { machine: *machine, replica, name });
            }
            // No rule decides anything at this event.
            self.handle_locked(&mut root, &mut group, event, &mut Effects::new());
            if root.generation != generation {
                // A fresh machine begins with the new replicas.
                return;
            }
        }
        for event in root.placement_events(&replicas) {
            self.handle_locked(&mut root, &mut group, event, &mut Effects::new());
            if root.generation != generation {
                return;
            }
        }
    }

    fn retire(&self, old: &Replicas, new: &Replicas) {
        let is_kept = |id, replica| new.get(id).is_some_and(|kept| Arc::ptr_eq(kept, replica));
        let gone = old.iter().filter(|(id, replica)| !is_kept(*id, replica));
        let pools = gone.flat_map(|(_, replica)| replica.pools().iter().enumerate());
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.extend(pools.map(|(worker, pool)| (worker, Arc::downgrade(pool))));
    }

    /// Opens the connections that a worker is to have ahead of requests, at a random time within `tick`. A drained replica
    /// gets none.
    pub(crate) fn refill(&self, worker: &Worker, tick: std::time::Duration) {
        if self.sources.load().config.connect.idle_min == 0 {
            return;
        }
        for replica in self.replicas.load().values() {
            if !replica.present_placement.load().placement.weight.is_zero() {
                replica.pool(worker.index).refill(&self.clock, tick, worker.jitter());
            }
        }
    }

    /// Closes connections of a worker that are unused for too long, also those to replicas that have left. The first worker
    /// also closes the circuit breakers of limits.
    pub(crate) fn sweep(&self, worker: usize, now: Instant) {
        for replica in self.replicas.load().values() {
            replica.sweep(worker, now);
        }
        if worker == 0 {
            self.tick_limits();
        }
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|(_, pool)| pool.strong_count() > 0);
        let own = retired.iter().filter(|(of, _)| *of == worker);
        own.filter_map(|(_, pool)| Weak::upgrade(pool)).for_each(|pool: Arc<Pool>| pool.sweep(now));
    }
}
