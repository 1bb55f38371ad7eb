//! The load of the demo: the schedule of the reads of each arm, and the request of a read.
//!
//! The arms are interleaved in rounds of [`ROUND`], so that all arms meet the same stalls and the same noise:
//!
//! - For [`SHARED`], direct and hedged reads arrive at random (Poisson), independent of each other.
//! - Then one tied and one prequal read follow, [`ALONE`] apart. Both go through leaves. Such a read keeps two cores
//!   busy for some 40 ms and would slow down all concurrent reads, so it runs alone.

use super::arm::Arm;
use curtail_generator::Load;
use curtail_generator::target::{Protocol, Target};
use curtail_generator::workload::{RequestConfig, Workload, WorkloadConfig};
use curtail_load::schedule::{Phase, Shape, Spacing};
use curtail_load::{Schedule, Share};
use curtail_units::{Duration, Rng};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Keys that a read gets from each shard.
pub(crate) const KEYS_PER_SHARD: usize = 10;

/// The part of a round for direct and hedged reads.
const SHARED: Duration = Duration::from_ms(500);

/// The part of a round for one tied or one prequal read.
const ALONE: Duration = Duration::from_ms(100);

/// The duration of a round.
const ROUND: Duration = Duration::from_ms(700);

/// A read without a response after this time has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Minimum of `connections_max` of an arm, for low rates.
const CONNECTIONS_MIN: u32 = 256;

/// The time, longer than a stall, for which the connections suffice when every read is held back.
const HELD_BACK_SECONDS: u32 = 3;

/// Maximum number of reads of one arm in flight, at `rate` a second. Further reads wait, which counts as latency.
pub(crate) const fn connections_max(rate: u16) -> u32 {
    let held_back = HELD_BACK_SECONDS * rate as u32;
    if held_back > CONNECTIONS_MIN { held_back } else { CONNECTIONS_MIN }
}

/// The schedule of `arm` in a measurement of `length`, with `rate` direct reads and `rate` hedged reads a second.
pub(crate) fn schedule(arm: Arm, rate: f64, length: Duration) -> Schedule {
    let constant = |rate, lasts| Phase { shape: Shape::Constant { rate }, lasts };
    let once_a_round = |offset| {
        let rate = 1.0 / ROUND.as_secs_f64();
        let phases = vec![constant(0.0, offset), constant(rate, length - offset)];
        Schedule::Phases { phases, spacing: Spacing::Even }
    };
    match arm {
        Arm::Direct | Arm::Hedged => {
            let rate = rate * ROUND.as_secs_f64() / SHARED.as_secs_f64();
            let round = [constant(rate, SHARED), constant(0.0, ROUND - SHARED)];
            let rounds = usize::try_from(length.as_ns().div_ceil(ROUND.as_ns()));
            let phases = round.repeat(rounds.expect("a day has far fewer rounds"));
            Schedule::Phases { phases, spacing: Spacing::Poisson }.first(length)
        }
        Arm::Tied => once_a_round(SHARED),
        Arm::Prequal => once_a_round(SHARED + ALONE),
    }
}

/// Prepares reads of `tenant` by `schedule`, through the proxy at `address` over at most `connections_max` connections.
pub(crate) fn reads(
    address: SocketAddr,
    tenant: &str,
    (schedule, connections_max): (Schedule, u32),
    rng: Rng,
) -> anyhow::Result<Load> {
    let target = Target::look_up(&format!("http://{address}/"))?;
    let connector = target.connector(Protocol::Http1, None, false)?;
    let keys: Vec<String> = (0..KEYS_PER_SHARD).map(|key| format!("k={{nth}}-{key}")).collect();
    let config = WorkloadConfig::of_one(RequestConfig {
        path: Some(format!("/keys?{}", keys.join("&"))),
        headers: vec![("x-tenant".to_owned(), tenant.to_owned())],
        ..RequestConfig::get("read")
    });
    let workload = Workload::prepare(&config, &target, Path::new(""), &rng)?;
    Ok(Load {
        target,
        connector,
        protocol: Protocol::Http1,
        keep_alive: true,
        connections_max: connections_max as usize,
        timeout: TIMEOUT,
        workload,
        schedule: Arc::new(schedule),
        rng,
        share: Share::ALL,
        threads: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::{ALONE, Arm, ROUND, SHARED, schedule};
    use curtail_units::{Duration, Rng};
    use std::sync::Arc;

    const SEED: u64 = 12;

    fn reads(arm: Arm) -> Vec<Duration> {
        let schedule = Arc::new(schedule(arm, 17.0, Duration::from_secs(700)));
        schedule.instants(Rng::new(SEED).split(arm.name())).collect()
    }

    #[test]
    fn direct_and_hedged_reads_arrive_at_random_in_their_part_of_a_round() {
        for arm in [Arm::Direct, Arm::Hedged] {
            let reads = reads(arm);
            let expected: f64 = 17.0 * 700.0;
            let off = (reads.len() as f64 - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "{} reads, seed {SEED}", reads.len());
            // Seconds on a clock that runs only in the shared parts.
            let on_shared_clock = |at: &Duration| {
                let (round, within) = (at.as_ns() / ROUND.as_ns(), at.as_ns() % ROUND.as_ns());
                assert!(within < SHARED.as_ns(), "{at}, seed {SEED}");
                (round * SHARED.as_ns() + within) as f64 / 1e9
            };
            let at: Vec<f64> = reads.iter().map(on_shared_clock).collect();
            let n = (at.len() - 1) as f64;
            let mean = (at[at.len() - 1] - at[0]) / n;
            let gaps = at.windows(2).map(|pair| (pair[1] - pair[0]) / mean);
            let squares = gaps.map(|gap| gap * gap).sum::<f64>() / n;
            // The second moment of the exponential distribution is 2, its variance 20.
            assert!((squares - 2.0).abs() < 5.0 * (20.0 / n).sqrt(), "{squares}, seed {SEED}");
        }
        assert_ne!(reads(Arm::Direct)[..10], reads(Arm::Hedged)[..10]);
    }

    #[test]
    fn each_round_has_one_tied_and_one_prequal_read_alone() {
        for (arm, offset) in [(Arm::Tied, SHARED), (Arm::Prequal, SHARED + ALONE)] {
            let reads = reads(arm);
            assert_eq!(reads.len(), 1_000);
            for (round, at) in reads.iter().enumerate() {
                let expected = ROUND.mul_f64(round as f64) + offset;
                assert!(at.as_ns().abs_diff(expected.as_ns()) < 1_000, "{at}, not {expected}");
            }
        }
    }
}
