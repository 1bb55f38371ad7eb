//! The process as the system reports it: the metrics that every Prometheus client library has.
//!
//! **Source**: `proc(5)`; Prometheus, "Writing client libraries", section "Process metrics".

use crate::{FamilyCollector, Metric, MetricType, Unit, gauge};
use curtail_units::{Bytes, Duration};
use std::fs;

/// Linux counts CPU time for `/proc` in hundredths of a second on every machine that we build for.
const TICK: Duration = Duration::from_ms(10);

/// The version.
pub static BUILD: Metric = Metric {
    base: "curtail_build",
    unit: None,
    kind: MetricType::Info,
    labels: &["version"],
    help: "The version that runs.",
};
/// CPU time.
pub static PROCESS_CPU: Metric = Metric {
    base: "process_cpu",
    unit: Some(Unit::Seconds),
    kind: MetricType::Counter,
    labels: &[],
    help: "CPU time of the process, in the program and in the kernel; to 10 ms, on Linux.",
};
/// Resident memory.
pub static PROCESS_MEMORY: Metric = Metric {
    base: "process_resident_memory",
    unit: Some(Unit::Bytes),
    kind: MetricType::Gauge,
    labels: &[],
    help: "Memory of the process that is really there; on Linux.",
};
/// The start time.
pub static PROCESS_START: Metric = Metric {
    base: "process_start_time",
    unit: Some(Unit::Seconds),
    kind: MetricType::Gauge,
    labels: &[],
    help: "When the process started, in seconds since 1970.",
};
/// Open file descriptors.
pub static PROCESS_OPEN_FDS: Metric =
    gauge("process_open_fds", &[], "Open file descriptors; on Linux.");
/// The limit of open file descriptors.
pub static PROCESS_MAX_FDS: Metric =
    gauge("process_max_fds", &[], "Maximum number of open file descriptors; on Linux.");

/// Adds [`BUILD`] and the metrics of the process without its files; `started` is the time since 1970.
pub fn add_families(out: &mut FamilyCollector<'_>, usage: &Usage, started: Duration) {
    out.info(&BUILD, ("version", env!("CARGO_PKG_VERSION")));
    out.add(&PROCESS_CPU, usage.cpu.map(|cpu| ([], cpu.as_secs_f64())));
    out.add(&PROCESS_MEMORY, usage.resident.map(|resident| ([], resident.get())));
    out.add(&PROCESS_START, [([], started.as_secs_f64())]);
}

/// Adds the metrics of the open files of the process.
pub fn add_file_families(out: &mut FamilyCollector<'_>) {
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    out.add(&PROCESS_OPEN_FDS, open.map(|open| ([], open)));
    let limits = fs::read_to_string("/proc/self/limits").ok();
    let max = limits.and_then(|limits| max_fds_of_limits(&limits));
    out.add(&PROCESS_MAX_FDS, max.map(|max| ([], max)));
}

/// The resources that a process uses; those that the system does not report are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads, in the program and in the kernel.
    pub cpu: Option<Duration>,
    /// Resident memory.
    pub resident: Option<Bytes>,
}

impl Usage {
    /// The usage now; nothing where there is no `/proc`.
    #[must_use]
    pub fn now() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
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

/// Reads proc(5) `limits`: the soft limit of open files.
fn max_fds_of_limits(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Reads proc(5) `status`: `VmRSS`, which is in kibibytes whatever the size of a page is.
fn resident_of_status(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::from_kib(kib))
}

#[cfg(test)]
mod tests {
    use super::{Usage, cpu_of_stat, max_fds_of_limits, resident_of_status};
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
    fn the_soft_limit_of_open_files_is_read() {
        let limits =
            "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(max_fds_of_limits(limits), Some(1024));
        assert_eq!(max_fds_of_limits("Max open files   unlimited   unlimited   files\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_very_process_uses_memory_and_cpu_time_never_falls() {
        let before = Usage::now();
        let after = Usage::now();
        assert!(before.resident.expect("Linux says it") > Bytes::from_kib(100), "{before:?}");
        assert!(after.cpu.expect("Linux says it") >= before.cpu.expect("as before"));
    }
}
