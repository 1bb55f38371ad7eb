//! Fail open: a machine or an encoder that panics, or a machine that makes an impossible decision, never stops the service.
//!
//! The guard counts and logs the panic, and the driver replaces the machine, because its state may be inconsistent.
//! The requests of the old machine pass straight through ([`crate::root`], [`crate::leaf`], [`crate::fan_out`]).
//! A span or a line of the access log whose encoder panics is not written ([`encode`]); its buffer counts it.
//! **Limits**: one log line per machine, and one for all encoders, in [`LOG_INTERVAL`]. If a machine panics at every
//! request, only its policies are lost. These panics print nothing to standard error.

use crate::metrics::ProcessMetrics;
use curtail_http::accept::WarnLimit;
use curtail_policy::{Event, GatherEvent, LeafEvent, UpstreamEvent};
use curtail_units::{Duration, Instant};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Arc, Mutex, Once, PoisonError};

#[cfg(test)]
pub(crate) mod planted;
#[cfg(test)]
mod tests;

/// The minimum interval between two log lines about one machine.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Call(Event),
    Gather(GatherEvent),
    Upstream(UpstreamEvent),
    Leaf(LeafEvent),
    /// A read that changes nothing.
    Read,
    Restart,
    Effects,
}

/// Catches, counts and logs the defects of one machine.
#[derive(Debug)]
pub(crate) struct Guard {
    machine: String,
    process: Arc<ProcessMetrics>,
    log: Mutex<DefectLog>,
}

#[derive(Debug, Default)]
struct DefectLog {
    next: Instant,
    /// Defects since the last log line.
    unlogged: u64,
}

impl Guard {
    pub(crate) fn new(machine: &str, process: &Arc<ProcessMetrics>) -> Self {
        capture_panic_messages();
        let process = Arc::clone(process);
        Self { machine: machine.to_owned(), process, log: Mutex::default() }
    }

    /// Runs a step of the machine; [`None`] when it panicked and must be replaced.
    pub(crate) fn run<T>(&self, now: Instant, step: Step, run: impl FnOnce() -> T) -> Option<T> {
        let ran = catch(|| {
            let ran = run();
            #[cfg(test)]
            planted::strike(&self.machine, &step);
            ran
        });
        ran.inspect_err(|message| self.report(now, step, message)).ok()
    }

    /// Counts and logs a broken invariant.
    #[cold]
    pub(crate) fn report(&self, now: Instant, step: Step, message: &str) {
        self.process.invariants_broken.add(1);
        let defects = self.log.lock().unwrap_or_else(PoisonError::into_inner).count_defect(now);
        if let Some(defects) = defects {
            tracing::error!(
                machine = self.machine,
                ?step,
                defects,
                "a policy broke an invariant and was reset; this is a defect of Curtail, please report it: {message}"
            );
        }
    }
}

/// Appends a record to a buffer. If the encoder panics, nothing is appended, the log has the panic, and the result is false.
pub(crate) fn encode(
    record: &'static str,
    buffer: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) -> bool {
    static LOGGED: WarnLimit = WarnLimit::new();
    let begin = buffer.len();
    let Err(message) = catch(|| write(buffer)) else { return true };
    buffer.truncate(begin);
    if LOGGED.is_due() {
        tracing::error!(
            record,
            "an encoder panicked, so the record is not written, and further ones are counted; this is a defect of Curtail, please report it: {message}"
        );
    }
    false
}

/// # Errors
/// The message of the panic, if `run` panics.
fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    IS_GUARDED.set(true);
    let ran = catch_unwind(AssertUnwindSafe(run));
    IS_GUARDED.set(false);
    ran.map_err(|_| MESSAGE.take())
}

impl DefectLog {
    /// Counts a defect; returns the number of unlogged defects when a log line is due.
    fn count_defect(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if now < self.next {
            return None;
        }
        self.next = now + LOG_INTERVAL;
        Some(std::mem::take(&mut self.unlogged))
    }
}

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
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
