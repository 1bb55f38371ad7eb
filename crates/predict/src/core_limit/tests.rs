use super::{Arrivals, CoreLimit, find_core_limit};
use crate::candidate::Candidate;
use crate::executions::Execution;
use crate::fit::{Fit, FitOverrides};
use crate::pace::find_slow_periods;
use crate::recording::{AttemptEnd, RecordedAttempt, RecordedRequest, Recording, UNKNOWN};
use crate::world::simulate;
use curtail_policy::{BalanceConfig, UpstreamConfig};
use curtail_sim::Cancelled;
use curtail_units::{Duration, Instant, Quantile, Rng};

/// The pace at a replica and a time in seconds, with a core for each execution.
type Speed = fn(usize, f64) -> f64;

const NO_LIMIT: CoreLimit = CoreLimit::PerReplica(f64::INFINITY);

/// The gap to the next arrival, in mean gaps, at a time in seconds.
type Gap = fn(&mut Rng, f64) -> f64;

/// Executions of Poisson arrivals at random replicas.
fn executions(seed: u64, service: (usize, f64, CoreLimit), speed: Speed) -> Vec<Vec<Execution>> {
    executions_with(seed, service, speed, |rng, _| rng.exponential())
}

/// Executions at random replicas; in small steps of time, without the simulator.
fn executions_with(
    seed: u64,
    (replicas, per_second, limit): (usize, f64, CoreLimit),
    speed: Speed,
    gap: Gap,
) -> Vec<Vec<Execution>> {
    const STEP_S: f64 = 0.000_2;
    let mut rng = Rng::new(seed);
    let mut of_replica = vec![Vec::new(); replicas];
    // Replica, request, start and the work left in seconds.
    let mut running: Vec<(usize, u32, f64, f64)> = Vec::new();
    let (mut now, mut next, mut request) = (0.0, 0.0, 0);
    let at = |seconds: f64| Instant::ZERO + Duration::from_secs_f64(seconds);
    while request < 12_000 || !running.is_empty() {
        while next <= now && request < 12_000 {
            running.push((rng.below(replicas), request, now, 0.01 * (0.5 * rng.normal()).exp()));
            request += 1;
            next += gap(&mut rng, now) / per_second;
        }
        let mut busy = vec![0.0; replicas];
        let users = running.iter().filter(|(replica, ..)| speed(*replica, now) > 0.0);
        users.for_each(|(replica, ..)| busy[*replica] += 1.0);
        let all = busy.iter().sum::<f64>();
        let share = |replica: usize| match limit {
            CoreLimit::PerReplica(cores) => (cores / busy[replica]).min(1.0),
            CoreLimit::AllReplicas(cores) => (cores / all).min(1.0),
        };
        now += STEP_S;
        for (replica, _, _, left) in &mut running {
            *left -= STEP_S * share(*replica) * speed(*replica, now);
        }
        for (replica, request, started, _) in running.extract_if(.., |(.., left)| *left <= 0.0) {
            of_replica[replica].push(Execution {
                request,
                nth: 0,
                replica: u32::try_from(replica).expect("few"),
                arrived: at(started),
                started: at(started),
                ended: at(now),
                is_whole: true,
            });
        }
    }
    of_replica.iter_mut().for_each(|all| all.sort_by_key(|execution| execution.started));
    of_replica
}

fn limit_of(executions: &[Vec<Execution>]) -> Option<CoreLimit> {
    find_core_limit(executions, &find_slow_periods(executions))
}

fn shared_cores(executions: &[Vec<Execution>]) -> f64 {
    let limit = limit_of(executions).and_then(CoreLimit::all_replicas);
    limit.expect("executions at all replicas share cores")
}

fn own_cores(executions: &[Vec<Execution>]) -> f64 {
    let limit = limit_of(executions).and_then(CoreLimit::per_replica);
    limit.expect("executions at a replica share cores")
}

const USUAL: Speed = |_, _| 1.0;

/// Whether `now` is in the first `lasts` seconds of each period.
fn is_in(now: f64, every: f64, lasts: f64) -> bool {
    now % every < lasts
}

#[test]
fn the_number_of_cores_that_all_replicas_share_is_found() {
    for (seed, replicas, per_second, cores) in
        [(1, 2, 60.0, 1.0), (2, 2, 120.0, 2.0), (3, 3, 200.0, 3.0), (4, 4, 90.0, 1.5)]
    {
        let service = (replicas, per_second, CoreLimit::AllReplicas(cores));
        let found = shared_cores(&executions(seed, service, USUAL));
        assert!((found / cores - 1.0).abs() < 0.15, "seed {seed}: {found} of {cores}");
    }
}

#[test]
fn the_number_of_cores_of_each_replica_is_found() {
    for (seed, replicas, per_second, cores) in
        [(1, 2, 100.0, 1.0), (2, 1, 60.0, 1.0), (3, 3, 400.0, 2.0), (4, 4, 300.0, 1.3)]
    {
        let service = (replicas, per_second, CoreLimit::PerReplica(cores));
        let found = own_cores(&executions(seed, service, USUAL));
        assert!((found / cores - 1.0).abs() < 0.15, "seed {seed}: {found} of {cores}");
    }
}

#[test]
fn the_cores_of_a_replica_that_pauses_are_used_by_the_others() {
    let pauses = |replica, now| f64::from(u8::from(replica != 0 || !is_in(now, 5.0, 0.3)));
    let found = shared_cores(&executions(5, (2, 80.0, CoreLimit::AllReplicas(1.5)), pauses));
    assert!((found / 1.5 - 1.0).abs() < 0.2, "{found}");
}

#[test]
fn what_slows_one_replica_or_all_of_them_is_no_limit_of_cores() {
    let stalls = |replica, now| f64::from(u8::from(!is_in(now + replica as f64, 3.0, 0.2)));
    let slow_replica = |replica, _| if replica == 0 { 0.3 } else { 1.0 };
    let synchronized = |_, now| if is_in(now, 3.0, 0.3) { 0.3 } else { 1.0 };
    let cases: [(&str, Speed); 4] = [
        ("nothing", USUAL),
        ("stalls", stalls),
        ("a slow replica", slow_replica),
        ("a job of all replicas", synchronized),
    ];
    for (what, speed) in cases {
        for seed in 10..13 {
            let executions = executions(seed, (3, 100.0, NO_LIMIT), speed);
            assert_eq!(limit_of(&executions), None, "{what}, seed {seed}");
        }
    }
}

/// A recording in which each execution is a request.
fn recording(executions: &[Vec<Execution>]) -> Recording {
    let mut all: Vec<&Execution> = executions.iter().flatten().collect();
    all.sort_by_key(|execution| execution.arrived);
    let request = |it: &&Execution| RecordedRequest {
        arrived: it.arrived,
        latency: Some(it.lasted()),
        kind: 0,
        attempts: 1,
        caller: UNKNOWN,
        is_holdout: false,
    };
    let attempt = |it: &&Execution| RecordedAttempt {
        replica: it.replica,
        sent: it.arrived,
        lasted: it.lasted(),
        end: AttemptEnd::Responded,
        service: None,
    };
    Recording {
        source: "lab".to_owned(),
        replicas: (0..executions.len()).map(|nth| format!("replica-{nth}")).collect(),
        has_arrivals: true,
        requests: all.iter().map(request).collect(),
        attempts: all.iter().map(attempt).collect(),
        policy: Some(UpstreamConfig::plain(BalanceConfig::Random)),
        ..Recording::default()
    }
}

fn p99_ms(fit: &Fit, remedy: &str) -> f64 {
    let candidates = Candidate::named(fit, remedy).expect("it fits the service");
    simulate(fit, &candidates[0], 0.0, 1).latencies_ns[1] / 1e6
}

#[test]
fn a_fit_with_a_core_limit_has_the_tail_of_its_recording() {
    for limit in [CoreLimit::PerReplica(1.0), CoreLimit::AllReplicas(2.0)] {
        let recording = recording(&executions(7, (3, 130.0, limit), USUAL));
        let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
        let expected = recording.latency_at(Quantile::P99).expect("there are requests").as_ms_f64();
        let found = simulate(&fit, &Candidate::none(&fit), 0.0, 1).latencies_ns[1] / 1e6;
        assert!((found / expected - 1.0).abs() < 0.1, "{limit:?}: {found} of {expected}");
        // 130 requests of 11.3 ms a second, on three or two cores.
        let cores = limit.all_replicas().unwrap_or(3.0);
        let utilization = fit.utilization().expect("the cores are known");
        assert!((utilization * cores / 1.47 - 1.0).abs() < 0.15, "{limit:?}: {utilization}");
        assert!(fit.notes.iter().any(|note| note.part == "cores"), "{:?}", fit.notes);
    }
}

#[test]
fn cancelled_attempts_that_run_on_keep_cores_busy() {
    let recording = recording(&executions(8, (3, 130.0, CoreLimit::AllReplicas(2.0)), USUAL));
    let hedged_ms = |cancelled| {
        let overrides = FitOverrides { cancelled: Some(cancelled), ..FitOverrides::default() };
        p99_ms(&Fit::new(&recording, overrides).expect("enough requests"), "hedge p90")
    };
    let (stops, runs_on) = (hedged_ms(Cancelled::Stops), hedged_ms(Cancelled::RunsOn));
    assert!(runs_on > 1.1 * stops, "{runs_on} and {stops}");
}

#[test]
fn a_core_limit_is_looked_for_if_replicas_are_known_to_be_random() {
    let executions = executions(9, (3, 130.0, CoreLimit::PerReplica(1.0)), USUAL);
    let limit = |change: fn(&mut Recording)| {
        let mut recording = recording(&executions);
        change(&mut recording);
        Fit::new(&recording, FitOverrides::default()).expect("enough requests").core_limit
    };
    assert!(limit(|_| {}).is_some());
    assert_eq!(limit(|recording| recording.policy = None), None);
    let with_choice = |recording: &mut Recording| {
        recording.policy = Some(UpstreamConfig::plain(BalanceConfig::LeastRequest { choices: 2 }));
    };
    assert_eq!(limit(with_choice), None);
}

/// Requests that come in groups come to all replicas.
#[test]
fn arrivals_that_are_not_independent_do_not_pass_for_shared_cores() {
    let groups: Gap = |rng, _| if rng.below(10) == 0 { 8.2 * rng.exponential() } else { 0.2 };
    let two_rates: Gap =
        |rng, now| rng.exponential() / if is_in(now, 20.0, 10.0) { 0.4 } else { 1.6 };
    let cycle: Gap = |rng, now| rng.exponential() / (1.0 + 0.8 * (now * 0.105).sin());
    for (what, gap) in [("groups", groups), ("two rates", two_rates), ("a cycle", cycle)] {
        for seed in 20..22 {
            let limits = [
                NO_LIMIT,
                CoreLimit::PerReplica(1.0),
                CoreLimit::PerReplica(2.0),
                CoreLimit::AllReplicas(2.0),
            ];
            for limit in limits {
                let found = limit_of(&executions_with(seed, (3, 150.0, limit), USUAL, gap));
                let is_right = match (limit, found) {
                    (CoreLimit::PerReplica(f64::INFINITY), found) => found.is_none(),
                    // With two cores, few of these executions show how many there are.
                    (CoreLimit::PerReplica(cores) | CoreLimit::AllReplicas(cores), None) => {
                        cores == 2.0
                    }
                    (CoreLimit::PerReplica(cores), Some(CoreLimit::PerReplica(found)))
                    | (CoreLimit::AllReplicas(cores), Some(CoreLimit::AllReplicas(found))) => {
                        // Arrivals around the start of one of a group hardly differ, so the number is less certain.
                        (cores / 1.5..cores * 1.5).contains(&found)
                    }
                    _ => false,
                };
                assert!(is_right, "{what}, seed {seed}, {limit:?}: {found:?}");
            }
        }
    }
}

#[test]
fn arrivals_around_the_start_are_those_within_the_median_duration() {
    let execution = |replica, from: u64, to: u64| Execution {
        request: 0,
        nth: 0,
        replica,
        arrived: Instant::from_ns(from),
        started: Instant::from_ns(from),
        ended: Instant::from_ns(to),
        is_whole: true,
    };
    // The median duration is 10.
    let executions = [
        vec![execution(0, 10, 20), execution(0, 18, 80), execution(0, 29, 30)],
        vec![execution(1, 5, 15), execution(1, 20, 90)],
    ];
    let counts = Arrivals::count(&executions);
    assert_eq!(counts.own_after, [1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(counts.own_before, [1.0, 2.0, 1.0, 1.0, 1.0]);
    assert_eq!(counts.others_after, [1.0, 1.0, 0.0, 1.0, 1.0]);
    assert_eq!(counts.others_before, [1.0, 0.0, 1.0, 0.0, 1.0]);
    assert_eq!(counts.order, [3, 0, 1, 4, 2]);
}
