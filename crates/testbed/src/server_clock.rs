//! A clock that stands still while its server is stopped, and goes slower while it is slow.
//!
//! **Decides** when work is done: work that takes 5 ms is done when the server's own clock has moved on by
//! 5 ms, whatever befell the server in between. So a stall delays what waits, what is about to start and
//! what is half done, all by the same rule.
//! **Inputs**: the [`Spells`] of the server, which follow from the seed, and pauses that begin at once
//! ([`ServerClock::pause`]), such as those of garbage collection.
//! **Limits**: instants must not go back. Spells that overlap multiply; stopped stays stopped.
//! **Cost**: the spells since the clock was last read, a few nanoseconds each.

use crate::spells::Spells;
use curtail_units::{Duration, Instant};

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct ServerClock {
    /// How fast it goes when nothing else is wrong: 1, or less on a server that is slow for good.
    speed: f64,
    /// One sequence for each fault; its next spell is the one that has not ended at `at`.
    faults: Vec<Spells>,
    paused_until: Instant,
    /// The instant to which the reading belongs.
    at: Instant,
    own_ns: f64,
}

impl ServerClock {
    /// A clock that reads zero at [`Instant::ZERO`].
    pub(crate) const fn new(speed: f64, faults: Vec<Spells>) -> Self {
        Self { speed, faults, paused_until: Instant::ZERO, at: Instant::ZERO, own_ns: 0.0 }
    }

    /// What the clock reads.
    pub(crate) fn read(&mut self, now: Instant) -> Duration {
        self.advance(now);
        Duration::from_ns_f64(self.own_ns)
    }

    /// When to look again whether the clock reads `due`; nothing when it does so already.
    pub(crate) fn wait_for(&mut self, now: Instant, due: Duration) -> Option<Instant> {
        let left = due - self.read(now);
        if left == Duration::ZERO {
            return None;
        }
        let change = self.next_change();
        let pace = self.pace();
        if pace == 0.0 { Some(change) } else { Some(change.min(now + left.mul_f64(1.0 / pace))) }
    }

    /// When to look again whether the server is running; nothing when it is.
    pub(crate) fn wait_to_run(&mut self, now: Instant) -> Option<Instant> {
        self.advance(now);
        (self.pace() == 0.0).then(|| self.next_change())
    }

    /// Stands still from now on, for `length`.
    pub(crate) fn pause(&mut self, now: Instant, length: Duration) {
        self.advance(now);
        self.paused_until = self.paused_until.max(now + length);
    }

    fn advance(&mut self, now: Instant) {
        loop {
            let change = self.next_change();
            self.move_to(change.min(now));
            if change > now {
                return;
            }
        }
    }

    fn move_to(&mut self, to: Instant) {
        self.own_ns += to.since(self.at).as_ns_f64() * self.pace();
        self.at = to;
        for spells in &mut self.faults {
            if spells.peek().to <= to {
                // What is over is of no more interest.
                let _over = spells.next();
            }
        }
    }

    /// The next instant at which the pace may change.
    fn next_change(&self) -> Instant {
        let of_fault = |spells: &Spells| {
            let spell = spells.peek();
            if self.at < spell.from { spell.from } else { spell.to }
        };
        let of_pause = (self.at < self.paused_until).then_some(self.paused_until);
        self.faults.iter().map(of_fault).chain(of_pause).min().unwrap_or(Instant::MAX)
    }

    /// How fast the server is at `at`.
    fn pace(&self) -> f64 {
        if self.at < self.paused_until {
            return 0.0;
        }
        let begun = self.faults.iter().map(Spells::peek).filter(|spell| spell.from <= self.at);
        self.speed * begun.map(|spell| spell.pace).product::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::ServerClock;
    use crate::distribution::Distribution;
    use crate::spells::Spells;
    use curtail_units::{Duration, Instant, Rng};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn it_stands_still_in_a_pause_and_goes_on_after_it() {
        let mut clock = ServerClock::new(1.0, Vec::new());
        assert_eq!(clock.read(at(10)), Duration::from_ms(10));
        clock.pause(at(10), Duration::from_ms(5));
        assert_eq!(clock.read(at(12)), Duration::from_ms(10));
        assert_eq!(clock.wait_to_run(at(12)), Some(at(15)));
        assert_eq!(clock.read(at(15)), Duration::from_ms(10));
        assert_eq!(clock.wait_to_run(at(15)), None);
        assert_eq!(clock.read(at(20)), Duration::from_ms(15));
    }

    #[test]
    fn work_is_done_when_the_clock_has_moved_on_by_it() {
        let mut clock = ServerClock::new(1.0, Vec::new());
        let due = clock.read(at(0)) + Duration::from_ms(8);
        assert_eq!(clock.wait_for(at(0), due), Some(at(8)));
        clock.pause(at(3), Duration::from_ms(100));
        assert_eq!(clock.wait_for(at(8), due), Some(at(103)), "look again after the pause");
        assert_eq!(clock.wait_for(at(103), due), Some(at(108)), "5 ms of work are left");
        assert_eq!(clock.wait_for(at(108), due), None);
    }

    #[test]
    fn pauses_that_overlap_are_one() {
        let mut clock = ServerClock::new(1.0, Vec::new());
        clock.pause(at(10), Duration::from_ms(10));
        clock.pause(at(15), Duration::from_ms(10));
        clock.pause(at(16), Duration::from_ms(1));
        assert_eq!(clock.wait_to_run(at(24)), Some(at(25)));
        assert_eq!(clock.read(at(30)), Duration::from_ms(15));
    }

    #[test]
    fn a_job_slows_it_down_and_a_pause_within_stops_it() {
        let job = Spells::jobs(Duration::from_ms(100), at(20), Duration::from_ms(40), 4.0);
        let mut clock = ServerClock::new(1.0, vec![job]);
        assert_eq!(clock.wait_for(at(0), Duration::from_ms(25)), Some(at(20)), "the pace changes");
        assert_eq!(clock.wait_for(at(20), Duration::from_ms(25)), Some(at(40)));
        assert_eq!(clock.read(at(24)), Duration::from_ms(21));
        clock.pause(at(24), Duration::from_ms(16));
        assert_eq!(clock.read(at(40)), Duration::from_ms(21));
        assert_eq!(clock.read(at(60)), Duration::from_ms(26));
        assert_eq!(clock.read(at(70)), Duration::from_ms(36));
        // The second job, from 120 ms to 160 ms, was only slow.
        assert_eq!(clock.read(at(170)), Duration::from_ms(106));
    }

    #[test]
    fn a_clock_that_is_read_seldom_reads_the_same_as_one_that_is_read_often() {
        let seed = 9;
        let clock = || {
            let stalls = [(50, 20), (70, 1)].map(|(gap, length)| {
                let every = Distribution::Exponential { mean: Duration::from_ms(gap) };
                let lasts = Distribution::Constant { value: Duration::from_ms(length) };
                Spells::stalls(every, lasts, Rng::new(seed).split_index(gap))
            });
            ServerClock::new(1.0, stalls.into())
        };
        let (mut often, mut seldom) = (clock(), clock());
        for ms in 0..10_000 {
            let _read = often.read(at(ms));
        }
        let read = seldom.read(at(10_000));
        assert_eq!(read, often.read(at(10_000)), "seed {seed}");
        assert!(read < Duration::from_secs(8), "{read} of 10 s were not stalled, seed {seed}");
    }
}
