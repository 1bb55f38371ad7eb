//! `curtail predict`: from spans of the simulator, and from files that are no recording.

use crate::command::{curtail, written};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

/// A service whose replicas stall.
pub(crate) const SERVICE: &str = "model:
  service: {shape: lognormal, median: 10ms, sigma: 0.5}
  arrivals: {requests_per_second: 150}
  replicas: 3
  concurrency: 4
  faults: [{recipe: stall, every: {shape: exponential, mean: 2s}, lasts: {shape: constant, value: 150ms}}]
arms: {plain: {balance: random, hedge: false, retry: false}}
requests_max: 12000
";

#[test]
fn spans_of_stalls_call_for_a_remedy_whose_configuration_is_valid() {
    let scenario = written("predict.yaml", SERVICE);
    let spans = ["--spans", "predict.jsonl", "--spans-max", "8000"];
    let ended = curtail(&[&["simulate", &scenario], &spans[..]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = curtail(&["predict", "--from", "predict.jsonl", "--format", "json"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let json: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((&json["schema"], &json["reproduced"]), (&"curtail.predict/1".into(), &true.into()));
    let name = json["recommended"].as_str().expect("a remedy");
    let remedies = json["remedies"].as_array().expect("a list");
    let chosen = remedies.iter().find(|remedy| remedy["name"] == name).expect("it is listed");
    let config = chosen["config"].as_str().expect("YAML");
    let keys: String = config.lines().map(|line| format!("    {line}\n")).collect();
    let proxy = format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: a}}]\nupstreams:\n  a:\n    replicas: [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n{keys}"
    );
    let proxy = written("predict-proxy.yaml", proxy);
    let checked = curtail(&["config", "check", &proxy]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
}

#[test]
fn a_file_that_is_no_recording_is_named_with_the_reason() {
    for (name, content, code) in [
        ("empty", "", Some(3)),
        ("nonsense", "nonsense\n", Some(3)),
        ("yaml", "\nlisteners: []\n", Some(3)),
        ("journal", "{\"entry\":\"journal\",\"schema\":\"curtail.journal/1\"}\n", Some(3)),
    ] {
        let file = written(&format!("predict-{name}.txt"), content);
        let ended = curtail(&["predict", "--from", &file]);
        assert_eq!(ended.code, code, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(&file), "{name}: {}", ended.stderr);
        let is_no_json = ended.stderr.contains("expected a recording in JSON: a journal");
        assert_eq!(is_no_json, matches!(name, "nonsense" | "yaml"), "{}", ended.stderr);
    }
}

/// The header of all responses of a server.
const VERSION: &str = "curtail-version: 0.1.0\r\n";

/// A server with this header and this prediction; returns its URL.
fn server_with(header: &'static str, prediction: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let body = prediction.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 0) && line != "\r\n" {
                line.clear();
            }
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let response = format!("{head}{header}content-length: {}\r\n\r\n{body}", body.len());
            stream.get_mut().write_all(response.as_bytes()).expect("it reads");
        }
    });
    url
}

#[test]
fn a_prediction_of_a_server_that_is_not_reproduced_fails_and_is_not_kept() {
    let prediction = json!({
        "schema": "curtail.predict/1", "reproduced": false, "difference": "p99 is off by +40 %",
        "text": "The model does NOT reproduce the recording: p99 is off by +40 %.\n",
    });
    let server = server_with(VERSION, &prediction);
    let ask = ["predict", "--service", "shop", "--server", &server];
    let ended = curtail(&ask);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
    assert_eq!(ended.stdout, prediction["text"].as_str().expect("it is text"));
    // Nothing listens there.
    let ended = curtail(&[&ask[..], &["--keep", "--to", "http://127.0.0.1:1"]].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("not kept"), "{}", ended.stderr);
    let reproduced = server_with(VERSION, &json!({ "reproduced": true, "text": "Fine.\n" }));
    let ended = curtail(&["predict", "--service", "shop", "--server", &reproduced]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Fine.\n"));
    // A proxy, or the service behind it.
    let other = server_with("", &json!({ "reproduced": true, "text": "Hello.\n" }));
    let ended = curtail(&["predict", "--service", "shop", "--server", &other]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("is not the query API"), "{}", ended.stderr);
}
