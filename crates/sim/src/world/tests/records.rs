//! Records of requests: instants in order, the recursion of one queue, hedges and their cancellations.

use super::{SEED, constant, everything, hedge_after, ms, plain, roomy, stop};
use crate::model::Model;
use crate::record::{AttemptEnd, AttemptRecord, RequestRecord};
use crate::scenario::Arm;
use crate::world::World;
use curtail_model::{Affected, Distribution, Fault, Part, Recipe};
use curtail_policy::{BalanceConfig, BudgetConfig, PrequalConfig, Reason, UpstreamConfig, Weight};
use curtail_units::{Duration, Instant, Ratio};

/// The records of a whole run, and the hash of its events.
fn record(
    model: &Model,
    policy: UpstreamConfig,
    (requests, records_max): (u64, u64),
) -> (Vec<RequestRecord>, u64) {
    let arm = Arm::new("", policy);
    let mut world = World::new(model, &arm, (stop(requests), &[]), SEED).recording(records_max);
    let mut records = Vec::new();
    while world.run(1_000) {
        records.extend(world.take_records());
    }
    records.extend(world.take_records());
    assert!(world.recorder.as_mut().expect("it records").open.drain().next().is_none());
    (records, world.log())
}

fn attempts(record: &RequestRecord) -> impl Iterator<Item = &AttemptRecord> {
    record.calls.iter().flat_map(|call| &call.attempts)
}

#[test]
fn a_recorded_run_has_the_same_events_and_the_latencies_of_the_tally() {
    let (model, policy) = everything();
    let threshold = ms(50);
    let arm = Arm::new("", policy);
    let mut world = World::new(&model, &arm, (stop(20_000), &[threshold]), SEED);
    while world.run(1 << 20) {}
    let (records, log) = record(&model, policy, (20_000, u64::MAX));
    assert_eq!(log, world.log(), "seed {SEED}");
    let batches = &world.tally().batches;
    assert_eq!(records.len() as u64, batches.len());
    let above = |record: &&RequestRecord| {
        !record.is_complete || record.ended.since(record.arrived) > threshold
    };
    let share = records.iter().filter(above).count() as f64 / records.len() as f64;
    assert!((share - batches.above()[0].1.value).abs() < 1e-12, "seed {SEED}");
    let failed = records.iter().filter(|record| !record.is_complete).count();
    assert_eq!(failed as u64, batches.failed());
}

#[test]
fn the_instants_of_a_record_are_in_order_and_each_complete_call_has_one_winner() {
    let (model, policy) = everything();
    let (mut records, _) = record(&model, policy, (20_000, u64::MAX));
    records.sort_unstable_by_key(|record| record.number);
    assert!(records.windows(2).all(|pair| pair[0].number + 1 == pair[1].number));
    let mut cancelled_in_service = 0;
    for record in &records {
        assert_eq!(record.calls.len(), 4, "a fan-out of 4");
        assert!(record.client < 3 && record.calls.iter().all(|call| call.began == record.arrived));
        for call in &record.calls {
            let winners = call.attempts.iter().filter(|attempt| attempt.won).count();
            assert!(!call.is_complete || winners == 1, "{call:?}");
            assert!(call.ended <= record.ended);
            for (nth, attempt) in call.attempts.iter().enumerate() {
                assert_eq!(nth == 0, matches!(attempt.reason, Reason::First | Reason::TieFirst));
                let nth = call.shard * model.replicas + attempt.replica;
                assert_eq!(attempt.server, nth % model.servers);
                let at_server = [attempt.arrived, attempt.started, attempt.left];
                let known: Vec<Instant> = at_server.into_iter().flatten().collect();
                assert!(known.iter().all(|at| *at >= attempt.sent) && known.is_sorted());
                assert!(attempt.sent >= call.began);
                assert!(attempt.ended.is_none_or(|ended| ended <= call.ended), "{attempt:?}");
                let is_cancelled = matches!(attempt.end, Some(AttemptEnd::Cancelled(_)));
                cancelled_in_service += usize::from(is_cancelled && attempt.left > attempt.ended);
            }
        }
    }
    let extra = records.iter().flat_map(attempts).count() - 4 * records.len();
    assert!(extra > 1_000 && cancelled_in_service > 100, "{extra}, {cancelled_in_service}");
}

#[test]
fn attempts_follow_the_weights_under_load() {
    let weights = [1.0, 3.0, 0.0, 4.0].map(|weight| Weight::new(weight).expect("a weight"));
    // On average, 40 requests are in service.
    let mut model = Model::queue(4, 0.1, Distribution::Exponential { mean: ms(10) });
    model.leaf.concurrency = 100;
    model.weights = weights.to_vec();
    for balance in [
        BalanceConfig::RoundRobin,
        BalanceConfig::Random,
        BalanceConfig::LEAST_REQUEST,
        BalanceConfig::PEAK_EWMA,
        BalanceConfig::Prequal(PrequalConfig::default()),
    ] {
        let policy = UpstreamConfig::plain(balance);
        let (records, _) = record(&model, policy, (20_000, 20_000));
        let mut counts = [0.0; 4];
        let sent = records.iter().flat_map(attempts).map(|attempt| attempt.replica as usize);
        sent.for_each(|replica| counts[replica] += 1.0 / records.len() as f64);
        println!("seed {SEED}, {balance}: {counts:?}");
        // Prequal follows latencies and loads first.
        let tolerance = if let BalanceConfig::Prequal(_) = balance { 0.08 } else { 0.02 };
        for (count, expected) in counts.iter().zip([0.125, 0.375, 0.0, 0.5]) {
            assert!(
                (count - expected).abs() <= f64::min(tolerance, expected),
                "seed {SEED}, {balance}: {counts:?}"
            );
        }
    }
}

#[test]
fn a_canary_keeps_its_share_while_the_other_replica_is_suspect() {
    // 1,000 requests a second.
    let mut model = Model::queue(2, 0.015, Distribution::Exponential { mean: ms(3) });
    model.leaf.concurrency = 100;
    model.weights = [99.0, 1.0].map(|weight| Weight::new(weight).expect("a weight")).to_vec();
    let recipe = Recipe::Stall { every: constant(1_850), lasts: constant(150) };
    model.faults = vec![Fault { servers: Affected::First(1), recipe }];
    // Overdue attempts would eject the heavy replica, and an ejection gives all requests to the canary.
    let policy = UpstreamConfig { retry: None, ..UpstreamConfig::default() };
    let (records, _) = record(&model, policy, (40_000, 40_000));
    let [mut overtaken, mut canary] = [0, 0];
    for record in &records {
        let mut attempts = attempts(record);
        canary += u32::from(attempts.next().is_some_and(|first| first.replica == 1));
        overtaken += u32::from(attempts.next().is_some());
    }
    let share = f64::from(canary) / records.len() as f64;
    println!("seed {SEED}: {share}, {overtaken} with hedges");
    assert!(overtaken > 100, "seed {SEED}: the heavy replica becomes suspect");
    // At most twice its share, and a little more by chance.
    assert!((0.01..0.023).contains(&share), "seed {SEED}: {share}");
}

#[test]
fn one_queue_starts_each_request_when_lindley_says() {
    let service = Distribution::Exponential { mean: ms(10) };
    let (records, _) = record(&Model::queue(1, 0.8, service), plain(), (5_000, 1_000));
    assert_eq!(records.len(), 1_000, "the maximum");
    // The first recorded request may wait for an earlier one, which has no record.
    let mut idle_from = attempts(&records[0]).next().and_then(|first| first.left);
    let mut waited = 0;
    for record in &records[1..] {
        let attempt = attempts(record).next().expect("one attempt");
        assert_eq!((attempt.arrived, attempt.sent), (Some(record.arrived), record.arrived));
        assert_eq!(attempt.started, attempt.arrived.max(idle_from), "seed {SEED}, {record:?}");
        assert_eq!((attempt.left, attempt.ended), (Some(record.ended), Some(record.ended)));
        waited += usize::from(attempt.started > attempt.arrived);
        idle_from = attempt.left;
    }
    assert!((700..900).contains(&waited), "seed {SEED}: {waited} of 1,000 at a load of 0.8");
}

#[test]
fn a_hedge_is_recorded_with_its_reason_and_the_cancellation_of_the_other() {
    let slow = Part { weight: 1.0, distribution: constant(200) };
    let fast = Part { weight: 9.0, distribution: constant(10) };
    let mut model = Model { service: Distribution::Mixture(vec![fast, slow]), ..roomy(2) };
    model.message_delay = constant(1);
    let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
    let policy = UpstreamConfig { hedge: Some(hedge_after(ms(20))), budget, ..plain() };
    let (records, _) = record(&model, policy, (4_000, u64::MAX));
    let delay =
        |from: Option<Instant>, to: Option<Instant>| to.zip(from).map(|(to, from)| to.since(from));
    let mut hedged = 0;
    for record in &records {
        let attempts: Vec<&AttemptRecord> = attempts(record).collect();
        let [first, hedge] = attempts.as_slice() else { continue };
        assert_eq!(delay(Some(first.sent), Some(hedge.sent)), Some(ms(20)));
        assert!(matches!(
            hedge.reason,
            Reason::SlowerThanQuantile { .. } | Reason::SlowerThanCap { .. }
        ));
        let (winner, loser) = if hedge.won { (hedge, first) } else { (first, hedge) };
        assert!(matches!(loser.end, Some(AttemptEnd::Cancelled(Reason::Lost { .. }))), "{loser:?}");
        assert_eq!(winner.ended, Some(record.ended));
        assert_eq!(loser.ended, winner.ended, "the loser is cancelled at once");
        if hedge.won {
            assert_eq!(loser.left, winner.ended.map(|at| at + Duration::from_ms(1)));
            assert_eq!(delay(winner.started, winner.left), Some(ms(10)));
        }
        hedged += 1;
    }
    // One in ten is slow: of 3,000, the standard deviation is 16.
    let share = f64::from(hedged) / records.len() as f64;
    assert!((share - 0.1).abs() < 0.03, "seed {SEED}: {share} are hedged");
}
