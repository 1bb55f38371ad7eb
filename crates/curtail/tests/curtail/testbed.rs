//! `curtail testbed`: addresses that respond, errors all at once, ends as documented.

use crate::command::{curtail, written};
use crate::running::Running;
use expect_test::expect;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

const SMALL: &str = "
name: small
shards: 2
replicas: 2
server: {service: {shape: constant, value: 1ms}}
";

fn small(name: &str) -> String {
    let folder = env!("CARGO_TARGET_TMPDIR");
    format!("{folder}/{}", written(name, SMALL))
}

/// The response to a GET, head and body.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: testbed\r\nconnection: close\r\n\r\n")
        .expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it responds in text");
    response
}

#[test]
fn the_addresses_it_prints_respond_until_it_is_stopped() {
    let mut testbed = Running::start(&["testbed", &small("responses.yaml"), "--seed", "9"]);
    assert_eq!(testbed.line(), "testbed small, seed 9");
    for shard in 0..2 {
        let line = testbed.line();
        let addresses = line.strip_prefix(&format!("shard {shard}: ")).expect("a line a shard");
        for address in addresses.split(' ') {
            let address: SocketAddr = address.parse().expect("an address");
            assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
            let response = get(address, &format!("/shard/{shard}/keys?k=a"));
            assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
            assert!(get(address, "/executions").ends_with("\r\n\r\n1\n"));
        }
    }
    testbed.signal("INT");
    assert_eq!(testbed.rest(), "");
    assert_eq!(testbed.ended().code(), Some(0), "Ctrl-C is the usual end");
}

#[test]
fn programs_get_json_and_a_termination_is_its_proper_end() {
    let mut testbed =
        Running::start(&["testbed", &small("json.yaml"), "--format", "json", "--seed", "3"]);
    let report: serde_json::Value = serde_json::from_str(&testbed.line()).expect("JSON");
    assert_eq!(report["schema"], "curtail.testbed/1");
    assert_eq!((&report["name"], &report["seed"]), (&"small".into(), &3.into()));
    let servers = report["servers"].as_array().expect("a list");
    let places: Vec<_> =
        servers.iter().map(|s| (s["shard"].as_u64(), s["replica"].as_u64())).collect();
    let (zero, one) = (Some(0), Some(1));
    assert_eq!(places, [(zero, zero), (zero, one), (one, zero), (one, one)]);
    let address = servers[3]["address"].as_str().expect("text").parse().expect("an address");
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    testbed.signal("TERM");
    assert_eq!(testbed.ended().code(), Some(0));
}

const APP: &str = "{app: google, name: small, client: {attempts_max: 1}}";

#[test]
fn an_app_is_there_whole_or_a_part_that_finds_the_others() {
    let file = format!("{}/{}", env!("CARGO_TARGET_TMPDIR"), written("app.yaml", APP));
    let mut whole = Running::start(&["testbed", &file, "--seed", "4"]);
    assert_eq!(whole.line(), "app small, seed 4");
    let mut address = |role| -> String {
        let line = whole.line();
        line.strip_prefix(role).unwrap_or_else(|| panic!("{line}")).to_owned()
    };
    let [storage, server, client] = ["storage: ", "server: ", "client: "].map(&mut address);
    let work = |client: &str| get(client.parse().expect("an address"), "/work");
    assert!(work(&client).ends_with("\r\n\r\n{\"numbers\":500,\"retries\":0}\n"));

    let sets = [format!("storage.listen={storage}"), format!("server.listen={server}")];
    let part = ["testbed", &file, "--role", "client", "--format", "json"];
    let part = [&part[..], &["--set", &sets[0], "--set", &sets[1]]].concat();
    let mut part = Running::start(&part);
    let report: serde_json::Value = serde_json::from_str(&part.line()).expect("JSON");
    assert_eq!((&report["schema"], &report["name"]), (&"curtail.app/1".into(), &"small".into()));
    let roles = report["roles"].as_object().expect("names");
    assert_eq!(roles.len(), 1, "{report}");
    assert!(work(roles["client"].as_str().expect("text")).starts_with("HTTP/1.1 200 OK\r\n"));

    whole.signal("TERM");
    assert_eq!(whole.ended().code(), Some(0));
    let gone = work(roles["client"].as_str().expect("text"));
    assert!(gone.starts_with("HTTP/1.1 502 "), "{gone}");
}

#[test]
fn all_errors_of_a_file_are_named_and_the_end_is_2() {
    let file =
        written("errors.yaml", "shards: 0\nserver: {concurrency: many, service: {shape: flat}}\n");
    let ended = curtail(&["testbed", &file]);
    expect![[r#"
        errors.yaml:1:1: name: missing: expected text (in quotes if it looks like a number)
        errors.yaml:1:9: shards: 0 is out of range: expected a whole number from 1 to 4096
        errors.yaml:2:23: server.concurrency: many is text: expected a whole number from 1 to 100000
        errors.yaml:2:46: server.service.shape: flat is not known: expected one of constant, uniform, exponential, normal, lognormal, pareto, bimodal, hyperexponential, samples, quantiles, mixture, sum
    "#]]
    .assert_eq(&ended.stderr);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
}

#[test]
fn what_the_machine_does_not_give_ends_with_3() {
    let missing = curtail(&["testbed", "no-such.yaml"]);
    assert_eq!(missing.code, Some(3), "{}", missing.stderr);
    assert!(missing.stderr.starts_with("no-such.yaml: "), "{}", missing.stderr);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it listens");
    let file = written("taken.yaml", format!("{SMALL}listen: {address}\n"));
    let ended = curtail(&["testbed", &file]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains(&address.to_string()), "{}", ended.stderr);
}

#[test]
fn nobody_reading_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail"));
    command.args(["testbed", &small("unread.yaml")]).stdout(writer).stderr(Stdio::piped());
    let output = command.output().expect("the command was built for this test");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn usage_ends_with_2() {
    for arguments in [&[][..], &["no-such-command"], &["testbed"], &["demo", "--seconds", "0"]] {
        let ended = curtail(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}
