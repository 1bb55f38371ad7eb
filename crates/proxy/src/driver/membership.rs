//! Replicas that join, leave and move when a reload changes an upstream's list.
//!
//! A replica of the new list is a replica of the old list if both have the same name, or, without names, the same URL.
//! The replica keeps its number, so the machine keeps its latencies and failures. If its URL or `connect` changes, it
//! gets new connections, and attempts in flight end on the old ones.

use super::{Effects, Upstream};
use crate::StartError;
use crate::config::{NamedUpstream, load_trust};
use crate::replica::{Replica, Replicas};
use curtail_http::pool::Pool;
use curtail_http::tls::Trust;
use curtail_policy::journal::Entry;
use curtail_policy::{ReplicaId, UpstreamEvent};
use curtail_units::Instant;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

/// The replicas of a configuration that is not applied yet.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(super) replicas: Vec<Arc<Replica>>,
    trust: Trust,
}

impl Membership {
    /// Builds the replicas of `config`; those of `old` that are reached in the same way stay.
    ///
    /// # Errors
    /// When trusted certificates cannot be read, or a TLS configuration cannot be used.
    pub(super) fn new(
        config: &NamedUpstream,
        workers: usize,
        old: &Replicas,
    ) -> Result<Self, StartError> {
        let connect = &config.connect;
        let urls = config.replicas.iter().map(|replica| &replica.url);
        let trust = load_trust(connect, urls)?;
        let old: HashMap<String, &Arc<Replica>> =
            old.values().map(|replica| (replica.config.identity(), replica)).collect();
        let replicas = config.replicas.iter().map(|wanted| {
            let kept = old.get(&wanted.identity());
            if let Some(kept) = kept.filter(|kept| kept.is_reached_by(wanted, connect)) {
                return Ok(Arc::clone(kept));
            }
            Replica::new(&config.name, wanted, connect, &trust, workers).map(Arc::new)
        });
        Ok(Self { replicas: replicas.collect::<Result<_, StartError>>()?, trust })
    }
}

impl Upstream {
    /// Prepares the replicas of a new configuration. The caller applies one at a time.
    ///
    /// # Errors
    /// When a file cannot be read or used; nothing has changed then.
    pub(crate) fn prepare(&self, config: &NamedUpstream) -> Result<Membership, StartError> {
        Membership::new(config, self.workers, &self.replicas.load())
    }

    /// Replaces the replicas: each leave and join is an event of the machine, before any request can be sent there.
    pub(crate) fn apply(&self, membership: Membership) {
        let Membership { replicas: wanted, trust } = membership;
        wanted.iter().for_each(|replica| replica.replace_trust(&trust));
        let old = self.replicas.load_full();
        let ids: HashMap<String, ReplicaId> =
            old.iter().map(|(id, replica)| (replica.config.identity(), id)).collect();
        let mut root = self.lock();
        let mut group = self.lock_group();
        let mut replicas = Replicas::default();
        let mut joined = HashMap::new();
        for replica in wanted {
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
        let generation = root.generation;
        for event in left.chain(joins) {
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
    }

    fn retire(&self, old: &Replicas, new: &Replicas) {
        let is_kept = |id, replica| new.get(id).is_some_and(|kept| Arc::ptr_eq(kept, replica));
        let gone = old.iter().filter(|(id, replica)| !is_kept(*id, replica));
        let pools = gone.flat_map(|(_, replica)| replica.pools().iter().enumerate());
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.extend(pools.map(|(worker, pool)| (worker, Arc::downgrade(pool))));
    }

    /// Closes connections of a worker that are unused for too long, also those to replicas that have left.
    pub(crate) fn sweep(&self, worker: usize, now: Instant) {
        for replica in self.replicas.load().values() {
            replica.pool(worker).sweep(now);
        }
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|(_, pool)| pool.strong_count() > 0);
        let own = retired.iter().filter(|(of, _)| *of == worker);
        own.filter_map(|(_, pool)| Weak::upgrade(pool)).for_each(|pool: Arc<Pool>| pool.sweep(now));
    }
}
