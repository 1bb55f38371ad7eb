//! Assembly: which server has which faults.
//!
//! **Decides** by the configuration and the seed alone, never by the requests that come, so that two runs
//! with one seed stall the same servers at the same instants, however they are asked. Each server draws
//! from a generator of its own, and so does each fault of each server: one more fault leaves the others
//! as they were.

use crate::alarm::Alarm;
use crate::config::TestbedConfig;
use crate::distribution::Distribution;
use crate::executions::Executions;
use crate::fault::Recipe;
use crate::server::{Collection, Place, Server};
use crate::server_clock::ServerClock;
use crate::spells::Spells;
use curtail_units::{Duration, Instant, Rng};
use std::sync::Arc;

/// One server and what it is to be troubled by.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) server: Arc<Server>,
    /// The spells that it will have.
    pub(crate) spells: Vec<Spells>,
    pub(crate) neighbours: Vec<Neighbours>,
}

/// Those who send requests to the same server.
#[derive(Clone, Debug)]
pub(crate) struct Neighbours {
    pub(crate) per_second: f64,
    pub(crate) service: Distribution,
    pub(crate) rng: Rng,
}

/// All servers of a testbed, shard by shard.
pub(crate) fn assemble(
    config: &TestbedConfig,
    seed: u64,
    alarm: &Arc<Alarm>,
    executions: &Arc<Executions>,
) -> Vec<Assembled> {
    let root = Rng::new(seed);
    let troubles = troubles(config, &root);
    let place = |number| Place {
        number,
        shard: number / config.replicas,
        replica: number % config.replicas,
    };
    let assemble = |(number, trouble): (usize, Trouble)| {
        let clock = ServerClock::new(trouble.speed, trouble.spells.clone());
        let server = Server::new(
            place(number),
            config.server.clone(),
            (clock, trouble.collections),
            (Arc::clone(alarm), Arc::clone(executions)),
            &root.split("server").split_index(number as u64),
        );
        Assembled {
            server: Arc::new(server),
            spells: trouble.spells,
            neighbours: trouble.neighbours,
        }
    };
    troubles.into_iter().enumerate().map(assemble).collect()
}

/// What is wrong with one server.
#[derive(Debug)]
struct Trouble {
    speed: f64,
    spells: Vec<Spells>,
    collections: Vec<Collection>,
    neighbours: Vec<Neighbours>,
}

fn troubles(config: &TestbedConfig, root: &Rng) -> Vec<Trouble> {
    let well = || Trouble {
        speed: 1.0,
        spells: Vec::new(),
        collections: Vec::new(),
        neighbours: Vec::new(),
    };
    let mut troubles: Vec<Trouble> = (0..config.servers()).map(|_| well()).collect();
    for (nth, fault) in config.faults.iter().enumerate() {
        let of_fault = root.split("fault").split_index(nth as u64);
        for server in fault.befalls(troubles.len(), &mut of_fault.split("servers")) {
            let rng = of_fault.split_index(server as u64);
            befall(&mut troubles[server], &fault.recipe, rng);
        }
    }
    troubles
}

fn befall(trouble: &mut Trouble, recipe: &Recipe, mut rng: Rng) {
    match recipe {
        Recipe::Stall { every, lasts } => {
            trouble.spells.push(Spells::stalls(every.clone(), lasts.clone(), rng));
        }
        Recipe::GarbageCollection { executions, lasts } => {
            let collection = Collection { executions: *executions, lasts: lasts.clone() };
            trouble.collections.push(collection);
        }
        Recipe::BackgroundJob { every, lasts, slowdown, synchronised } => {
            let phase = if *synchronised { Duration::ZERO } else { every.mul_f64(rng.unit()) };
            let first = Instant::ZERO + phase;
            trouble.spells.push(Spells::jobs(*every, first, *lasts, *slowdown));
        }
        Recipe::SlowReplica { slowdown } => trouble.speed /= slowdown,
        Recipe::Neighbours { per_second, service } => {
            let service = service.clone();
            trouble.neighbours.push(Neighbours { per_second: *per_second, service, rng });
        }
    }
}
