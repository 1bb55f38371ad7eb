//! A replica as the proxy reaches it: its connector, and the connection pools of all workers.

use crate::StartError;
use crate::config::{ConnectConfig, ReplicaConfig};
use crate::health::ReplicaHealth;
use crate::spans::prepared::PreparedReplica;
use curtail_http::connect::Connector;
use curtail_http::connection_counts::ConnectionCounters;
use curtail_http::pool::Pool;
use curtail_http::tls::Trust;
use curtail_policy::ReplicaMap;
use std::sync::Arc;

/// The present replicas of an upstream.
pub(crate) type Replicas = ReplicaMap<Arc<Replica>>;

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) config: ReplicaConfig,
    pub(crate) authority: String,
    pub(crate) metrics: Arc<ConnectionCounters>,
    pub(crate) prepared: Arc<PreparedReplica>,
    pub(crate) health: ReplicaHealth,
    connect: ConnectConfig,
    connector: Connector,
    pools: Box<[Arc<Pool>]>,
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
        let connector = Connector::new(&config.url, connect, trust)?.at(config.address);
        let server = config.server();
        let metrics = Arc::new(ConnectionCounters::default());
        let pool = |_| {
            let (connector, metrics) = (connector.clone(), Arc::clone(&metrics));
            Arc::new(Pool::new(connector, connect.clone(), metrics))
        };
        Ok(Self {
            authority: server.authority(),
            prepared: Arc::new(PreparedReplica::new(upstream, &server)),
            pools: (0..workers).map(pool).collect(),
            health: ReplicaHealth::new(&connector),
            connect: connect.clone(),
            config: config.clone(),
            metrics,
            connector,
        })
    }

    /// Whether the replica has these keys, so that its connections can be kept.
    pub(crate) fn is_reached_by(&self, config: &ReplicaConfig, connect: &ConnectConfig) -> bool {
        self.config == *config && self.connect == *connect
    }

    /// Replaces the trusted certificates, from the next connection attempt on.
    pub(crate) fn replace_trust(&self, trust: &Trust) {
        if let Err(error) = self.connector.replace_trust(trust) {
            tracing::error!("{error}");
        }
    }

    pub(crate) fn pool(&self, worker: usize) -> &Arc<Pool> {
        &self.pools[worker]
    }

    pub(crate) fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }
}
