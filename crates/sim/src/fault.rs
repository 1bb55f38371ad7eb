//! Faults: what makes servers slow, named after the causes in the literature.
//!
//! **Holds** recipes; [`crate::world`] plays them. A fault has its own randomness for each server, so
//! its timeline is the same whatever the policy under test does (except for garbage collection, which is the
//! consequence of work).
//! **Source**: the causes are those of Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 75–76:
//! shared resources, background daemons, global resource sharing, maintenance, queueing, garbage
//! collection. That background work hurts less when all servers do it at the same time is page 76.

use crate::distribution::Distribution;
use curtail_policy::Class;
use curtail_units::{Duration, Ratio};

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Which servers it befalls.
    pub servers: Affected,
    /// What happens there.
    pub recipe: Recipe,
}

/// Which servers a fault befalls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Affected {
    /// This share of them, drawn once; at least one.
    Share(Ratio),
    /// The first few.
    First(u32),
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
    /// The server stops after a number of executions, so the busier it is, the more often.
    GarbageCollection {
        /// Executions from one pause to the next.
        executions: u32,
        /// How long a pause lasts.
        lasts: Distribution,
    },
    /// The server is slower while it does something else.
    BackgroundJob {
        /// The time from one start to the next.
        every: Duration,
        /// How long it lasts; at most `every`.
        lasts: Distribution,
        /// How many times longer everything takes meanwhile.
        slowdown: f64,
        /// Whether all servers that are affected do it at the same time.
        synchronised: bool,
    },
    /// The server is always slower.
    SlowReplica {
        /// How many times longer everything takes.
        slowdown: f64,
    },
    /// A share of the executions fails. Each takes its full service time.
    Errors {
        /// The share that ends with a broken connection.
        broken: Ratio,
        /// The share that ends with a bad response, such as a 503.
        bad: Ratio,
        /// The share without a response: the root waits until a timeout.
        silent: Ratio,
    },
    /// Requests of others wait in the same queue.
    Neighbours {
        /// How many arrive at each server, a second, independently of each other.
        per_second: f64,
        /// Their service time.
        service: Distribution,
        /// Their class.
        class: Class,
    },
    /// Others use cores of the same machine.
    Antagonist {
        /// The least that they want, in cores.
        cores_min: f64,
        /// The most that they want, in cores. What they want is uniform in between.
        cores_max: f64,
        /// What they leave to the server at the least, in cores. Less than its allocation: although nobody
        /// takes its turns, they take caches, memory bandwidth and the other half of its cores.
        cores_left_min: f64,
        /// The time until they want something else.
        every: Distribution,
    },
}
