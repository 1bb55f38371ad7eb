//! Faults as they are played: one state for each fault and each group of servers that it befalls together.

use super::request::{Attempt, Ending, Owner, Stage};
use super::{Step, World};
use crate::fault::{Affected, Recipe};
use crate::model::Model;
use curtail_policy::{AttemptId, Failure, LeafEvent, LeafRequestId, Outcome};
use curtail_units::{Duration, Instant, Rng};

/// A fault at the servers that it befalls together.
#[derive(Debug)]
struct FaultPlace {
    recipe: Recipe,
    servers: Vec<u32>,
    rng: Rng,
    /// Whether it makes its servers slow, or stops them, right now.
    on: bool,
    /// Executions until the next collection.
    executions_left: u32,
    /// When a background job begins the next time.
    begins_again: Instant,
}

/// All faults of a world.
#[derive(Debug)]
pub(super) struct Faults {
    places: Vec<FaultPlace>,
    /// By server: which of them befall it.
    of_server: Vec<Vec<u32>>,
    /// Whether there is anything that executions are to be counted for.
    garbage: bool,
    /// Whether executions may fail.
    has_errors: bool,
}

impl Faults {
    pub(super) fn new(model: &Model, rng: &Rng) -> Self {
        let mut faults =
            Self { places: Vec::new(), of_server: Vec::new(), garbage: false, has_errors: false };
        faults.of_server.resize(model.servers as usize, Vec::new());
        for (nth, fault) in (0..).zip(&model.faults) {
            let mut rng = rng.split_index(nth);
            let affected = affected(fault.servers, model.servers, &mut rng);
            let together = matches!(fault.recipe, Recipe::BackgroundJob { synchronised: true, .. });
            let groups: Vec<Vec<u32>> = if together {
                vec![affected]
            } else {
                affected.into_iter().map(|server| vec![server]).collect()
            };
            for servers in groups {
                faults.add(&fault.recipe, servers, &rng);
            }
        }
        faults
    }

    fn add(&mut self, recipe: &Recipe, servers: Vec<u32>, rng: &Rng) {
        let index = u32::try_from(self.places.len()).expect("faults × servers is a u32");
        for server in &servers {
            self.of_server[*server as usize].push(index);
        }
        self.has_errors |= matches!(recipe, Recipe::Errors { .. });
        let executions_left = match recipe {
            Recipe::GarbageCollection { executions, .. } => {
                self.garbage = true;
                *executions
            }
            Recipe::Stall { .. }
            | Recipe::BackgroundJob { .. }
            | Recipe::SlowReplica { .. }
            | Recipe::Errors { .. }
            | Recipe::Neighbours { .. }
            | Recipe::Antagonist { .. } => 0,
        };
        self.places.push(FaultPlace {
            recipe: recipe.clone(),
            rng: rng.split_index(u64::from(servers[0])),
            servers,
            on: false,
            executions_left,
            begins_again: Instant::ZERO,
        });
    }

    /// How fast the faults let a server be.
    fn speed(&self, server: u32) -> f64 {
        let faults = self.of_server[server as usize].iter();
        faults.map(|index| self.places[*index as usize].speed()).product()
    }
}

impl FaultPlace {
    fn speed(&self) -> f64 {
        match &self.recipe {
            _ if !self.on => 1.0,
            Recipe::Stall { .. } | Recipe::GarbageCollection { .. } => 0.0,
            Recipe::BackgroundJob { slowdown, .. } | Recipe::SlowReplica { slowdown } => {
                1.0 / slowdown
            }
            Recipe::Errors { .. } | Recipe::Neighbours { .. } | Recipe::Antagonist { .. } => 1.0,
        }
    }
}

/// The servers that a fault befalls.
fn affected(affected: Affected, servers: u32, rng: &mut Rng) -> Vec<u32> {
    match affected {
        Affected::First(count) => (0..count.min(servers)).collect(),
        Affected::Share(share) => {
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

impl World<'_> {
    /// Schedules the first change of every fault, at a moment of its period that is drawn: a world has been
    /// going on for a while when it is first looked at.
    pub(super) fn begin_faults(&mut self) {
        for index in 0..self.faults.places.len() {
            let place = &mut self.faults.places[index];
            let rng = &mut place.rng;
            match &place.recipe {
                Recipe::Stall { every, .. } => {
                    let wait = every.draw(rng).mul_f64(rng.unit());
                    self.schedule_fault(index, wait);
                }
                Recipe::BackgroundJob { every, .. } => {
                    let wait = every.mul_f64(rng.unit());
                    self.schedule_fault(index, wait);
                }
                Recipe::SlowReplica { .. } => {
                    place.on = true;
                    self.apply_speed(index);
                }
                Recipe::Errors { .. } => {}
                Recipe::Antagonist { .. } => self.fault_changes_at(index),
                Recipe::Neighbours { .. } => self.schedule_neighbour(index),
                Recipe::GarbageCollection { executions, .. } => {
                    place.executions_left = 1 + u32::try_from(rng.below(*executions as usize))
                        .expect("less than a u32");
                }
            }
        }
    }

    pub(super) fn fault_changes(&mut self, index: u32) {
        self.fault_changes_at(index as usize);
    }

    fn fault_changes_at(&mut self, index: usize) {
        let place = &mut self.faults.places[index];
        let rng = &mut place.rng;
        place.on = !place.on;
        let until_next = match &place.recipe {
            Recipe::Stall { every, lasts } => {
                Some(if place.on { lasts.draw(rng) } else { every.draw(rng) })
            }
            Recipe::GarbageCollection { lasts, .. } => place.on.then(|| lasts.draw(rng)),
            Recipe::BackgroundJob { every, lasts, .. } => {
                if place.on {
                    place.begins_again = self.now + *every;
                    Some(lasts.draw(rng).min(*every))
                } else {
                    Some(place.begins_again.since(self.now))
                }
            }
            Recipe::Antagonist { cores_min, cores_max, cores_left_min, every } => {
                let wanted = cores_min + (cores_max - cores_min) * rng.unit();
                let machine = self.model.cores.map_or(f64::INFINITY, |cores| cores.machine);
                let left = (machine - wanted).max(*cores_left_min);
                let until_next = every.draw(rng);
                self.leave_cores(index, left);
                Some(until_next)
            }
            Recipe::SlowReplica { .. } | Recipe::Errors { .. } | Recipe::Neighbours { .. } => None,
        };
        if let Some(wait) = until_next {
            self.schedule_fault(index, wait);
        }
        self.apply_speed(index);
    }

    /// Counts an execution for garbage collection, which begins when it was the last.
    pub(super) fn collect_garbage(&mut self, server: u32) {
        if !self.faults.garbage {
            return;
        }
        for nth in 0..self.faults.of_server[server as usize].len() {
            let index = self.faults.of_server[server as usize][nth] as usize;
            let place = &mut self.faults.places[index];
            let Recipe::GarbageCollection { executions, .. } = &place.recipe else { continue };
            place.executions_left = place.executions_left.saturating_sub(1);
            if place.executions_left == 0 && !place.on {
                place.executions_left = *executions;
                self.fault_changes_at(index);
            }
        }
    }

    /// The ending of an execution; [`None`] when the root never gets a response.
    pub(super) fn ending(&mut self, server: u32) -> Option<Ending> {
        let good = Some(Ending::Answered(Outcome::Good));
        if !self.faults.has_errors {
            return good;
        }
        for nth in 0..self.faults.of_server[server as usize].len() {
            let index = self.faults.of_server[server as usize][nth] as usize;
            let place = &mut self.faults.places[index];
            let Recipe::Errors { broken, bad, silent } = place.recipe else { continue };
            let drawn = place.rng.unit();
            if drawn < broken.get() {
                return Some(Ending::Failed(Failure::Broken));
            }
            if drawn < broken.get() + bad.get() {
                return Some(Ending::Answered(Outcome::Bad));
            }
            if drawn < broken.get() + bad.get() + silent.get() {
                return None;
            }
        }
        good
    }

    pub(super) fn neighbour_arrives(&mut self, index: u32) {
        self.schedule_neighbour(index as usize);
        self.check_in_flight();
        let place = &mut self.faults.places[index as usize];
        let Recipe::Neighbours { service, class, .. } = &place.recipe else { return };
        let server = place.servers[0];
        let class = *class;
        let key = self.attempts.insert(Attempt {
            owner: Owner::Neighbour,
            id: AttemptId(0),
            server,
            class,
            tie: None,
            service_ns: service.draw_ns(&mut place.rng),
            stage: Stage::Queued,
            is_cancelled: false,
            ending: Ending::Answered(Outcome::Good),
        });
        let request = LeafRequestId(key.as_u64());
        self.leaf_event(server, LeafEvent::Arrived { request, class, tie: None });
        self.wake_leaf(server);
    }

    fn schedule_neighbour(&mut self, index: usize) {
        let place = &mut self.faults.places[index];
        let Recipe::Neighbours { per_second, .. } = &place.recipe else { return };
        let gap = Duration::from_ns_f64(place.rng.exponential() * 1e9 / per_second);
        let step = Step::NeighbourArrives(u32::try_from(index).expect("checked when added"));
        self.queue.push(self.now + gap, step);
    }

    fn schedule_fault(&mut self, index: usize, wait: Duration) {
        let step = Step::FaultChanges(u32::try_from(index).expect("checked when added"));
        self.queue.push(self.now + wait, step);
    }

    fn apply_speed(&mut self, index: usize) {
        for nth in 0..self.faults.places[index].servers.len() {
            let server = self.faults.places[index].servers[nth];
            let speed = self.faults.speed(server);
            self.leaves[server as usize].server.set_speed(self.now, speed);
            self.wake_leaf(server);
        }
    }

    /// Gives servers the cores that an antagonist leaves to them.
    fn leave_cores(&mut self, index: usize, left: f64) {
        for nth in 0..self.faults.places[index].servers.len() {
            let server = self.faults.places[index].servers[nth];
            self.leaves[server as usize].server.set_cores(self.now, left);
            self.wake_leaf(server);
        }
    }
}
