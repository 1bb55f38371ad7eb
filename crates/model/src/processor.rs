//! The processor of a server: the progress of the executions in service.
//!
//! All executions progress at the same *pace*: 1 on a healthy server, 0 on a stopped one, less than 1 when the server
//! is slow or has more executions than cores. One sum (`progress`) therefore describes all executions: one that started
//! at progress p and needs s ends at p + s. A service time is the duration of an execution that has a core of a healthy
//! server to itself.
//! **Source**: processor sharing by virtual time, as in Parekh & Gallager, "A generalized processor sharing approach to
//! flow control in integrated services networks: the single-node case", 1993.

use curtail_config::Section;
use curtail_units::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An execution in service. Executions are ordered by the progress at which they end, then by their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Execution {
    /// The progress at which it ends: the bits of a float from 0 on, which have the order of the floats.
    ends: u64,
    started: u64,
    key: u64,
}

/// The cores that the executions in service share, each using at most one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// The guaranteed cores of a server.
    pub allocated: f64,
    /// The cores of a server on an otherwise idle machine.
    pub machine: f64,
}

impl Cores {
    /// A server that never has more cores than are allocated to it.
    #[must_use]
    pub const fn constant(cores: f64) -> Self {
        Self { allocated: cores, machine: cores }
    }

    /// Reads the keys of cores.
    pub fn read(s: &mut Section<'_>) -> Self {
        let allocated =
            s.field("allocated", "Guaranteed cores of a server.").range(0.01..=1e6).required();
        let machine = s
            .field("machine", "Maximum cores of a server on an otherwise idle machine.")
            .range(0.01..=1e6)
            .optional()
            .unwrap_or(allocated);
        if machine < allocated {
            s.error("machine", format!("expected at least what is allocated ({allocated})"));
        }
        Self { allocated, machine }
    }
}

/// The speed of the executions in service at a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The pace of an execution that has a core to itself: 1 on a healthy server, 0 on one that is stopped.
    pub speed: f64,
    /// The number of cores; more executions than cores share them. Infinite where nothing is shared.
    pub cores: f64,
}

impl Pace {
    /// The pace of a healthy server.
    #[must_use]
    pub fn healthy(cores: Option<Cores>) -> Self {
        Self { speed: 1.0, cores: cores.map_or(f64::INFINITY, |cores| cores.machine) }
    }

    fn of_each(self, count: usize) -> f64 {
        let count = count as f64;
        if count <= self.cores { self.speed } else { self.speed * self.cores / count }
    }
}

/// The executions in service at one server. The driver chooses a key for each execution.
#[derive(Clone, Debug)]
pub struct Processor {
    pace: Pace,
    /// The largest pace that other servers leave, if they share cores.
    share: f64,
    progress_ns: f64,
    /// The time of the last update.
    since: Instant,
    executions: BinaryHeap<Reverse<Execution>>,
    started: u64,
    work_ns: f64,
}

/// An execution has ended if at most this progress is missing. The sum of progress is a float, which is exact to 0.01
/// ns for a few hours of nanoseconds.
const ROUNDING_NS: f64 = 0.01;

impl Processor {
    /// A healthy server. Without `cores`, executions do not share cores.
    #[must_use]
    pub fn new(cores: Option<Cores>) -> Self {
        Self {
            pace: Pace::healthy(cores),
            share: 1.0,
            progress_ns: 0.0,
            since: Instant::ZERO,
            executions: BinaryHeap::new(),
            started: 0,
            work_ns: 0.0,
        }
    }

    /// Starts an execution that takes `service_ns`.
    pub fn start(&mut self, now: Instant, key: u64, service_ns: f64) {
        self.advance(now);
        if self.executions.is_empty() {
            // Small numbers are the exact ones.
            self.progress_ns = 0.0;
        }
        let ends = (self.progress_ns + service_ns).to_bits();
        let started = self.started;
        self.started += 1;
        self.executions.push(Reverse(Execution { ends, started, key }));
    }

    /// Stops an execution before its end.
    pub fn abort(&mut self, now: Instant, key: u64) {
        self.advance(now);
        self.executions.retain(|Reverse(execution)| execution.key != key);
    }

    /// Stops all executions before their end.
    pub fn abort_all(&mut self, now: Instant) {
        self.advance(now);
        self.executions.clear();
    }

    /// Removes an execution that has ended by now, if there is one, and returns its key.
    pub fn finish(&mut self, now: Instant) -> Option<u64> {
        self.advance(now);
        let Reverse(first) = self.executions.peek()?;
        if f64::from_bits(first.ends) > self.progress_ns + ROUNDING_NS {
            return None;
        }
        let Reverse(first) = self.executions.pop()?;
        Some(first.key)
    }

    /// The instant at which the next execution ends at the present pace.
    #[must_use]
    pub fn next_end(&self) -> Option<Instant> {
        let Reverse(first) = self.executions.peek()?;
        let left_ns = f64::from_bits(first.ends) - self.progress_ns;
        let pace = self.pace_of_each();
        // Rounded up, so that it has ended when its time has come.
        (pace > 0.0).then(|| self.since + Duration::from_ns_f64(libm::ceil(left_ns / pace)))
    }

    /// Sets the pace of the executions from now on.
    pub fn set_pace(&mut self, now: Instant, pace: Pace) {
        self.advance(now);
        self.pace = pace;
    }

    /// Sets the largest pace that other servers leave, if they share cores: 1 if there is a core for each execution.
    pub fn set_share(&mut self, now: Instant, share: f64) {
        self.advance(now);
        self.share = share;
    }

    /// The number of executions that use a core.
    #[must_use]
    pub fn running(&self) -> usize {
        if self.pace.speed > 0.0 { self.executions.len() } else { 0 }
    }

    fn pace_of_each(&self) -> f64 {
        self.pace.of_each(self.executions.len()).min(self.pace.speed * self.share)
    }

    /// The service time that was delivered until now, over all executions, in nanoseconds.
    pub fn work_ns(&mut self, now: Instant) -> f64 {
        self.advance(now);
        self.work_ns
    }

    fn advance(&mut self, now: Instant) {
        if now == self.since {
            return;
        }
        let progress = self.pace_of_each() * now.since(self.since).as_ns_f64();
        self.progress_ns += progress;
        self.work_ns += progress * self.executions.len() as f64;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::{Cores, Pace, Processor};
    use curtail_units::{Duration, Instant};

    /// The numbers of three executions.
    const KEYS: [u64; 3] = [7, 3, 5];

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    const MS: f64 = 1e6;

    #[test]
    fn a_share_of_cores_slows_executions_down_and_a_stopped_server_uses_none() {
        let at = Instant::from_ns;
        let mut server = Processor::new(Some(Cores { allocated: 2.0, machine: 2.0 }));
        server.start(at(0), 1, 100.0);
        server.set_share(at(0), 0.5);
        assert_eq!((server.next_end(), server.running()), (Some(at(200)), 1));
        // Alone again: the half that is left takes 50 ns; with four others at this server, its cores are the narrower limit.
        server.set_share(at(100), 1.0);
        assert_eq!(server.next_end(), Some(at(150)));
        (2..=5).for_each(|key| server.start(at(100), key, 1_000.0));
        server.set_share(at(100), 0.9);
        assert_eq!(server.next_end(), Some(at(225)), "five executions on two cores");
        server.set_pace(at(100), Pace { speed: 0.0, cores: 2.0 });
        assert_eq!((server.next_end(), server.running()), (None, 0));
        server.set_pace(at(300), Pace { speed: 0.5, cores: f64::INFINITY });
        server.set_share(at(300), 0.5);
        assert_eq!(server.next_end(), Some(at(500)), "slower, and a share of that");
    }

    #[test]
    fn executions_with_a_core_each_do_not_disturb_each_other() {
        let [a, b, _] = KEYS;
        let mut server = Processor::new(None);
        server.start(at(0), a, 10.0 * MS);
        server.start(at(2), b, 3.0 * MS);
        assert_eq!(server.next_end(), Some(at(5)));
        assert_eq!(server.finish(at(4)), None);
        assert_eq!(server.finish(at(5)), Some(b));
        assert_eq!(server.next_end(), Some(at(10)));
        assert_eq!(server.finish(at(10)), Some(a));
        assert_eq!(server.next_end(), None);
        assert_eq!(server.work_ns(at(20)), 13.0 * MS);
    }

    #[test]
    fn executions_share_the_cores_alike() {
        let [a, b, c] = KEYS;
        let mut server = Processor::new(Some(Cores { allocated: 1.0, machine: 1.0 }));
        server.start(at(0), a, 10.0 * MS);
        server.start(at(4), b, 3.0 * MS);
        // Both at half pace: 3 ms of work take 6 ms.
        assert_eq!(server.next_end(), Some(at(10)));
        assert_eq!(server.finish(at(10)), Some(b));
        assert_eq!(server.next_end(), Some(at(13)));
        server.set_pace(at(12), Pace { speed: 1.0, cores: 0.5 });
        assert_eq!(server.next_end(), Some(at(14)));
        assert_eq!(server.finish(at(14)), Some(a));
        server.start(at(20), c, 2.0 * MS);
        assert_eq!(server.next_end(), Some(at(24)));
        assert_eq!(server.work_ns(at(24)), 15.0 * MS);
    }

    #[test]
    fn a_stopped_server_goes_on_where_it_stopped() {
        let [a, b, _] = KEYS;
        let mut server = Processor::new(None);
        server.start(at(0), a, 10.0 * MS);
        server.set_pace(at(4), Pace { speed: 0.0, ..Pace::healthy(None) });
        assert_eq!(server.next_end(), None);
        server.start(at(50), b, 1.0 * MS);
        assert_eq!(server.finish(at(90)), None);
        server.set_pace(at(100), Pace { speed: 0.5, ..Pace::healthy(None) });
        assert_eq!(server.next_end(), Some(at(102)));
        assert_eq!(server.finish(at(102)), Some(b));
        server.abort(at(103), a);
        assert_eq!(server.next_end(), None);
        assert_eq!(server.work_ns(at(200)), 6.5 * MS);
    }
}
