//! One arm of a comparison: its blocks, and the merged blocks as shares of requests beyond a latency.
//!
//! Failed requests are in one last bucket beyond [`FAILED_FROM`], so every quantile counts them as longer than all
//! responses. Within a bucket, requests count as evenly spread.

use crate::{Latencies, LatencyKind};
use curtail_sketch::{Bucket, Histogram, Precision, rank};
use curtail_units::{Duration, Quantile};

/// The place of failures, in nanoseconds: longer than every value that a histogram distinguishes (2^42).
const FAILED_FROM: f64 = (1_u64 << 43) as f64;

#[derive(Clone, Copy, Debug)]
struct Step {
    lower: f64,
    upper: f64,
    count: f64,
    /// The number of requests in all later buckets.
    beyond: f64,
}

#[derive(Debug)]
pub(crate) struct Arm<'a> {
    pub(crate) blocks: &'a [Latencies],
    clock: LatencyKind,
    /// The responses of all blocks.
    pub(crate) responses: Histogram,
    /// The failed requests of all blocks.
    pub(crate) failed: u64,
    steps: Vec<Step>,
}

impl<'a> Arm<'a> {
    pub(crate) fn new(blocks: &'a [Latencies], clock: LatencyKind) -> Self {
        let mut responses = Histogram::new(Precision::FINE);
        let mut failed = 0;
        for block in blocks {
            responses.merge(block.responses(clock));
            failed += block.failures.total();
        }
        let step = |bucket: Bucket| Step {
            lower: bucket.lower.as_ns_f64(),
            upper: bucket.upper.as_ns_f64(),
            count: bucket.count as f64,
            beyond: 0.0,
        };
        let mut steps: Vec<Step> = responses.buckets().map(step).collect();
        if failed > 0 {
            let upper = 2.0 * FAILED_FROM;
            steps.push(Step { lower: FAILED_FROM, upper, count: failed as f64, beyond: 0.0 });
        }
        let mut beyond = 0.0;
        for step in steps.iter_mut().rev() {
            step.beyond = beyond;
            beyond += step.count;
        }
        Self { blocks, clock, responses, failed, steps }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.responses.count() + self.failed
    }

    /// The reported quantile, of all requests together; [`None`] when it is a failed request.
    pub(crate) fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        let rank = rank(quantile, self.requests());
        // Behind the responses are the failures.
        self.responses.at_rank(rank)
    }

    /// The number of requests beyond the quantile.
    pub(crate) fn exceedances(&self, quantile: Quantile) -> u64 {
        self.requests() - rank(quantile, self.requests())
    }

    /// The place beyond which a share of all requests lies, in nanoseconds. It is infinite for a share of 0, and at
    /// least [`FAILED_FROM`] among the failures.
    pub(crate) fn place_of(&self, share_beyond: f64) -> f64 {
        let wanted = share_beyond * self.requests() as f64;
        if wanted <= 0.0 {
            return f64::INFINITY;
        }
        let nth = self.steps.partition_point(|step| step.beyond > wanted);
        self.steps.get(nth).map_or(f64::INFINITY, |step| {
            let within = ((wanted - step.beyond) / step.count).min(1.0);
            step.upper - within * (step.upper - step.lower)
        })
    }

    /// The latency beyond which a share of all requests lies, in nanoseconds; infinite among the failures.
    pub(crate) fn latency_at(&self, share_beyond: f64) -> f64 {
        let place = self.place_of(share_beyond);
        if place >= FAILED_FROM { f64::INFINITY } else { place }
    }

    /// The share of all requests beyond `place`.
    pub(crate) fn share_beyond(&self, place: f64) -> f64 {
        let nth = self.steps.partition_point(|step| step.upper <= place);
        let count = self.steps.get(nth).map_or(0.0, |step| {
            let within = ((step.upper - place) / (step.upper - step.lower)).min(1.0);
            step.beyond + within * step.count
        });
        count / self.requests() as f64
    }

    /// The number of requests of each block at `place` or beyond, exact to a bucket.
    pub(crate) fn reaching(&self, place: f64) -> Vec<u64> {
        let nth = self.steps.partition_point(|step| step.upper <= place);
        let from = self.steps.get(nth).map_or(FAILED_FROM, |step| step.lower);
        let reaching = |block: &Latencies| {
            let responses = block.responses(self.clock);
            let responded = if from >= FAILED_FROM {
                0
            } else if from < 1.0 {
                responses.count()
            } else {
                responses.count_above(Duration::from_ns_f64(from - 1.0))
            };
            responded + block.failures.total()
        };
        self.blocks.iter().map(reaching).collect()
    }

    /// For each block, its count in `reaching` minus the count that the share of the whole arm predicts, divided by the
    /// mean number of requests of a block.
    pub(crate) fn residuals(&self, reaching: &[u64]) -> Vec<f64> {
        let all = self.requests() as f64;
        let share = reaching.iter().sum::<u64>() as f64 / all;
        let middling = all / self.blocks.len() as f64;
        let of_block = |(count, block): (&u64, &Latencies)| {
            (*count as f64 - share * block.count() as f64) / middling
        };
        reaching.iter().zip(self.blocks).map(of_block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Arm;
    use crate::{Failure, Latencies, LatencyKind};
    use curtail_units::{Duration, Quantile};

    /// Blocks of responses of 1 ms to `count` ms, one each, and `failed` failures.
    fn blocks(count: u64, failed: u64) -> Vec<Latencies> {
        let mut block = Latencies::new();
        for ms in 1..=count {
            block.response.record(Duration::from_ms(ms));
        }
        block.failures.add_n(Failure::Timeout, failed);
        vec![block; 3]
    }

    #[test]
    fn a_place_and_its_share_lead_to_each_other() {
        let blocks = blocks(900, 100);
        let arm = Arm::new(&blocks, LatencyKind::Response);
        for share in [0.999, 0.7, 0.5, 0.1001, 0.1, 0.05, 0.001] {
            let back = arm.share_beyond(arm.place_of(share));
            assert!((back - share).abs() < 1e-12, "{share}: {back}");
        }
        assert_eq!(arm.share_beyond(0.0), 1.0);
        assert_eq!(arm.share_beyond(f64::INFINITY), 0.0);
        assert_eq!(arm.place_of(0.0), f64::INFINITY);
    }

    #[test]
    fn failures_are_longer_than_every_response() {
        let blocks = blocks(900, 100);
        let arm = Arm::new(&blocks, LatencyKind::Response);
        assert_eq!(arm.requests(), 3_000);
        assert!((arm.latency_at(0.5) / 500e6 - 1.0).abs() < 0.002, "{}", arm.latency_at(0.5));
        assert!(arm.latency_at(0.11).is_finite());
        assert_eq!(arm.latency_at(0.09), f64::INFINITY);
        assert_eq!(arm.reaching(arm.place_of(0.09)), [100; 3]);
        assert_eq!(arm.exceedances(Quantile::P99), 30);
        // Every block is alike: nothing differs.
        assert!(arm.residuals(&arm.reaching(arm.place_of(0.3))).iter().all(|r| r.abs() < 1e-12));
    }
}
