//! Metrics of the process, as reported by the system: those of every Prometheus client library.
//!
//! **Source**: `proc(5)`; Prometheus, "Writing client libraries", section "Process metrics".

use crate::{FamilyCollector, Metric, MetricType, Unit, gauge, with_unit};
use curtail_units::{Bytes, Duration};
use std::fs;

/// The unit of CPU time in `/proc`: a hundredth of a second on all supported targets.
const TICK: Duration = Duration::from_ms(10);

/// The version.
pub static BUILD: Metric = Metric {
    base: "curtail_build",
    unit: None,
    kind: MetricType::Info,
    labels: &["version"],
    help: "Version of the running program.",
};
/// CPU time.
pub static PROCESS_CPU: Metric = with_unit(
    MetricType::Counter,
    Unit::Seconds,
    "process_cpu",
    &[],
    "CPU time of the process, user and system together, in steps of 10 ms; on Linux.",
);
/// Resident memory.
pub static PROCESS_MEMORY: Metric = with_unit(
    MetricType::Gauge,
    Unit::Bytes,
    "process_resident_memory",
    &[],
    "Resident memory of the process; on Linux.",
);
/// The start time.
pub static PROCESS_START: Metric = with_unit(
    MetricType::Gauge,
    Unit::Seconds,
    "process_start_time",
    &[],
    "Start time of the process, in seconds since 1970.",
);
/// Open file descriptors.
pub static PROCESS_OPEN_FDS: Metric =
    gauge("process_open_fds", &[], "Open file descriptors; on Linux.");
/// The limit of open file descriptors.
pub static PROCESS_MAX_FDS: Metric =
    gauge("process_max_fds", &[], "Maximum number of open file descriptors; on Linux.");

/// Adds [`BUILD`] and the metrics of the process, except those of its files; `started` is the start since 1970.
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

/// The resources that a process uses; a resource that the system does not report is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads, user and system together.
    pub cpu: Option<Duration>,
    /// Resident memory.
    pub resident: Option<Bytes>,
}

impl Usage {
    /// Returns the current usage; both fields are absent without `/proc`.
    #[must_use]
    pub fn now() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        Self {
            cpu: ProcessStat::parse(&read("/proc/self/stat")).map(|stat| stat.cpu),
            resident: resident_of_status(&read("/proc/self/status")),
        }
    }
}

/// The resources that the processes of a process group use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// CPU time since the start, including ended children. The time of a process that ends after its parent is lost.
    pub cpu: Duration,
    /// Resident memory; a shared page counts once for each process.
    pub resident: Bytes,
    /// The number of processes, without zombies.
    pub alive: usize,
}

impl GroupUsage {
    /// Returns the usage of each of these process groups.
    #[must_use]
    pub fn of(groups: &[i32]) -> Vec<Self> {
        let mut usages = vec![Self::default(); groups.len()];
        let Ok(processes) = fs::read_dir("/proc") else { return usages };
        let is_process = |entry: &fs::DirEntry| {
            entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)
        };
        for process in processes.flatten().filter(is_process) {
            // A process that has ended meanwhile has no such file.
            let read = |file| fs::read_to_string(process.path().join(file)).ok();
            let Some(stat) = read("stat").as_deref().and_then(ProcessStat::parse) else { continue };
            let Some(nth) = groups.iter().position(|group| *group == stat.group) else { continue };
            let Some(status) = read("status") else { continue };
            let usage = &mut usages[nth];
            usage.cpu = usage.cpu + stat.cpu + stat.cpu_of_children;
            usage.resident = Bytes::new(
                usage.resident.get() + resident_of_status(&status).map_or(0, Bytes::get),
            );
            usage.alive += usize::from(!stat.is_zombie);
        }
        usages
    }
}

/// The fields of proc(5) `stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    group: i32,
    is_zombie: bool,
    cpu: Duration,
    cpu_of_children: Duration,
}

impl ProcessStat {
    fn parse(stat: &str) -> Option<Self> {
        // The name in field 2 may contain anything; it is the last text in parentheses.
        let (_, after_name) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let cpu = |user: usize, system: usize| {
            let ticks = |nth: usize| fields.get(nth)?.parse::<u64>().ok();
            Some(Duration::from_ns((ticks(user)? + ticks(system)?).saturating_mul(TICK.as_ns())))
        };
        Some(Self {
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            group: fields.get(2)?.parse().ok()?,
            cpu: cpu(11, 12)?,
            cpu_of_children: cpu(13, 14)?,
        })
    }
}

/// Parses proc(5) `limits`: the soft limit of open files.
fn max_fds_of_limits(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Parses proc(5) `status`: `VmRSS`, in kibibytes.
fn resident_of_status(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::from_kib(kib))
}

#[cfg(test)]
mod tests {
    use super::{GroupUsage, ProcessStat, Usage, max_fds_of_limits, resident_of_status};
    use curtail_units::{Bytes, Duration};

    #[test]
    fn cpu_time_is_found_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) Z 1 6 7 0 -1 4194560 900 0 3 0 125 75 10 20 20 0 4 0 33 1 2";
        let expected = ProcessStat {
            group: 6,
            is_zombie: true,
            cpu: Duration::from_secs(2),
            cpu_of_children: Duration::from_ms(300),
        };
        assert_eq!(ProcessStat::parse(stat), Some(expected));
        assert_eq!(ProcessStat::parse("7 (x) S 1 2"), None);
        assert_eq!(ProcessStat::parse(""), None);
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
    fn the_group_of_this_process_uses_something() {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
        let group = ProcessStat::parse(&stat).expect("a line of proc(5)").group;
        let [usage, none] = GroupUsage::of(&[group, -7]).try_into().expect("one for each");
        assert!(usage.alive >= 1 && usage.resident > Bytes::from_kib(100), "{usage:?}");
        assert_eq!(none, GroupUsage::default());
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
