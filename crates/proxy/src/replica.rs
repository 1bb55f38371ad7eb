//! A replica as the proxy reaches it: its connector, and the connection pools of all workers.

use crate::StartError;
use crate::config::{ConnectConfig, Placement, ReplicaConfig, ZoneSide};
use crate::health::ReplicaHealth;
use crate::spans::prepared::PreparedReplica;
use arc_swap::ArcSwap;
use curtail_http::connect::Connector;
use curtail_http::connection_counts::ConnectionCounters;
use curtail_http::pool::{ClientPools, Pool};
use curtail_http::proxy_protocol::ConnectionAddresses;
use curtail_http::tls::Trust;
use curtail_policy::ReplicaMap;
use curtail_units::Instant;
use std::sync::Arc;

/// The present replicas of an upstream.
pub(crate) type Replicas = ReplicaMap<Arc<Replica>>;

/// The present placement of a replica, and its zone as the proxy sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaPlacement {
    pub(crate) placement: Placement,
    /// Absent: the zone of the replica or of the proxy is unknown.
    pub(crate) side: Option<ZoneSide>,
}

#[derive(Debug)]
pub(crate) struct Replica {
    /// Its configuration. A change of the placement alone is only in `present_placement`.
    pub(crate) config: ReplicaConfig,
    pub(crate) present_placement: ArcSwap<ReplicaPlacement>,
    /// `host:port` or `unix:/path`, as metrics and logs name it.
    pub(crate) address: String,
    /// The authority of the proxy's own requests to it.
    pub(crate) authority: String,
    pub(crate) metrics: Arc<ConnectionCounters>,
    pub(crate) prepared: Arc<PreparedReplica>,
    pub(crate) health: ReplicaHealth,
    connect: ConnectConfig,
    connector: Connector,
    pools: Box<[Arc<Pool>]>,
    /// The pools of clients with connections of their own, for each worker; empty if clients share connections.
    client_pools: Box<[ClientPools]>,
}

impl Replica {
    /// # Errors
    /// When its TLS configuration cannot be used.
    pub(crate) fn new(
        upstream: &str,
        config: &ReplicaConfig,
        connect: &ConnectConfig,
        trust: &Trust,
        workers: usize,
    ) -> Result<Self, StartError> {
        let connector = Connector::new(&config.url, connect, trust)?;
        let connector = connector.at(config.address).of_upstream(upstream);
        let server = config.server();
        let metrics = Arc::new(ConnectionCounters::default());
        let pool = |_| {
            let (connector, metrics) = (connector.clone(), Arc::clone(&metrics));
            Arc::new(Pool::new(connector, connect.clone(), metrics))
        };
        let pools: Box<[_]> = (0..workers).map(pool).collect();
        let own_pools = pools.iter().filter(|_| connect.proxy_protocol.is_some());
        Ok(Self {
            address: server.address(),
            authority: server.authority(),
            prepared: Arc::new(PreparedReplica::new(upstream, &server)),
            client_pools: own_pools.map(ClientPools::new).collect(),
            pools,
            health: ReplicaHealth::new(&connector),
            connect: connect.clone(),
            present_placement: ArcSwap::default(),
            config: config.clone(),
            metrics,
            connector,
        })
    }

    /// Whether the replica has these keys, so that its connections can be kept.
    pub(crate) fn is_reached_by(&self, config: &ReplicaConfig, connect: &ConnectConfig) -> bool {
        self.config.is_reached_as(config) && self.connect == *connect
    }

    /// The configuration with the present placement.
    pub(crate) fn present_config(&self) -> ReplicaConfig {
        ReplicaConfig {
            placement: self.present_placement.load().placement.clone(),
            ..self.config.clone()
        }
    }

    /// Replaces the trusted certificates, from the next connection attempt on.
    pub(crate) fn replace_trust(&self, trust: &Trust) {
        if let Err(error) = self.connector.replace_trust(trust) {
            tracing::error!("{error}");
        }
    }

    /// The pool of requests that are no client's.
    pub(crate) fn pool(&self, worker: usize) -> &Arc<Pool> {
        &self.pools[worker]
    }

    /// The pool of a client's requests. Clients of Unix sockets have no address.
    pub(crate) fn pool_for(&self, worker: usize, client: Option<ConnectionAddresses>) -> Arc<Pool> {
        match self.client_pools.get(worker) {
            Some(pools) => pools.get(client),
            None => Arc::clone(&self.pools[worker]),
        }
    }

    pub(crate) fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// The number of idle HTTP/1.1 connections.
    pub(crate) fn idle_len(&self) -> usize {
        let shared = self.pools.iter().map(|pool| pool.idle_len());
        shared.chain(self.client_pools.iter().map(ClientPools::idle_len)).sum()
    }

    /// The number of requests that wait for a connection.
    pub(crate) fn waiting_len(&self) -> u64 {
        self.pools.iter().map(|pool| pool.waiting_len()).sum()
    }

    /// Closes connections of a worker that are unused for too long.
    pub(crate) fn sweep(&self, worker: usize, now: Instant) {
        self.pools[worker].sweep(now);
        if let Some(pools) = self.client_pools.get(worker) {
            pools.sweep(now);
        }
    }
}
