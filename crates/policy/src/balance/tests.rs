use super::{BalanceConfig, Choice, PrequalConfig, Rule};
use crate::replica::Replicas;
use crate::upstream::Sent;
use crate::{ReplicaId, Weight};
use alloc::boxed::Box;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Rng};

const RULES: [BalanceConfig; 4] = [
    BalanceConfig::RoundRobin,
    BalanceConfig::Random,
    BalanceConfig::LEAST_REQUEST,
    BalanceConfig::PeakEwma { decay: Duration::from_secs(10) },
];

fn rules() -> impl Iterator<Item = BalanceConfig> {
    RULES.into_iter().chain([BalanceConfig::Prequal(PrequalConfig::default())])
}

/// The rule of an upstream that has `replicas` replicas.
fn rule_of(config: &BalanceConfig, replicas: usize, rng: &Rng) -> Box<dyn Rule> {
    let mut rule = config.rule(replicas, rng);
    (0..replicas).for_each(|index| rule.replica_joined(ReplicaId::at(index)));
    rule
}

/// How often each of `replicas` replicas is chosen in `n` choices.
fn counts(config: &BalanceConfig, replicas: &Replicas, n: u32, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    let mut balance = rule_of(config, replicas.len(), &rng);
    let mut counts = alloc::vec![0; replicas.len()];
    for _ in 0..n {
        let chosen = balance.choose(replicas.candidates(Instant::ZERO, None, &[]), &mut rng);
        counts[chosen.expect("none is excluded").0.index()] += 1;
    }
    counts
}

fn is_close(count: u32, n: u32, probability: f64) -> bool {
    let expected = f64::from(n) * probability;
    let sigma = libm::sqrt(expected * (1.0 - probability));
    (f64::from(count) - expected).abs() <= 5.0 * sigma
}

#[test]
fn excluded_is_never_chosen_and_there_is_some_replica_when_there_is_one() {
    let seed = 31;
    let mut rng = Rng::new(seed);
    let now = Instant::from_ns(1);
    for round in 0..20_000 {
        let rule = rules().nth(rng.below(5)).expect("five rules");
        let len = rng.below(7);
        let mut replicas = Replicas::numbered(len);
        for id in (0..len).map(ReplicaId::at) {
            let failures = if rng.chance(0.3) { 3 } else { 0 };
            (0..failures).for_each(|_| replicas.known(id).failed(now));
            if rng.chance(0.3) {
                replicas
                    .set_weight(id, weight(if rng.chance(0.5) { 0.0 } else { 9.0 * rng.unit() }));
            }
        }
        replicas.compare_weights();
        let exclude: Vec<ReplicaId> = replicas.ids().filter(|_| rng.chance(0.4)).collect();
        // Two of these replicas are not present.
        let pin =
            |rng: &mut Rng| (0..len + 2).filter(|_| rng.chance(0.5)).map(ReplicaId::at).collect();
        let eligible: Option<Vec<ReplicaId>> = rng.chance(0.5).then(|| pin(&mut rng));
        let candidates = replicas.candidates(now, eligible.as_deref(), &exclude);
        let mut balance = rule_of(&rule, len, &rng);
        let chosen = balance.choose(candidates, &mut rng).map(|(id, _)| id);

        let case = alloc::format!(
            "seed {seed}, round {round}, {rule:?}, {len}, {eligible:?}, {exclude:?}"
        );
        let is_pinned = |id: &ReplicaId| eligible.as_ref().is_none_or(|ids| ids.contains(id));
        let has_weight =
            |id: &ReplicaId| replicas.get(*id).is_some_and(|replica| !replica.weight().is_zero());
        let admits_drained =
            eligible.is_some() && !replicas.ids().any(|id| is_pinned(&id) && has_weight(&id));
        let may_be = |id: &ReplicaId| {
            !exclude.contains(id) && is_pinned(id) && (admits_drained || has_weight(id))
        };
        let left = replicas.ids().any(|id| may_be(&id));
        assert_eq!(chosen.is_some(), left, "some-replica-when-there-is-one: {case}");
        assert_eq!(candidates.first(), replicas.ids().find(may_be), "{case}");
        let Some(chosen) = chosen else { continue };
        assert!(may_be(&chosen), "excluded-is-never-chosen: {case}");
        let working = replicas.ids().any(|id| candidates.is_eligible(id));
        let works = candidates.is_eligible(chosen);
        assert_eq!(works, working, "failing ones only when there are no others: {case}");
    }
}

fn weight(value: f64) -> Weight {
    Weight::new(value).expect("a weight")
}

fn weighted(weights: &[f64]) -> Replicas {
    let mut replicas = Replicas::numbered(weights.len());
    for (index, value) in weights.iter().enumerate() {
        replicas.set_weight(ReplicaId::at(index), weight(*value));
    }
    replicas.compare_weights();
    replicas
}

#[test]
fn equally_loaded_replicas_are_chosen_by_weight_under_every_rule() {
    let (n, seed) = (100_000, 38);
    let uneven = [1.0, 2.0, 0.0, 5.0, 0.25, 1.75];
    let steep = [1.0, 1_000.0];
    let equal = [7.0; 5];
    for rule in rules() {
        for weights in [&uneven[..], &steep, &equal] {
            let counts = counts(&rule, &weighted(weights), n, seed);
            let sum: f64 = weights.iter().sum();
            for (count, weight) in counts.iter().zip(weights) {
                let share = weight / sum;
                let exact = f64::from(n) * share;
                let is_right = if rule == BalanceConfig::RoundRobin {
                    (f64::from(*count) - exact).abs() <= 1.0
                } else {
                    is_close(*count, n, share)
                };
                assert!(is_right, "seed {seed}, {rule:?}: {counts:?} of {weights:?}");
            }
        }
    }
}

#[test]
fn round_robin_spreads_the_turns_of_a_heavy_replica() {
    let (mut rng, replicas) = (Rng::new(3), weighted(&[1.0, 2.0, 1.0]));
    let mut balance = rule_of(&BalanceConfig::RoundRobin, 3, &rng);
    let turns: Vec<u32> = (0..12)
        .filter_map(|_| balance.choose(replicas.candidates(Instant::ZERO, None, &[]), &mut rng))
        .map(|(id, _)| id.0)
        .collect();
    let most = turns.windows(4).map(|four| four.iter().filter(|id| **id == 1).count()).max();
    assert_eq!((turns.len(), most), (12, Some(2)), "{turns:?}");
}

#[test]
fn however_idle_it_is_a_light_replica_gets_at_most_twice_its_share() {
    let (n, seed) = (100_000, 39);
    for rule in [BalanceConfig::LEAST_REQUEST, BalanceConfig::PEAK_EWMA] {
        for others in [1, 9] {
            let weights: Vec<f64> =
                (0..=others).map(|nth| if nth == 0 { 1.0 } else { 20.0 }).collect();
            let mut replicas = weighted(&weights);
            // One replica of the largest weight has less load than this one has with one attempt for each twenty.
            for id in (1..=others).map(ReplicaId) {
                (0..100).for_each(|_| {
                    replicas.known(id).load.arrived();
                });
            }
            let light = counts(&rule, &replicas, n, seed)[0];
            let share = 1.0 / (1.0 + 20.0 * f64::from(others));
            // It wins every comparison: those with it as the first of two, and as many with it as the second.
            assert!(is_close(light, n, 2.0 * share), "seed {seed}, {rule:?}, {others}: {light}");
            // Five attempts of a replica of weight 1 are as much load as a hundred of weight 20.
            (0..5).for_each(|_| {
                replicas.known(ReplicaId(0)).load.arrived();
            });
            let light = counts(&rule, &replicas, n, seed)[0];
            assert!(is_close(light, n, share), "seed {seed}, {rule:?}, {others}: {light}");
        }
    }
}

#[test]
fn of_many_draws_the_replica_with_the_least_load_for_its_weight_is_taken() {
    let mut replicas = weighted(&[1.0, 4.0, 2.0]);
    for (id, in_flight) in [(0, 2), (1, 5), (2, 3)] {
        (0..in_flight).for_each(|_| {
            replicas.known(ReplicaId(id)).load.arrived();
        });
    }
    let mut rng = Rng::new(40);
    let mut rule = rule_of(&BalanceConfig::LeastRequest { choices: 100 }, 3, &rng);
    let chosen = rule.choose(replicas.candidates(Instant::ZERO, None, &[]), &mut rng);
    assert_eq!(chosen, Some((ReplicaId(1), Choice::FewerInFlight { in_flight: 5, other: 3 })));
}

#[test]
fn round_robin_takes_each_in_turn_and_steps_over_failing_ones() {
    let mut replicas = Replicas::numbered(4);
    let now = Instant::from_ns(1);
    (0..3).for_each(|_| replicas.known(ReplicaId(2)).failed(now));
    let mut rng = Rng::new(1);
    let mut balance = rule_of(&BalanceConfig::RoundRobin, 4, &rng);
    let mut chosen = (0..7).map(|_| {
        let (id, choice) =
            balance.choose(replicas.candidates(now, None, &[]), &mut rng).expect("three work");
        assert_eq!(choice, Choice::Turn);
        id.0
    });
    let first = chosen.next().expect("seven choices");
    let order = [0, 1, 3].iter().cycle().skip_while(|id| **id != first);
    assert!(order.skip(1).take(6).copied().eq(chosen), "from {first} on");
}

#[test]
fn random_is_uniform() {
    let (n, seed) = (70_000, 32);
    let counts = counts(&BalanceConfig::Random, &Replicas::numbered(7), n, seed);
    assert!(counts.iter().all(|count| is_close(*count, n, 1.0 / 7.0)), "seed {seed}: {counts:?}");
}

#[test]
fn of_two_drawn_the_less_loaded_is_taken() {
    let (n, seed, len) = (90_000, 33, 6_u32);
    let mut replicas = Replicas::numbered(len as usize);
    for in_flight in 0..len {
        let id = ReplicaId(in_flight);
        (0..in_flight).for_each(|_| {
            replicas.known(id).load.arrived();
        });
    }
    let counts = counts(&BalanceConfig::LEAST_REQUEST, &replicas, n, seed);
    for (above, count) in (0..len).rev().zip(&counts) {
        // It wins against each of those with more in flight: their share of all the pairs.
        let probability = f64::from(2 * above) / f64::from(len * (len - 1));
        assert!(is_close(*count, n, probability), "seed {seed}: {counts:?}, {above} above");
    }
}

#[test]
fn of_three_drawn_the_least_loaded_is_taken_and_the_next_is_named() {
    let (n, seed, len) = (90_000, 37, 6_u32);
    let mut replicas = Replicas::numbered(len as usize);
    for in_flight in 0..len {
        (0..in_flight).for_each(|_| {
            replicas.known(ReplicaId(in_flight)).load.arrived();
        });
    }
    let balance = BalanceConfig::LeastRequest { choices: 3 };
    let counts = counts(&balance, &replicas, n, seed);
    // Two that differ, and a third that may be one of them: all three have at least `least` in flight.
    let at_least = |least: u32| {
        let from = f64::from(len - least);
        from * (from - 1.0) / f64::from(len * (len - 1)) * from / f64::from(len)
    };
    for (in_flight, count) in (0..len).zip(&counts) {
        let probability = at_least(in_flight) - at_least(in_flight + 1);
        assert!(is_close(*count, n, probability), "seed {seed}: {counts:?}, {in_flight}");
    }
    // With many draws, these are the two with the fewest in flight.
    let mut rng = Rng::new(seed);
    let mut rule = rule_of(&BalanceConfig::LeastRequest { choices: 100 }, len as usize, &rng);
    let chosen = rule.choose(replicas.candidates(Instant::ZERO, None, &[]), &mut rng);
    assert_eq!(chosen, Some((ReplicaId(0), Choice::FewerInFlight { in_flight: 0, other: 1 })));
}

#[test]
fn failing_replicas_are_not_compared() {
    let mut replicas = Replicas::numbered(2);
    replicas.known(ReplicaId(0)).load.arrived();
    for id in [0, 1] {
        (0..3).for_each(|_| replicas.known(ReplicaId(id)).failed(Instant::from_ns(1)));
    }
    let counts = counts(&BalanceConfig::LEAST_REQUEST, &replicas, 1_000, 36);
    assert!(
        is_close(counts[0], 1_000, 0.5),
        "the one that refuses connections is idle: {counts:?}"
    );
}

#[test]
fn a_suspect_replica_is_chosen_only_if_it_is_less_loaded_than_the_better_of_two() {
    let mut replicas = Replicas::numbered(3);
    replicas.overtaken(ReplicaId(0), Instant::ZERO, Duration::from_ms(1));
    let chosen = |replicas: &Replicas| counts(&BalanceConfig::LEAST_REQUEST, replicas, 1_000, 35);
    for in_flight in 0..2 {
        // The overtaken attempt still counts, and a suspect replica loses a draw.
        assert_eq!(chosen(&replicas)[0], 0, "{in_flight} in flight elsewhere");
        for other in [1, 2] {
            replicas.known(ReplicaId(other)).load.arrived();
        }
    }
    // A third of the draws find it.
    assert!(is_close(chosen(&replicas)[0], 1_000, 1.0 / 3.0), "{:?}", chosen(&replicas));
    (1..3).for_each(|other| {
        replicas.overtaken(ReplicaId(other), Instant::ZERO, Duration::from_ms(1))
    });
    assert!(chosen(&replicas).iter().all(|count| *count > 0), "some replica when all are suspect");
}

#[test]
fn a_full_replica_is_not_chosen_while_another_one_is_not_full() {
    let mut replicas = Replicas::numbered(3);
    for id in [1, 2] {
        replicas.known(ReplicaId(id)).load.arrived();
    }
    let chosen = |replicas: &Replicas| counts(&BalanceConfig::LEAST_REQUEST, replicas, 1_000, 41);
    assert!(chosen(&replicas)[0] > 600, "it has the fewest attempts in flight");
    replicas.rejected(ReplicaId(0), Instant::ZERO);
    assert_eq!(chosen(&replicas)[0], 0);
    replicas.known(ReplicaId(0)).responded();
    assert!(chosen(&replicas)[0] > 600, "it has room again");
    (0..3).for_each(|id| replicas.rejected(ReplicaId(id), Instant::ZERO));
    assert!(chosen(&replicas).iter().all(|count| *count > 0), "some replica when all are full");
}

#[test]
fn a_light_replica_does_not_get_the_requests_of_a_suspect_heavy_one() {
    let n = 100_000;
    for (weights, suspect, choices, shares) in [
        // The canary wins each comparison, because overtaken attempts count, and gets `choices` times its share.
        (&[1.0, 99.0][..], &[1][..], 2, &[0.02, 0.98][..]),
        (&[1.0, 99.0], &[1], 4, &[0.04, 0.96]),
        (&[1.0, 99.0, 0.0], &[1], 2, &[0.02, 0.98, 0.0]),
        // The others together are as heavy.
        (&[1.0, 1.0, 2.0], &[2], 2, &[0.5, 0.5, 0.0]),
        (&[1.0, 50.0, 49.0], &[2], 2, &[0.02, 0.98, 0.0]),
        (&[1.0, 1.0, 1.0], &[1, 2], 2, &[1.0, 0.0, 0.0]),
    ] {
        let mut replicas = weighted(weights);
        for suspect in suspect {
            replicas.overtaken(ReplicaId(*suspect), Instant::ZERO, Duration::from_ms(1));
        }
        let counts = counts(&BalanceConfig::LeastRequest { choices }, &replicas, n, 39);
        for (count, share) in counts.iter().zip(shares) {
            // `choices` independent draws find the canary a little less often than the sum of their probabilities.
            let is_near = (f64::from(*count) / f64::from(n) - share).abs() < 0.003;
            assert!(is_near, "{weights:?}, {choices} choices: {counts:?}");
        }
    }
}

#[test]
fn of_two_drawn_the_one_with_the_lower_peak_ewma_is_taken() {
    let rule = BalanceConfig::PeakEwma { decay: Duration::from_secs(10) };
    let (mut replicas, mut rng) = (Replicas::numbered(2), Rng::new(34));
    let mut balance = rule_of(&rule, 2, &rng);
    for (id, ms) in [(0, 50), (1, 5)] {
        let sent = Sent { replica: ReplicaId(id), at: Instant::ZERO, in_flight_on_arrival: 0 };
        balance.latency_observed(&mut replicas, sent, Instant::ZERO + Duration::from_ms(ms));
    }
    for _ in 0..100 {
        let (cost, other) = (Duration::from_ms(5), Duration::from_ms(50));
        let expected = (ReplicaId(1), Choice::LowerPeakEwma { cost, other });
        let now = Instant::ZERO + Duration::from_ms(5);
        assert_eq!(balance.choose(replicas.candidates(now, None, &[]), &mut rng), Some(expected));
    }
}
