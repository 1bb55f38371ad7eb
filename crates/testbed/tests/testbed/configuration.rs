//! What the file may say, and what is said about its mistakes.

use curtail_testbed::{File, Recipe, TestbedConfig};
use expect_test::expect;

#[test]
fn every_mistake_is_named_at_once() {
    let yaml = "
shards: 0
replicas: 5000
listen: 127.0.0.1
server:
  slots: 0
  service: {shape: lognormal, median: 1, sigma: 9}
faults:
  - recipe: stalls
  - recipe: stall
    every: {shape: exponential, mean: 1s}
  - recipe: background_job
    every: 1s
    lasts: 2s
    slowdown: 0.5
  - {recipe: slow_replica, servers_ratio: 2, slowdown: 3}
colour: red
";
    let mistakes = TestbedConfig::from_yaml("bad.yaml", yaml).expect_err("nearly all is wrong");
    expect![[r#"
        bad.yaml:1:1: name: missing: expected text (in quotes if it looks like a number)
        bad.yaml:2:9: shards: 0 is out of range: expected a whole number from 1 to 4096
        bad.yaml:3:11: replicas: 5000 is out of range: expected a whole number from 1 to 4096
        bad.yaml:4:9: listen: 127.0.0.1 is text: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        bad.yaml:6:10: server.slots: 0 is out of range: expected a whole number from 1 to 100000
        bad.yaml:7:39: server.service.median: 1 is a number: expected a duration such as 10ms or 1.5s
        bad.yaml:7:49: server.service.sigma: 9 is out of range: expected a number from 0 to 4
        bad.yaml:9:13: faults[0].recipe: stalls is not known: expected one of stall, garbage_collection, background_job, slow_replica, neighbours
        bad.yaml:10:5: faults[1].lasts.shape: missing: expected one of constant, uniform, exponential, lognormal
        bad.yaml:14:12: faults[2].lasts: 2 s is longer than every, 1 s
        bad.yaml:15:15: faults[2].slowdown: 0.5 is out of range: expected a number from 1 to 1000
        bad.yaml:16:43: faults[3].servers_ratio: 2 is out of range: expected a ratio from 0 to 1 (0.02 for 2 %)
        bad.yaml:17:1: colour: unknown key: expected one of name, shards, replicas, listen, server, faults"#]].assert_eq(&mistakes.to_string());
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
    let mistakes = TestbedConfig::from_yaml("large.yaml", yaml).expect_err("too many servers");
    expect![[r#"
        large.yaml:4:11: replicas: this makes 8000 servers: expected at most 4096
        large.yaml:5:9: listen: 8000 ports from 65000 on are not there: expected a lower port"#]]
    .assert_eq(&mistakes.to_string());
}

#[test]
fn the_files_in_testbeds_have_no_mistakes() {
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
            Err(mistakes) => panic!("{mistakes}"),
        };
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a plain name");
        assert_eq!(named, stem, "a testbed is called like its file");
    }
}

#[test]
fn the_bigtable_testbed_is_the_one_of_the_paper() {
    let text = include_str!("../../../../testbeds/bigtable.yaml");
    let config = TestbedConfig::from_yaml("bigtable.yaml", text).expect("no mistakes");
    assert_eq!((config.shards, config.replicas), (100, 3));
    assert!(
        matches!(config.faults[..], [ref fault] if matches!(fault.recipe, Recipe::Stall { .. }))
    );
}
