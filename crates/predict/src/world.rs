//! A fit as a simulated world: the model of `curtail-sim`, with the very policies of the proxy.

use crate::candidate::Candidate;
use crate::core_limit::CoreLimit;
use crate::fit::Fit;
use crate::pace::SlowPeriod;
use curtail_model::{Affected, Cores, Distribution, Fault, Recipe};
use curtail_policy::LeafConfig;
use curtail_sim::{Arm, Model, RecordedSlowPeriod, RecordedTimeline, Scenario, Stop, Variant};
use curtail_units::{Duration, Instant, Quantile, Ratio};
use std::ops::Range;
use std::sync::Arc;

/// The quantiles that are predicted.
pub(crate) const QUANTILES: [Quantile; 3] = [Quantile::P50, Quantile::P99, Quantile::P999];

/// The result of one simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simulated {
    /// The latencies at [`QUANTILES`], in nanoseconds; infinite at a failed request, or when the load is too high.
    pub(crate) latencies_ns: [f64; QUANTILES.len()],
    /// Executions beyond one for each request, as a share of the requests.
    pub(crate) extra_requests: f64,
    /// Attempts beyond one for each request, as a share of the requests.
    pub(crate) extra_sent: f64,
}

/// Simulates a candidate on the service of a fit; the attempts of a share `intrinsic_ratio` of the requests take equally long.
pub(crate) fn simulate(
    fit: &Fit,
    candidate: &Candidate,
    intrinsic_ratio: f64,
    seed: u64,
) -> Simulated {
    let scenario = scenario(fit, candidate, intrinsic_ratio);
    let report = curtail_sim::run(&scenario, seed, |_| {});
    let arm = &report.arms[0];
    let at = |quantile| arm.quantile_ns(quantile).map_or(f64::INFINITY, |latency| latency.value);
    Simulated {
        latencies_ns: QUANTILES.map(at),
        extra_requests: arm.extra_work_ratio,
        extra_sent: arm.extra_requests_ratio,
    }
}

fn scenario(fit: &Fit, candidate: &Candidate, intrinsic_ratio: f64) -> Scenario {
    let group = candidate.group(fit).map(str::to_owned);
    let requests = fit.arrivals.len() as u64;
    Scenario {
        variants: vec![Variant {
            name: String::new(),
            model: model(fit, candidate, intrinsic_ratio),
        }],
        arms: vec![Arm { group, ..Arm::new(candidate.name.clone(), candidate.policy) }],
        above: Vec::new(),
        stop: Stop {
            precision: None,
            requests_min: requests,
            requests_max: requests,
            has_warm_up: false,
        },
    }
}

fn model(fit: &Fit, candidate: &Candidate, intrinsic_ratio: f64) -> Model {
    let work: Vec<Duration> = fit.samples.iter().map(|sample| sample.work).collect();
    let failures = Ratio::new(fit.failed_ratio).ok().filter(|broken| *broken > Ratio::ZERO);
    let failures = failures.map(|broken| Fault {
        servers: Affected::Share(Ratio::ONE),
        recipe: Recipe::Errors { broken, bad: Ratio::ZERO, silent: Ratio::ZERO },
    });
    let servers = fit.shards * candidate.replicas;
    let overhead = match fit.overheads.is_empty() {
        true => Distribution::ZERO,
        false => Distribution::Samples(fit.overheads.clone()),
    };
    Model {
        fan_out: fit.calls,
        shards: fit.shards,
        replicas: candidate.replicas,
        overhead,
        leaf: LeafConfig {
            concurrency: fit.concurrency.unwrap_or(u32::MAX),
            queue_len_max: u32::MAX,
        },
        copies_alike: Ratio::new(intrinsic_ratio).unwrap_or(Ratio::ZERO),
        message_delay: Distribution::Constant { value: fit.message_delay },
        faults: failures.into_iter().collect(),
        cores: fit.core_limit.and_then(CoreLimit::per_replica).map(Cores::constant),
        shared_cores: fit.core_limit.and_then(CoreLimit::all_replicas),
        cancelled: fit.cancelled,
        timeline: Some(Arc::new(timeline(fit, candidate))),
        ..Model::queue(servers, 0.5, Distribution::Samples(work))
    }
}

/// The recorded timeline, at another load with requests that follow each other faster. A replica that was not recorded
/// has the slow periods of a typical one, half a recording later.
fn timeline(fit: &Fit, candidate: &Candidate) -> RecordedTimeline {
    let load = candidate.load_ratio;
    let sooner = |at: &Instant| Instant::ZERO + at.since(Instant::ZERO).mul_f64(1.0 / load);
    let end = Instant::ZERO + fit.span;
    let mut slow_periods = Vec::new();
    for server in 0..fit.shards * candidate.replicas {
        let (shard, replica) = (server / candidate.replicas, server % candidate.replicas);
        let first = shard * fit.replicas;
        let (like, later) = match replica < fit.replicas {
            true => (first + replica, Duration::ZERO),
            false => (
                typical_replica(&fit.slow_periods, first..first + fit.replicas),
                Duration::from_ns(fit.span.as_ns() / 2),
            ),
        };
        for SlowPeriod { from, to, slowdown, .. } in
            fit.slow_periods.iter().filter(|period| period.replica == like)
        {
            let (from, to) = (*from + later, *to + later);
            let wrapped = |at: Instant| Instant::ZERO + at.since(end);
            let (from, to) = if from >= end { (wrapped(from), wrapped(to)) } else { (from, to) };
            slow_periods.push(RecordedSlowPeriod { server, from, to, slowdown: *slowdown });
        }
    }
    RecordedTimeline {
        arrivals: fit.arrivals.iter().map(sooner).collect(),
        works: fit.call_works.clone(),
        slow_periods,
        // The next arrival follows the last one after a usual gap.
        lasts: fit.span.mul_f64((1.0 + 1.0 / fit.arrivals.len() as f64) / load),
    }
}

/// The replica that loses the median time in slow periods; of an even number, the healthier of the two in the middle.
fn typical_replica(slow_periods: &[SlowPeriod], replicas: Range<u32>) -> u32 {
    let lost_ns = |replica: u32| -> f64 {
        let own = slow_periods.iter().filter(|period| period.replica == replica);
        own.map(|period| period.lasted().as_ns_f64() * (1.0 - 1.0 / period.slowdown)).sum()
    };
    let mut by_loss: Vec<(f64, u32)> =
        replicas.map(|replica| (lost_ns(replica), replica)).collect();
    by_loss.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    by_loss[(by_loss.len() - 1) / 2].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::FitOverrides;
    use crate::lab::Lab;

    #[test]
    fn every_recorded_request_counts() {
        // The first quarter is slow: a warm-up would drop it.
        let quarter = Instant::ZERO + Duration::from_secs(5);
        let slow =
            |replica| SlowPeriod { replica, from: Instant::ZERO, to: quarter, slowdown: 3.0 };
        let lab = Lab {
            seed: 1,
            requests: 4_000,
            per_second: 200.0,
            replicas: 3,
            concurrency: 64,
            work_ms: |rng| 10.0 * (0.4 * rng.normal()).exp(),
            periods: (0..3).map(slow).collect(),
        };
        let fit = Fit::new(&lab.record(), FitOverrides::default()).expect("enough requests");
        let report = curtail_sim::run(&scenario(&fit, &Candidate::none(&fit), 0.0), 1, |_| {});
        assert_eq!(report.arms[0].requests, 4_000);
    }

    /// Two more replicas that pause all the time would not make a service faster.
    #[test]
    fn a_replica_that_was_not_recorded_is_like_a_typical_one() {
        let period = |replica, seconds, slowdown| SlowPeriod {
            replica,
            from: Instant::ZERO,
            to: Instant::ZERO + Duration::from_secs(seconds),
            slowdown,
        };
        let pauses = f64::INFINITY;
        let periods =
            [period(0, 9, 3.0), period(1, 9, 0.5), period(3, 1, pauses), period(4, 2, pauses)];
        assert_eq!(typical_replica(&periods, 0..3), 2);
        assert_eq!(typical_replica(&periods, 0..2), 1);
        assert_eq!(typical_replica(&periods, 2..5), 3);
        assert_eq!(typical_replica(&periods, 4..5), 4);
    }
}
