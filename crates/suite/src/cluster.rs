//! The processes of a suite: starts them in order, checks readiness, watches them, and stops them in reverse order.
//!
//! **Invariant**: a process that ends by itself ends the suite; the error has its name and the end of its log.

use super::ask::PlainClient;
use super::config::{ProcessConfig, ReadyConfig, ReadySign};
use super::group::{Group, LOOK_EVERY, Program, Spawner, pause};
use super::problem::{SuiteEnd, read_part};
use curtail_generator::expect::Expect;
use curtail_generator::{Clock, Stop};
use curtail_metrics::process::GroupUsage;
use curtail_units::{Duration, Instant};
use rustix::process::Signal;
use std::fs::File;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The timeout of one readiness check; after a timeout, the process is checked again.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// Maximum output that is searched for a sign of readiness.
const SIGN_BYTES_MAX: u64 = 16 << 20;

/// The number of no group. It is not -1, because an ending process can have group -1 in `/proc`.
const NO_GROUP: i32 = i32::MIN;

#[derive(Debug)]
pub(super) struct Cluster {
    configs: Vec<ProcessConfig>,
    pub(super) spawner: Spawner,
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    processes: Mutex<Vec<Process>>,
    halted: Mutex<Option<SuiteEnd>>,
}

/// One process; `Default` before its first start.
#[derive(Debug, Default)]
struct Process {
    group: Option<Group>,
    started: Instant,
    /// The offset in the log at which the output of the present process starts.
    log_from: u64,
    /// CPU time of earlier processes with this name.
    cpu_before: Duration,
}

impl Cluster {
    pub(super) fn new(
        configs: Vec<ProcessConfig>,
        spawner: Spawner,
        clock: Clock,
        stop: Stop,
    ) -> Self {
        let processes = configs.iter().map(|_| Process::default()).collect();
        let (processes, halted) = (Mutex::new(processes), Mutex::new(None));
        Self { configs, spawner, clock, stop, processes, halted }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.configs.iter().map(|config| config.name.as_str())
    }

    /// The processes with a URL of CPU profiles: their names and these URLs.
    pub(super) fn profile_urls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.configs.iter().filter_map(|config| Some((&*config.name, config.profile.as_deref()?)))
    }

    /// The index of a process, whose name the configuration has checked.
    pub(super) fn place(&self, name: &str) -> usize {
        self.names().position(|each| each == name).unwrap_or(0)
    }

    pub(super) fn started(&self, nth: usize) -> Instant {
        self.locked()[nth].started
    }

    /// Starts a process, and waits until it is ready; returns the time that it took.
    pub(super) fn start(&self, nth: usize) -> Result<Duration, SuiteEnd> {
        let ProcessConfig { name, run, env, ready, .. } = &self.configs[nth];
        let began = self.clock.now();
        {
            let log_len = std::fs::metadata(self.spawner.log(name)).map_or(0, |file| file.len());
            let group = self.spawner.start(Program { name, run, env }, false)?;
            let process = &mut self.locked()[nth];
            process.group = Some(group);
            (process.started, process.log_from) = (began, log_len);
        }
        if let Some(ready) = ready {
            self.wait_until_ready(nth, ready)?;
        }
        Ok(self.clock.now().since(began))
    }

    fn wait_until_ready(&self, nth: usize, ready: &ReadyConfig) -> Result<(), SuiteEnd> {
        let ReadyConfig { sign, within } = ready;
        let began = self.clock.now();
        loop {
            let found = self.sign(nth, sign);
            // Another process may respond on that port.
            self.check_alive(nth)?;
            let Err(problem) = found else { return Ok(()) };
            if self.stop.is_stopped() {
                return Err(self.halt());
            }
            if self.clock.now().since(began) >= *within {
                let name = &self.configs[nth].name;
                let problem = format!("it was not ready within {within}: {problem}");
                return Err(SuiteEnd::with_log(name, problem, &self.spawner.log(name)));
            }
            pause(LOOK_EVERY);
        }
    }

    /// Checks the sign of readiness; the error says what is missing.
    fn sign(&self, nth: usize, sign: &ReadySign) -> Result<(), String> {
        match sign {
            ReadySign::Http(url) => {
                let expect = Expect::default();
                let response = PlainClient::get(url, &expect)
                    .and_then(|client| client.send(Vec::new(), ASKED_WITHIN, &self.stop));
                response.map(|_| ()).map_err(|problem| format!("GET {url}: {problem}"))
            }
            ReadySign::Tcp(address) => TcpStream::connect_timeout(address, ASKED_WITHIN.into())
                .map(|_| ())
                .map_err(|error| format!("{address}: {error}")),
            ReadySign::Line(text) => {
                let from = self.locked()[nth].log_from;
                let log = self.spawner.log(&self.configs[nth].name);
                let output = File::open(log).and_then(|log| read_part(log, from, SIGN_BYTES_MAX));
                let output = output.unwrap_or_default();
                let found = memchr::memmem::find(&output, text.as_bytes());
                found.map(|_| ()).ok_or_else(|| format!("it has not printed {text:?}"))
            }
        }
    }

    /// Fails when a process has ended by itself.
    pub(super) fn check_alive(&self, nth: usize) -> Result<(), SuiteEnd> {
        let ended = self.locked()[nth].group.as_mut().and_then(Group::ended);
        let Some(status) = ended else { return Ok(()) };
        let name = &self.configs[nth].name;
        let problem = format!("it has ended by itself: {status}");
        Err(SuiteEnd::with_log(name, problem, &self.spawner.log(name)))
    }

    /// Ends the suite when a process has ended by itself.
    pub(super) fn watch(&self) {
        for nth in 0..self.configs.len() {
            if let Err(halt) = self.check_alive(nth) {
                self.halt_with(halt);
            }
        }
    }

    pub(super) fn signal(&self, nth: usize, signal: Signal) {
        if let Some(group) = &mut self.locked()[nth].group {
            group.signal(signal);
        }
    }

    /// Ends a process, with SIGKILL if `is_killed`; returns whether the process had to be killed.
    pub(super) fn end(&self, nth: usize, is_killed: bool) -> bool {
        // Outside the lock: the watch does not see its end, and nobody waits.
        let Some(mut group) = self.locked()[nth].group.take() else { return false };
        let used = group.usage().cpu;
        let was_killed = if is_killed {
            group.kill();
            true
        } else {
            group.stop(self.configs[nth].stop_within)
        };
        let process = &mut self.locked()[nth];
        process.cpu_before = process.cpu_before + used;
        was_killed
    }

    /// Ends all processes, the last first; reports each that had to be killed.
    pub(super) fn end_all(&self, report: impl Fn(&str)) {
        for nth in (0..self.configs.len()).rev() {
            if self.end(nth, false) {
                let ProcessConfig { name, stop_within, .. } = &self.configs[nth];
                report(&format!("{name}: it had not ended after {stop_within}, and was killed"));
            }
        }
    }

    /// Restarts some processes: ends the last first, then starts them in their order.
    pub(super) fn start_anew(&self, names: &[String]) -> Result<(), SuiteEnd> {
        let is_one = |nth: &usize| names.contains(&self.configs[*nth].name);
        for nth in (0..self.configs.len()).rev().filter(is_one) {
            self.end(nth, false);
        }
        for nth in (0..self.configs.len()).filter(is_one) {
            self.start(nth)?;
        }
        Ok(())
    }

    /// The usage of each process; CPU time includes earlier processes with the same name.
    pub(super) fn usage(&self) -> Vec<GroupUsage> {
        let (groups, before): (Vec<i32>, Vec<Duration>) = self
            .locked()
            .iter()
            .map(|process| (process.group.as_ref().map_or(NO_GROUP, Group::id), process.cpu_before))
            .unzip();
        let usages = GroupUsage::of(&groups).into_iter().zip(before);
        usages.map(|(now, before)| GroupUsage { cpu: now.cpu + before, ..now }).collect()
    }

    /// Ends the suite; the first reason is kept.
    pub(super) fn halt_with(&self, halt: SuiteEnd) {
        if halt != SuiteEnd::Stopped {
            self.halted.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(halt);
        }
        self.stop.stop();
    }

    /// The reason why the suite stops.
    pub(super) fn halt(&self) -> SuiteEnd {
        let halted = self.halted.lock().unwrap_or_else(PoisonError::into_inner);
        halted.clone().unwrap_or(SuiteEnd::Stopped)
    }
}
