//! What the configuration file may contain, and the messages about its errors.

use curtail_model::Recipe;
use curtail_testbed::{File, TestbedConfig};
use expect_test::expect;

#[test]
fn every_error_is_named_at_once() {
    let yaml = "
shards: 0
replicas: 5000
listen: 127.0.0.1
server:
  concurrency: 0
  service: {shape: lognormal, median: 1, sigma: 9}
faults:
  - recipe: stalls
  - recipe: stall
    every: {shape: exponential, mean: 1s}
  - recipe: background_job
    every: 1s
    lasts: {shape: constant}
    slowdown: 0.5
  - {recipe: slow_replica, servers_ratio: 2, slowdown: 3}
colour: red
";
    let errors = TestbedConfig::from_yaml("bad.yaml", yaml).expect_err("nearly all is wrong");
    expect![[r#"
        bad.yaml:1:1: name: missing: expected text (in quotes if it looks like a number)
        bad.yaml:2:9: shards: 0 is out of range: expected a whole number from 1 to 4096
        bad.yaml:3:11: replicas: 5000 is out of range: expected a whole number from 1 to 4096
        bad.yaml:4:9: listen: 127.0.0.1 has no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        bad.yaml:6:16: server.concurrency: 0 is out of range: expected a whole number from 1 to 100000
        bad.yaml:7:39: server.service.median: 1 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        bad.yaml:9:13: faults[0].recipe: stalls is not known: expected one of stall, garbage_collection, background_job, slow_replica, crash, errors, noisy_neighbor, antagonist
        bad.yaml:10:5: faults[1].lasts.shape: missing: expected one of constant, uniform, exponential, normal, lognormal, pareto, bimodal, hyperexponential, samples, quantiles, mixture, sum
        bad.yaml:14:5: faults[2].lasts.value: missing: expected a duration such as 10ms or 1.5s
        bad.yaml:15:15: faults[2].slowdown: 0.5 is out of range: expected a number from 1 to 1000000
        bad.yaml:16:43: faults[3].servers_ratio: 2 is out of range: expected a ratio from 0 to 1 (0.02 for 2 %)
        bad.yaml:17:1: colour: unknown key: expected one of faults, listen, name, replicas, server, shards"#]].assert_eq(&errors.to_string());
}

#[test]
fn recipes_that_real_servers_cannot_follow_are_rejected_with_the_reason() {
    let yaml = "
name: impossible
server: {service: {shape: constant, value: 1ms}}
faults:
  - {recipe: stall, every: {shape: constant, value: 20us}, lasts: {shape: constant, value: 10us}}
  - {recipe: noisy_neighbor, requests_per_second: 50000, service: {shape: constant, value: 1us}}
  - {recipe: antagonist, cores_max: 3, cores_left_min: 1, every: {shape: constant, value: 1s}}
";
    let errors = TestbedConfig::from_yaml("bad.yaml", yaml).expect_err("too fast, and no cores");
    expect![[r#"
        bad.yaml:5:28: faults[0].every: stall would act every 30 us, too often for the timers of a real server: expected at least 100 us on average
        bad.yaml:6:51: faults[1].requests_per_second: noisy_neighbor would act every 20 us, too often for the timers of a real server: expected at least 100 us on average
        bad.yaml:7:14: faults[2].recipe: antagonist takes cores, but the servers share none: expected server.cores"#]].assert_eq(&errors.to_string());
}

#[test]
fn sizes_that_fit_alone_must_fit_together() {
    let yaml = "
name: large
shards: 4000
replicas: 2
listen: 127.0.0.1:65000
server: {service: {shape: constant, value: 1ms}}
";
    let errors = TestbedConfig::from_yaml("large.yaml", yaml).expect_err("too many servers");
    expect![[r#"
        large.yaml:4:11: replicas: this makes 8000 servers: expected at most 4096
        large.yaml:5:9: listen: 8000 ports from 65000 on are not there: expected a lower port"#]]
    .assert_eq(&errors.to_string());
}

#[test]
fn crashes_are_only_simulated_and_files_need_a_reader() {
    let yaml = "
name: simulated
server: {service: {shape: samples, samples_file: times.txt}}
faults:
  - {recipe: crash, every: {shape: constant, value: 9s}, lasts: {shape: constant, value: 1s}}
";
    let errors = TestbedConfig::from_yaml("simulated.yaml", yaml).expect_err("two errors");
    let text = errors.to_string();
    for expected in [
        "server.service.samples_file: files of values cannot be read here",
        "faults[0].recipe: crash: the servers of a testbed share a process",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_files_in_testbeds_have_no_errors() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbeds");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        let name = file.display().to_string();
        let named = match File::from_yaml(&name, &text, &[], None) {
            Ok(File::Servers(config)) => config.name,
            Ok(File::App(config)) => config.name,
            Err(errors) => panic!("{errors}"),
        };
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a plain name");
        assert_eq!(named, stem, "a testbed is called like its file");
    }
}

#[test]
fn the_bigtable_testbed_is_the_one_of_the_paper() {
    let text = include_str!("../../../../testbeds/bigtable.yaml");
    let config = TestbedConfig::from_yaml("bigtable.yaml", text).expect("no errors");
    assert_eq!((config.shards, config.replicas), (100, 3));
    assert!(
        matches!(config.faults[..], [ref fault] if matches!(fault.recipe, Recipe::Stall { .. }))
    );
}
