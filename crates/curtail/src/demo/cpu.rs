//! CPU usage of the demo and of all other programs.

use curtail_metrics::process::Usage;
use std::time::{Duration, Instant};

/// The unit of `/proc/stat`: Linux reports 100 ticks a second to programs on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// A measurement of CPU time since its start.
#[derive(Debug)]
pub(crate) struct Cpu {
    since: Instant,
    own: Option<Duration>,
    machine: Option<Duration>,
}

/// Average cores used; [`None`] if the system does not report them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoresUsed {
    /// By this process.
    pub(crate) own: Option<f64>,
    /// By all other programs, including other virtual machines on the same host.
    pub(crate) others: Option<f64>,
}

impl Cpu {
    /// Starts the measurement.
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), own: own_cpu_time(), machine: machine_cpu_time() }
    }

    /// Average cores used since the start.
    pub(crate) fn cores(&self) -> CoresUsed {
        let elapsed = self.since.elapsed().as_secs_f64();
        let cores = |now: Option<Duration>, then: Option<Duration>| {
            let used = now?.checked_sub(then?)?;
            (elapsed > 0.0).then(|| used.as_secs_f64() / elapsed)
        };
        let own = cores(own_cpu_time(), self.own);
        let machine = cores(machine_cpu_time(), self.machine);
        let others = machine.zip(own).map(|(machine, own)| (machine - own).max(0.0));
        CoresUsed { own, others }
    }
}

/// User and kernel CPU time of all threads of this process.
fn own_cpu_time() -> Option<Duration> {
    Usage::now().cpu.map(Duration::from)
}

/// CPU time of all programs on this machine.
fn machine_cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<f64> = fields.map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq + steal;
    Some(Duration::from_secs_f64(busy / TICKS_PER_SECOND))
}
