//! Faults: what makes servers slow, one recipe for each cause the paper names.
//!
//! | recipe | what it does to a server | what helps against it |
//! |---|---|---|
//! | `stall` | stands still now and then | hedges |
//! | `garbage_collection` | stands still after so many executions: the more load, the more often | hedges |
//! | `background_job` | is slower at regular times, all servers at once or each at its own | hedges, balancing |
//! | `slow_replica` | is slower for good | balancing, probation |
//! | `neighbours` | has the requests of others in its queue | ties, balancing |
//!
//! **Inputs**: YAML, with the words of the scenarios of `curtail simulate`, so that what is simulated can
//! be started; the seed decides which servers and when, whatever requests come.
//! **Limits**: faults add up, also several of one kind. Requests of neighbours go through the queue and
//! the slots like all others, within the same bounds; they are not counted as executions.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 74–75, "why variability exists".

use crate::distribution::Distribution;
use curtail_config::{Cases, Section};
use curtail_units::{Duration, Ratio, Rng};

/// Something that makes servers slow.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Which share of the servers it befalls, drawn once; at least one server.
    pub servers: Ratio,
    /// What happens there.
    pub recipe: Recipe,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// The server stops, and goes on where it stopped.
    Stall {
        /// The time from the end of a stall to the next.
        every: Distribution,
        /// How long it lasts.
        lasts: Distribution,
    },
    /// The server stops after a number of executions.
    GarbageCollection {
        /// Executions from one pause to the next.
        executions: u32,
        /// How long a pause lasts.
        lasts: Distribution,
    },
    /// The server is slower while it does something else.
    BackgroundJob {
        /// The time from one beginning to the next.
        every: Duration,
        /// How long it lasts.
        lasts: Duration,
        /// How many times longer everything takes meanwhile.
        slowdown: f64,
        /// Whether all servers do it at the same time.
        synchronised: bool,
    },
    /// The server is always slower.
    SlowReplica {
        /// How many times longer everything takes.
        slowdown: f64,
    },
    /// Requests of others wait in the same queue.
    Neighbours {
        /// How many arrive at each server in a second, independently of each other.
        per_second: f64,
        /// Their service time.
        service: Distribution,
    },
}

impl Fault {
    pub(crate) fn read(s: &mut Section<'_>) -> Self {
        let recipe = s.cases("recipe", "What makes servers slow.").required(|c| {
            stops(c);
            slows(c);
            c.case("neighbours", "Requests of others wait in the same queue.", |s| {
                Recipe::Neighbours {
                    per_second: s
                        .field("requests_per_second", "How many arrive at each server in a second.")
                        .range(0.001..=10_000.0)
                        .required(),
                    service: s.section("service", "How long each takes.", Distribution::read),
                }
            });
        });
        let servers =
            s.field("servers_ratio", "The share of servers that it befalls.").default(Ratio::ONE);
        Self { servers, recipe }
    }

    /// The servers out of `count` that it befalls, in no order.
    pub(crate) fn befalls(&self, count: usize, rng: &mut Rng) -> Vec<usize> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count is no more than the count"
        )]
        let befallen = ((self.servers.get() * count as f64).round() as usize).max(1);
        let mut servers: Vec<usize> = (0..count).collect();
        // The first steps of a shuffle (Fisher & Yates) draw without replacement.
        for nth in 0..befallen.min(count) {
            let drawn = nth + rng.below(count - nth);
            servers.swap(nth, drawn);
        }
        servers.truncate(befallen);
        servers
    }
}

fn stops(c: &mut Cases<'_, '_, Recipe>) {
    c.case("stall", "The server stops, and goes on where it stopped.", |s| Recipe::Stall {
        every: s.section("every", "From the end of a stall to the next.", Distribution::read),
        lasts: s.section("lasts", "How long a stall lasts.", Distribution::read),
    });
    c.case("garbage_collection", "The server stops after a number of executions.", |s| {
        Recipe::GarbageCollection {
            executions: s
                .field("executions", "Executions from one pause to the next.")
                .at_least(1)
                .required(),
            lasts: s.section("lasts", "How long a pause lasts.", Distribution::read),
        }
    });
}

fn slows(c: &mut Cases<'_, '_, Recipe>) {
    c.case("background_job", "The server is slower at regular times.", |s| {
        let every = s
            .field("every", "From the beginning of one job to the beginning of the next.")
            .at_least(Duration::from_ms(10))
            .required();
        let lasts = s.field("lasts", "How long a job lasts.").required();
        if lasts > every {
            s.mistake("lasts", format!("{lasts} is longer than every, {every}"));
        }
        let synchronised =
            s.field("synchronised", "Whether all servers do it at the same time.").default(false);
        Recipe::BackgroundJob { every, lasts, slowdown: slowdown(s), synchronised }
    });
    c.case("slow_replica", "The server is slower for good.", |s| Recipe::SlowReplica {
        slowdown: slowdown(s),
    });
}

fn slowdown(s: &mut Section<'_>) -> f64 {
    s.field("slowdown", "How many times longer everything takes.").range(1.0..=1_000.0).required()
}

#[cfg(test)]
mod tests {
    use super::{Fault, Recipe};
    use curtail_units::{Ratio, Rng};

    #[test]
    fn the_share_of_servers_is_exact_and_never_none() {
        for (share, count, befallen) in [(1.0, 7, 7), (0.1, 30, 3), (0.001, 30, 1), (0.5, 1, 1)] {
            let servers = Ratio::new(share).expect("a ratio");
            let fault = Fault { servers, recipe: Recipe::SlowReplica { slowdown: 2.0 } };
            let mut drawn = fault.befalls(count, &mut Rng::new(1));
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), befallen, "{share} of {count}");
            assert!(drawn.iter().all(|server| *server < count));
        }
    }
}
