use super::{Described, Scenario};
use crate::sharding::Rule;
use curtail_model::{Cores, Distribution, Rate};
use curtail_policy::Class;
use curtail_units::Duration;
use expect_test::expect;

mod arrivals;
mod extremes;

fn read(text: &str) -> Scenario {
    Scenario::read("test.yaml", text, &[]).expect("no errors")
}

fn errors(text: &str) -> String {
    Scenario::read("test.yaml", text, &[]).expect_err("there are errors").to_string()
}

const SMALL: &str = "\
model:
  service: {shape: exponential, mean: 1ms}
  arrivals: {load_ratio: 0.8}
arms:
  plain: {hedge: false}
requests_max: 1000
";

#[test]
fn every_error_is_named_with_its_line_and_key() {
    let text = "\
model:
  service: {shape: exponental, mean: 1ms}
  arrivals: {load_ratio: 0.8, requests_per_second: 10}
  replicas: 3
  servers: 2
  message_delay: {shape: uniform, low: 2ms, high: 1ms}
  faults:
    - {recipe: stall, every: {shape: constant, value: 1}, lasts: {shape: pareto, shortest: 1ms}}
    - {recipe: antagonist, cores_min: 3, cores_max: 2, cores_left_min: 1, every: {shape: samples}}
variants:
  busy: {arrivals: {load: 2}}
arms:
  plain: {hedge: {quantile: 98}}
above: [1]
precision: {ratio: 2}
";
    expect![[r#"
        test.yaml:1:1: requests_max: missing: expected a whole number from 1000 to 10000000000
        test.yaml:2:20: model.service.shape: exponental is not known: expected one of constant, uniform, exponential, normal, lognormal, pareto, bimodal, hyperexponential, samples, quantiles, mixture, sum
        test.yaml:3:26: model.arrivals.load_ratio: expected either this or requests_per_second
        test.yaml:5:12: model.servers: a shard's 3 replicas cannot share 2 servers: expected at least as many servers as replicas
        test.yaml:6:40: model.message_delay.low: 2 ms is above high (1 ms): expected at most that
        test.yaml:8:5: model.faults: the antagonist of faults[1] takes cores, but the model has none: expected cores
        test.yaml:8:55: model.faults[0].every.value: 1 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        test.yaml:8:59: model.faults[0].lasts.exponent: missing: expected a number from 0.1 to 100
        test.yaml:9:39: model.faults[1].cores_min: 3 is above cores_max (2): expected at most that
        test.yaml:9:75: model.faults[1].every.values: there is nothing to draw from: expected at least one value
        test.yaml:11:21: variants.busy.arrivals.load: unknown key: expected one of bursts, load_ratio, rate_changes, recorded_file, repeats_every, requests_per_second, spacing
        test.yaml:13:29: arms.plain.hedge.quantile: 98 is out of range: expected a quantile from 0 to 1 (0.99, not 99)
        test.yaml:14:9: above[0]: 1 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        test.yaml:15:20: precision.ratio: 2 is out of range: expected a number from 0.0001 to 1"#]]
    .assert_eq(&errors(text));
}

#[test]
fn a_scenario_without_arms_or_without_a_rate_is_an_error() {
    let text = "\
model:
  service: {shape: constant, value: 0ms}
  arrivals: {load_ratio: 0.5}
requests_max: 1000
";
    expect![[r#"
        test.yaml:1:1: arms: there is nothing to simulate: expected at least one arm
        test.yaml:3:13: model.arrivals: the load needs a service time with a finite mean above zero: expected such a service time, or requests_per_second"#]]
    .assert_eq(&errors(text));
}

#[test]
fn a_small_scenario_is_the_plainest_queue() {
    let scenario = read(SMALL);
    let [variant] = scenario.variants.as_slice() else { panic!("one model") };
    let service = Distribution::Exponential { mean: Duration::from_ms(1) };
    assert_eq!(variant.model, crate::Model::queue(1, 0.8, service));
    assert_eq!(scenario.stop.requests_min, 1000, "at most as many as there can be");
}

#[test]
fn a_variant_is_its_base_but_for_the_keys_it_gives() {
    let text = SMALL.replace(
        "arms:",
        "  shards: 4
  replicas: 3
  servers: 6
  faults: [{recipe: slow_replica, slowdown: 2, servers_first: 1}]
variants:
  same: {}
  larger: {replicas: 5}
  busy:
    arrivals: {requests_per_second: 7}
    cores: {allocated: 2}
    faults: [{recipe: slow_replica, slowdown: 3, servers_ratio: 0.5}]
arms:",
    );
    let scenario = read(&text);
    let [same, larger, busy] = scenario.variants.as_slice() else { panic!("three models") };
    assert_eq!((same.model.servers, same.model.faults.len()), (6, 1));
    assert_eq!(same.model.arrivals.rate, Rate::Load(0.8));
    assert_eq!((larger.model.replicas, larger.model.servers), (5, 20), "one each again");
    assert_eq!(busy.model.arrivals.rate, Rate::PerSecond(7.0));
    assert_eq!(busy.model.cores, Some(Cores { allocated: 2.0, machine: 2.0 }));
    assert_eq!(busy.model.faults.len(), 2, "faults come on top");
    assert_eq!(busy.model.service, same.model.service);
}

#[test]
fn users_types_retries_and_tiers_can_be_written() {
    let text = "\
model:
  service: {shape: exponential, mean: 1ms}
  closed_loop: {users: 20, think_time: {shape: constant, value: 1s}}
  client_retries: {retries_max: 2}
  request_types:
    search: {weight: 9}
    report: {weight: 1, class: batch, service: {shape: constant, value: 11ms}}
  fan_out: 4
  shards: 4
  tiers:
    - {fan_out: 2, shards: 2, replicas: 3, service: {shape: constant, value: 1ms}, concurrency: 8}
variants:
  open: {arrivals: {requests_per_second: 5}}
arms:
  most: {fan_out: {needed: 3, rest: finish}}
requests_max: 1000
";
    let scenario = read(text);
    let [open] = scenario.variants.as_slice() else { panic!("one model") };
    assert_eq!(open.model.closed_loop, None, "arrivals are instead of users");
    assert_eq!(open.model.client_retries.retries_max, 2);
    let [search, report] = open.model.request_types.as_slice() else { panic!("two types") };
    assert_eq!((search.weight, search.class), (9.0, None));
    assert_eq!((report.name.as_str(), report.class), ("report", Some(Class::Batch)));
    let [tier] = open.model.tiers.as_slice() else { panic!("one tier") };
    assert_eq!((tier.servers, tier.leaf.concurrency), (6, 8));
    assert_eq!(scenario.arms[0].fan_out.and_then(|rule| rule.needed), Some(3));
    let users = Scenario::read(
        "test.yaml",
        &text.replace("variants:\n  open: {arrivals: {requests_per_second: 5}}\n", ""),
        &[],
    );
    let model = users.expect("no errors").variants.remove(0).model;
    // 20 users, each with a request in 1 s and 0.9 × 1 ms + 0.1 × 11 ms: the four servers could do more.
    assert!((model.requests_per_second() - 20.0 / 1.002).abs() < 1e-9);
}

#[test]
fn impossible_users_types_and_tiers_are_errors() {
    let text = "\
model:
  service: {shape: exponential, mean: 1ms}
  arrivals: {load_ratio: 0.8}
  closed_loop: {users: 0, think_time: {shape: constant, value: 1s}}
  request_types: {none: {weight: 0}}
  fan_out: 2
  replicas: 2
  faults: [{recipe: slow_replica, slowdown: 2, servers_first: 3}]
  tiers:
    - {replicas: 3, servers: 2, service: {shape: constant, value: 1ms}}
    - service: {shape: constant, value: 1ms}
      faults: [{recipe: slow_replica, slowdown: 2, servers_first: 2}]
arms:
  most: {fan_out: {needed: 3, canaries: 4}}
requests_max: 1000
";
    expect![[r#"
        test.yaml:3:13: model.arrivals: expected either this or closed_loop
        test.yaml:4:24: model.closed_loop.users: 0 is out of range: expected a whole number from 1 to 1000000
        test.yaml:5:34: model.request_types.none.weight: 0 is out of range: expected a number from 0.000001 to 1000000
        test.yaml:8:63: model.faults[0].servers_first: 3 of 2 servers: expected 0 to 2
        test.yaml:10:30: model.tiers[0].servers: a shard's 3 replicas cannot share 2 servers: expected at least as many servers as replicas
        test.yaml:12:67: model.tiers[1].faults[0].servers_first: 2 of 1 servers: expected 0 to 1
        test.yaml:14:28: arms.most.fan_out.needed: 3 of 2 calls: expected at most 2
        test.yaml:14:41: arms.most.fan_out.canaries: 4 of 2 calls: expected at most 2"#]]
    .assert_eq(&errors(text));
}

#[test]
fn sets_take_the_place_of_what_the_file_says() {
    let sets = ["model.arrivals.load_ratio=0.5".to_owned(), "requests_max=2000".to_owned()];
    let scenario = Scenario::read("test.yaml", SMALL, &sets).expect("no errors");
    assert_eq!(scenario.variants[0].model.arrivals.rate, Rate::Load(0.5));
    assert_eq!(scenario.stop.requests_max, 2_000);
}

#[test]
fn every_shape_can_be_written() {
    let shapes = [
        "{shape: constant, value: 1ms}",
        "{shape: uniform, high: 2ms}",
        "{shape: exponential, mean: 1ms}",
        "{shape: normal, mean: 5ms, deviation: 1us}",
        "{shape: lognormal, median: 1ms, sigma: 0}",
        "{shape: pareto, shortest: 500us, exponent: 2}",
        "{shape: bimodal, fast: 500us, slow: 5500us, slow_ratio: 0.1}",
        "{shape: hyperexponential, phases: [{weight: 9, mean: 500us}, {weight: 1, mean: 5500us}]}",
        "{shape: samples, values: [500us, 1500us]}",
        "{shape: quantiles, points: [{quantile: 0, value: 0ms}, {quantile: 1, value: 2ms}]}",
        "{shape: mixture, parts: [{weight: 1, shape: constant, value: 1ms}, {weight: 3, shape: sum, terms: [{shape: constant, value: 1ms}]}]}",
        "{shape: sum, terms: [{shape: constant, value: 400us}, {shape: exponential, mean: 600us}]}",
    ];
    for shape in shapes {
        let text = SMALL.replace("{shape: exponential, mean: 1ms}", shape);
        let mean_ms = read(&text).variants[0].model.service.mean_ns() / 1e6;
        let expected = if shape.contains("normal, mean") { 5.0 } else { 1.0 };
        assert!((mean_ms - expected).abs() < 1e-9, "{shape}: {mean_ms}");
    }
}

#[test]
fn all_keys_can_be_listed() {
    let keys = Described::keys();
    let has = |path: &str| keys.iter().any(|key| key.path == path);
    for path in ["model.service.shape", "variants.<name>.clients", "arms.<name>.hedge.quantile"] {
        assert!(has(path), "{path}");
    }
}

#[test]
fn a_sharding_stands_alone() {
    let text = "\
sharding:
  servers: {from: 2, to: 9, step: 3}
  whole: {shape: constant, value: 1s}
  rules: {many: {rule: fixed, shards: 100}}
";
    let read = |sets: &[String]| Described::read("test.yaml", text, sets);
    let Ok(Described::Sharding(sharding)) = read(&[]) else { panic!("it is one") };
    assert_eq!(sharding.servers, [2, 5, 8]);
    assert_eq!(sharding.rules, [("many".to_owned(), Rule::Fixed { shards: 100 })]);
    let one = read(&["sharding.rules.many.shards=7".to_owned()]);
    let Ok(Described::Sharding(one)) = one else { panic!("it is one") };
    assert_eq!(one.rules[0].1, Rule::Fixed { shards: 7 });
    let Ok(Described::Policies(_)) = Described::read("test.yaml", SMALL, &[]) else {
        panic!("it has no sharding")
    };
}

#[test]
fn errors_of_a_sharding_are_named_together() {
    let text = "\
sharding:
  servers: {from: 9, to: 2}
  whole: {shape: constant}
  rules:
    none: {rule: fixed, shards: 0}
    half: {rule: halved}
  requests: 10
model: {fan_out: 1}
";
    let errors =
        |text| Described::read("test.yaml", text, &[]).expect_err("there are errors").to_string();
    expect![[r#"
        test.yaml:2:19: sharding.servers.from: 9 is above to (2): expected at most that
        test.yaml:3:3: sharding.whole.value: missing: expected a duration such as 10ms or 1.5s
        test.yaml:5:33: sharding.rules.none.shards: 0 is out of range: expected a whole number from 1 to 1000000
        test.yaml:6:18: sharding.rules.half.rule: halved is not known: expected one of doubled, one_each, fixed
        test.yaml:7:13: sharding.requests: 10 is out of range: expected a whole number from 1000 to 1000000
        test.yaml:8:1: model: unknown key: expected only sharding"#]].assert_eq(&errors(text));
    let large = "\
sharding:
  servers: {from: 1, to: 10000}
  whole: {shape: constant, value: 1s}
  rules: {one: {rule: doubled}, two: {rule: one_each}}
";
    expect![[r#"
        test.yaml:1:1: sharding.requests: too many: expected at most 200000000 requests × servers in all
        test.yaml:2:12: sharding.servers: too many: expected at most 10000 numbers of servers × rules"#]].assert_eq(&errors(large));
    let empty = "sharding: {servers: {from: 1, to: 1}, whole: {shape: constant, value: 1s}}";
    expect![
        "test.yaml:1:1: sharding.rules: there is nothing to compare: expected at least one rule"
    ]
    .assert_eq(&errors(empty));
}

#[test]
fn a_type_has_the_class_of_its_model_unless_it_states_its_own() {
    let scenario = read(
        "\
model:
  service: {shape: exponential, mean: 1ms}
  arrivals: {load_ratio: 0.8}
  request_types:
    inherits: {weight: 1}
    states: {weight: 1, class: interactive, repeatable: true}
variants:
  same: {}
  batch: {class: batch, repeatable: false}
arms: {plain: {}}
requests_max: 1000
",
    );
    let [same, batch] = &scenario.variants[..] else { panic!("two variants") };
    assert_eq!((same.model.class, batch.model.class), (Class::Interactive, Class::Batch));
    for variant in [same, batch] {
        let [inherits, states] = &variant.model.request_types[..] else { panic!("two types") };
        assert_eq!((inherits.class, inherits.repeatable), (None, None));
        assert_eq!((states.class, states.repeatable), (Some(Class::Interactive), Some(true)));
    }
}

#[test]
fn a_variant_with_fewer_servers_than_a_fault_affects_is_an_error() {
    let text = "\
model:
  service: {shape: exponential, mean: 1ms}
  arrivals: {load_ratio: 0.8}
  replicas: 3
  faults: [{recipe: slow_replica, slowdown: 2, servers_first: 3}]
variants:
  small: {replicas: 2}
arms: {plain: {}}
requests_max: 1000
";
    expect!["test.yaml:7:3: variants.small.servers: servers_first of faults[0] of `model` is 3 of 2 servers: expected 0 to 2"].assert_eq(&errors(text));
}

#[test]
fn the_keys_of_a_section_are_few_enough_to_read() {
    let names = |section| {
        let keys = Described::keys_of(section);
        keys.into_iter().map(|key| key.path).collect::<Vec<String>>()
    };
    let expected = "model variants arms above precision requests_min requests_max sharding";
    assert_eq!(names(None).join(" "), expected);
    assert!(names(Some("arms.hedge")).contains(&"arms.<name>.hedge.quantile".to_owned()));
    assert_eq!(names(Some("arms.<name>.hedge")), names(Some("arms.hedge")));
    assert_eq!(names(Some("model.faults.every")), names(Some("model.faults[].every")));
    assert!(names(Some("modle")).is_empty());
}
