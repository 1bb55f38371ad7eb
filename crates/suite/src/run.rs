//! Runs a suite.
//!
//! **Invariant**: however the suite ends, its processes stop, the teardown runs, and the results contain every measured
//! block.

use super::ask::PlainClient;
use super::batches;
use super::cluster::Cluster;
use super::config::{
    CommandConfig, RestartsConfig, SendingConfig, StepConfig, SuiteConfig, ValidateConfig,
};
use super::faults::Faults;
use super::group::{Spawner, pause};
use super::links::Links;
use super::measures::Watch;
use super::problem::{SuiteEnd, SuiteError};
use super::profiles::Profiles;
use super::watchdog::Watchdog;
use curtail_generator::Clock;
use curtail_generator::session::{EVENTS_MAX, Session, SessionHooks, SessionProgress, Turns};
use curtail_generator::target::Target;
use curtail_generator::workload::{BodyConfig, PrepareError, Workload};
use curtail_generator::{Load, Stop, threads_for};
use curtail_http::connect::Connector;
use curtail_load::{Share, Slot};
use curtail_report::results::{Arm, Event, Results, State};
use curtail_units::{Duration, Instant, Rng};
use std::path::PathBuf;
use std::sync::Arc;

/// A suite that can be run.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The configuration.
    pub config: SuiteConfig,
    /// The command line.
    pub command: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The folder of the suite's file, as an absolute path.
    pub folder: PathBuf,
    /// The existing folder of this run, as an absolute path.
    pub dir: PathBuf,
}

/// The result of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The results; partial when the suite was cut short.
    pub results: Results,
    /// The failure, unless the suite was stopped.
    pub error: Option<SuiteError>,
}

/// Receives the progress of a suite.
#[expect(missing_debug_implementations, reason = "closures have no form to print")]
pub struct SuiteObserver<'a> {
    /// Receives a line for people when a step begins, takes long or is done.
    pub step: &'a (dyn Fn(&str) + Sync),
    /// The progress of the load, twice a second.
    pub load: &'a mut (dyn FnMut(SessionProgress, &Slot) + Send),
}

/// Minimum timeout of the last request of a validation.
const ASKED_FOR_MIN: Duration = Duration::from_ms(100);

/// The wait between two requests of a validation.
const ASKED_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(200);

impl Suite {
    /// Checks the requests of the load before anything is started. If a file of a request is missing and a command may
    /// create it, no request is checked yet.
    ///
    /// # Errors
    /// All errors of the requests.
    pub fn check(&self) -> Result<(), PrepareError> {
        let requests = &self.config.workload.requests;
        let files = requests.iter().flat_map(|request| {
            let body = match &request.body {
                Some(BodyConfig::File(file)) => Some(file),
                Some(BodyConfig::Text(_)) | None => None,
            };
            request.data.iter().chain(body)
        });
        let can_be_made = !self.config.setup.is_empty() || !self.config.prepare.is_empty();
        let are_there = || files.into_iter().all(|file| self.folder.join(file).exists());
        if can_be_made && !are_there() {
            return Ok(());
        }
        let arms = self.config.arms.iter().map(|arm| self.workload(&arm.url).map(|_| ()));
        arms.collect()
    }

    /// Runs the suite.
    pub fn run(&self, stop: &Stop, observer: SuiteObserver<'_>) -> Outcome {
        let clock = Clock::start();
        let arms = self.config.arms.iter().map(|arm| self.arm(&arm.name, &arm.url)).collect();
        let results = Results { arms, ..self.session(Vec::new()).empty_results(clock) };
        let mut running = RunningSuite { suite: self, clock, stop, step: observer.step, results };
        let ended = running.run(observer.load);
        let mut results = running.results;
        let error = match ended {
            Ok(()) => None,
            Err(SuiteEnd::Stopped) => {
                if results.state == State::Complete {
                    let why = "it was interrupted before all was done".to_owned();
                    results.state = State::Partial { why };
                }
                None
            }
            Err(SuiteEnd::Wrong(error)) => {
                let SuiteError { of, problem, .. } = &*error;
                results.state = State::Partial { why: format!("{of}: {problem}") };
                Some(*error)
            }
        };
        Outcome { results, error }
    }

    fn arm(&self, name: &str, url: &str) -> Arm {
        Arm { name: name.to_owned(), about: url.to_owned(), rate: None }
    }

    fn about_load(&self) -> String {
        let SuiteConfig { name, sending, schedule, parameters, .. } = &self.config;
        let parameters: String =
            parameters.iter().map(|(name, value)| format!(", {name} {value}")).collect();
        format!(
            "suite {name}, blocks of {}, {}, at most {} connections{parameters}",
            schedule.lasts(),
            sending.protocol.name(),
            sending.connections
        )
    }

    fn workload(&self, url: &str) -> Result<(Target, Connector, Workload), PrepareError> {
        let wrong = |problem: String| PrepareError { problems: vec![problem] };
        let SendingConfig { protocol, ca_file, insecure, .. } = &self.config.sending;
        let ca_file = ca_file.as_ref().map(|file| self.folder.join(file));
        let target = Target::look_up(url).map_err(|error| wrong(error.to_string()))?;
        let connector = target
            .connector(*protocol, ca_file.as_deref(), *insecure)
            .map_err(|error| wrong(error.to_string()))?;
        let rng = Rng::new(self.seed);
        let workload = Workload::prepare(&self.config.workload, &target, &self.folder, &rng)?;
        Ok((target, connector, workload))
    }

    fn arms(&self) -> Result<Vec<(Arm, Load)>, SuiteEnd> {
        let SuiteConfig { arms, sending, schedule, .. } = &self.config;
        let threads = sending.threads.unwrap_or_else(|| threads_for(schedule.rate_max()));
        let schedule = Arc::new(schedule.clone());
        let mut loads = Vec::new();
        for arm in arms {
            let (target, connector, workload) = self
                .workload(&arm.url)
                .map_err(|error| SuiteEnd::wrong("requests", error.to_string()))?;
            let load = Load {
                target,
                connector,
                protocol: sending.protocol,
                keep_alive: sending.keep_alive,
                connections_max: sending.connections,
                timeout: sending.timeout,
                workload,
                schedule: Arc::clone(&schedule),
                rng: Rng::new(self.seed),
                share: Share::ALL,
                threads,
            };
            loads.push((self.arm(&arm.name, &arm.url), load));
        }
        Ok(loads)
    }

    fn session(&self, arms: Vec<(Arm, Load)>) -> Session {
        Session {
            name: self.config.name.clone(),
            command: self.command.clone(),
            seed: self.seed,
            about_load: self.about_load(),
            arms,
            blocks: self.config.blocks,
            turns: Turns::Alternate,
            warm_up: self.config.warm_up,
        }
    }
}

struct RunningSuite<'a> {
    suite: &'a Suite,
    clock: Clock,
    stop: &'a Stop,
    step: &'a (dyn Fn(&str) + Sync),
    results: Results,
}

type LoadObserver<'a> = &'a mut (dyn FnMut(SessionProgress, &Slot) + Send);

impl RunningSuite<'_> {
    fn run(&mut self, load: LoadObserver<'_>) -> Result<(), SuiteEnd> {
        let watchdog = Watchdog::start().map_err(|error| SuiteEnd::io("watchdog", "sh", &error))?;
        let spawner = Spawner {
            folder: self.suite.folder.clone(),
            dir: self.suite.dir.clone(),
            watchdog: Arc::new(watchdog),
        };
        let ended = self.set_up_and_measure(&spawner, load);
        // Whatever has happened, this is done, and to its end.
        let never = Stop::default();
        let mut torn_down = Ok(());
        for command in &self.suite.config.teardown {
            torn_down = torn_down.and(self.command(command, &spawner, &never));
        }
        ended.and(torn_down)
    }

    fn set_up_and_measure(
        &mut self,
        spawner: &Spawner,
        load: LoadObserver<'_>,
    ) -> Result<(), SuiteEnd> {
        let SuiteConfig { setup, links, processes, measures, .. } = &self.suite.config;
        for command in setup {
            self.command(command, spawner, self.stop)?;
        }
        let links = Arc::new(Links::open(links)?);
        let (spawner, stop) = (spawner.clone(), self.stop.clone());
        let cluster = Arc::new(Cluster::new(processes.clone(), spawner, self.clock, stop));
        let watch = Watch::begin(measures, &cluster);
        let ended = self.start_and_measure(&cluster, &links, load);
        self.results.measures = watch.end(&mut self.results.events);
        self.results.events.sort_by_key(|event| event.at);
        cluster.end_all(self.step);
        // The reason of the stop, if a process caused it.
        ended.map_err(|halt| if halt == SuiteEnd::Stopped { cluster.halt() } else { halt })
    }

    fn start_and_measure(
        &mut self,
        cluster: &Arc<Cluster>,
        links: &Arc<Links>,
        load: LoadObserver<'_>,
    ) -> Result<(), SuiteEnd> {
        for (nth, name) in cluster.names().enumerate() {
            self.timed(name, || cluster.start(nth).map(|_| "ready".to_owned()))?;
        }
        for step in &self.suite.config.prepare {
            self.prepare(step, &cluster.spawner)?;
        }
        self.validate()?;
        let session = self.suite.session(self.suite.arms()?);
        let mut hooks = SuiteHooks {
            suite: self.suite,
            cluster,
            links,
            step: self.step,
            faults: None,
            profiles: None,
            profiled: vec![false; self.suite.config.arms.len()],
            cpu: None,
            events: Vec::new(),
        };
        let measured =
            session.run_with_hooks(&mut hooks, self.clock, self.stop, load).map_err(|error| {
                SuiteEnd::io("load", "the system gives no thread or no timer", &error)
            })?;
        let mut events = hooks.events;
        events.extend(measured.events);
        self.results = Results { events, ..measured };
        if self.stop.is_stopped() {
            return Err(SuiteEnd::Stopped);
        }
        self.validate()
    }

    fn command(
        &self,
        command: &CommandConfig,
        spawner: &Spawner,
        stop: &Stop,
    ) -> Result<(), SuiteEnd> {
        self.timed(&command.name, || spawner.run(command, stop).map(|()| "done".to_owned()))
    }

    fn prepare(&self, step: &StepConfig, spawner: &Spawner) -> Result<(), SuiteEnd> {
        match step {
            StepConfig::Run(command) => self.command(command, spawner, self.stop),
            StepConfig::Load(config) => self.timed(&config.name, || {
                let lines = batches::load(config, spawner, self.stop, self.step)?;
                Ok(format!("{lines} lines loaded"))
            }),
        }
    }

    fn validate(&self) -> Result<(), SuiteEnd> {
        for config in &self.suite.config.validate {
            self.timed(&config.url, || self.wait_until_valid(config))?;
        }
        Ok(())
    }

    fn wait_until_valid(&self, config: &ValidateConfig) -> Result<String, SuiteEnd> {
        let ValidateConfig { url, expect, within } = config;
        let client =
            PlainClient::get(url, expect).map_err(|problem| SuiteEnd::wrong(url, problem))?;
        let began = self.clock.now();
        loop {
            let left = *within - self.clock.now().since(began);
            // Enough for a response, so that the last problem is not the end of the time.
            let sent = client.send(Vec::new(), left.max(ASKED_FOR_MIN), self.stop);
            let Err(problem) = sent else { return Ok("as expected".to_owned()) };
            if self.stop.is_stopped() {
                return Err(SuiteEnd::Stopped);
            }
            if self.clock.now().since(began) >= *within {
                return Err(SuiteEnd::wrong(url, format!("not valid within {within}: {problem}")));
            }
            pause(ASKED_AGAIN_AFTER);
        }
    }

    /// Runs a step, and reports its duration.
    fn timed(
        &self,
        name: &str,
        step: impl FnOnce() -> Result<String, SuiteEnd>,
    ) -> Result<(), SuiteEnd> {
        (self.step)(&format!("{name} …"));
        let began = self.clock.now();
        let what = step()?;
        let lasted = self.clock.now().since(began).as_secs_f64();
        (self.step)(&format!("{name}: {what}, {lasted:.1} s"));
        Ok(())
    }
}

/// The hooks of a suite: restarts, faults, and the profiles and CPU time of processes.
struct SuiteHooks<'a> {
    suite: &'a Suite,
    cluster: &'a Arc<Cluster>,
    links: &'a Arc<Links>,
    step: &'a (dyn Fn(&str) + Sync),
    faults: Option<Faults>,
    profiles: Option<Profiles>,
    /// Whether each arm has its profiles.
    profiled: Vec<bool>,
    /// CPU time of all processes at the start of the block.
    cpu: Option<Duration>,
    events: Vec<Event>,
}

impl SuiteHooks<'_> {
    fn cpu_now(&self) -> Option<Duration> {
        let usage = self.cluster.usage();
        let all = usage.iter().fold(Duration::ZERO, |sum, usage| sum + usage.cpu);
        (!usage.is_empty()).then_some(all)
    }
}

impl SessionHooks for SuiteHooks<'_> {
    fn begin_round(&mut self, round: usize) -> bool {
        let Some(RestartsConfig { every, processes }) = &self.suite.config.restarts else {
            return false;
        };
        if !round.is_multiple_of(*every) {
            return false;
        }
        let names = processes.join(", ");
        (self.step)(&format!("{names}: started anew …"));
        let began = self.cluster.clock.now();
        if let Err(halt) = self.cluster.start_anew(processes) {
            self.cluster.halt_with(halt);
        }
        let lasted = self.cluster.clock.now().since(began);
        self.events.push(Event { at: began, lasted, what: format!("{names} started anew") });
        true
    }

    fn begin_block(&mut self, at: Instant, arms: &[usize]) {
        self.cpu = self.cpu_now();
        let is_new = |arm: &&usize| !std::mem::replace(&mut self.profiled[**arm], true);
        self.profiles = arms.iter().find(is_new).map(|arm| {
            let config = &self.suite.config;
            Profiles::begin(&config.arms[*arm].name, self.cluster, config.schedule.lasts())
        });
        self.faults =
            Some(Faults::begin(&self.suite.config.faults, (self.cluster, self.links), at));
    }

    fn end_block(&mut self) -> Option<Duration> {
        // Before a process is started again that was killed: that is no part of the block.
        let used = self.cpu_now().zip(self.cpu).map(|(now, before)| now - before);
        if let Some(faults) = self.faults.take()
            && let Err(halt) = faults.end(&mut self.events)
        {
            self.cluster.halt_with(halt);
        }
        // Only now, so that no profile is a load on the next block.
        if let Some(profiles) = self.profiles.take() {
            profiles.end(&mut self.events);
        }
        if self.events.len() > EVENTS_MAX {
            self.events.truncate(EVENTS_MAX);
            let last = self.events.last_mut().expect("there are some");
            "faults from here on are left out".clone_into(&mut last.what);
        }
        used
    }
}
