//! The plan of the load: when which arm reads, fixed before anything is sent.
//!
//! Reads come as an open loop (Poisson): they do not wait for each other, so a slow server cannot hold
//! back the very requests that would have found it slow. The arms take turns read by read, in a new random
//! order each [`ROUND`], so that a stall, or noise of the machine, meets all of them alike.
//! **Inputs**: reads a second over all arms, a generator.

use super::arm::Arm;
use curtail_units::{Duration, Rng};

/// The turns of a round. Reads through leaves cost this machine several times as much as others, and p99.9
/// needs many reads where it is to be compared.
const ROUND: [Arm; 10] = {
    use Arm::{Direct, Hedged, Prequal, Tied};
    [Direct, Direct, Direct, Direct, Hedged, Hedged, Hedged, Hedged, Tied, Prequal]
};

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
    interval_mean: Duration,
    arrivals: Rng,
    turns: Rng,
    reads: Rng,
    at: Duration,
    nth: u64,
    round: [Arm; ROUND.len()],
}

impl Plan {
    /// The plan for `rate` reads a second.
    pub(crate) fn new(rate: f64, rng: &Rng) -> Self {
        Self {
            interval_mean: Duration::from_secs_f64(1.0 / rate),
            arrivals: rng.split("arrivals"),
            turns: rng.split("turns"),
            reads: rng.split("reads"),
            at: Duration::ZERO,
            nth: 0,
            round: ROUND,
        }
    }

    fn turn(&mut self) -> Arm {
        let len = self.round.len();
        let turn = usize::try_from(self.nth % len as u64).expect("less than the turns");
        // A shuffle (Fisher & Yates), one step a turn.
        let drawn = turn + self.turns.below(len - turn);
        self.round.swap(turn, drawn);
        self.round[turn]
    }
}

impl Iterator for Plan {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        self.at = self.at + self.interval_mean.mul_f64(self.arrivals.exponential());
        let planned =
            Planned { at: self.at, arm: self.turn(), rng: self.reads.split_index(self.nth) };
        self.nth += 1;
        Some(planned)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arm, Plan, ROUND};
    use curtail_units::Rng;

    #[test]
    fn reads_come_at_the_rate_and_without_memory() {
        let seed = 12;
        let n = 40_000;
        let plan: Vec<_> = Plan::new(50.0, &Rng::new(seed)).take(n).collect();
        let rate = n as f64 / plan[n - 1].at.as_secs_f64();
        let tolerance = 5.0 * 50.0 / (n as f64).sqrt();
        assert!((rate - 50.0).abs() < tolerance, "{rate}, seed {seed}");
        let gaps = plan.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64() * 50.0);
        let squares = gaps.map(|gap| gap * gap).sum::<f64>() / (n - 1) as f64;
        // The second moment of the exponential distribution is 2, its variance 20.
        assert!((squares - 2.0).abs() < 5.0 * (20.0 / n as f64).sqrt(), "{squares}, seed {seed}");
    }

    #[test]
    fn every_arm_has_its_turns_in_each_round_and_no_fixed_place_in_it() {
        let seed = 13;
        let rounds = 1_000;
        let plan = Plan::new(50.0, &Rng::new(seed)).take(rounds * ROUND.len());
        let arms: Vec<Arm> = plan.map(|planned| planned.arm).collect();
        let mut first = [0_u32; Arm::ALL.len()];
        for round in arms.chunks(ROUND.len()) {
            first[round[0].index()] += 1;
            let turns = Arm::ALL.map(|arm| round.iter().filter(|of| **of == arm).count());
            assert_eq!(turns, [4, 4, 1, 1], "seed {seed}");
        }
        // Five standard errors of a binomial share: 77 of four tenths, 47 of one tenth.
        for (arm, (expected, tolerance)) in
            [(400, 77), (400, 77), (100, 47), (100, 47)].iter().enumerate()
        {
            assert!(first[arm].abs_diff(*expected) <= *tolerance, "{first:?}, seed {seed}");
        }
    }
}
