//! Pools of one client each, for connections that begin with the address of their client (the PROXY protocol).
//!
//! The server takes the address for that of all requests on the connection, so no other client may use it. A client is
//! the two ends of its own connection.
//!
//! **Limits**: `connections_max` HTTP/1.1 connections of all clients together, and as many pools. At the limit, the idle
//! connections of other clients close.

use super::{Pool, Transport};
use crate::proxy_protocol::ConnectionAddresses;
use curtail_units::Instant;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The pools of the clients of one worker to one server.
#[derive(Debug)]
pub struct ClientPools {
    /// The pool of connections without a client, whose limits apply to all clients together.
    base: Arc<Pool>,
    pools: Mutex<HashMap<ConnectionAddresses, Arc<Pool>>>,
}

impl ClientPools {
    /// Creates the pools of no clients, with the server and the limits of `base`.
    #[must_use]
    pub fn new(base: &Arc<Pool>) -> Self {
        Self { base: Arc::clone(base), pools: Mutex::default() }
    }

    /// Returns the pool of a client.
    pub fn get(&self, client: ConnectionAddresses) -> Arc<Pool> {
        let mut pools = self.lock();
        let max = self.base.config.connections_max;
        if pools.len() >= max || self.base.http1.connection_count() >= max {
            let has_request = |pool: &Arc<Pool>| Arc::strong_count(pool) > 1;
            pools.retain(|of, pool| *of == client || has_request(pool));
        }
        if pools.len() >= max && !pools.contains_key(&client) {
            // Requests in progress keep their pool, and close their connection at its end.
            pools.clear();
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

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionAddresses, Arc<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
