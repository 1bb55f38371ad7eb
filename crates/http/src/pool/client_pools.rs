//! Pools of one client each, for connections that begin with the address of their client (the PROXY protocol).
//!
//! The server takes the address for that of all requests on the connection, so no other client may use it. A client is
//! the two ends of its own connection.
//!
//! Clients of Unix sockets have no address, and share a pool.
//!
//! **Limits**: `connections_max` HTTP/1.1 connections of all clients together, and as many pools. At the limit, the idle
//! connections of a few other clients close.

use super::{Pool, Transport};
use crate::proxy_protocol::ConnectionAddresses;
use curtail_units::Instant;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Pools = HashMap<Option<ConnectionAddresses>, Arc<Pool>>;

/// One idle pool in this number closes to make room for others.
const EVICTED_RATIO: usize = 16;

/// The pools of the clients of one worker to one server.
#[derive(Debug)]
pub struct ClientPools {
    /// The pool of connections without a client, whose limits apply to all clients together.
    base: Arc<Pool>,
    pools: Mutex<Pools>,
}

impl ClientPools {
    /// Creates the pools of no clients, with the server and the limits of `base`.
    #[must_use]
    pub fn new(base: &Arc<Pool>) -> Self {
        Self { base: Arc::clone(base), pools: Mutex::default() }
    }

    /// Returns the pool of a client.
    pub fn get(&self, client: Option<ConnectionAddresses>) -> Arc<Pool> {
        let mut pools = self.lock();
        let max = self.base.config.connections_max;
        let own = pools.get(&client);
        let is_full = self.base.http1.connection_count() >= max;
        if is_full && own.is_none_or(|pool| pool.idle_len() == 0) {
            evict_idle(&mut pools, (client, max), |pool| pool.idle_len() > 0);
        }
        if pools.len() >= max && !pools.contains_key(&client) {
            let evicted = evict_idle(&mut pools, (client, max), |_| true);
            if evicted == 0
                && let Some(any) = pools.keys().next().copied()
            {
                // Its requests in progress keep it, and close their connection at its end.
                pools.remove(&any);
            }
        }
        let new = || Arc::new(self.base.for_client(client));
        Arc::clone(pools.entry(client).or_insert_with(new))
    }

    /// Closes connections that have been idle for too long, and removes pools without connections.
    pub fn sweep(&self, now: Instant) {
        self.lock().retain(|_, pool| {
            pool.sweep(now);
            Arc::strong_count(pool) > 1 || !pool.is_empty()
        });
    }

    /// Returns the number of idle HTTP/1.1 connections.
    #[must_use]
    pub fn idle_len(&self) -> usize {
        self.lock().values().map(|pool| pool.idle_len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a few pools without requests; returns how many. A burst of clients needs room before the first has connected.
fn evict_idle(
    pools: &mut Pools,
    (client, max): (Option<ConnectionAddresses>, usize),
    is_of_use: impl Fn(&Pool) -> bool,
) -> usize {
    let is_evicted = |of: &Option<ConnectionAddresses>, pool: &mut Arc<Pool>| {
        *of != client && Arc::strong_count(pool) == 1 && is_of_use(pool)
    };
    pools.extract_if(is_evicted).take(max.div_ceil(EVICTED_RATIO)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{ConnectConfig, Connector};
    use crate::connection_counts::ConnectionCounters;
    use crate::origin::ServerOrigin;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn a_new_client_at_the_limit_closes_only_a_few_pools() {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let config = ConnectConfig { connections_max: 20, ..ConnectConfig::default() };
        let connector = Connector::load(&ServerOrigin::from(server), &config);
        let connector = connector.expect("it is in clear text");
        let base = Pool::new(connector, config, Arc::new(ConnectionCounters::default()));
        let pools = ClientPools::new(&Arc::new(base));
        let get = |port| {
            let client = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            pools.get(Some(ConnectionAddresses { client, server }))
        };
        // Each has a request in progress.
        let in_use: Vec<_> = (1..=20).map(get).collect();
        let new = get(21);
        assert_eq!(pools.lock().len(), 20, "one of them is no longer kept");
        drop(in_use);
        assert!(Arc::ptr_eq(&get(21), &new));
        assert_eq!(pools.lock().len(), 20, "a known client needs no room");
        get(22);
        assert_eq!(pools.lock().len(), 19, "two of them were idle, and made room");
        assert!(Arc::ptr_eq(&get(21), &new), "a pool with requests stays");
        assert!(Arc::ptr_eq(&pools.get(None), &pools.get(None)));
    }
}
