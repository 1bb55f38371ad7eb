//! Processor time of this process.

use std::time::Duration;

/// User and system time of all threads so far, to the clock tick (10 ms); nothing where the system does not tell.
pub(crate) fn used() -> Option<Duration> {
    of_process("self")
}

/// The same of the process with this ID in /proc.
pub(crate) fn of_process(id: &str) -> Option<Duration> {
    /// Clock ticks in a second, in which Linux tells processor time to programs on every architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything; count from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}
