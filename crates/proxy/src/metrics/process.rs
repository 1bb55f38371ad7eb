//! Metrics of the whole process: its own counters, and the resources that the system reports.

use super::labels::{ClientTimeout, CountBy, Counts};
use curtail_units::{Bytes, Duration};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Linux counts CPU time for `/proc` in hundredths of a second on every machine that we build for.
const TICK: Duration = Duration::from_ms(10);

/// The counters of the process.
#[derive(Debug, Default)]
pub(crate) struct ProcessMetrics {
    reloads_ok: AtomicU64,
    reloads_failed: AtomicU64,
    invariants_broken: AtomicU64,
}

/// The counters of the process as they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    pub(super) reloads_ok: u64,
    pub(super) reloads_failed: u64,
    pub(crate) invariants_broken: u64,
}

impl ProcessMetrics {
    /// A new configuration was put into effect.
    pub(crate) fn reloaded(&self) {
        self.reloads_ok.fetch_add(1, Relaxed);
    }

    /// A new configuration had errors; the old one stays.
    pub(crate) fn reload_failed(&self) {
        self.reloads_failed.fetch_add(1, Relaxed);
    }

    /// Counts a policy's machine that panicked.
    pub(crate) fn invariant_broken(&self) {
        self.invariants_broken.fetch_add(1, Relaxed);
    }

    /// The counters as they stand.
    pub(crate) fn read(&self) -> ProcessCounts {
        ProcessCounts {
            reloads_ok: self.reloads_ok.load(Relaxed),
            reloads_failed: self.reloads_failed.load(Relaxed),
            invariants_broken: self.invariants_broken.load(Relaxed),
        }
    }
}

/// The counters of one listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerMetrics {
    accepted: AtomicU64,
    closed: AtomicU64,
    waited: AtomicU64,
    unrouted: AtomicU64,
    malformed: AtomicU64,
    timed_out: CountBy<ClientTimeout>,
}

/// The counters of a listener as they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerCounts {
    pub(super) accepted: u64,
    pub(super) open: u64,
    pub(super) waited: u64,
    pub(super) unrouted: u64,
    pub(super) malformed: u64,
    pub(super) timed_out: Counts,
}

impl ListenerMetrics {
    /// A client has connected.
    pub(crate) fn accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    /// A client's connection is no longer there.
    pub(crate) fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// A client has to wait, because as many are connected as may be.
    pub(crate) fn waited(&self) {
        self.waited.fetch_add(1, Relaxed);
    }

    /// A request matched no route.
    pub(crate) fn unrouted(&self) {
        self.unrouted.fetch_add(1, Relaxed);
    }

    /// Counts a request that is malformed or does not arrive in time.
    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Relaxed);
    }

    /// Counts a client that exceeded a timeout.
    pub(crate) fn timed_out(&self, what: ClientTimeout) {
        self.timed_out.add(&what);
    }

    /// The counters as they stand.
    pub(crate) fn read(&self) -> ListenerCounts {
        let closed = self.closed.load(Relaxed);
        let accepted = self.accepted.load(Relaxed);
        ListenerCounts {
            accepted,
            open: accepted.saturating_sub(closed),
            waited: self.waited.load(Relaxed),
            unrouted: self.unrouted.load(Relaxed),
            malformed: self.malformed.load(Relaxed),
            timed_out: self.timed_out.read(),
        }
    }
}

/// The resources that the process has used, as far as the system reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time of all threads, in the program and in the kernel.
    pub(crate) cpu: Option<Duration>,
    /// Memory that is really there.
    pub(crate) resident: Option<Bytes>,
}

impl Usage {
    /// Reads the resources; none where there is no `/proc`.
    pub(crate) fn now() -> Self {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        Self {
            cpu: cpu_of_stat(&read("/proc/self/stat")),
            resident: resident_of_status(&read("/proc/self/status")),
        }
    }
}

/// Reads proc(5) `stat`: fields 14 and 15, of which the name in field 2 may hold anything but is the
/// last thing in parentheses.
fn cpu_of_stat(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some(Duration::from_ns((user + system).saturating_mul(TICK.as_ns())))
}

/// Reads proc(5) `status`: `VmRSS`, which is in kibibytes whatever the size of a page is.
fn resident_of_status(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::from_kib(kib))
}

#[cfg(test)]
mod tests {
    use super::{Usage, cpu_of_stat, resident_of_status};
    use curtail_units::{Bytes, Duration};

    #[test]
    fn cpu_time_is_found_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 900 0 3 0 125 75 0 0 20 0 4 0 33 1 2";
        assert_eq!(cpu_of_stat(stat), Some(Duration::from_secs(2)));
        assert_eq!(cpu_of_stat("7 (x) S 1 2"), None);
        assert_eq!(cpu_of_stat(""), None);
    }

    #[test]
    fn resident_memory_is_read_in_kibibytes() {
        let status = "Name:\tx\nVmPeak:\t    9000 kB\nVmRSS:\t    1234 kB\nThreads:\t4\n";
        assert_eq!(resident_of_status(status), Some(Bytes::from_kib(1234)));
        assert_eq!(resident_of_status("Name:\tx\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_very_process_uses_memory_and_cpu_time_never_falls() {
        let before = Usage::now();
        let after = Usage::now();
        assert!(before.resident.expect("Linux reports it") > Bytes::from_kib(100), "{before:?}");
        assert!(after.cpu.expect("Linux reports it") >= before.cpu.expect("as before"));
    }
}
