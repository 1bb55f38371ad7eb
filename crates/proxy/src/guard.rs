//! Machines that panic: a policy that breaks its own invariant must never take a site down.
//!
//! **Decides** what a panic of a machine costs: it is caught, counted and logged, and the driver gives the
//! machine up and goes on with a fresh one, because nobody knows what is left of the old one. The requests
//! that the old one looked after pass straight through ([`crate::root`], [`crate::leaf`]).
//! **Limits**: one line in the log for each machine in [`LOG_INTERVAL`]; a machine that panics at every
//! request costs its policies and nothing else. Standard error gets nothing of these panics.

use crate::metrics::ProcessMetrics;
use curtail_units::{Duration, Instant};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Arc, Mutex, Once, PoisonError};

#[cfg(test)]
mod planted;
#[cfg(test)]
mod tests;

/// Panics of one machine are logged this far apart.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The part of a machine that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An event of a request at the root.
    Request,
    /// An event of an upstream.
    Upstream,
    /// An event of a leaf.
    Leaf,
    /// A question that changes nothing.
    Question,
}

/// Catches the panics of one machine.
#[derive(Debug)]
pub(crate) struct Guard {
    machine: String,
    process: Arc<ProcessMetrics>,
    log: Mutex<Log>,
}

/// What is logged when.
#[derive(Debug, Default)]
struct Log {
    next: Instant,
    /// Panics since the last line.
    unlogged: u64,
}

impl Guard {
    /// The guard of the machine with that name.
    pub(crate) fn new(machine: &str, process: &Arc<ProcessMetrics>) -> Self {
        take_over_messages();
        let process = Arc::clone(process);
        Self { machine: machine.to_owned(), process, log: Mutex::default() }
    }

    /// Runs a step of the machine; [`None`] when it panicked, and the machine must be replaced.
    pub(crate) fn run<T>(&self, now: Instant, step: Step, run: impl FnOnce() -> T) -> Option<T> {
        IS_GUARDED.set(true);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let ran = run();
            #[cfg(test)]
            planted::strike(&self.machine, step);
            ran
        }));
        IS_GUARDED.set(false);
        if ran.is_err() {
            self.process.invariant_broken();
            self.log(now, step);
        }
        ran.ok()
    }

    fn log(&self, now: Instant, step: Step) {
        let message = MESSAGE.take();
        let panics = self.log.lock().unwrap_or_else(PoisonError::into_inner).due(now);
        if let Some(panics) = panics {
            tracing::error!(
                machine = self.machine,
                ?step,
                panics,
                "a policy panicked and was replaced by a fresh one; this is a defect of Curtail: {message}"
            );
        }
    }
}

impl Log {
    /// One more panic; the number of those to log, when a line is due.
    fn due(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if now < self.next {
            return None;
        }
        self.next = now + LOG_INTERVAL;
        Some(std::mem::take(&mut self.unlogged))
    }
}

thread_local! {
    /// A machine runs on this thread.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    /// What the last guarded panic said.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on the message of a guarded panic is kept for the log, in place of being printed each time.
fn take_over_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_GUARDED.get() {
                MESSAGE.set(message(info));
            } else {
                print(info);
            }
        }));
    });
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let backtrace = Backtrace::capture();
    let is_wanted = backtrace.status() == BacktraceStatus::Captured;
    if is_wanted { format!("{info}\n{backtrace}") } else { info.to_string() }
}
