//! Crashes of servers.

use super::{SEED, constant, fault, ms, plain, roomy, run, stop};
use crate::model::Model;
use crate::record::{AttemptEnd, AttemptRecord};
use crate::scenario::Arm;
use crate::world::World;
use curtail_model::{Affected, Distribution, Fault, Rate, Recipe};
use curtail_policy::{BudgetConfig, Failure, Outcome, RetryConfig, UpstreamConfig};
use curtail_units::{Instant, Ratio};

fn crashes(every_ms: u64, lasts_ms: u64) -> Recipe {
    let exponential = |mean| Distribution::Exponential { mean: ms(mean) };
    Recipe::Crash { every: exponential(every_ms), lasts: exponential(lasts_ms) }
}

#[test]
fn requests_fail_for_the_share_of_time_without_the_server() {
    let mut model = roomy(1);
    model.faults = vec![fault(crashes(200, 20))];
    let report = run(&model, &plain(), 200_000);
    let failed = report.errors as f64 / report.requests as f64;
    // Down for 20 of each 220 ms; and a crash breaks whatever arrived in the 10 ms before it.
    let down = 20.0 / 220.0;
    let expected = down + (1.0 - down) * (1.0 - (-10.0_f64 / 200.0).exp());
    println!("seed {SEED}: {failed} failed, expected {expected}");
    // Four standard errors of the share of time, over at least 4,500 crashes.
    assert!((failed - expected).abs() < 0.008, "{failed} failed, expected {expected}");
}

#[test]
fn a_retry_at_a_second_replica_leaves_no_failure() {
    let retry = RetryConfig { retries_max: 1, overdue: None, ..RetryConfig::default() };
    let budget = BudgetConfig { ratio: Ratio::ONE, ..BudgetConfig::default() };
    let policy = UpstreamConfig { retry: Some(retry), budget, ..plain() };
    let mut model = roomy(2);
    model.faults = vec![Fault { servers: Affected::First(1), recipe: crashes(200, 20) }];
    let report = run(&model, &policy, 50_000);
    assert_eq!(report.errors, 0);
    assert!(report.extra_requests_ratio > 0.01, "{} retries", report.extra_requests_ratio);
    let alone = run(&model, &plain(), 50_000);
    assert!(alone.errors > 0, "without retries, requests fail");
}

/// The attempts of a run, in the order in which they were sent.
fn attempts(model: &Model, requests: u64) -> Vec<AttemptRecord> {
    let arm = Arm::new("", plain());
    let mut world = World::new(model, &arm, (stop(requests), &[]), SEED).recording(u64::MAX);
    while world.run(1 << 20) {}
    let requests = world.take_records();
    let mut attempts: Vec<AttemptRecord> =
        requests.into_iter().flat_map(|r| r.calls).flat_map(|c| c.attempts).collect();
    attempts.sort_by_key(|attempt| attempt.sent);
    attempts
}

#[test]
fn a_crash_breaks_queued_requests_and_the_server_comes_back_with_an_empty_queue() {
    let lasts = ms(300);
    let mut model = Model::queue(1, 0.9, Distribution::Exponential { mean: ms(10) });
    model.arrivals.rate = Rate::PerSecond(90.0);
    model.message_delay = constant(1);
    model.faults = vec![fault(Recipe::Crash {
        every: constant(1_000),
        lasts: Distribution::Constant { value: lasts },
    })];
    let attempts = attempts(&model, 20_000);
    let ended = |failure| {
        let end = Some(AttemptEnd::Failed(failure));
        attempts.iter().filter(move |attempt| attempt.end == end)
    };
    let mut crashes: Vec<Instant> = ended(Failure::Broken).filter_map(|a| a.left).collect();
    let (broken, queued) =
        (crashes.len(), ended(Failure::Broken).filter(|a| a.started.is_none()).count());
    crashes.dedup();
    assert!(crashes.len() > 50 && queued > crashes.len(), "{broken} broken, {queued} in queues");
    assert!(crashes.windows(2).all(|pair| pair[1].since(pair[0]) >= ms(1_300)));
    for attempt in &attempts {
        let reaches = attempt.sent + ms(1);
        // Messages come before faults, at both ends of the time without the server.
        let crash = crashes.iter().find(|at| **at < reaches && reaches <= **at + lasts);
        if let Some(crash) = crash {
            assert_eq!(
                attempt.end,
                Some(AttemptEnd::Failed(Failure::NotSent)),
                "down at {crash:?}"
            );
            assert_eq!(attempt.ended, Some(reaches + ms(1)), "the refusal comes at once");
        }
        if attempt.end == Some(AttemptEnd::Responded(Outcome::Good)) {
            let (from, to) =
                (attempt.arrived.expect("it arrived"), attempt.left.expect("it ended"));
            assert!(!crashes.iter().any(|at| from < *at && *at < to), "nothing outlives a crash");
        }
    }
    let first_after = |crash: &Instant| {
        let up = *crash + lasts;
        attempts.iter().find(|a| a.arrived.is_some_and(|at| at > up))
    };
    for first in crashes.iter().filter_map(first_after) {
        assert_eq!(first.started, first.arrived, "the queue was empty");
    }
}
