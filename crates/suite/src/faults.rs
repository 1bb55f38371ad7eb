//! The faults of one block: each begins at its time during the load, and ends with the block at the latest.
//!
//! **Invariant**: after a block every process runs and is ready again, so the next block finds the same state.

use super::cluster::Cluster;
use super::config::{FaultAction, FaultConfig};
use super::group::pause;
use super::links::Links;
use super::problem::SuiteEnd;
use curtail_generator::Stop;
use curtail_report::results::Event;
use curtail_units::{Duration, Instant};
use rustix::process::Signal;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The interval of checks for the end of the block.
const LOOK_EVERY: Duration = Duration::from_ms(20);

#[derive(Debug)]
pub(super) struct Faults {
    over: Stop,
    threads: Vec<JoinHandle<Result<Event, SuiteEnd>>>,
}

struct Fault {
    config: FaultConfig,
    cluster: Arc<Cluster>,
    links: Arc<Links>,
    over: Stop,
}

impl Faults {
    /// Starts the faults of a block that begins at `began`.
    pub(super) fn begin(
        configs: &[FaultConfig],
        (cluster, links): (&Arc<Cluster>, &Arc<Links>),
        began: Instant,
    ) -> Self {
        let over = Stop::default();
        let start = |config: &FaultConfig| {
            let fault = Fault {
                config: config.clone(),
                cluster: Arc::clone(cluster),
                links: Arc::clone(links),
                over: over.clone(),
            };
            std::thread::spawn(move || fault.run(began))
        };
        Self { threads: configs.iter().map(start).collect(), over }
    }

    /// Ends the faults with the block, and appends their events.
    pub(super) fn end(self, events: &mut Vec<Event>) -> Result<(), SuiteEnd> {
        self.over.stop();
        let mut result = Ok(());
        for thread in self.threads {
            match thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(event) => events.push(event),
                Err(halt) => result = result.and(Err(halt)),
            }
        }
        result
    }
}

impl Fault {
    fn run(&self, began: Instant) -> Result<Event, SuiteEnd> {
        let at = began + self.config.at;
        self.wait_until(at);
        let clock = self.cluster.clock;
        let done = clock.now();
        let until = self.config.lasts.map_or(Instant::MAX, |lasts| done + lasts);
        let what = match &self.config.action {
            _ if self.cluster.stop.is_stopped() => return Err(self.cluster.halt()),
            // Its last request came early, and got its response.
            _ if done < at => {
                format!("the fault at {} was left out: the block was over", self.config.at)
            }
            FaultAction::Pause { process } => {
                let nth = self.cluster.place(process);
                self.cluster.signal(nth, Signal::STOP);
                self.wait_until(until);
                self.cluster.signal(nth, Signal::CONT);
                format!("{process} paused")
            }
            FaultAction::Restart { process } => {
                self.start_again(process, false, done)?;
                format!("{process} restarted")
            }
            FaultAction::Kill { process } => {
                self.start_again(process, true, until)?;
                format!("{process} killed")
            }
            FaultAction::Slow { link, by } => {
                self.links.slow(link, *by);
                self.wait_until(until);
                self.links.end_slow(link, *by);
                format!("{link} slow by {by}")
            }
            FaultAction::Run(config) => {
                self.cluster.spawner.run(config, &self.cluster.stop)?;
                config.name.clone()
            }
        };
        Ok(Event { at: done, lasted: clock.now().since(done), what })
    }

    /// Ends a process, and starts it again at `until` or when the block is over.
    fn start_again(&self, process: &str, is_killed: bool, until: Instant) -> Result<(), SuiteEnd> {
        let nth = self.cluster.place(process);
        self.cluster.end(nth, is_killed);
        self.wait_until(until);
        if self.cluster.stop.is_stopped() {
            return Err(self.cluster.halt());
        }
        self.cluster.start(nth).map(|_| ())
    }

    /// Waits for an instant, at most until the block is over.
    fn wait_until(&self, until: Instant) {
        let clock = self.cluster.clock;
        while !self.over.is_stopped() && !self.cluster.stop.is_stopped() {
            let left = until.since(clock.now());
            if left == Duration::ZERO {
                return;
            }
            pause(left.min(LOOK_EVERY).into());
        }
    }
}
