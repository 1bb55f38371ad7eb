//! Busy and waiting time of each thread, and the locks that threads wait for.
//!
//! CPU time, waits for a CPU and context switches are differences of the kernel's counters. Waits for locks are sampled
//! a hundred times a second: a thread waits for a lock if it sleeps in a futex call without a time limit, and the futex
//! has the value of a contended mutex. Other sleeps are not lock waits: idle threads, condition variables, channels.
//!
//! **Limits**: finds mutexes of Rust's standard library and of glibc, with an error of a sample for each wait; no
//! reader-writer locks. The futex of a condition variable counts its notifications, so a thread that waits for one that
//! was notified exactly twice counts as waiting for a lock. A thread that ends before the profile does is left out. Time is counted for at most
//! [`LOCKS_MAX`] locks.
//!
//! **Source**: proc(5), sections `stat`, `status` and `syscall`; the kernel's `sched-stats.rst`; futex(2).

use crate::{Client, ProfileError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// The folder of the threads of this process.
const TASKS: &str = "/proc/self/task";

const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// Maximum number of locks whose waits are counted.
const LOCKS_MAX: usize = 10_000;

/// Maximum number of locks in the report, those with the longest waits.
const LOCKS_SHOWN_MAX: usize = 20;

/// A tick of the CPU times in `stat`: a hundredth of a second on all supported targets.
const TICK_MS: u64 = 10;

/// The number of the system call futex(2).
const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202" } else { "98" };

/// Flags of a futex operation: private, and on the clock of real time.
const FUTEX_FLAGS: u64 = 128 | 256;

/// Futex operations that wait while the futex has a value: `FUTEX_WAIT`, `FUTEX_WAIT_BITSET`.
const FUTEX_WAITS: [u64; 2] = [0, 9];

/// The value of a mutex that is locked and waited for, in Rust's standard library and in glibc.
const CONTENDED: u64 = 2;

pub(crate) fn record(lasts: Duration, client: &Client) -> Result<Vec<u8>, ProfileError> {
    let before = Counters::of_threads()?;
    let mut waits = LockWaits::default();
    let began = Instant::now();
    let mut last = began;
    while last.duration_since(began) < lasts {
        client.wait(SAMPLE_EVERY)?;
        let now = Instant::now();
        waits.sample(now.duration_since(last))?;
        last = now;
    }
    let after = Counters::of_threads()?;
    Ok(format!("{:#}\n", report(last.duration_since(began), (&before, &after), &waits)).into())
}

fn system(error: &std::io::Error) -> ProfileError {
    ProfileError::System(format!("{TASKS}: {error}"))
}

/// The IDs of all threads.
fn thread_ids() -> Result<Vec<u32>, ProfileError> {
    let tasks = fs::read_dir(TASKS).map_err(|error| system(&error))?;
    let id = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
    Ok(tasks.flatten().filter_map(id).collect())
}

/// Reads a file of a thread; absent if the thread has ended.
fn read(thread: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("{TASKS}/{thread}/{file}")).ok()
}

/// The kernel's counters of a thread, since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counters {
    name: String,
    user_ms: u64,
    system_ms: u64,
    /// Time in which the thread could run, and had no CPU; 0 if the kernel does not count it.
    runnable_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

impl Counters {
    fn of_threads() -> Result<BTreeMap<u32, Self>, ProfileError> {
        let counters = |id: u32| {
            let [stat, status] = ["stat", "status"].map(|file| read(id, file));
            let scheduler = read(id, "schedstat").unwrap_or_default();
            Some((id, Self::parse(&stat?, &scheduler, &status?)?))
        };
        Ok(thread_ids()?.into_iter().filter_map(counters).collect())
    }

    fn parse(stat: &str, scheduler: &str, status: &str) -> Option<Self> {
        // The name is in parentheses, and may itself contain some.
        let (name, after_name) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let ticks = |nth: usize| after_name.split(' ').nth(nth)?.parse::<u64>().ok();
        let switches = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse().ok()
        };
        Some(Self {
            name: name.to_owned(),
            user_ms: ticks(11)? * TICK_MS,
            system_ms: ticks(12)? * TICK_MS,
            runnable_ns: scheduler.split(' ').nth(1).map_or(Some(0), |ns| ns.parse().ok())?,
            voluntary_switches: switches("voluntary_ctxt_switches:")?,
            involuntary_switches: switches("nonvoluntary_ctxt_switches:")?,
        })
    }
}

/// The sampled waits for locks.
#[derive(Debug, Default)]
struct LockWaits {
    threads: BTreeMap<u32, Duration>,
    /// The wait of all threads for each lock, by the address of the lock, and the threads that waited.
    locks: BTreeMap<u64, (Duration, BTreeSet<u32>)>,
    /// Whether the system shows what threads wait for.
    is_shown: bool,
}

impl LockWaits {
    /// Adds the time since the last sample to the threads that wait for a lock now.
    fn sample(&mut self, since_last: Duration) -> Result<(), ProfileError> {
        for thread in thread_ids()? {
            let Some(syscall) = read(thread, "syscall") else { continue };
            self.is_shown = true;
            let Some(lock) = awaited_lock(&syscall) else { continue };
            *self.threads.entry(thread).or_default() += since_last;
            if self.locks.len() < LOCKS_MAX || self.locks.contains_key(&lock) {
                let (wait, threads) = self.locks.entry(lock).or_default();
                *wait += since_last;
                threads.insert(thread);
            }
        }
        Ok(())
    }
}

/// Parses proc(5) `syscall`: the address of the mutex for which a thread waits, if it waits for one.
fn awaited_lock(syscall: &str) -> Option<u64> {
    let mut words = syscall.split(' ');
    if words.next()? != FUTEX {
        return None;
    }
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let [address, operation, value, time_limit] =
        [argument()?, argument()?, argument()?, argument()?];
    let is_wait = FUTEX_WAITS.contains(&(operation & !FUTEX_FLAGS));
    (is_wait && value == CONTENDED && time_limit == 0).then_some(address)
}

fn report(
    lasted: Duration,
    (before, after): (&BTreeMap<u32, Counters>, &BTreeMap<u32, Counters>),
    waits: &LockWaits,
) -> Value {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    // A thread that has started meanwhile has counted from zero.
    let new = Counters::default();
    let mut threads: Vec<(u64, Value)> = Vec::new();
    for (id, now) in after {
        let then = before.get(id).unwrap_or(&new);
        let since = |count: fn(&Counters) -> u64| count(now).saturating_sub(count(then));
        let [user_ms, system_ms] = [since(|of| of.user_ms), since(|of| of.system_ms)];
        let thread = json!({
            "name": now.name,
            "id": id,
            "user_ms": user_ms,
            "system_ms": system_ms,
            "runnable_ms": ms(Duration::from_nanos(since(|of| of.runnable_ns))),
            "lock_ms": waits.is_shown.then(|| ms(waits.threads.get(id).copied().unwrap_or_default())),
            "voluntary_switches": since(|of| of.voluntary_switches),
            "involuntary_switches": since(|of| of.involuntary_switches),
        });
        threads.push((user_ms + system_ms, thread));
    }
    threads.sort_by_key(|(cpu_ms, _)| std::cmp::Reverse(*cpu_ms));
    let mut locks: Vec<_> = waits.locks.iter().collect();
    locks.sort_by_key(|(_, (wait, _))| std::cmp::Reverse(*wait));
    let name = |id: &u32| after.get(id).or_else(|| before.get(id)).map(|thread| &thread.name);
    let lock = |(address, (wait, threads)): &(&u64, &(Duration, BTreeSet<u32>))| {
        json!({
            "address": format!("{address:#x}"),
            "wait_ms": ms(*wait),
            "threads": threads.iter().filter_map(name).collect::<Vec<_>>(),
        })
    };
    json!({
        "schema": "curtail.threads/1",
        "seconds": lasted.as_secs_f64(),
        "threads": threads.into_iter().map(|(_, thread)| thread).collect::<Vec<_>>(),
        "locks": locks.iter().take(LOCKS_SHOWN_MAX).map(lock).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Counters, FUTEX, awaited_lock};

    #[test]
    fn counters_are_found_whatever_the_thread_is_called() {
        let stat = "7 (a) b (c)) S 1 6 7 0 -1 4194560 900 0 3 0 125 75 10 20 20 0 4 0 33 1 2\n";
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let expected = Counters {
            name: "a) b (c)".to_owned(),
            user_ms: 1_250,
            system_ms: 750,
            runnable_ns: 8_000,
            voluntary_switches: 12,
            involuntary_switches: 3,
        };
        assert_eq!(Counters::parse(stat, "5000 8000 9\n", status), Some(expected.clone()));
        let uncounted = Counters { runnable_ns: 0, ..expected };
        assert_eq!(Counters::parse(stat, "", status), Some(uncounted));
        assert_eq!(Counters::parse("7 (x) S 1 2", "", status), None);
    }

    #[test]
    fn only_a_contended_mutex_is_a_lock() {
        let call = |arguments: &str| format!("{FUTEX} {arguments} 0x0 0xffffffff 0x7ffc 0x7f1b\n");
        for (syscall, lock) in [
            (call("0x7f00 0x80 0x2 0x0"), Some(0x7f00)),
            (call("0x7f00 0x189 0x2 0x0"), Some(0x7f00)),
            // A parked thread, a condition variable with a time limit, a wake-up.
            (call("0x7f00 0x189 0xffffffff 0x0"), None),
            (call("0x7f00 0x189 0x2 0x7ffc10"), None),
            (call("0x7f00 0x81 0x2 0x0"), None),
            ("232 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffc 0x7f1b\n".to_owned(), None),
            ("running\n".to_owned(), None),
            ("-1 0x7ffc 0x7f1b\n".to_owned(), None),
        ] {
            assert_eq!(awaited_lock(&syscall), lock, "{syscall}");
        }
    }
}
