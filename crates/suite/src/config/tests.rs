//! Tests of the keys of a suite.

use super::{FaultAction, ReadySign, SuiteConfig};
use crate::BuiltinParameters;
use curtail_generator::session::WarmUp;
use curtail_units::Duration;

fn read(text: &str, sets: &[&str]) -> Result<SuiteConfig, String> {
    let parameters = BuiltinParameters {
        curtail: "/bin/curtail".to_owned(),
        dir: "/run".to_owned(),
        suite: "/suites".to_owned(),
        seed: 7,
    };
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    SuiteConfig::from_yaml("s.yaml", text, &sets, &parameters).map_err(|errors| errors.to_string())
}

const FULL: &str = r#"
name: full
parameters: {docs: 300000, heap: 512m, port: 8983}
setup:
  - {name: install, run: [solr/install], within: 10m}
processes:
  node1:
    run: [solr/node, 1]
    env: {HEAP: "${heap}", LOGS: "${dir}/logs"}
    ready: {http: "http://127.0.0.1:${port}/info", within: 2m}
  proxy:
    run: ["${curtail}", proxy]
    ready: {tcp: "127.0.0.1:7300"}
    profile: "http://127.0.0.1:7301/debug/pprof/profile"
prepare:
  - {name: index, run: [solr/index, "${docs}"]}
  - name: documents
    load:
      generator: {run: [solr/documents, "${docs}"]}
      url: "http://127.0.0.1:${port}/update"
      headers: {content-type: application/json}
      begin: "["
      between: ","
      end: "]"
      batch: 500
arms:
  direct: "http://127.0.0.1:${port}"
  hedged: {url: "http://127.0.0.1:7300"}
requests: [{name: all, path: "/select?q=*:*"}]
schedule: {phases: [{rate: 50, lasts: 20s}]}
warm_up: 30s
blocks: 12
faults:
  - {pause: node1, at: 5s, lasts: 1s}
  - {kill: node1, at: 10s}
  - {run: [solr/flush], at: 12s}
measures:
  gc_logs: {node1: "${dir}/gc.log"}
  http: [{of: node1, url: "http://127.0.0.1:${port}/m", pointer: /heap, name: heap_used_bytes}]
validate:
  - {url: "http://127.0.0.1:${port}/n", expect: {counts: [{pointer: /n, equals: "${docs}"}]}}
teardown: [{run: [solr/clean]}]
"#;

#[test]
fn a_suite_is_read_with_its_parameters() {
    let suite = read(FULL, &["parameters.docs=7"]).expect("no errors");
    assert_eq!(suite.parameters[0], ("docs".to_owned(), "7".to_owned()));
    assert_eq!(suite.setup[0].within, Duration::from_secs(600));
    let node = &suite.processes[0];
    assert_eq!(node.run, ["solr/node", "1"]);
    assert_eq!(node.env[1], ("LOGS".to_owned(), "/run/logs".to_owned()));
    let ready = node.ready.as_ref().expect("it says when");
    assert_eq!(ready.sign, ReadySign::Http("http://127.0.0.1:8983/info".to_owned()));
    assert_eq!(suite.processes[1].run, ["/bin/curtail", "proxy"]);
    let profile = suite.processes[1].profile.as_deref();
    assert_eq!(profile, Some("http://127.0.0.1:7301/debug/pprof/profile"));
    assert_eq!(suite.arms[0].url, "http://127.0.0.1:8983");
    assert_eq!(suite.warm_up, WarmUp::Lasts(Duration::from_secs(30)));
    assert_eq!(suite.faults[1].action, FaultAction::Kill { process: "node1".to_owned() });
    assert_eq!(suite.faults[1].lasts, None);
    assert_eq!(suite.validate[0].expect.counts[0].at_least, 7.0);
    assert_eq!(suite.teardown[0].name, "clean");
}

#[test]
fn all_errors_are_named_at_once() {
    let errors = read(
        r#"
name: a/b
parameters: {dir: x}
setup: [{name: nothing}]
processes:
  node1: {run: [x], ready: {http: "ftp://x", tcp: "127.0.0.1:1"}, profile: ":7301"}
prepare: [{name: both, run: [x], load: {file: a, url: "http://h/"}}, {load: {url: "http://h/"}}]
arms: {a: "http://h", b: "${prot}", c: "http://h"}
requests: [{name: r, method: GET}]
schedule: {phases: [{rate: 10, lasts: 10s}]}
warm_up: soon
faults: [{pause: node2, at: 9s, lasts: 2s}, {at: 1s}, {restart: node1, at: 1s, lasts: 1s}]
measures: {gc_logs: {node3: gc.log}, http: [{of: node1, url: x, pointer: y, name: z}]}
verdict: {primary: 0.98}
pause: 1
"#,
        &["blocks=0"],
    );
    expect_test::expect![[r#"
        s.yaml:2:7: name: "a/b" is no name: expected letters, digits, - _ and .
        s.yaml:3:14: parameters.dir: this name has a meaning already: expected another
        s.yaml:4:9: setup[0].run: there is no program: expected [PROGRAM, ARGUMENT, …]
        s.yaml:6:35: processes.node1.ready.http: "ftp://x" is no URL that can be asked: expected http://HOST[:PORT]/PATH
        s.yaml:6:35: processes.node1.ready.http: 2 signs: expected one of http, tcp and line
        s.yaml:6:76: processes.node1.profile: ":7301" is no URL that can be asked: expected http://HOST[:PORT]/PATH
        s.yaml:7:29: prepare[0].run: both of run and load: expected one
        s.yaml:7:71: prepare[1].load.file: none of file and generator: expected one
        s.yaml:8:26: arms.b: ${prot} is not a parameter: expected one of curtail, dir, seed, suite
        s.yaml:11:10: warm_up: soon is text: expected none, auto or a time such as 30s
        s.yaml:12:9: faults: "node2" is no process: did you mean node1?
        s.yaml:12:50: faults[1].at: 0 actions: expected one of pause, restart, kill, slow and run
        s.yaml:12:87: faults[2].lasts: only pause, kill and slow last: expected none
        s.yaml:13:11: measures: "node3" is no process: did you mean node1?
        s.yaml:13:62: measures.http[0].url: "x" is no URL that can be asked: expected http://HOST[:PORT]/PATH
        s.yaml:13:74: measures.http[0].pointer: "y" does not begin with /: expected a JSON pointer
        s.yaml:14:20: verdict.primary: expected one of [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999]
        s.yaml:15:1: pause: unknown key: expected one of arms, blocks, ca_file, connections, faults, insecure, journeys, keep_alive, links, measures, name, parameters, prepare, processes, protocol, requests, restarts, schedule, setup, teardown, tenants, threads, timeout, validate, verdict, warm_up
        --set blocks=0: 0 is out of range: expected a whole number from 1 to 10000"#]]
    .assert_eq(&errors.expect_err("many"));
}

#[test]
fn names_of_processes_and_times_of_faults_are_checked_against_each_other() {
    let sets = [
        "faults[0].pause=node2",
        "faults[1].at=20s",
        "measures.gc_logs={prxy: a}",
        "arms={}",
        "measures.http[0].of=solr",
    ];
    expect_test::expect![[r#"
        s.yaml:34:3: faults: "node2" is no process: did you mean node1?
        s.yaml:34:3: faults: the fault at 20 s is over at 20 s: expected the end before that of a block, 20 s
        s.yaml:38:3: measures: "prxy" is no process: did you mean proxy?
        s.yaml:38:3: measures: "solr" is no process: expected one of node1, proxy
        --set arms={}: 0 of them: expected one, or two to compare"#]].assert_eq(&read(FULL, &sets).expect_err("many"));
}

#[test]
fn the_suites_that_come_with_curtail_are_right() {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../suites"));
    let files = std::fs::read_dir(folder).expect("suites come with curtail");
    let is_suite = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "yaml");
    let files: Vec<_> =
        files.map(|file| file.expect("it is listed").path()).filter(is_suite).collect();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        assert_eq!(read(&text, &[]).err(), None, "{}", file.display());
    }
}

#[test]
fn the_suites_of_this_repository_have_no_errors() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../suites");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).expect("text");
            let suite =
                read(&text, &[]).unwrap_or_else(|errors| panic!("{}: {errors}", path.display()));
            names.push(suite.name);
        }
    }
    names.sort_unstable();
    assert_eq!(names, ["google-app", "solr", "testbed"]);
}
