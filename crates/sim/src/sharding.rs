//! Sharding: how evenly data lie on servers, and the effect of the fullest server on the latency.
//!
//! A request reads all of the data and ends with the slowest server. All shards are equally large. The fullest server
//! has ⌈shards / servers⌉ shards. If the number of shards can only double, servers are wasted: 16 shards are as slow on
//! 12 servers as on 8.
//! **Inputs**: the [`Distribution`] of the time of one server for the whole data; a server takes its share of that. Each
//! shard adds a constant time at its server, and each response adds one at the root.
//! **Limits**: [`SERVERS_MAX`], [`SHARDS_MAX`], [`DRAWS_MAX`].
//! **Invariant**: all rows get the same draws, so rows differ only because of their rule for the number of shards, and
//! their number of servers.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 78, for micro-partitions. Yap, "Fighting the
//! long tail", Fullstory, 2020, for a cluster that had to double.
//! **Hurts when** requests queue: the model computes the latency of a request alone, but a fuller server is also busier.

mod json;
mod table;

use crate::batches::{Batches, Estimate};
use curtail_model::Distribution;
use curtail_units::{Duration, Quantile, Rng};

#[cfg(test)]
mod tests;

pub(crate) const SERVERS_MAX: u32 = 10_000;

pub(crate) const SHARDS_MAX: u32 = 1_000_000;

/// Maximum number of draws of a run (requests × servers, over all placements), which take some seconds.
pub(crate) const DRAWS_MAX: u64 = 200_000_000;

/// The placements to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharding {
    /// The numbers of servers, rising.
    pub servers: Vec<u32>,
    /// The time that one server would take for the whole data.
    pub whole: Distribution,
    /// Additional time of a server for each shard, however small the shard is.
    pub per_shard: Duration,
    /// The additional time at the root for the response of each server.
    pub per_response: Duration,
    /// Rules, by name.
    pub rules: Vec<(String, Rule)>,
    /// The number of simulated requests for each placement.
    pub requests: u32,
}

/// The rule for the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The smallest power of two with a shard for each server.
    Doubled,
    /// One shard for each server; all data move whenever a server is added.
    OneEach,
    /// A constant number. Many shards for each server are micro-partitions, and only some move to a new server.
    Fixed {
        /// The number of shards.
        shards: u32,
    },
}

impl Rule {
    /// The number of shards for this number of servers.
    #[must_use]
    pub const fn shards(self, servers: u32) -> u32 {
        match self {
            Self::Doubled => servers.next_power_of_two(),
            Self::OneEach => servers,
            Self::Fixed { shards } => shards,
        }
    }
}

/// Shards laid on servers as evenly as whole shards allow; both are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The number of shards.
    pub shards: u32,
    /// The number of servers.
    pub servers: u32,
}

impl Placement {
    /// The number of shards of the fullest server: ⌈shards / servers⌉.
    #[must_use]
    pub const fn fullest(self) -> u32 {
        self.shards.div_ceil(self.servers)
    }

    /// The number of servers that are as full as the fullest; each other server has one shard less.
    #[must_use]
    pub const fn full_servers(self) -> u32 {
        match self.shards % self.servers {
            0 => self.servers,
            rest => rest,
        }
    }

    /// The number of shards of the fullest server, divided by the mean of all servers.
    #[must_use]
    pub fn imbalance(self) -> f64 {
        f64::from(self.fullest()) * f64::from(self.servers) / f64::from(self.shards)
    }
}

/// The results of a sharding.
#[derive(Clone, Debug)]
pub struct ShardingReport {
    /// The seed.
    pub seed: u64,
    /// The number of simulated requests for each placement.
    pub requests: u32,
    /// The names of the rules.
    pub rules: Vec<String>,
    /// The results for each number of servers.
    pub rows: Vec<ShardingRow>,
}

/// The results for one number of servers.
#[derive(Clone, Debug)]
pub struct ShardingRow {
    /// The number of servers.
    pub servers: u32,
    /// The result of each rule.
    pub placed: Vec<Placed>,
}

/// The result of one placement.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The placement.
    pub placement: Placement,
    /// The median latency, in nanoseconds.
    pub p50_ns: Option<Estimate>,
    /// The latency that 1 request in 100 exceeds, in nanoseconds.
    pub p99_ns: Option<Estimate>,
}

impl Sharding {
    /// Simulates every placement, with everything random drawn from `seed`.
    #[must_use]
    pub fn run(&self, seed: u64) -> ShardingReport {
        let rng = Rng::new(seed).split("sharding");
        let row = |servers: &u32| {
            let place = |(_, rule): &(String, Rule)| {
                self.place(Placement { shards: rule.shards(*servers), servers: *servers }, &rng)
            };
            ShardingRow { servers: *servers, placed: self.rules.iter().map(place).collect() }
        };
        ShardingReport {
            seed,
            requests: self.requests,
            rules: self.rules.iter().map(|(name, _)| name.clone()).collect(),
            rows: self.servers.iter().map(row).collect(),
        }
    }

    fn place(&self, placement: Placement, rng: &Rng) -> Placed {
        let mut batches = Batches::new(&[], 0);
        for nth in 0..self.requests {
            let latency_ns = self.latency_ns(placement, &mut rng.split_index(nth.into()));
            batches.record(nth.into(), Some(Duration::from_ns_f64(latency_ns)));
        }
        Placed {
            placement,
            p50_ns: batches.quantile_ns(Quantile::P50),
            p99_ns: batches.quantile_ns(Quantile::P99),
        }
    }

    /// The latency of one request: the slowest server, then the responses at the root.
    fn latency_ns(&self, placement: Placement, rng: &mut Rng) -> f64 {
        let full = placement.full_servers();
        let mut slowest_ns = 0.0_f64;
        let mut responses = 0_u32;
        for server in 0..placement.servers {
            let shards = placement.fullest() - u32::from(server >= full);
            if shards == 0 {
                break;
            }
            let share = f64::from(shards) / f64::from(placement.shards);
            let own_ns = f64::from(shards) * self.per_shard.as_ns_f64();
            slowest_ns = slowest_ns.max(share * self.whole.draw_ns(rng) + own_ns);
            responses += 1;
        }
        slowest_ns + f64::from(responses) * self.per_response.as_ns_f64()
    }
}

impl ShardingReport {
    /// Tables of at most 80 columns.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// The report as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        json::render(self)
    }

    /// The result for a number of servers and the name of a rule.
    #[must_use]
    pub fn placed(&self, servers: u32, rule: &str) -> Option<&Placed> {
        let place = self.rules.iter().position(|name| name == rule)?;
        self.rows.iter().find(|row| row.servers == servers)?.placed.get(place)
    }
}
