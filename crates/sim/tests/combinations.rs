//! Random combinations of all keys: each run ends, its counts add up, and recording changes nothing.

use curtail_sim::{Recording, Scenario, SpanWriter, run, run_recorded};
use curtail_units::Rng;

const SCENARIOS: u64 = 60;

/// A random scenario; each line is there with some probability.
fn scenario(rng: &mut Rng) -> String {
    let mut text = "model:\n".to_owned();
    let mut add = |choices: &[&str]| {
        let choice = choices[rng.below(choices.len())];
        if !choice.is_empty() {
            text.push_str(choice);
            text.push('\n');
        }
    };
    add(&[
        "  service: {shape: exponential, mean: 1ms}",
        "  service: {shape: lognormal, median: 3ms, sigma: 1}",
    ]);
    add(&[
        "  closed_loop: {users: 30, think_time: {shape: exponential, mean: 20ms}}",
        "  arrivals: {load_ratio: 0.7}",
        "  arrivals: {load_ratio: 1.5, spacing: even}",
        "  arrivals: {load_ratio: 0.5, bursts: {every: {shape: exponential, mean: 200ms}, lasts: {shape: exponential, mean: 50ms}, rate_factor: 5}}",
    ]);
    add(&["  shards: 3\n  fan_out: 2", "  shards: 2\n  fan_out: 4", ""]);
    add(&["  replicas: 3", "  replicas: 2", ""]);
    add(&["  clients: 3", ""]);
    add(&["  concurrency: 4\n  queue_len_max: 100", "  concurrency: 1\n  queue_len_max: 5"]);
    add(&["  shared_cores: 1.5", "  cores: {allocated: 1, machine: 2}", "", ""]);
    add(&["  cancelled: stops", "  cancelled: leaves_queue", "  cancelled: runs_on"]);
    add(&["  gives_up_after: 5ms", "  gives_up_after: 50ms", ""]);
    add(&[
        "  client_retries: {retries_max: 3, wait: {shape: exponential, mean: 3ms}}",
        "  client_retries: {retries_max: 1}",
        "",
    ]);
    add(&["  connection: {setup: {shape: exponential, mean: 1ms}, idle_max: 50ms}", ""]);
    add(&["  message_delay: {shape: exponential, mean: 1ms}", ""]);
    add(&[
        "  request_types: {a: {weight: 3}, b: {weight: 1, class: batch, repeatable: false}}",
        "",
    ]);
    let tier = "service: {shape: exponential, mean: 1ms}";
    let crash = "{recipe: crash, every: {shape: exponential, mean: 500ms}, lasts: {shape: exponential, mean: 30ms}}";
    add(&[
        "",
        &format!("  tiers: [{{fan_out: 3, shards: 3, replicas: 2, {tier}, faults: [{crash}]}}]"),
        &format!("  tiers: [{{concurrency: 8, {tier}}}, {{fan_out: 2, {tier}}}]"),
    ]);
    add(&[
        "",
        &format!("  faults: [{crash}]"),
        "  faults: [{recipe: errors, broken_ratio: 0.1}]",
        "  faults: [{recipe: noisy_neighbor, requests_per_second: 20, service: {shape: exponential, mean: 2ms}}]",
    ]);
    text.push_str("arms:\n  plain: {hedge: false, retry: false, timeout: 1s}\n");
    let arms = [
        "  all: {tie: true, group: g, timeout: 1s, balance: {policy: least_request, choices: 3}, fan_out: {needed: 1}}",
        "  all: {timeout: 1s, balance: {policy: prequal}, fan_out: {deadline: 20ms, rest: finish}}",
        "  all: {timeout: 1s, remedy: auto, fan_out: {canaries: 1}}",
        "  all: {timeout: 1s, balance: {policy: round_robin}}",
    ];
    text.push_str(arms[rng.below(arms.len())]);
    text.push_str("\nrequests_max: 2000\n");
    text
}

#[test]
fn every_combination_runs_and_can_be_recorded() {
    for seed in 0..SCENARIOS {
        let text = scenario(&mut Rng::new(seed));
        println!("seed {seed}:\n{text}");
        let scenario = Scenario::read("random.yaml", &text, &[]).expect("a valid scenario");
        let report = run(&scenario, seed, |_| {});
        let mut writers: Vec<SpanWriter> = scenario
            .arms
            .iter()
            .map(|arm| SpanWriter::new(&scenario.variants[0], arm, seed))
            .collect();
        let mut records = 0;
        let mut record = |_: &_, arm: &curtail_sim::Arm, record| {
            let nth = scenario.arms.iter().position(|other| other == arm).expect("of an arm");
            writers[nth].write(&record);
            records += 1;
        };
        let recording = Recording { requests_max: u64::MAX, record: &mut record };
        let recorded = run_recorded(&scenario, seed, |_| {}, recording);
        for (arm, recorded) in report.arms.iter().zip(&recorded.arms) {
            assert_eq!(arm.stopped, None, "{}", arm.arm);
            assert_eq!(arm.log, recorded.log, "{}: recording changes nothing", arm.arm);
            assert!(arm.requests > 0 && arm.errors + arm.partial <= arm.requests, "{arm:?}");
            let of_types: u64 = arm.types.iter().map(|of| of.requests).sum();
            assert!(arm.types.is_empty() || of_types == arm.requests, "{arm:?}");
        }
        assert!(records > 0, "requests are recorded");
    }
}
