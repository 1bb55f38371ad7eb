use super::{find, others_in_service};
use crate::executions::Execution;
use crate::pace::find_slow_periods;
use curtail_units::{Duration, Instant, Rng};

/// The pace at a replica and a time in seconds, with a core for each execution.
type Speed = fn(usize, f64) -> f64;

/// Executions of Poisson arrivals at random replicas, which share cores; stepped from event to event, without the simulator.
fn executions(
    seed: u64,
    (replicas, per_second, cores): (usize, f64, f64),
    speed: Speed,
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
            next += rng.exponential() / per_second;
        }
        let busy = running.iter().filter(|(replica, ..)| speed(*replica, now) > 0.0).count();
        let share = (cores / busy as f64).min(1.0);
        now += STEP_S;
        for (replica, _, _, left) in &mut running {
            *left -= STEP_S * share * speed(*replica, now);
        }
        for (replica, request, started, _) in running.extract_if(.., |(.., left)| *left <= 0.0) {
            of_replica[replica].push(Execution {
                request,
                nth: 0,
                replica: u32::try_from(replica).expect("few"),
                started: at(started),
                ended: at(now),
                is_whole: true,
            });
        }
    }
    of_replica.iter_mut().for_each(|all| all.sort_by_key(|execution| execution.started));
    of_replica
}

fn cores_of(executions: &[Vec<Execution>]) -> Option<f64> {
    find(executions, &find_slow_periods(executions))
}

const USUAL: Speed = |_, _| 1.0;

/// Whether `now` is in the first `lasts` seconds of each period.
fn is_in(now: f64, every: f64, lasts: f64) -> bool {
    now % every < lasts
}

#[test]
fn the_number_of_shared_cores_is_found() {
    for (seed, replicas, per_second, cores) in
        [(1, 2, 60.0, 1.0), (2, 2, 120.0, 2.0), (3, 3, 200.0, 3.0), (4, 4, 90.0, 1.5)]
    {
        let found = cores_of(&executions(seed, (replicas, per_second, cores), USUAL));
        let found = found.expect("executions wait for each other");
        assert!((found / cores - 1.0).abs() < 0.15, "seed {seed}: {found} of {cores}");
    }
}

#[test]
fn the_cores_of_a_replica_that_pauses_are_used_by_the_others() {
    let pauses = |replica, now| f64::from(u8::from(replica != 0 || !is_in(now, 5.0, 0.3)));
    let found = cores_of(&executions(5, (2, 80.0, 1.5), pauses)).expect("they share cores");
    assert!((found / 1.5 - 1.0).abs() < 0.2, "{found}");
}

#[test]
fn what_slows_one_replica_or_all_of_them_is_not_shared_cores() {
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
            let executions = executions(seed, (3, 100.0, f64::INFINITY), speed);
            assert_eq!(cores_of(&executions), None, "{what}, seed {seed}");
        }
    }
}

#[test]
fn others_are_those_in_service_at_other_replicas() {
    let execution = |replica, from: u64, to: u64| Execution {
        request: 0,
        nth: 0,
        replica,
        started: Instant::from_ns(from),
        ended: Instant::from_ns(to),
        is_whole: true,
    };
    let executions = [
        vec![execution(0, 10, 50), execution(0, 40, 45)],
        vec![execution(1, 5, 20), execution(1, 12, 60), execution(1, 40, 41)],
    ];
    assert_eq!(others_in_service(&executions), [1.0, 1.0, 0.0, 1.0, 1.0]);
}
