//! Sharding: how evenly data lie on servers, and what the fullest of them does to the latency.
//!
//! A request reads all of the data, each server its own shards, and is finished when the slowest has answered. All
//! shards are equally large. Of `shards` on `servers` the fullest has ⌈shards / servers⌉, so a number of shards that
//! can only double leaves servers idle: 16 shards on 12 servers put two on some, and a third of what the servers
//! could do is lost. The next power of two costs twice the servers.
//!
//! **Inputs**: the time that one server would take for the whole data, a [`Distribution`] from which each server
//! draws on its own for each request; what each shard adds to its server's time and each answer to the root's, which
//! is what many small shards and many servers cost. **Gives** for each number of servers and each [`Rule`] how many
//! shards there are, the [`imbalance`](Placement::imbalance), and the latency.
//! **Limits**: [`SERVERS_MAX`], [`SHARDS_MAX`], [`DRAWS_MAX`].
//! **Invariant**: all rules and all numbers of servers meet the same draws, so that what differs is the rule's doing.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 78, for micro-partitions. Yap, "Fighting
//! the long tail", Fullstory, 2020, for a cluster that had to double.
//! **Hurts when** requests queue: this is the latency of a request alone. A server that is half as full again is
//! also busier, and waits grow faster than its share.

mod json;
mod table;

use crate::batches::{Batches, Estimate};
use curtail_model::Distribution;
use curtail_units::{Duration, Quantile, Rng};

#[cfg(test)]
mod tests;

/// Servers of one placement.
pub(crate) const SERVERS_MAX: u32 = 10_000;

/// Shards of one placement.
pub(crate) const SHARDS_MAX: u32 = 1_000_000;

/// Draws of a whole run: requests × servers, over all placements. They take some seconds.
pub(crate) const DRAWS_MAX: u64 = 200_000_000;

/// What is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharding {
    /// The numbers of servers, rising.
    pub servers: Vec<u32>,
    /// The time that one server would take for the whole data.
    pub whole: Distribution,
    /// What each shard adds to the time of its server, however small it is.
    pub per_shard: Duration,
    /// What the answer of each server adds at the root.
    pub per_answer: Duration,
    /// Rules, by name.
    pub rules: Vec<(String, Rule)>,
    /// Requests that are simulated for each placement.
    pub requests: u32,
}

/// How many shards there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The smallest power of two with a shard for each server.
    Doubled,
    /// One for each server; all data move whenever a server is added.
    OneEach,
    /// Always the same; many a server are micro-partitions, of which some move to a server that is added.
    Fixed {
        /// So many.
        shards: u32,
    },
}

impl Rule {
    /// The number of shards for so many servers.
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
    /// So many.
    pub shards: u32,
    /// So many.
    pub servers: u32,
}

impl Placement {
    /// Shards of the fullest server: ⌈shards / servers⌉.
    #[must_use]
    pub const fn fullest(self) -> u32 {
        self.shards.div_ceil(self.servers)
    }

    /// How many servers are as full as the fullest; the others have a shard less.
    #[must_use]
    pub const fn full_servers(self) -> u32 {
        match self.shards % self.servers {
            0 => self.servers,
            rest => rest,
        }
    }

    /// The share of the fullest server against the mean: 1 when all are alike.
    #[must_use]
    pub fn imbalance(self) -> f64 {
        f64::from(self.fullest()) * f64::from(self.servers) / f64::from(self.shards)
    }
}

/// What came of a sharding.
#[derive(Clone, Debug)]
pub struct ShardingReport {
    /// The seed.
    pub seed: u64,
    /// Requests that were simulated for each placement.
    pub requests: u32,
    /// The names of the rules.
    pub rules: Vec<String>,
    /// One for each number of servers.
    pub rows: Vec<ShardingRow>,
}

/// What came of one number of servers.
#[derive(Clone, Debug)]
pub struct ShardingRow {
    /// The number.
    pub servers: u32,
    /// One for each rule.
    pub placed: Vec<Placed>,
}

/// What came of one placement.
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
    /// Lays out and simulates all of it, with everything random drawn from `seed`.
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

    /// The latency of one request: the slowest server, then the answers.
    fn latency_ns(&self, placement: Placement, rng: &mut Rng) -> f64 {
        let full = placement.full_servers();
        let mut slowest_ns = 0.0_f64;
        let mut answers = 0_u32;
        for server in 0..placement.servers {
            let held = placement.fullest() - u32::from(server >= full);
            if held == 0 {
                break;
            }
            let share = f64::from(held) / f64::from(placement.shards);
            let own_ns = f64::from(held) * self.per_shard.as_ns_f64();
            slowest_ns = slowest_ns.max(share * self.whole.draw_ns(rng) + own_ns);
            answers += 1;
        }
        slowest_ns + f64::from(answers) * self.per_answer.as_ns_f64()
    }
}

impl ShardingReport {
    /// Tables of at most 80 columns.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// One JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        json::render(self)
    }

    /// What came of so many servers by the rule of that name.
    #[must_use]
    pub fn placed(&self, servers: u32, rule: &str) -> Option<&Placed> {
        let place = self.rules.iter().position(|name| name == rule)?;
        self.rows.iter().find(|row| row.servers == servers)?.placed.get(place)
    }
}
