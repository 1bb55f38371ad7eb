//! The model: everything that is simulated, except for the policies under test.
//!
//! A **client** is a root with its own machines. A request makes `fan_out` calls, spread over the **shards**, and ends
//! with the last response. Each shard is an upstream of `replicas` replicas. Each replica is on a **server**, behind
//! the leaf of that server.

use crate::connections::ConnectionModel;
use crate::recorded::RecordedTimeline;
use curtail_model::{Arrivals, Cores, Distribution, Fault, Rate, ServerFactors, Spacing};
use curtail_policy::{Class, LeafConfig};
use curtail_units::{Bytes, Duration, Ratio};
use std::sync::Arc;

/// Everything that the arms of a scenario have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The number of roots, each with its own machines. Each request comes from a random root.
    pub clients: u32,
    /// The arrivals of requests.
    pub arrivals: Arrivals,
    /// The number of calls of a request. At least as many calls as shards go to the shards in turn. Fewer calls go to
    /// neighboring shards, from a random one on.
    pub fan_out: u32,
    /// The number of parts of the data; each is an upstream of its own.
    pub shards: u32,
    /// The number of replicas of each shard.
    pub replicas: u32,
    /// The number of servers. Replica `r` of shard `s` is on server `s × replicas + r`, modulo this number. With fewer
    /// servers than replicas of all shards, neighboring shards share servers.
    pub servers: u32,
    /// The limits of each leaf.
    pub leaf: LeafConfig,
    /// The cores that the requests in service at a server share; absent: each request has the full speed.
    pub cores: Option<Cores>,
    /// The service time of an attempt that has a core of a healthy server to itself, where all factors are 1. It is
    /// drawn for each attempt.
    pub service: Distribution,
    /// The factor on the service times of all attempts of a request, on whatever server.
    pub request_factor: Distribution<f64>,
    /// The size of the body of a request with the factor 1, for spans; the size of another request is its factor times
    /// this size. Absent: spans have no size.
    pub request_bytes: Option<Bytes>,
    /// The factor on the service times of the attempts of each call of a request.
    pub call_factor: Distribution<f64>,
    /// The factors on the service times of the servers.
    pub server_factors: ServerFactors,
    /// The share of calls whose attempts all have the same noise, so that a second attempt takes as long as the first.
    pub copies_alike: Ratio,
    /// The time of a message, one way.
    pub message_delay: Distribution,
    /// Connections, which take time to open; absent: they take none.
    pub connection: Option<ConnectionModel>,
    /// The time of each request at its root, in addition to its calls.
    pub overhead: Distribution,
    /// The effect of a cancel on an attempt.
    pub cancelled: Cancelled,
    /// The time after which a client abandons a request without a response; absent: never.
    pub gives_up_after: Option<Duration>,
    /// The class of the requests.
    pub class: Class,
    /// Whether requests may be sent twice.
    pub repeatable: bool,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Recorded arrivals, instead of `arrivals`, and recorded slow periods, in addition to `faults`.
    pub timeline: Option<Arc<RecordedTimeline>>,
}

/// The effect of a cancel on an attempt that has reached its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cancelled {
    /// The attempt leaves the queue or stops in service.
    #[default]
    Stops,
    /// The attempt leaves the queue, but an execution goes on to its end, because the server cannot stop it.
    LeavesQueue,
    /// The attempt is executed to its end: the server does not notice the cancel.
    RunsOn,
}

impl Model {
    /// The simplest model, to start from: one upstream of `servers` servers, each with concurrency 1 and an unlimited
    /// queue, Poisson arrivals that load the servers to `load`, and messages that take no time.
    #[must_use]
    pub fn queue(servers: u32, load: f64, service: Distribution) -> Self {
        Self {
            clients: 1,
            arrivals: Arrivals::steady(Spacing::Poisson, Rate::Load(load)),
            fan_out: 1,
            shards: 1,
            replicas: servers,
            servers,
            leaf: LeafConfig { concurrency: 1, queue_len_max: u32::MAX },
            cores: None,
            service,
            request_factor: Distribution::ONE,
            request_bytes: None,
            call_factor: Distribution::ONE,
            server_factors: ServerFactors::ONE,
            copies_alike: Ratio::ZERO,
            message_delay: Distribution::ZERO,
            connection: None,
            overhead: Distribution::ZERO,
            cancelled: Cancelled::Stops,
            gives_up_after: None,
            class: Class::Interactive,
            repeatable: true,
            faults: Vec::new(),
            timeline: None,
        }
    }

    pub(crate) fn server(&self, shard: u32, replica: u32) -> u32 {
        let nth = u64::from(shard) * u64::from(self.replicas) + u64::from(replica);
        u32::try_from(nth % u64::from(self.servers)).expect("less than a u32")
    }

    /// The number of executions that all servers together run at full speed on their allocated cores.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let concurrency = f64::from(self.leaf.concurrency);
        let each = self.cores.map_or(concurrency, |cores| cores.allocated.min(concurrency));
        each * f64::from(self.servers)
    }

    /// The mean number of requests a second where the curve of the arrivals has the factor 1.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        match self.arrivals.rate {
            Rate::PerSecond(rate) => rate,
            Rate::Load(load) => {
                let factor = self.request_factor.mean_factor() * self.call_factor.mean_factor();
                let work_s = self.service.mean_ns() / 1e9 * factor * f64::from(self.fan_out);
                load * self.capacity() * self.server_factors.mean_speed(self.servers) / work_s
            }
        }
    }
}
