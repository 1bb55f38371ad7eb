//! The server behind a leaf: how fast the requests in service get on.
//!
//! **Holds** the executions in service, each with the service time that is left to it, and the *pace* at
//! which all of them get on: 1 on a healthy server, 0 while it is stopped, less than 1 when it is slow or
//! when more executions share its cores than it has. Since all have the same pace, one sum (`progress`) says how
//! far each has got: an execution that started at progress p and needs s ends when the progress is p + s.
//! **Inputs**: service times in nanoseconds on a healthy server that is not shared.
//! **Limits**: executions differ in length only, not in their share of the server. How many run at once
//! is for the leaf to decide.
//! **Source**: processor sharing by virtual time, as in Parekh & Gallager, "A generalized processor sharing approach to
//! flow control", 1993.

use crate::slab::Key;
use curtail_units::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An execution in service; the order is by the progress at which it ends, then by who started first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Execution {
    /// The progress at which it ends: the bits of a float that is not negative, which order as it does.
    ends: u64,
    started: u64,
    key: u64,
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// The pace when nothing is shared.
    speed: f64,
    /// Executions that get on at full speed at once; more share.
    cores: f64,
    progress_ns: f64,
    /// When the progress was last brought up to date.
    since: Instant,
    executions: BinaryHeap<Reverse<Execution>>,
    started: u64,
    work_ns: f64,
}

/// Progress that is lost to rounding: instants are whole nanoseconds, and a float of a few hours of
/// nanoseconds is exact to a hundredth.
const ROUNDING_NS: f64 = 0.01;

impl Server {
    /// A healthy server; `cores` may be infinite, then nothing is shared.
    pub(crate) fn new(cores: f64) -> Self {
        Self {
            speed: 1.0,
            cores,
            progress_ns: 0.0,
            since: Instant::ZERO,
            executions: BinaryHeap::new(),
            started: 0,
            work_ns: 0.0,
        }
    }

    /// Begins to execute what takes `service_ns`.
    pub(crate) fn start(&mut self, now: Instant, key: Key, service_ns: f64) {
        self.get_on(now);
        if self.executions.is_empty() {
            // Small numbers are the exact ones.
            self.progress_ns = 0.0;
        }
        let ends = (self.progress_ns + service_ns).to_bits();
        let started = self.started;
        self.started += 1;
        self.executions.push(Reverse(Execution { ends, started, key: key.as_u64() }));
    }

    /// Stops an execution before its end.
    pub(crate) fn abort(&mut self, now: Instant, key: Key) {
        self.get_on(now);
        self.executions.retain(|Reverse(execution)| execution.key != key.as_u64());
    }

    /// Takes out an execution that has ended by now, if there is one.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Key> {
        self.get_on(now);
        let Reverse(first) = self.executions.peek()?;
        if f64::from_bits(first.ends) > self.progress_ns + ROUNDING_NS {
            return None;
        }
        let Reverse(first) = self.executions.pop()?;
        Some(Key::from_u64(first.key))
    }

    /// When the next execution ends, as things stand.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let Reverse(first) = self.executions.peek()?;
        let left_ns = f64::from_bits(first.ends) - self.progress_ns;
        let pace = self.pace();
        // Rounded up, so that it has ended when its time has come.
        (pace > 0.0).then(|| self.since + Duration::from_ns_f64(libm::ceil(left_ns / pace)))
    }

    /// Sets the pace of an execution that has a core to itself.
    pub(crate) fn set_speed(&mut self, now: Instant, speed: f64) {
        self.get_on(now);
        self.speed = speed;
    }

    /// Sets how many executions get on at full speed at once.
    pub(crate) fn set_cores(&mut self, now: Instant, cores: f64) {
        self.get_on(now);
        self.cores = cores;
    }

    /// The service time that was delivered until now, over all executions, in nanoseconds.
    pub(crate) fn work_ns(&mut self, now: Instant) -> f64 {
        self.get_on(now);
        self.work_ns
    }

    fn pace(&self) -> f64 {
        let count = self.executions.len() as f64;
        if count <= self.cores { self.speed } else { self.speed * self.cores / count }
    }

    /// Brings the progress up to date.
    fn get_on(&mut self, now: Instant) {
        if now == self.since {
            return;
        }
        let progress = self.pace() * now.since(self.since).as_ns_f64();
        self.progress_ns += progress;
        self.work_ns += progress * self.executions.len() as f64;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::Server;
    use crate::slab::{Key, Slab};
    use curtail_units::{Duration, Instant};

    fn keys() -> [Key; 3] {
        let mut slab = Slab::new();
        [(); 3].map(|()| slab.insert(()))
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    const MS: f64 = 1e6;

    #[test]
    fn executions_with_a_core_each_do_not_disturb_each_other() {
        let [a, b, _] = keys();
        let mut server = Server::new(f64::INFINITY);
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
        let [a, b, c] = keys();
        let mut server = Server::new(1.0);
        server.start(at(0), a, 10.0 * MS);
        server.start(at(4), b, 3.0 * MS);
        // Both at half pace: 3 ms of work take 6 ms.
        assert_eq!(server.next_end(), Some(at(10)));
        assert_eq!(server.finish(at(10)), Some(b));
        assert_eq!(server.next_end(), Some(at(13)));
        server.set_cores(at(12), 0.5);
        assert_eq!(server.next_end(), Some(at(14)));
        assert_eq!(server.finish(at(14)), Some(a));
        server.start(at(20), c, 2.0 * MS);
        assert_eq!(server.next_end(), Some(at(24)));
        assert_eq!(server.work_ns(at(24)), 15.0 * MS);
    }

    #[test]
    fn a_stopped_server_goes_on_where_it_stopped() {
        let [a, b, _] = keys();
        let mut server = Server::new(f64::INFINITY);
        server.start(at(0), a, 10.0 * MS);
        server.set_speed(at(4), 0.0);
        assert_eq!(server.next_end(), None);
        server.start(at(50), b, 1.0 * MS);
        assert_eq!(server.finish(at(90)), None);
        server.set_speed(at(100), 0.5);
        assert_eq!(server.next_end(), Some(at(102)));
        assert_eq!(server.finish(at(102)), Some(b));
        server.abort(at(103), a);
        assert_eq!(server.next_end(), None);
        assert_eq!(server.work_ns(at(200)), 6.5 * MS);
    }
}
