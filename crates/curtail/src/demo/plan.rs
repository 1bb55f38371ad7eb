//! The plan of the load: when which arm reads, fixed before anything is sent.
//!
//! Reads come as an open loop: they do not wait for each other, so a slow server cannot hold back the very
//! requests that would have found it slow. The arms take turns in rounds of [`ROUND`], so that stalls, and
//! noise of the machine, meet all of them alike:
//!
//! - for [`SHARED`] the direct and the hedged arm, whose reads come at random (Poisson) and in random
//!   order, one of each before the next of either;
//! - then one tied and one prequal read, each with [`ALONE`] to itself: a read through leaves keeps two
//!   cores busy for some 40 ms, and whatever else were read meanwhile would be slow for that.
//!
//! **Inputs**: reads a second of each of the first two arms, a generator.

use super::arm::Arm;
use curtail_units::{Duration, Rng};

/// The part of a round in which direct and hedged reads come.
const SHARED: Duration = Duration::from_ms(500);

/// The part of a round that a read through leaves has to itself.
const ALONE: Duration = Duration::from_ms(100);

/// The arms that have it.
const ALONE_ARMS: [Arm; 2] = [Arm::Tied, Arm::Prequal];

/// A round.
const ROUND: Duration = Duration::from_ns(SHARED.as_ns() + ALONE_ARMS.len() as u64 * ALONE.as_ns());

/// One read of the plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// When it is to be sent, from the beginning.
    pub(crate) at: Duration,
    pub(crate) arm: Arm,
    /// What is random about it: keys and, for the client's own choice, replicas.
    pub(crate) rng: Rng,
}

/// All reads, one after the other; there is no last one.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Between two reads of the shared parts, on the clock that runs in them only.
    interval_mean: Duration,
    arrivals: Rng,
    turns: Rng,
    reads: Rng,
    /// When the next read of a shared part comes, on the clock that runs in them only.
    shared_at: Duration,
    /// Which arm it is of.
    shared_arm: Arm,
    /// Whether the one after it is of the other arm.
    pair_begun: bool,
    /// Parts of rounds that one read has to itself, so far.
    alone: u64,
    planned: u64,
}

impl Plan {
    /// The plan for `rate` direct reads a second and as many hedged ones.
    pub(crate) fn new(rate: f64, rng: &Rng) -> Self {
        let of_time = SHARED.as_secs_f64() / ROUND.as_secs_f64();
        let mut plan = Self {
            interval_mean: Duration::from_secs_f64(of_time / (2.0 * rate)),
            arrivals: rng.split("arrivals"),
            turns: rng.split("turns"),
            reads: rng.split("reads"),
            shared_at: Duration::ZERO,
            shared_arm: Arm::Direct,
            pair_begun: false,
            alone: 0,
            planned: 0,
        };
        plan.next_shared();
        plan
    }

    fn next_shared(&mut self) {
        self.shared_at = self.shared_at + self.interval_mean.mul_f64(self.arrivals.exponential());
        self.shared_arm = match (self.pair_begun, self.shared_arm) {
            (true, Arm::Direct) => Arm::Hedged,
            (true, _) => Arm::Direct,
            (false, _) if self.turns.chance(0.5) => Arm::Direct,
            (false, _) => Arm::Hedged,
        };
        self.pair_begun = !self.pair_begun;
    }

    /// When the next read that is alone comes.
    fn alone_at(&self) -> Duration {
        let arms = ALONE_ARMS.len() as u64;
        let (round, part) = (self.alone / arms, self.alone % arms);
        Duration::from_ns(round * ROUND.as_ns() + SHARED.as_ns() + part * ALONE.as_ns())
    }
}

/// The moment at which the clock that runs in shared parts only shows `shared`.
fn moment(shared: Duration) -> Duration {
    let (round, within) = (shared.as_ns() / SHARED.as_ns(), shared.as_ns() % SHARED.as_ns());
    Duration::from_ns(round * ROUND.as_ns() + within)
}

impl Iterator for Plan {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        let (shared_at, alone_at) = (moment(self.shared_at), self.alone_at());
        let (at, arm) = if shared_at < alone_at {
            let arm = self.shared_arm;
            self.next_shared();
            (shared_at, arm)
        } else {
            let part = usize::try_from(self.alone).unwrap_or(usize::MAX) % ALONE_ARMS.len();
            self.alone += 1;
            (alone_at, ALONE_ARMS[part])
        };
        let rng = self.reads.split_index(self.planned);
        self.planned += 1;
        Some(Planned { at, arm, rng })
    }
}

#[cfg(test)]
mod tests {
    use super::{Arm, Plan, Planned, ROUND, SHARED};
    use curtail_units::{Duration, Rng};

    const SEED: u64 = 12;

    fn minutes(rate: f64) -> Vec<Planned> {
        let plan = Plan::new(rate, &Rng::new(SEED));
        plan.take_while(|planned| planned.at < Duration::from_secs(700)).collect()
    }

    #[test]
    fn direct_and_hedged_reads_come_at_the_rate_and_take_turns() {
        let plan = minutes(17.0);
        assert!(plan.windows(2).all(|pair| pair[0].at <= pair[1].at), "seed {SEED}");
        let shared = |arm: &Arm| [Arm::Direct, Arm::Hedged].contains(arm);
        let arms: Vec<Arm> = plan.iter().map(|planned| planned.arm).filter(shared).collect();
        let mut direct_first = 0;
        for pair in arms.chunks_exact(2) {
            assert_ne!(pair[0], pair[1], "seed {SEED}");
            direct_first += i32::from(pair[0] == Arm::Direct);
        }
        let pairs = (arms.len() / 2) as f64;
        // The number of pairs is a little steadier than Poisson; five standard errors of that.
        let expected = 17.0 * 700.0;
        assert!((pairs - expected).abs() < 5.0 * expected.sqrt(), "{pairs} pairs, seed {SEED}");
        let off = (f64::from(direct_first) - pairs / 2.0).abs();
        assert!(
            off < 5.0 * pairs.sqrt() / 2.0,
            "{direct_first} of {pairs} direct first, seed {SEED}"
        );
    }

    #[test]
    fn they_come_without_memory_in_their_part_of_a_round_and_at_no_other_time() {
        let mut at_shared = Vec::new();
        for planned in minutes(17.0) {
            let within = planned.at.as_ns() % ROUND.as_ns();
            match planned.arm {
                Arm::Direct | Arm::Hedged => {
                    assert!(within < SHARED.as_ns(), "{planned:?}, seed {SEED}");
                    let rounds = planned.at.as_ns() / ROUND.as_ns();
                    at_shared.push((rounds * SHARED.as_ns() + within) as f64 / 1e9);
                }
                Arm::Tied => assert_eq!(within, SHARED.as_ns(), "seed {SEED}"),
                Arm::Prequal => assert_eq!(within, SHARED.as_ns() + 100_000_000, "seed {SEED}"),
            }
        }
        let n = (at_shared.len() - 1) as f64;
        let mean = (at_shared[at_shared.len() - 1] - at_shared[0]) / n;
        let gaps = at_shared.windows(2).map(|pair| (pair[1] - pair[0]) / mean);
        let squares = gaps.map(|gap| gap * gap).sum::<f64>() / n;
        // The second moment of the exponential distribution is 2, its variance 20.
        assert!((squares - 2.0).abs() < 5.0 * (20.0 / n).sqrt(), "{squares}, seed {SEED}");
    }

    #[test]
    fn each_round_has_one_tied_and_one_prequal_read() {
        let plan = minutes(17.0);
        for arm in [Arm::Tied, Arm::Prequal] {
            assert_eq!(plan.iter().filter(|planned| planned.arm == arm).count(), 1_000);
        }
    }
}
