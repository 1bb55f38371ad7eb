//! Numbers at the ends of their ranges: each is an error that names its key, or a run that ends.

use super::{SMALL, errors};
use crate::scenario::Scenario;
use crate::world::{Limits, World};
use expect_test::expect;

/// The model of [`SMALL`] with one more line.
fn with_model_line(line: &str) -> String {
    SMALL.replace("arms:", &format!("  {line}\narms:"))
}

#[test]
fn faults_without_time_or_cores_are_errors() {
    let zero = "{shape: constant, value: 0ms}";
    let stall = format!("faults: [{{recipe: stall, every: {zero}, lasts: {zero}}}]");
    expect![
        "test.yaml:4:35: model.faults[0].every: the mean 0 ns is too short: expected at least 1 us"
    ]
    .assert_eq(&errors(&with_model_line(&stall)));
    let antagonist =
        format!("faults: [{{recipe: antagonist, cores_max: 2, cores_left_min: 1, every: {zero}}}]");
    expect![[r#"
        test.yaml:4:11: model.faults: the antagonist of faults[0] takes cores, but the model has none: expected cores
        test.yaml:4:73: model.faults[0].every: the mean 0 ns is too short: expected at least 1 us"#]]
    .assert_eq(&errors(&with_model_line(&antagonist)));
    let with_cores = antagonist.replace(zero, "{shape: constant, value: 1s}");
    let with_cores = format!("cores: {{allocated: 1}}\n  {with_cores}");
    Scenario::read("test.yaml", &with_model_line(&with_cores), &[]).expect("it has cores");
}

#[test]
fn shapes_without_time_or_parts_are_errors() {
    let text = with_model_line("message_delay: {shape: sum, terms: []}");
    expect!["test.yaml:4:38: model.message_delay.terms: the sum has no terms: expected at least one distribution"]
        .assert_eq(&errors(&text));
    let text = with_model_line("message_delay: {shape: pareto, shortest: 0ms, exponent: 1}");
    expect!["test.yaml:4:44: model.message_delay.shortest: 0ms is out of range: expected a duration of at least 1ns"]
        .assert_eq(&errors(&text));
}

#[test]
fn lengths_of_a_run_that_contradict_each_other_are_errors() {
    let text = format!("{SMALL}requests_min: 2000\n");
    expect!["test.yaml:7:15: requests_min: 2000 exceeds requests_max: expected at most 1000"]
        .assert_eq(&errors(&text));
    let text = format!("{SMALL}precision: {{quantile: 1, ratio: 0.1}}\n");
    expect!["test.yaml:7:23: precision.quantile: 1 has no interval: expected a quantile above 0 and below 1"]
        .assert_eq(&errors(&text));
    let slow = SMALL.replace("load_ratio: 0.8", "requests_per_second: 0.000001");
    expect!["test.yaml:6:15: requests_max: 1000000 requests last 31688 years at 0.000001 a second: expected at most 100 years"]
        .assert_eq(&errors(&slow.replace("requests_max: 1000", "requests_max: 1000000")));
}

#[test]
fn more_memory_than_a_machine_has_is_an_error() {
    for (line, message) in [
        (
            "clients: 1000\n  shards: 100\n  replicas: 1000\n  servers: 1000",
            "clients × shards × replicas",
        ),
        (
            "servers: 100000\n  faults: [{recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}, {recipe: slow_replica, slowdown: 2}]",
            "faults × servers",
        ),
    ] {
        let text = errors(&with_model_line(line));
        assert!(text.contains(message), "{text}");
    }
}

/// A model that uses each of `KEYS`.
const EVERYTHING: &str = "\
model:
  service: {shape: exponential, mean: 1ms}
  arrivals: {load_ratio: 0.8, bursts: {every: {shape: constant, value: 1s}, lasts: {shape: constant, value: 100ms}, rate_factor: 3}, rate_changes: [{at: 1s, factor: 2}], repeats_every: 2s}
  clients: 2
  fan_out: 3
  shards: 3
  replicas: 3
  servers: 6
  concurrency: 2
  queue_len_max: 100
  cores: {allocated: 2, machine: 4}
  request_factor: {shape: constant, value: 2}
  call_factor: {shape: uniform, low: 0.5, high: 1.5}
  server_factors: [1, 1.5]
  copies_alike_ratio: 0.5
  message_delay: {shape: constant, value: 100us}
  overhead: {shape: constant, value: 100us}
  connection: {setup: {shape: constant, value: 1ms}, idle_max: 100ms}
  cancelled: runs_on
  faults:
    - {recipe: stall, every: {shape: constant, value: 1s}, lasts: {shape: constant, value: 10ms}}
    - {recipe: garbage_collection, executions: 100, lasts: {shape: constant, value: 10ms}}
    - {recipe: background_job, every: 1s, lasts: {shape: constant, value: 10ms}, slowdown: 2}
    - {recipe: noisy_neighbor, requests_per_second: 10, service: {shape: constant, value: 1ms}}
    - {recipe: antagonist, cores_min: 0, cores_max: 3, cores_left_min: 1, every: {shape: constant, value: 1s}}
    - {recipe: crash, every: {shape: constant, value: 1s}, lasts: {shape: constant, value: 10ms}}
arms:
  all: {balance: {policy: prequal, probe_timeout: 5ms}, tie: true, hedge: {quantile: 0.9}, budget: {ratio: 0.5}}
requests_max: 1000
";

/// Keys whose values are durations.
const DURATIONS: [&str; 19] = [
    "model.service.mean",
    "model.arrivals.bursts.every.value",
    "model.arrivals.bursts.lasts.value",
    "model.arrivals.repeats_every",
    "model.connection.setup.value",
    "model.connection.idle_max",
    "model.message_delay.value",
    "model.overhead.value",
    "model.faults[0].every.value",
    "model.faults[0].lasts.value",
    "model.faults[1].lasts.value",
    "model.faults[2].every",
    "model.faults[2].lasts.value",
    "model.faults[3].service.value",
    "model.faults[4].every.value",
    "model.faults[5].every.value",
    "model.faults[5].lasts.value",
    "arms.all.timeout",
    "arms.all.balance.probe_timeout",
];

/// Keys whose values are numbers.
const NUMBERS: [&str; 22] = [
    "model.arrivals.load_ratio",
    "model.arrivals.bursts.rate_factor",
    "model.request_factor.value",
    "model.call_factor.high",
    "model.copies_alike_ratio",
    "model.clients",
    "model.fan_out",
    "model.shards",
    "model.replicas",
    "model.servers",
    "model.concurrency",
    "model.queue_len_max",
    "model.cores.allocated",
    "model.cores.machine",
    "model.faults[1].executions",
    "model.faults[2].slowdown",
    "model.faults[3].requests_per_second",
    "model.faults[4].cores_min",
    "model.faults[4].cores_max",
    "model.faults[4].cores_left_min",
    "arms.all.budget.ratio",
    "requests_max",
];

/// Replaces the value of the key at `path` in [`EVERYTHING`], like `--set`, which cannot name items of lists.
fn with_value(path: &str, value: &str) -> Result<Scenario, String> {
    let (text, sets) = match path.strip_prefix("model.faults[") {
        Some(rest) => {
            let (nth, key) = rest.split_once("].").expect("an item of the list");
            let nth = 20 + nth.parse::<usize>().expect("a number");
            let mut lines: Vec<String> = EVERYTHING.lines().map(str::to_owned).collect();
            let (outer, inner) = key.split_once('.').unwrap_or((key, ""));
            let inner = if inner.is_empty() { format!("{outer}: ") } else { "value: ".to_owned() };
            let from = lines[nth].find(&format!("{outer}: ")).expect("the line has the key");
            let from = from + lines[nth][from..].find(&inner).expect("its value") + inner.len();
            let len = lines[nth][from..].find([',', '}']).expect("its end");
            lines[nth].replace_range(from..from + len, value);
            (lines.join("\n"), Vec::new())
        }
        None => (EVERYTHING.to_owned(), vec![format!("{path}={value}")]),
    };
    Scenario::read("test.yaml", &text, &sets).map_err(|errors| errors.to_string())
}

#[test]
fn every_extreme_number_is_rejected_or_the_run_ends() {
    let seed = 1;
    let limits = Limits { in_flight_max: 20_000, idle_events_max: 200_000 };
    let durations = ["0ms", "1ns", "1us", "24h", "1000000h", "-1ms"];
    let numbers =
        ["0", "1", "0.000001", "1e-300", "100", "100000", "4294967295", "1e18", "1e300", "-1"];
    let table = DURATIONS
        .iter()
        .flat_map(|key| durations.map(|value| (key, value)))
        .chain(NUMBERS.iter().flat_map(|key| numbers.map(|value| (key, value))));
    let (mut rejected, mut ended, mut stopped) = (0, 0, 0);
    for (key, value) in table {
        let scenario = match with_value(key, value) {
            Ok(scenario) => scenario,
            Err(text) => {
                assert!(text.contains("expected"), "{key} = {value}: {text}");
                rejected += 1;
                continue;
            }
        };
        let model = &scenario.variants[0].model;
        let mut stop = scenario.stop;
        stop.requests_max = stop.requests_max.min(2_000);
        let mut world = World::new(model, &scenario.arms[0], (stop, &[]), seed).with_limits(limits);
        while world.run(1 << 20) {}
        println!("{key} = {value}: {} events, {:?}", world.events(), world.stopped());
        if world.stopped().is_some() { stopped += 1 } else { ended += 1 }
    }
    println!("{rejected} refused, {ended} ended, {stopped} stopped");
    assert!(rejected > 50 && ended > 50 && stopped > 5, "the table has all three outcomes");
}
