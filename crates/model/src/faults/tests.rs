use super::{ExecutionOutcome, FaultEffect, Faults};
use crate::distribution::Distribution;
use crate::fault::{Affected, Fault, Recipe};
use crate::processor::{Cores, Pace};
use crate::timeline::{FaultTimeline, PaceChange};
use curtail_policy::Class;
use curtail_units::{Duration, Instant, Ratio, Rng};

const SEED: u64 = 5;

fn everywhere(recipe: Recipe) -> Fault {
    Fault { servers: Affected::Share(Ratio::ONE), recipe }
}

/// The timeline of one of `servers` servers.
fn timeline(faults: &[Fault], servers: u32, server: u32) -> FaultTimeline {
    FaultTimeline::new(&Faults::new(faults, servers, None, &Rng::new(SEED)), server)
}

fn stalls(every_ms: u64, lasts: Duration) -> Fault {
    everywhere(Recipe::Stall {
        every: Distribution::Exponential { mean: Duration::from_ms(every_ms) },
        lasts: Distribution::Constant { value: lasts },
    })
}

fn jobs(synchronized: bool) -> Fault {
    everywhere(Recipe::BackgroundJob {
        every: Duration::from_secs(60),
        lasts: Distribution::Constant { value: Duration::from_secs(2) },
        slowdown: 4.0,
        synchronized,
    })
}

#[test]
fn the_share_of_time_in_stalls_is_as_configured() {
    let stalls = stalls(1_800_000, Duration::from_ms(1_800));
    let count = 40_000;
    let changes: Vec<PaceChange> =
        timeline(&[stalls], 1, 0).pace_changes().take(2 * count).collect();
    for (stall, after) in changes.chunks(2).map(|pair| (pair[0], pair[1])) {
        assert_eq!((stall.pace.speed, after.pace.speed), (0.0, 1.0));
        assert_eq!(after.at.since(stall.at), Duration::from_ms(1_800));
    }
    let total = changes.last().expect("many").at.since(Instant::ZERO);
    let share = 1.8 * count as f64 / total.as_secs_f64();
    let expected = 1.8 / 1_801.8;
    // The sum of n exponential gaps is off by 1 / √n of itself.
    let tolerance = 5.0 * expected / (count as f64).sqrt();
    assert!((share - expected).abs() < tolerance, "share {share}, seed {SEED}");
}

#[test]
fn stalls_are_as_frequent_in_the_first_seconds_as_later() {
    let lasts = Duration::from_ms(1);
    let every = Distribution::Exponential { mean: Duration::from_secs(1_800) };
    let lasts = Distribution::Constant { value: lasts };
    let stalls = [everywhere(Recipe::Stall { every, lasts })];
    let servers = 20_000;
    let faults = Faults::new(&stalls, servers, None, &Rng::new(SEED));
    let first_minute = Instant::ZERO + Duration::from_secs(60);
    let stalled = (0..servers).filter(|server| {
        let first = FaultTimeline::new(&faults, *server).pace_changes().next();
        first.expect("there always is one").at < first_minute
    });
    let share = stalled.count() as f64 / f64::from(servers);
    // 1 − exp(−60 / 1800), give or take five standard errors.
    assert!((share - 0.0328).abs() < 0.0065, "{share} in the first minute, seed {SEED}");
}

#[test]
fn jobs_keep_their_rhythm_and_begin_at_once_on_all_servers_when_synchronized() {
    for synchronized in [true, false] {
        let of_server = |server| {
            let changes = timeline(&[jobs(synchronized)], 2, server).pace_changes();
            changes.take(6).collect::<Vec<_>>()
        };
        let changes = of_server(0);
        for (nth, job) in changes.chunks(2).enumerate() {
            let begins = changes[0].at + Duration::from_secs(60).mul_f64(nth as f64);
            assert_eq!((job[0].at, job[0].pace.speed), (begins, 0.25));
            assert_eq!((job[1].at, job[1].pace.speed), (begins + Duration::from_secs(2), 1.0));
        }
        assert_eq!(changes == of_server(1), synchronized);
    }
}

#[test]
fn one_more_fault_leaves_the_others_as_they_were() {
    let begins = |faults: &[Fault], servers| {
        let changes = timeline(faults, servers, 0).pace_changes();
        changes.map(|change| change.at).take(20).collect::<Vec<_>>()
    };
    let stalls = stalls(100, Duration::from_ms(10));
    let alone = begins(std::slice::from_ref(&stalls), 1);
    let slow = Recipe::SlowReplica { slowdown: 2.0 };
    assert_eq!(alone, begins(&[stalls, everywhere(slow)], 1));
}

#[test]
fn a_stopped_server_stays_stopped_and_slowdowns_multiply() {
    let slow = |slowdown| everywhere(Recipe::SlowReplica { slowdown });
    let faults = [slow(2.0), stalls(100, Duration::from_ms(10)), slow(5.0)];
    let paces: Vec<f64> =
        timeline(&faults, 1, 0).pace_changes().map(|change| change.pace.speed).take(4).collect();
    assert_eq!(paces, [0.0, 0.1, 0.0, 0.1]);
}

#[test]
fn the_demands_of_antagonists_add_up_and_leave_a_minimum() {
    let antagonist = |wanted, cores_left_min| {
        let every = Distribution::Constant { value: Duration::from_secs(1) };
        everywhere(Recipe::Antagonist {
            cores_min: wanted,
            cores_max: wanted,
            cores_left_min,
            every,
        })
    };
    let cores = |faults: &[Fault]| {
        let cores = Some(Cores { allocated: 4.0, machine: 10.0 });
        let faults = Faults::new(faults, 1, cores, &Rng::new(SEED));
        FaultTimeline::new(&faults, 0).pace()
    };
    let pace_with = |cores| Pace { speed: 1.0, cores };
    assert_eq!(cores(&[antagonist(3.0, 2.0)]), pace_with(7.0));
    assert_eq!(cores(&[antagonist(3.0, 2.0), antagonist(4.0, 2.0)]), pace_with(3.0));
    assert_eq!(cores(&[antagonist(3.0, 2.0), antagonist(20.0, 1.5)]), pace_with(1.5));
}

#[test]
fn garbage_is_collected_every_nth_execution() {
    let lasts = Distribution::Constant { value: Duration::from_ms(5) };
    let collection = everywhere(Recipe::GarbageCollection { executions: 10, lasts });
    let mut timeline = timeline(&[collection], 1, 0);
    let mut collections = Vec::new();
    for nth in 0..50_u64 {
        let now = Instant::ZERO + Duration::from_ms(10 * nth);
        while timeline.poll(now).is_some() {}
        assert_eq!(timeline.pace().speed, 1.0, "execution {nth}");
        if timeline.execution_ended(now) {
            assert_eq!(timeline.pace().speed, 0.0);
            assert_eq!(timeline.poll_timeout(), Some(now + Duration::from_ms(5)));
            collections.push(nth);
        }
    }
    assert_eq!(collections.len(), 5, "{collections:?}, seed {SEED}");
    assert!(collections.windows(2).all(|pair| pair[1] - pair[0] == 10), "{collections:?}");
}

#[test]
fn the_shares_of_failed_executions_are_as_configured() {
    let ratio = |value| Ratio::new(value).expect("a ratio");
    let errors = Recipe::Errors { broken: ratio(0.1), bad: ratio(0.2), silent: ratio(0.3) };
    let mut faults = Faults::new(&[everywhere(errors)], 1, None, &Rng::new(SEED));
    let count = 40_000;
    let drawn: Vec<_> = (0..count).map(|_| faults.execution_outcome(0)).collect();
    for (outcome, expected) in [
        (ExecutionOutcome::Success, 0.4),
        (ExecutionOutcome::BrokenConnection, 0.1),
        (ExecutionOutcome::BadResponse, 0.2),
        (ExecutionOutcome::NoResponse, 0.3),
    ] {
        let share =
            drawn.iter().filter(|drawn| **drawn == outcome).count() as f64 / f64::from(count);
        // Five standard errors of a share.
        assert!((share - expected).abs() < 0.0125, "{outcome:?}: {share}, seed {SEED}");
    }
}

#[test]
fn a_noisy_neighbor_sends_as_many_requests_as_configured() {
    let neighbor = Recipe::NoisyNeighbor {
        per_second: 100.0,
        service: Distribution::Constant { value: Duration::from_ms(3) },
        class: Class::Batch,
    };
    let mut timeline = timeline(&[everywhere(neighbor)], 1, 0);
    let mut requests = 0;
    while let Some(event) = timeline.poll(Instant::ZERO + Duration::from_secs(100)) {
        let expected = FaultEffect::RequestArrives { service_ns: 3e6, class: Class::Batch };
        assert_eq!(event.effect, expected);
        requests += 1;
    }
    // Five standard deviations of a Poisson number.
    assert!((10_000_i32 - requests).abs() < 500, "{requests}, seed {SEED}");
}
