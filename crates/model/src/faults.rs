//! Running faults: slow servers, failed executions, requests of noisy neighbors.
//!
//! A fault has one *site* for each affected server; a synchronized background job has one site for all of its servers.
//! The driver wakes each site after the time that the site returned, and reports ended executions.
//! **Limits**: slowdowns multiply: two are slower than either one, and a stopped server stays stopped. The demands of
//! antagonists add up.
//! **Invariant** `same-seed-same-faults`: the instants of a site follow from the seed alone, except for garbage
//! collection, which depends on executions. Each site has its own random numbers, so an additional fault does not
//! change the instants of existing faults.

use crate::arrivals::Spacing;
use crate::fault::{Fault, Recipe};
use crate::processor::{Cores, Pace};
use curtail_policy::Class;
use curtail_units::{Duration, Instant, Rng};

#[cfg(test)]
mod tests;

/// A fault at the servers that it affects together.
#[derive(Clone, Debug)]
struct Site {
    recipe: Recipe,
    servers: Vec<u32>,
    rng: Rng,
    /// Whether the site stops its servers now, or makes them slower.
    is_on: bool,
    /// The cores that an antagonist wants.
    cores_wanted: f64,
    executions_left: u32,
    /// The next start of a background job.
    begins_again: Instant,
}

/// All faults of a model.
#[derive(Clone, Debug)]
pub struct Faults {
    sites: Vec<Site>,
    /// The sites that affect each server.
    of_server: Vec<Vec<u32>>,
    cores: Option<Cores>,
    has_garbage_collection: bool,
    has_errors: bool,
    has_crashes: bool,
}

/// The next steps of the driver after it has woken a site.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a site that is not woken again never changes"]
pub struct FaultStep {
    /// The effect now.
    pub effect: FaultEffect,
    /// The time after which the driver wakes the site again; absent: never.
    pub next: Option<Duration>,
}

/// The effect at the servers of a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultEffect {
    /// Nothing yet.
    None,
    /// The [`Faults::pace`] of the servers is another from now on.
    PaceChanges,
    /// The server loses all its requests, and is down until [`Restarts`](Self::Restarts); see [`Faults::is_down`].
    Crashes,
    /// The server is back, with an empty queue, unless another fault keeps it down.
    Restarts,
    /// A request of a noisy neighbor arrives.
    RequestArrives {
        /// The service time of the request, in nanoseconds.
        service_ns: f64,
        /// The class of the request.
        class: Class,
    },
}

/// The outcome of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionOutcome {
    /// A good response.
    Success,
    /// A bad response, such as a 503.
    BadResponse,
    /// A broken connection.
    BrokenConnection,
    /// No response.
    NoResponse,
}

impl Faults {
    /// The faults of `servers` servers, drawn from `rng`, the generator of the run's seed.
    #[must_use]
    pub fn new(faults: &[Fault], servers: u32, cores: Option<Cores>, rng: &Rng) -> Self {
        let rng = rng.split("faults");
        let mut drawn = Self {
            sites: Vec::new(),
            of_server: vec![Vec::new(); servers as usize],
            cores,
            has_garbage_collection: false,
            has_errors: false,
            has_crashes: false,
        };
        for (nth, fault) in (0..).zip(faults) {
            let mut rng = rng.split_index(nth);
            let affected = fault.servers.servers(servers, &mut rng);
            let together = matches!(fault.recipe, Recipe::BackgroundJob { synchronized: true, .. });
            if together && !affected.is_empty() {
                drawn.add(&fault.recipe, affected, &rng);
            } else {
                affected
                    .into_iter()
                    .for_each(|server| drawn.add(&fault.recipe, vec![server], &rng));
            }
        }
        drawn
    }

    fn add(&mut self, recipe: &Recipe, servers: Vec<u32>, rng: &Rng) {
        let number = self.len();
        for server in &servers {
            self.of_server[*server as usize].push(number);
        }
        self.has_errors |= matches!(recipe, Recipe::Errors { .. });
        self.has_crashes |= matches!(recipe, Recipe::Crash { .. });
        self.has_garbage_collection |= matches!(recipe, Recipe::GarbageCollection { .. });
        self.sites.push(Site {
            recipe: recipe.clone(),
            rng: rng.split_index(u64::from(servers[0])),
            servers,
            is_on: false,
            cores_wanted: 0.0,
            executions_left: 0,
            begins_again: Instant::ZERO,
        });
    }

    /// The number of sites; they are numbered from 0.
    ///
    /// # Panics
    /// When faults × servers exceeds a u32.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.sites.len()).expect("faults × servers is a u32")
    }

    /// Whether there are no faults.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// The servers of a site.
    #[must_use]
    pub fn servers(&self, site: u32) -> &[u32] {
        &self.sites[site as usize].servers
    }

    /// Whether waking a site changes the pace of its servers.
    pub(crate) fn changes_pace(&self, site: u32) -> bool {
        let recipe = &self.sites[site as usize].recipe;
        !matches!(recipe, Recipe::NoisyNeighbor { .. } | Recipe::Crash { .. })
    }

    /// The faults of `server` alone, which then has the number 0.
    pub(crate) fn of_server(&self, server: u32) -> Self {
        let sites = self.of_server[server as usize].iter();
        let sites =
            sites.map(|site| Site { servers: vec![0], ..self.sites[*site as usize].clone() });
        let sites: Vec<Site> = sites.collect();
        let of_server = vec![(0..).take(sites.len()).collect()];
        Self { sites, of_server, ..*self }
    }

    /// Begins a site at [`Instant::ZERO`]. The first start of its fault is at a random point of the period, because a
    /// model has been running for long before.
    pub fn begin(&mut self, site: u32) -> FaultStep {
        let Site { recipe, rng, is_on, executions_left, .. } = &mut self.sites[site as usize];
        let mut effect = FaultEffect::None;
        let next = match recipe {
            Recipe::Stall { every, .. } | Recipe::Crash { every, .. } => Some(every.draw_rest(rng)),
            Recipe::BackgroundJob { every, .. } => Some(every.mul_f64(rng.unit())),
            Recipe::SlowReplica { .. } => {
                *is_on = true;
                effect = FaultEffect::PaceChanges;
                None
            }
            Recipe::Errors { .. } => None,
            Recipe::Antagonist { .. } => return self.wake(site, Instant::ZERO),
            Recipe::NoisyNeighbor { per_second, .. } => {
                Some(Spacing::Poisson.gap(1e9 / *per_second, rng))
            }
            Recipe::GarbageCollection { executions, .. } => {
                let left = u32::try_from(rng.below(*executions as usize));
                *executions_left = 1 + left.unwrap_or_default();
                None
            }
        };
        FaultStep { effect, next }
    }

    /// Wakes a site at its instant: the fault begins, ends or changes.
    pub fn wake(&mut self, site: u32, now: Instant) -> FaultStep {
        let Site { recipe, rng, is_on, cores_wanted, begins_again, .. } =
            &mut self.sites[site as usize];
        *is_on = !*is_on;
        let mut effect = FaultEffect::PaceChanges;
        let next = match recipe {
            Recipe::Stall { every, lasts } => {
                Some(if *is_on { lasts.draw(rng) } else { every.draw(rng) })
            }
            Recipe::Crash { every, lasts } => {
                effect = if *is_on { FaultEffect::Crashes } else { FaultEffect::Restarts };
                Some(if *is_on { lasts.draw(rng) } else { every.draw(rng) })
            }
            Recipe::GarbageCollection { lasts, .. } => is_on.then(|| lasts.draw(rng)),
            Recipe::BackgroundJob { every, lasts, .. } => Some(if *is_on {
                *begins_again = now + *every;
                lasts.draw(rng).min(*every)
            } else {
                begins_again.since(now)
            }),
            Recipe::Antagonist { cores_min, cores_max, every, .. } => {
                *cores_wanted = *cores_min + (*cores_max - *cores_min) * rng.unit();
                Some(every.draw(rng))
            }
            Recipe::NoisyNeighbor { per_second, service, class } => {
                let next = Spacing::Poisson.gap(1e9 / *per_second, rng);
                let service_ns = service.draw_ns(rng);
                effect = FaultEffect::RequestArrives { service_ns, class: *class };
                Some(next)
            }
            Recipe::SlowReplica { .. } | Recipe::Errors { .. } => None,
        };
        FaultStep { effect, next }
    }

    /// The pace that the faults leave to a server.
    #[must_use]
    pub fn pace(&self, server: u32) -> Pace {
        let mut pace = Pace::healthy(self.cores);
        let (mut wanted, mut left_min) = (0.0, f64::INFINITY);
        for site in &self.of_server[server as usize] {
            let site = &self.sites[*site as usize];
            match site.recipe {
                Recipe::Antagonist { cores_left_min, .. } => {
                    wanted += site.cores_wanted;
                    left_min = cores_left_min.min(left_min);
                }
                _ if !site.is_on => {}
                Recipe::Stall { .. } | Recipe::GarbageCollection { .. } => pace.speed = 0.0,
                Recipe::BackgroundJob { slowdown, .. } | Recipe::SlowReplica { slowdown } => {
                    pace.speed /= slowdown;
                }
                Recipe::Crash { .. } | Recipe::Errors { .. } | Recipe::NoisyNeighbor { .. } => {}
            }
        }
        if left_min.is_finite() {
            pace.cores = (pace.cores - wanted).max(left_min);
        }
        pace
    }

    /// Whether a server has crashed and is not back.
    #[must_use]
    pub fn is_down(&self, server: u32) -> bool {
        self.has_crashes
            && self.of_server[server as usize].iter().any(|site| {
                let site = &self.sites[*site as usize];
                site.is_on && matches!(site.recipe, Recipe::Crash { .. })
            })
    }

    /// Draws how an execution at a server ends.
    pub fn execution_outcome(&mut self, server: u32) -> ExecutionOutcome {
        if !self.has_errors {
            return ExecutionOutcome::Success;
        }
        for site in &self.of_server[server as usize] {
            let Site { recipe, rng, .. } = &mut self.sites[*site as usize];
            let Recipe::Errors { broken, bad, silent } = recipe else { continue };
            let drawn = rng.unit();
            if drawn < broken.get() {
                return ExecutionOutcome::BrokenConnection;
            }
            if drawn < broken.get() + bad.get() {
                return ExecutionOutcome::BadResponse;
            }
            if drawn < broken.get() + bad.get() + silent.get() {
                return ExecutionOutcome::NoResponse;
            }
        }
        ExecutionOutcome::Success
    }

    /// Counts an ended execution for garbage collection.
    pub fn count_execution(&mut self, server: u32) {
        if !self.has_garbage_collection {
            return;
        }
        for site in &self.of_server[server as usize] {
            let Site { recipe, executions_left, .. } = &mut self.sites[*site as usize];
            if matches!(recipe, Recipe::GarbageCollection { .. }) {
                *executions_left = executions_left.saturating_sub(1);
            }
        }
    }

    /// A site whose server has to collect garbage now. The driver wakes the site, and then calls this again.
    pub fn garbage_to_collect(&mut self, server: u32) -> Option<u32> {
        if !self.has_garbage_collection {
            return None;
        }
        for &number in &self.of_server[server as usize] {
            let site = &mut self.sites[number as usize];
            let Recipe::GarbageCollection { executions, .. } = site.recipe else { continue };
            if site.executions_left == 0 && !site.is_on {
                site.executions_left = executions;
                return Some(number);
            }
        }
        None
    }
}
