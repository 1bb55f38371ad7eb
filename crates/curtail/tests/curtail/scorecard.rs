//! `curtail scorecard`: a kept prediction and a measured effect, on a real server.

use crate::command::{curtail, written};
use crate::predict::SERVICE;
use crate::server::{Server, folder};
use curtail_config::policy;
use serde_json::{Value, json};
use std::time::SystemTime;

/// Imports an effect with this p99 on the upstream, as a proxy with this policy sends it.
fn import_effect(otlp: &str, name: &str, (config, p99_ms): (&str, f64)) {
    let policy = curtail_config::read_with_sets("remedy.yaml", config, &[], policy::upstream);
    let body = json!({
        "schema": "curtail.effect/1", "remedy": "hedging", "upstreams": ["shard-0"],
        "policy": policy.expect("the prediction has a valid configuration"), "extra_ratio": 0.03,
        "percentiles": [{
            "percentile": "p99", "latency_ms": { "holdout": 150.0, "remedy": p99_ms },
            "interval_ms": { "holdout": [140.0, 160.0], "remedy": [p99_ms * 0.9, p99_ms * 1.1] },
        }],
    });
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let record = json!({
        "timeUnixNano": now.as_nanos().to_string(),
        "traceId": format!("{:032x}", u128::from_be_bytes(*b"curtailscorecard")),
        "eventName": "curtail.effect",
        "body": { "stringValue": body.to_string() },
    });
    let service = json!([{ "key": "service.name", "value": { "stringValue": "root" } }]);
    let logs = json!({ "resourceLogs": [{
        "resource": { "attributes": service }, "scopeLogs": [{ "logRecords": [record] }],
    }]});
    let ended = curtail(&["import", &written(name, logs.to_string()), "--to", otlp]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_prediction_stands_beside_the_effect_and_survives_the_server() {
    let data = folder("scorecard-server");
    let server = Server::start(&data);
    let otlp = format!("http://{}", server.otlp);
    let url = |server: &Server| format!("http://{}", server.api);
    let scenario = written("scorecard.yaml", SERVICE);
    let spans = ["--spans", "scorecard.jsonl", "--spans-max", "8000"];
    let ended = curtail(&[&["simulate", &scenario], &spans[..]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = curtail(&["import", "scorecard.jsonl", "--to", &otlp]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);

    let ended = curtail(&["scorecard", "--server", &url(&server)]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.starts_with("No remedy yet."), "{}", ended.stdout);

    let of_service = ["predict", "--service", "root", "--since", "20000d", "--keep"];
    let of_server = ["--to", &otlp, "--server", &url(&server), "--format", "json"];
    let ended = curtail(&[&of_service[..], &of_server].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let prediction: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let remedies = prediction["remedies"].as_array().expect("a list");
    let recommended = &prediction["recommended"];
    let remedy = remedies.iter().find(|remedy| remedy["name"] == *recommended).expect("listed");
    let (p99_ms, config) = (remedy["p99_ms"].as_f64(), remedy["config"].as_str());
    let (p99_ms, config) = (p99_ms.expect("a number"), config.expect("YAML"));

    server.ended("TERM");
    let server = Server::start(&data);
    let otlp = format!("http://{}", server.otlp);
    let ask = |arguments: &[&str]| {
        curtail(&[&["scorecard", "--server", &url(&server)], arguments].concat())
    };
    let ended = ask(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("not measured yet"), "{}", ended.stdout);

    import_effect(&otlp, "scorecard-effect.json", (config, p99_ms));
    let ended = ask(&["--format", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let scorecard: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(scorecard["schema"], "curtail.scorecard/1");
    let entries = scorecard["remedies"].as_array().expect("a list");
    let [entry] = &**entries else { panic!("{scorecard:#}") };
    assert_eq!((&entry["remedy"], &entry["verdict"]), (recommended, &json!("within_band")));
    assert_eq!(entry["measured"]["p99_ms"], p99_ms);

    import_effect(&otlp, "scorecard-miss.json", (config, p99_ms * 100.0));
    let ended = ask(&["--service", "root", "--since", "1h"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("MISSED its band"), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);

    let ended = ask(&["--service", "rot"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""));
    assert!(ended.stderr.contains("did you mean root?"), "{}", ended.stderr);
    let ended = ask(&["--since", "soon"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("since"), "{}", ended.stderr);
    server.ended("TERM");
}
