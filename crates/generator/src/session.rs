//! A run: blocks of load on arms, from the start to the results.
//!
//! **Order**: a round has a block of each arm: alternately A B and B A, so that slow changes affect both, or A and B at
//! once ([`Turns`]). All blocks of a round send the same requests at the same instants.
//! **Warm-up**: an arm is warmed up before its first block and after a restart ([`SessionHooks::begin_round`]), for a
//! fixed time or until the service is steady ([`curtail_load::steady`]). A warm-up counts in no percentile.
//! **Invariant**: the results contain every measured block, however the run ends. They state whether the run was
//! interrupted, and whether the generator was too late ([`ExcessiveLag`]).

use crate::{FailureExample, Load, Recording, Stop};
use curtail_config::{Scalar, ScalarError, Value};
use curtail_http::clock::Clock;
use curtail_load::lag::ExcessiveLag;
use curtail_load::{Slot, steady};
use curtail_report::results::{Arm, Block, Event, Machine, Results, Shares, State};
use curtail_units::{Duration, Instant};
use serde_json::{Value as Json, json};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Session {
    /// The name in reports.
    pub name: String,
    /// The command line.
    pub command: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The load, in words.
    pub about_load: String,
    /// The arms, one or two.
    pub arms: Vec<(Arm, Load)>,
    /// Number of blocks of each arm.
    pub blocks: usize,
    /// The order of the arms in a round.
    pub turns: Turns,
    /// The warm-up.
    pub warm_up: WarmUp,
}

/// The order of the arms in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// The arms one after the other, forwards and backwards alternately.
    Alternate,
    /// All arms at once: events affect both arms, but arms that share a machine disturb each other.
    Mirrored,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionProgress {
    /// The arm of the present block.
    pub arm: usize,
    /// Completed blocks of all arms.
    pub blocks_done: usize,
    /// The number of all blocks of the run.
    pub blocks: usize,
    /// Whether the present block is a warm-up.
    pub is_warm_up: bool,
    /// The time since the block began.
    pub since_began: Duration,
    /// The duration of the block.
    pub lasts: Duration,
}

/// Actions between and during the blocks of a run: restarts, faults, measurements.
pub trait SessionHooks {
    /// Runs before each round except round 0. Returns whether services were restarted and need a warm-up.
    fn begin_round(&mut self, _round: usize) -> bool {
        false
    }

    /// Runs before a measured block of these arms, which begins at this instant of the run's clock.
    fn begin_block(&mut self, _at: Instant, _arms: &[usize]) {}

    /// Runs after a measured block. Returns the CPU time that the servers used, if known.
    fn end_block(&mut self) -> Option<Duration> {
        None
    }
}

/// A run without hooks.
impl SessionHooks for () {}

/// The maximum number of events of a run.
pub const EVENTS_MAX: usize = 1_000;

/// Maximum share of waiting requests in a block that the results do not report.
const WAITED_MAX: f64 = 0.01;

/// Length of a piece of warm-up load, after which the service may be steady.
const PIECE: Duration = Duration::from_secs(3);

/// Maximum time of a warm-up that ends when the service is steady.
pub const WARM_UP_MAX: Duration = Duration::from_secs(120);

/// The length of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// No warm-up.
    None,
    /// Until the service is steady, for a maximum time.
    Steady {
        /// The maximum time. If the service is not steady by then, blocks count all the same, and the results say so.
        at_most: Duration,
    },
    /// A fixed time.
    Lasts(Duration),
}

impl Value for WarmUp {
    const NOUN: &'static str = "none, auto";
    const DETAIL: &'static str = "or a time such as 30s";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        match scalar.text() {
            Some("none") => Ok(Self::None),
            Some("auto") => Ok(Self::Steady { at_most: WARM_UP_MAX }),
            _ => <Duration as Value>::read(scalar).map(Self::Lasts),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Steady { .. } => "auto".to_owned(),
            Self::Lasts(lasts) => lasts.write(),
        }
    }

    fn placeholder() -> Self {
        Self::None
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

struct RunningSession<'a> {
    session: &'a Session,
    clock: Clock,
    stop: &'a Stop,
    results: Results,
}

impl Session {
    /// Runs the plan; `on_progress` gets the latest figures, twice a second.
    ///
    /// # Errors
    /// When the system gives no thread or no timer.
    pub fn run(
        &self,
        stop: &Stop,
        on_progress: impl FnMut(SessionProgress, &Slot) + Send,
    ) -> io::Result<Results> {
        self.run_with_hooks(&mut (), Clock::start(), stop, on_progress)
    }

    /// Runs the plan with `hooks`, on a clock that has started before.
    ///
    /// # Errors
    /// When the system gives no thread or no timer.
    pub fn run_with_hooks(
        &self,
        hooks: &mut dyn SessionHooks,
        clock: Clock,
        stop: &Stop,
        mut on_progress: impl FnMut(SessionProgress, &Slot) + Send,
    ) -> io::Result<Results> {
        let results = self.empty_results(clock);
        let mut running = RunningSession { session: self, clock, stop, results };
        for round in 0..self.blocks {
            let are_new = round == 0 || (!stop.is_stopped() && hooks.begin_round(round));
            for arm in (0..self.arms.len()).filter(|_| are_new) {
                running.warm_up(arm, round * self.arms.len(), &mut on_progress)?;
            }
            running.round(round, hooks, &mut on_progress)?;
        }
        running.judge();
        Ok(running.results)
    }

    /// The results before the first block.
    #[must_use]
    pub fn empty_results(&self, clock: Clock) -> Results {
        Results {
            name: self.name.clone(),
            command: self.command.clone(),
            seed: self.seed,
            began_unix_ns: clock.unix_ns(Instant::ZERO),
            machine: Machine::this(),
            shares: self.arms.first().map_or_else(Shares::all, |(_, load)| load.share.into()),
            state: State::Complete,
            load: self.about_load.clone(),
            arms: self.arms.iter().map(|(arm, load)| planned(arm, load)).collect(),
            series: self.arms.first().map_or_else(Vec::new, |(_, load)| load.workload.series()),
            blocks: Vec::new(),
            measures: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// The arm with the planned rate of its load, unless the arm has one.
fn planned(arm: &Arm, load: &Load) -> Arm {
    // A step of a journey follows the one before it, so there is no planned rate.
    let rate = (!load.workload.has_journeys()).then(|| load.schedule.rate_mean());
    Arm { rate: arm.rate.or(rate), ..arm.clone() }
}

impl RunningSession<'_> {
    /// Warms up an arm; `done` blocks are over.
    fn warm_up(
        &mut self,
        arm: usize,
        done: usize,
        on_progress: &mut impl FnMut(SessionProgress, &Slot),
    ) -> io::Result<()> {
        let (at_most, until_steady) = match self.session.warm_up {
            WarmUp::None => return Ok(()),
            WarmUp::Steady { at_most } => (at_most, true),
            WarmUp::Lasts(lasts) => (lasts, false),
        };
        let load = &self.session.arms[arm].1;
        let began = self.clock.now();
        let mut slots = Vec::new();
        for piece in 0_u64.. {
            let so_far = self.clock.now().since(began);
            if so_far >= at_most || self.stop.is_stopped() {
                break;
            }
            let lasts = PIECE.min(at_most - so_far);
            let rng = load.rng.split("warm-up").split_index(piece);
            // As much as at the start of what is measured, and never more than the plan has at its height.
            let schedule = Arc::new(load.schedule.first(lasts));
            let load = Load { schedule, workload: load.workload.seeded(&rng), rng, ..load.clone() };
            let progress = self.progress(arm, done, at_most);
            let seen = crate::run(&Arc::new(load), self.clock, self.stop, |now, slot| {
                slots.push(slot.clone());
                let since_began = now.since(began);
                on_progress(SessionProgress { is_warm_up: true, since_began, ..progress }, slot);
            })?;
            self.keep(arm, seen, true);
            if until_steady && steady::is_steady(&slots) {
                return Ok(());
            }
        }
        if until_steady && !self.stop.is_stopped() {
            let name = &self.results.arms[arm].name;
            let what = format!("{name} was not steady after {at_most} of warming up");
            self.results.events.push(Event { at: self.clock.now(), lasted: Duration::ZERO, what });
        }
        Ok(())
    }

    fn round(
        &mut self,
        round: usize,
        hooks: &mut dyn SessionHooks,
        on_progress: &mut (impl FnMut(SessionProgress, &Slot) + Send),
    ) -> io::Result<()> {
        let mut arms: Vec<usize> = (0..self.session.arms.len()).collect();
        if !round.is_multiple_of(2) {
            arms.reverse();
        }
        let at_once = match self.session.turns {
            Turns::Alternate => 1,
            Turns::Mirrored => arms.len().max(1),
        };
        for (nth, arms_now) in arms.chunks(at_once).enumerate() {
            if self.stop.is_stopped() {
                break;
            }
            let done = round * arms.len() + nth * at_once;
            hooks.begin_block(self.clock.now() + crate::BEGINS_AFTER, arms_now);
            let seen = self.blocks(round, done, arms_now, on_progress)?;
            let servers_cpu = hooks.end_block();
            for (arm, mut seen) in arms_now.iter().zip(seen) {
                // This process cannot tell the usage of each apart.
                seen.cpu = seen.cpu.mul_f64(1.0 / at_once as f64);
                self.keep(*arm, seen, false);
                if let (Some(block), 1) = (self.results.blocks.last_mut(), at_once) {
                    block.servers_cpu = servers_cpu;
                }
            }
        }
        Ok(())
    }

    /// Runs a block of each of `arms`, at once; `done` blocks are over.
    fn blocks(
        &self,
        round: usize,
        done: usize,
        arms: &[usize],
        on_progress: &mut (impl FnMut(SessionProgress, &Slot) + Send),
    ) -> io::Result<Vec<Recording>> {
        let began = self.clock.now();
        let on_progress = Mutex::new(on_progress);
        let block = |arm: usize| {
            let load = &self.session.arms[arm].1;
            // All arms of a round send the same.
            let rng = load.rng.split("block").split_index(round as u64);
            let load = Load { workload: load.workload.seeded(&rng), rng, ..load.clone() };
            let progress = self.progress(arm, done, load.schedule.lasts());
            crate::run(&Arc::new(load), self.clock, self.stop, |now, slot| {
                let progress = SessionProgress { since_began: now.since(began), ..progress };
                (*on_progress.lock().unwrap_or_else(PoisonError::into_inner))(progress, slot);
            })
        };
        thread::scope(|scope| {
            let block = &block;
            let running: Vec<_> = arms.iter().map(|arm| scope.spawn(move || block(*arm))).collect();
            let ended = running.into_iter().map(|running| {
                running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.collect()
        })
    }

    /// The progress at the start of a measured block of `arm`.
    const fn progress(&self, arm: usize, blocks_done: usize, lasts: Duration) -> SessionProgress {
        SessionProgress {
            arm,
            blocks_done,
            blocks: self.session.blocks * self.session.arms.len(),
            is_warm_up: false,
            since_began: Duration::ZERO,
            lasts,
        }
    }

    fn keep(&mut self, arm: usize, seen: Recording, is_warm_up: bool) {
        if !is_warm_up {
            self.add_events(arm, &seen);
        }
        self.results.blocks.push(Block {
            arm,
            began: seen.began,
            lasted: seen.ended.since(seen.began),
            latencies: seen.latencies,
            timeline: seen.timeline,
            received_bytes: seen.received_bytes,
            connections: seen.connections,
            resent: seen.resent,
            generator_cpu: seen.cpu,
            servers_cpu: None,
            is_warm_up,
        });
    }

    /// Adds an event for the first failure of each kind, and one if too many requests waited for a connection.
    fn add_events(&mut self, arm: usize, seen: &Recording) {
        let name = self.results.arms[arm].name.clone();
        let event = |at, what| Event { at, lasted: Duration::ZERO, what };
        let failures = seen.examples.iter().map(|FailureExample { failure, at, text }| {
            event(*at, format!("{name}, first {}: {text}", failure.name()))
        });
        let waited = seen.waited as f64 / (seen.count() as f64).max(1.0);
        let waited_first = seen.waited_first.filter(|_| waited > WAITED_MAX);
        let crowded = waited_first.map(|at| {
            let (percent, most) = (100.0 * waited, self.session.arms[arm].1.connections_max);
            event(at, format!("{name}: requests began to wait for one of {most} connections; {percent:.1} % of them did"))
        });
        let left = EVENTS_MAX.saturating_sub(self.results.events.len());
        self.results.events.extend(failures.chain(crowded).take(left));
        self.results.events.sort_by_key(|event| event.at);
    }

    /// Sets the state of the results: partial or void, if the run is not complete and valid.
    fn judge(&mut self) {
        let late = self.results.excessive_lag().filter(ExcessiveLag::is_void);
        if self.stop.is_stopped() {
            let (done, all) =
                (self.results.measured().count(), self.session.blocks * self.session.arms.len());
            let late = late.map_or(String::new(), |late| format!(", and is void as well: {late}"));
            let why = format!("it was interrupted in block {done} of {all}{late}");
            self.results.state = State::Partial { why };
        } else if let Some(late) = late {
            self.results.state = State::Void { why: late.to_string() };
        }
    }
}
