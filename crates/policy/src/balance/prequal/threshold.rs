//! The threshold between cold and hot: a quantile of the requests in flight that recent probes reported.

use arrayvec::ArrayVec;
use curtail_units::Quantile;

/// The number of reports kept. At quantile 0.84 some twenty lie above the threshold, so it does not depend on one
/// report. At three probes a request, the threshold follows a change within some forty requests.
const PROBES_KEPT: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct Threshold {
    quantile: Quantile,
    /// The last reports, in a ring.
    reports: ArrayVec<u32, PROBES_KEPT>,
    /// The place of the oldest report, once the ring is full.
    oldest: usize,
    /// The same reports, the lowest first. A report costs a search and a move of at most half a kilobyte, and the
    /// quantile costs nothing.
    sorted: ArrayVec<u32, PROBES_KEPT>,
}

impl Threshold {
    pub(super) const fn new(quantile: Quantile) -> Self {
        Self { quantile, reports: ArrayVec::new_const(), oldest: 0, sorted: ArrayVec::new_const() }
    }

    pub(super) fn record(&mut self, in_flight: u32) {
        if self.reports.is_full() {
            let gone = core::mem::replace(&mut self.reports[self.oldest], in_flight);
            self.oldest = (self.oldest + 1) % PROBES_KEPT;
            let place = self.sorted.binary_search(&gone).expect("both hold the same reports");
            self.sorted.remove(place);
        } else {
            self.reports.push(in_flight);
        }
        let place = self.sorted.partition_point(|&other| other <= in_flight);
        self.sorted.insert(place, in_flight);
    }

    /// The number of requests in flight from which on a replica is hot; absent: no replica is hot.
    pub(super) fn get(&self) -> Option<u32> {
        if self.quantile.get() >= 1.0 {
            return None;
        }
        let rank = curtail_sketch::rank(self.quantile, self.sorted.len() as u64);
        let place = usize::try_from(rank).expect("at most PROBES_KEPT").checked_sub(1)?;
        Some(self.sorted[place])
    }
}

#[cfg(test)]
mod tests {
    use super::{PROBES_KEPT, Threshold};
    use alloc::vec::Vec;
    use curtail_units::{Quantile, Rng};

    #[test]
    fn it_is_the_quantile_of_the_last_reports() {
        let seed = 5;
        let mut rng = Rng::new(seed);
        for q in [0.0, 0.5, 0.84, 0.999] {
            let quantile = Quantile::new(q).expect("a quantile");
            let mut threshold = Threshold::new(quantile);
            assert_eq!(threshold.get(), None, "nothing was reported");
            let mut reports: Vec<u32> = Vec::new();
            for _ in 0..1_000 {
                let in_flight = u32::try_from(rng.below(50)).expect("below 50");
                threshold.record(in_flight);
                reports.push(in_flight);
                let mut recent = reports[reports.len().saturating_sub(PROBES_KEPT)..].to_vec();
                recent.sort_unstable();
                let rank = libm::ceil(q * recent.len() as f64).max(1.0);
                let below = recent.iter().filter(|&&r| r < threshold.get().expect("known")).count();
                let up_to =
                    recent.iter().filter(|&&r| r <= threshold.get().expect("known")).count();
                assert!((below as f64) < rank && rank <= up_to as f64, "seed {seed}, {q}");
            }
        }
    }

    #[test]
    fn at_quantile_one_nothing_is_hot() {
        let mut threshold = Threshold::new(Quantile::new(1.0).expect("a quantile"));
        threshold.record(7);
        assert_eq!(threshold.get(), None);
    }
}
