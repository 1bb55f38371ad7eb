//! Faults: recipes for slow servers, named after the causes in the literature.
//!
//! | recipe | the server | remedies |
//! |---|---|---|
//! | `stall` | stops now and then | hedges |
//! | `garbage_collection` | stops after a number of executions, so a busier server stops more often | hedges |
//! | `background_job` | is slower for a while, alone or together with other servers | hedges, balancing |
//! | `slow_replica` | is always slower | balancing |
//! | `crash` | loses its requests now and then, and accepts none for a while | retries |
//! | `errors` | fails a share of its executions | retries |
//! | `noisy_neighbor` | has requests of another client in its queue | ties, balancing |
//! | `antagonist` | loses cores of its machine to another load | balancing |
//!
//! **Holds** recipes; [`crate::faults`] decides when faults happen.
//! **Source**: the causes are those of Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 75–76: shared
//! resources, background daemons, global resource sharing, maintenance, queueing, garbage collection. Page 76 explains
//! why background work hurts less when all servers do it at the same time.

use crate::distribution::Distribution;
use curtail_policy::Class;
use curtail_units::{Duration, Ratio, Rng};

mod read;

/// A fault of servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The affected servers.
    pub servers: Affected,
    /// The recipe.
    pub recipe: Recipe,
}

/// The servers that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Affected {
    /// This share of the servers, drawn once; at least one server.
    Share(Ratio),
    /// This number of servers, from the first on.
    First(u32),
}

/// The kind of a fault.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "a variant explains its fields")]
pub enum Recipe {
    /// The server stops, and goes on where it stopped. `every` is the time from the end of a stall to the next.
    Stall { every: Distribution, lasts: Distribution },
    /// The server stops after this number of executions, so a busier server stops more often.
    GarbageCollection { executions: u32, lasts: Distribution },
    /// The server is slower by the factor `slowdown` while it does something else. `every` is the time from one start to
    /// the next and the maximum of `lasts`. A synchronized job runs on all affected servers at the same time.
    BackgroundJob { every: Duration, lasts: Distribution, slowdown: f64, synchronized: bool },
    /// The server is always slower, by the factor `slowdown`.
    SlowReplica { slowdown: f64 },
    /// The server crashes now and then: the connections of all its requests break, and for `lasts` it accepts none.
    /// It comes back with an empty queue.
    Crash { every: Distribution, lasts: Distribution },
    /// Shares of the executions fail, each after its full service time: with a broken connection, with a bad response
    /// such as a 503, and without a response, so that the root waits until a timeout.
    Errors { broken: Ratio, bad: Ratio, silent: Ratio },
    /// Requests of another client wait in the same queue, independently at each server.
    NoisyNeighbor { per_second: f64, service: Distribution, class: Class },
    /// Another load uses cores of the same machine; `every` is the time until its demand changes.
    Antagonist {
        /// Minimum demand, in cores.
        cores_min: f64,
        /// Maximum demand, in cores; the demand is uniform in between.
        cores_max: f64,
        /// Minimum number of cores that remain for the server. It may be less than the allocation of the server: the
        /// other load also takes caches, memory bandwidth and hyperthreads.
        cores_left_min: f64,
        every: Distribution,
    },
}

impl Recipe {
    /// The name of the recipe in configurations and reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Stall { .. } => "stall",
            Self::GarbageCollection { .. } => "garbage_collection",
            Self::BackgroundJob { .. } => "background_job",
            Self::SlowReplica { .. } => "slow_replica",
            Self::Crash { .. } => "crash",
            Self::Errors { .. } => "errors",
            Self::NoisyNeighbor { .. } => "noisy_neighbor",
            Self::Antagonist { .. } => "antagonist",
        }
    }

    /// Whether the recipe has an effect only where requests in service share cores.
    #[must_use]
    pub const fn needs_cores(&self) -> bool {
        matches!(self, Self::Antagonist { .. })
    }
}

impl Affected {
    /// The numbers of the affected servers, of `servers` in all.
    pub(crate) fn servers(self, servers: u32, rng: &mut Rng) -> Vec<u32> {
        match self {
            Self::First(count) => (0..count.min(servers)).collect(),
            Self::Share(share) => {
                let mut all: Vec<u32> = (0..servers).collect();
                let count = (share.get() * f64::from(servers)).round().max(1.0);
                let mut drawn = Vec::new();
                while (drawn.len() as f64) < count && !all.is_empty() {
                    drawn.push(all.swap_remove(rng.below(all.len())));
                }
                drawn
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Affected;
    use curtail_units::{Ratio, Rng};

    #[test]
    fn the_share_of_servers_is_exact_and_never_none() {
        for (share, count, expected) in [(1.0, 7, 7), (0.1, 30, 3), (0.001, 30, 1), (0.5, 1, 1)] {
            let affected = Affected::Share(Ratio::new(share).expect("a ratio"));
            let mut drawn = affected.servers(count, &mut Rng::new(1));
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), expected, "{share} of {count}");
            assert!(drawn.iter().all(|server| *server < count));
        }
    }
}
