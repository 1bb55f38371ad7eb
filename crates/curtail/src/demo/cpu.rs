//! How much of the machine the demo uses: beyond about half of it, it measures its own queueing.

use std::time::{Duration, Instant};

/// Clock ticks in a second, in which Linux tells CPU time to programs on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Measures CPU time of this process between two moments.
#[derive(Debug)]
pub(crate) struct Cpu {
    since: Instant,
    used: Option<Duration>,
}

impl Cpu {
    /// From now on.
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), used: used() }
    }

    /// Cores used on average since the start; nothing where the system does not tell.
    pub(crate) fn cores(&self) -> Option<f64> {
        let used = used()?.checked_sub(self.used?)?;
        let elapsed = self.since.elapsed().as_secs_f64();
        (elapsed > 0.0).then(|| used.as_secs_f64() / elapsed)
    }
}

/// CPU time of all threads so far, in user and in kernel mode.
fn used() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses and may hold anything; count from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}
