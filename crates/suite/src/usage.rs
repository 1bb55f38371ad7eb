//! What process groups use: processor time and memory, as `/proc` says it.
//!
//! **Holds** the sum over all processes of a group, with the processor time of children that have ended and were waited
//! for. Memory is resident memory; pages that processes share count in each.
//! **Limits**: processor time comes in ticks of the clock, mostly 10 ms. That of a process whose parent ended before it
//! is lost when it ends.
//! **Source**: `proc_pid_stat(5)`, Linux man-pages.

use curtail_units::Duration;
use rustix::process::Pid;

/// What a group uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Processor time since it began.
    pub(super) cpu: Duration,
    /// Resident memory.
    pub(super) resident_bytes: u64,
    /// How many processes it has, without those that have ended and were not waited for.
    pub(super) alive: usize,
}

/// A line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    group: i64,
    is_zombie: bool,
    /// In ticks: its own and that of children that have ended.
    ticks: u64,
    pages: u64,
}

/// What each of these groups uses.
pub(super) fn of_groups(groups: &[Pid]) -> Vec<Usage> {
    let ticks_a_second = rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    let mut found = vec![Usage::default(); groups.len()];
    let Ok(all) = std::fs::read_dir("/proc") else { return found };
    for entry in all.flatten() {
        let is_process = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()));
        if !is_process {
            continue;
        }
        // One that has ended meanwhile has no line.
        let Ok(line) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some(stat) = stat(&line) else { continue };
        let nth =
            groups.iter().position(|group| i64::from(group.as_raw_nonzero().get()) == stat.group);
        if let Some(usage) = nth.map(|nth| &mut found[nth]) {
            let ns = u128::from(stat.ticks) * 1_000_000_000 / u128::from(ticks_a_second);
            usage.cpu = usage.cpu + Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX));
            usage.resident_bytes += stat.pages * page;
            usage.alive += usize::from(!stat.is_zombie);
        }
    }
    found
}

fn stat(line: &str) -> Option<Stat> {
    // The name, in parentheses, may hold anything, parentheses and spaces as well.
    let (_, fields) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |nth: usize| fields.get(nth)?.parse::<u64>().ok();
    // The state is field 3 of the manual and the first of these.
    let ticks = [11, 12, 13, 14].into_iter().map(number).sum::<Option<u64>>()?;
    Some(Stat {
        group: fields.get(2)?.parse().ok()?,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        ticks,
        pages: number(21)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Stat, of_groups, stat};

    #[test]
    fn a_line_is_read_whatever_the_name_holds() {
        let line =
            "17 (a) R (b c) S 1 42 42 0 -1 4194560 9 8 0 0 7 5 3 1 20 0 9 0 100 8192 77 1844 0\n";
        let read = stat(line).expect("a line");
        assert_eq!(read, Stat { group: 42, is_zombie: false, ticks: 16, pages: 77 });
        assert_eq!(stat("17 (a) S 1"), None);
    }

    #[test]
    fn the_group_of_this_process_uses_something() {
        let mine = rustix::process::getpgrp();
        let usage = of_groups(&[mine])[0];
        assert!(usage.alive >= 1 && usage.resident_bytes > 0, "{usage:?}");
    }
}
