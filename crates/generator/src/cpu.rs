//! Processor time of this process.

use std::time::Duration;

/// User and system time of all threads so far, to the clock tick; nothing where the system does not tell.
pub(super) fn used() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses and may hold anything; count from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second().max(1) as f64))
}
