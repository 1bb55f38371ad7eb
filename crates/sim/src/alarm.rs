//! An alarm: a wake-up that can be moved without a search of the event queue.
//!
//! Most wake-ups are moved or never needed, so an alarm keeps one entry in the queue, at or before the wanted instant.
//! An entry that comes out too early is queued again. Moving an alarm to earlier adds an entry and makes the old one
//! stale. A new owner of the alarm inherits its entry, so the queue stays as small as the number of alarms.

use curtail_units::Instant;

/// The instant at which the owner wants to be woken, and the instant of the alarm's entry in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarm {
    wanted: Instant,
    queued: Instant,
}

/// The meaning of an entry that came out of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// The owner is woken now.
    Due,
    /// Too early: queue another entry, for this instant.
    Later(Instant),
    /// Nobody waits for this entry.
    Stale,
}

impl Alarm {
    /// An alarm that is not set.
    pub(crate) const OFF: Self = Self { wanted: Instant::MAX, queued: Instant::MAX };

    /// Sets the alarm, or switches it off; `Some` is an entry that must be queued.
    #[must_use]
    pub(crate) fn set(&mut self, wanted: Option<Instant>) -> Option<Instant> {
        self.wanted = wanted.unwrap_or(Instant::MAX);
        if self.wanted >= self.queued {
            return None;
        }
        self.queued = self.wanted;
        Some(self.wanted)
    }

    /// Returns the meaning of the entry for `at`, which came out of the queue.
    pub(crate) fn rung(&mut self, at: Instant) -> Rung {
        if at != self.queued {
            return Rung::Stale;
        }
        self.queued = Instant::MAX;
        if self.wanted == at {
            self.wanted = Instant::MAX;
            return Rung::Due;
        }
        if self.wanted == Instant::MAX {
            return Rung::Stale;
        }
        self.queued = self.wanted;
        Rung::Later(self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Rung};
    use curtail_units::{Instant, Rng};

    const fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn moving_to_later_queues_nothing_until_the_early_entry_comes_out() {
        let mut alarm = Alarm::OFF;
        assert_eq!(alarm.set(Some(at(10))), Some(at(10)));
        assert_eq!(alarm.set(Some(at(30))), None);
        assert_eq!(alarm.rung(at(10)), Rung::Later(at(30)));
        assert_eq!(alarm.rung(at(30)), Rung::Due);
        assert_eq!(alarm.rung(at(30)), Rung::Stale, "it rings once");
    }

    #[test]
    fn moving_to_earlier_makes_the_old_entry_stale() {
        let mut alarm = Alarm::OFF;
        assert_eq!(alarm.set(Some(at(30))), Some(at(30)));
        assert_eq!(alarm.set(Some(at(10))), Some(at(10)));
        assert_eq!(alarm.rung(at(10)), Rung::Due);
        assert_eq!(alarm.rung(at(30)), Rung::Stale);
    }

    #[test]
    fn whatever_is_set_rings_exactly_when_wanted() {
        let seed = 9;
        let mut rng = Rng::new(seed);
        let mut alarm = Alarm::OFF;
        let mut queued: Vec<Instant> = Vec::new();
        let mut wanted = None;
        let mut rings = 0;
        for now in 1..100_000 {
            let due: Vec<Instant> = queued.extract_if(.., |entry| *entry == at(now)).collect();
            let mut rang = false;
            for entry in due {
                match alarm.rung(entry) {
                    Rung::Due => rang = true,
                    Rung::Later(later) => queued.push(later),
                    Rung::Stale => {}
                }
            }
            assert_eq!(rang, wanted == Some(at(now)), "seed {seed}, at {now}");
            if rang {
                rings += 1;
                wanted = None;
            }
            if rng.chance(0.1) {
                wanted = rng.chance(0.8).then(|| at(now + 1 + rng.below(40) as u64));
                queued.extend(alarm.set(wanted));
            }
        }
        assert!(rings > 500, "seed {seed}: only {rings} rings were looked at");
    }
}
