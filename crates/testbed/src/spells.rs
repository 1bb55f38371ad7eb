//! Spells: the times in which a server is stopped or slow, one after the other.
//!
//! What a stop-the-world collection, a compaction that blocks its writers, a disk that resets or a virtual
//! machine that is moved have in common: work that waits, that is about to start and that is half done is
//! all late, and the server notices nothing. A background job leaves the server running, but slower.
//!
//! **Decides** when spells begin and end. Stalls follow each other at random, so they cannot be foreseen;
//! background jobs begin at a fixed rhythm, on all servers at once or on each at its own phase.
//! **Inputs**: a recipe of [`crate::fault`] and a generator; the same seed gives the same spells.
//! **Limits**: no spell is longer than a minute ([`crate::distribution::WORK_MAX`]); between two spells of one kind lies at least [`GAP_MIN`]; there is no last spell.

use crate::distribution::Distribution;
use curtail_units::{Duration, Instant, Rng};

/// The shortest time between two spells of one kind: a server that is never well answers nothing.
pub const GAP_MIN: Duration = Duration::from_ms(1);

/// A time in which a server is slower than it should be: from `from` on, no longer at `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spell {
    /// Its first instant.
    pub from: Instant,
    /// The instant at which it is over.
    pub to: Instant,
    /// How fast the server is meanwhile: 0 is stopped, 1 would be as fast as ever.
    pub pace: f64,
}

/// When the next spell begins.
#[derive(Clone, Debug)]
enum Rhythm {
    /// This long after the end of the one before.
    After(Distribution),
    /// This long after the beginning of the one before.
    Every(Duration),
}

/// The spells of one kind on one server.
#[derive(Clone, Debug)]
pub struct Spells {
    rhythm: Rhythm,
    lasts: Distribution,
    pace: f64,
    rng: Rng,
    next: Spell,
}

impl Spells {
    /// Stalls: `every` from the end of one to the next, each as long as `lasts`.
    #[must_use]
    pub fn stalls(every: Distribution, lasts: Distribution, mut rng: Rng) -> Self {
        let first = Instant::ZERO + every.draw(&mut rng).max(GAP_MIN);
        Self::new(Rhythm::After(every), lasts, 0.0, (first, rng))
    }

    /// Jobs that begin at `first` and then `every` so long, and slow the server down.
    #[must_use]
    pub fn jobs(every: Duration, first: Instant, lasts: Duration, slowdown: f64) -> Self {
        let lasts = Distribution::Constant { value: lasts };
        // Nothing is left to chance here, so it does not matter which generator is never asked.
        Self::new(Rhythm::Every(every), lasts, 1.0 / slowdown, (first, Rng::new(0)))
    }

    fn new(
        rhythm: Rhythm,
        lasts: Distribution,
        pace: f64,
        (from, mut rng): (Instant, Rng),
    ) -> Self {
        let next = Spell { from, to: from + lasts.draw_work(&mut rng), pace };
        Self { rhythm, lasts, pace, rng, next }
    }

    /// The next spell, which stays the next.
    #[must_use]
    pub const fn peek(&self) -> Spell {
        self.next
    }
}

impl Iterator for Spells {
    type Item = Spell;

    /// The next spell; there always is one.
    fn next(&mut self) -> Option<Spell> {
        let Spell { from, to, .. } = self.next;
        let from = match &self.rhythm {
            Rhythm::After(every) => to + every.draw(&mut self.rng).max(GAP_MIN),
            Rhythm::Every(every) => (from + *every).max(to + GAP_MIN),
        };
        let after = Spell { from, to: from + self.lasts.draw_work(&mut self.rng), pace: self.pace };
        Some(std::mem::replace(&mut self.next, after))
    }
}

#[cfg(test)]
mod tests {
    use super::Spells;
    use crate::distribution::Distribution;
    use curtail_units::{Duration, Instant, Rng};

    #[test]
    fn the_share_of_time_in_stalls_is_as_configured() {
        let every = Distribution::Exponential { mean: Duration::from_secs(1_800) };
        let lasts = Distribution::Constant { value: Duration::from_ms(1_800) };
        let seed = 5;
        let n = 40_000;
        let stalls: Vec<_> = Spells::stalls(every, lasts, Rng::new(seed)).take(n).collect();
        assert!(stalls.iter().all(|s| s.to.since(s.from) == Duration::from_ms(1_800)));
        assert!(stalls.windows(2).all(|pair| pair[0].to < pair[1].from));
        let total = stalls.last().expect("many").to.since(Instant::ZERO);
        let share = 1.8 * n as f64 / total.as_secs_f64();
        let expected = 1.8 / 1_801.8;
        // The sum of n exponential gaps is off by 1 / √n of itself.
        let tolerance = 5.0 * expected / (n as f64).sqrt();
        assert!((share - expected).abs() < tolerance, "share {share}, seed {seed}");
    }

    #[test]
    fn jobs_keep_their_rhythm() {
        let (every, lasts) = (Duration::from_secs(60), Duration::from_secs(2));
        let first = Instant::ZERO + Duration::from_secs(7);
        let jobs: Vec<_> = Spells::jobs(every, first, lasts, 4.0).take(3).collect();
        let begins: Vec<_> = jobs.iter().map(|job| job.from.since(Instant::ZERO)).collect();
        assert_eq!(begins, [7, 67, 127].map(Duration::from_secs));
        assert!(jobs.iter().all(|job| job.to.since(job.from) == lasts && job.pace == 0.25));
    }

    #[test]
    fn spells_without_gaps_are_kept_apart() {
        let zero = || Distribution::Constant { value: Duration::ZERO };
        let stalls: Vec<_> = Spells::stalls(zero(), zero(), Rng::new(1)).take(10).collect();
        assert!(stalls.windows(2).all(|pair| pair[0].to < pair[1].from), "{stalls:?}");
    }
}
