//! The model: everything that is simulated, except for the policies under test.
//!
//! A **client** is a root with its own machines. A request makes `fan_out` calls, spread over the **shards**, and ends
//! with the last response. Each shard is an upstream of `replicas` replicas. Each replica is on a **server**, behind
//! the leaf of that server.

use crate::connections::ConnectionModel;
use crate::recorded::RecordedTimeline;
use curtail_model::{Arrivals, Cores, Distribution, Fault, Rate, ServerFactors, Spacing};
use curtail_policy::{Class, LeafConfig, Weight};
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
    /// The weights of the first replicas of each shard for balancing; the others have the weight 1.
    pub weights: Vec<Weight>,
    /// The number of servers. Replica `r` of shard `s` is on server `s × replicas + r`, modulo this number. With fewer
    /// servers than replicas of all shards, neighboring shards share servers.
    pub servers: u32,
    /// The limits of each leaf.
    pub leaf: LeafConfig,
    /// The cores that the requests in service at a server share; absent: each request has the full speed.
    pub cores: Option<Cores>,
    /// The cores that the requests in service at all servers of the first tier share, which are processes on one machine;
    /// absent: each server has a machine of its own.
    pub shared_cores: Option<f64>,
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
    /// How often a client sends a request that has failed again.
    pub client_retries: ClientRetries,
    /// The users who send the requests, instead of `arrivals`; absent: requests arrive independently of responses.
    pub closed_loop: Option<ClosedLoop>,
    /// The types of requests, one of which each request has; empty: all requests are of one type.
    pub request_types: Vec<RequestType>,
    /// The class of the requests.
    pub class: Class,
    /// Whether requests may be sent twice.
    pub repeatable: bool,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The tiers of servers behind the first. An execution that succeeds makes calls to the next tier.
    pub tiers: Vec<Tier>,
    /// Recorded arrivals, instead of `arrivals`, and recorded slow periods, in addition to `faults`.
    pub timeline: Option<Arc<RecordedTimeline>>,
}

/// Servers that are called by the servers of the tier before, each of which is a root with machines of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// As [`Model::fan_out`], of an execution in the tier before.
    pub fan_out: u32,
    /// As [`Model::shards`].
    pub shards: u32,
    /// As [`Model::replicas`].
    pub replicas: u32,
    /// As [`Model::servers`].
    pub servers: u32,
    /// As [`Model::leaf`].
    pub leaf: LeafConfig,
    /// As [`Model::cores`].
    pub cores: Option<Cores>,
    /// As [`Model::service`]. There are no factors.
    pub service: Distribution,
    /// The faults of these servers.
    pub faults: Vec<Fault>,
}

/// The retries of clients, which send the whole request again.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientRetries {
    /// Maximum number of retries of a request.
    pub retries_max: u32,
    /// The time between a failure and the retry.
    pub wait: Distribution,
}

/// Users who each wait for a response before they send their next request.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedLoop {
    /// The number of users.
    pub users: u32,
    /// The time from a response to the next request of the same user.
    pub think_time: Distribution,
}

/// A type of requests: an operation, or the requests of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestType {
    /// The name in reports.
    pub name: String,
    /// The share of the type is its weight divided by the sum of all weights.
    pub weight: f64,
    /// The class; absent: that of the model.
    pub class: Option<Class>,
    /// Whether requests may be sent twice; absent: as in the model.
    pub repeatable: Option<bool>,
    /// The service time of an attempt; absent: that of the model.
    pub service: Option<Distribution>,
    /// The factor on the service times of all attempts of a request; absent: that of the model.
    pub request_factor: Option<Distribution<f64>>,
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

impl Cancelled {
    /// All effects, by the names that users write.
    pub const NAMES: [(&str, Self); 3] =
        [("stops", Self::Stops), ("leaves_queue", Self::LeavesQueue), ("runs_on", Self::RunsOn)];

    /// The name of the effect.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stops => Self::NAMES[0].0,
            Self::LeavesQueue => Self::NAMES[1].0,
            Self::RunsOn => Self::NAMES[2].0,
        }
    }

    /// The effect with a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(of, _)| *of == name).map(|(_, cancelled)| *cancelled)
    }
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
            weights: Vec::new(),
            servers,
            leaf: LeafConfig { concurrency: 1, queue_len_max: u32::MAX },
            cores: None,
            shared_cores: None,
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
            client_retries: ClientRetries { retries_max: 0, wait: Distribution::ZERO },
            closed_loop: None,
            request_types: Vec::new(),
            class: Class::Interactive,
            repeatable: true,
            faults: Vec::new(),
            tiers: Vec::new(),
            timeline: None,
        }
    }

    /// The number of executions that all servers together run at full speed on their allocated cores.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let concurrency = f64::from(self.leaf.concurrency);
        let each = self.cores.map_or(concurrency, |cores| cores.allocated.min(concurrency));
        let all = each * f64::from(self.servers);
        self.shared_cores.map_or(all, |shared| all.min(shared))
    }

    /// The mean number of requests a second where the curve of the arrivals has the factor 1. Of a closed loop, it is an
    /// upper bound: it ignores waiting.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        let at_load = |load: f64| {
            let work_s = self.mean_work_s() * f64::from(self.fan_out);
            load * self.capacity() * self.server_factors.mean_speed(self.servers) / work_s
        };
        if let Some(ClosedLoop { users, think_time }) = &self.closed_loop {
            let cycle_s = think_time.mean_ns() / 1e9 + self.mean_work_s();
            return at_load(1.0).min(f64::from(*users) / cycle_s);
        }
        match self.arrivals.rate {
            Rate::PerSecond(rate) => rate,
            Rate::Load(load) => at_load(load),
        }
    }

    /// The mean service time of a call at a server with the factor 1, in seconds.
    fn mean_work_s(&self) -> f64 {
        let work_s = |service: Option<&Distribution>, factor: Option<&Distribution<f64>>| {
            let factor = factor.unwrap_or(&self.request_factor).mean_factor();
            service.unwrap_or(&self.service).mean_ns() / 1e9
                * (factor * self.call_factor.mean_factor())
        };
        if self.request_types.is_empty() {
            return work_s(None, None);
        }
        let weights: f64 = self.request_types.iter().map(|of| of.weight).sum();
        let of_type = |of: &RequestType| {
            of.weight / weights * work_s(of.service.as_ref(), of.request_factor.as_ref())
        };
        self.request_types.iter().map(of_type).sum()
    }
}
