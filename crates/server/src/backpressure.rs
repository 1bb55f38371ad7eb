//! Backpressure: senders wait while too many bytes of memtables wait to be flushed.

use curtail_ingest::StallReason;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The interval of checks and reports while a thread waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The limit `bytes_max` on the memtables that wait for a flush.
#[derive(Debug)]
pub(crate) struct FlushBacklog {
    bytes_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_unlimited: bool,
    /// Whether the last flush failed because the disk is full.
    is_disk_full: bool,
}

impl FlushBacklog {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Blocks while at least `bytes_max` bytes wait for a flush; `report` gets the reason at once and every 100 ms.
    pub(crate) fn wait(
        &self,
        waiting_bytes: impl Fn() -> usize,
        report: &mut dyn FnMut(StallReason),
    ) {
        let is_full = |state: &mut State| !state.is_unlimited && waiting_bytes() >= self.bytes_max;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while is_full(&mut state) {
            report(if state.is_disk_full { StallReason::DiskFull } else { StallReason::Slow });
            let waited = self.changed.wait_timeout_while(state, LOOK_EVERY, is_full);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes waiting threads after a flush.
    pub(crate) fn flushed(&self, is_disk_full: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_disk_full = is_disk_full;
        self.changed.notify_all();
    }

    /// Lifts the limit at the end of the server: accepted batches that cannot be flushed stay in the log.
    pub(crate) fn lift(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_unlimited = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::FlushBacklog;
    use curtail_ingest::StallReason;
    use std::cell::Cell;

    #[test]
    fn a_full_backlog_reports_its_reason_until_a_flush_makes_room() {
        let backlog = FlushBacklog::new(10);
        let waiting_bytes = Cell::new(10);
        let mut reports = Vec::new();
        backlog.flushed(true);
        backlog.wait(|| waiting_bytes.get(), &mut |why| {
            reports.push(why == StallReason::DiskFull);
            waiting_bytes.set(9);
        });
        assert_eq!(reports, [true]);
    }

    #[test]
    fn a_lifted_limit_blocks_nobody() {
        let backlog = FlushBacklog::new(0);
        backlog.lift();
        backlog.wait(|| usize::MAX, &mut |_| panic!("there is no limit"));
    }
}
