//! Machines that panic: a broken invariant of a policy must never stop the service.
//!
//! **Decides** what a panic of a machine costs. The guard catches, counts and logs the panic, and the driver replaces
//! the machine, because the state of the old one may be inconsistent. The requests of the old machine pass straight
//! through ([`crate::root`], [`crate::leaf`]).
//! **Limits**: one log line per machine in [`LOG_INTERVAL`]. If a machine panics at every request, only its policies
//! are lost. These panics print nothing to standard error.

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

/// The minimum interval between two log lines about one machine.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The step of a machine that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An event of a request at the root.
    Request,
    /// An event of a request to many upstreams.
    Gather,
    /// An event of an upstream.
    Upstream,
    /// An event of a leaf.
    Leaf,
    /// A read that changes nothing.
    Question,
}

/// Catches, counts and logs the panics of one machine.
#[derive(Debug)]
pub(crate) struct Guard {
    machine: String,
    process: Arc<ProcessMetrics>,
    log: Mutex<PanicLog>,
}

/// The rate limit of the log.
#[derive(Debug, Default)]
struct PanicLog {
    next: Instant,
    /// Panics since the last log line.
    unlogged: u64,
}

impl Guard {
    /// The guard of the machine with this name.
    pub(crate) fn new(machine: &str, process: &Arc<ProcessMetrics>) -> Self {
        capture_panic_messages();
        let process = Arc::clone(process);
        Self { machine: machine.to_owned(), process, log: Mutex::default() }
    }

    /// Runs a step of the machine; [`None`] when it panicked and must be replaced.
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
        let panics = self.log.lock().unwrap_or_else(PoisonError::into_inner).count_panic(now);
        if let Some(panics) = panics {
            tracing::error!(
                machine = self.machine,
                ?step,
                panics,
                "a policy panicked and was reset; this is a defect of Curtail, please report it: {message}"
            );
        }
    }
}

impl PanicLog {
    /// Counts a panic; returns the number of unlogged panics when a log line is due.
    fn count_panic(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if now < self.next {
            return None;
        }
        self.next = now + LOG_INTERVAL;
        Some(std::mem::take(&mut self.unlogged))
    }
}

thread_local! {
    /// Whether a machine runs on this thread.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    /// The message of the last guarded panic.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the messages of guarded panics for the log, instead of printing each.
fn capture_panic_messages() {
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
