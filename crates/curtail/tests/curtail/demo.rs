//! `curtail demo`, end to end and short: real servers, real proxies, a real load.

use crate::command::curtail;
use crate::running::Running;

#[test]
fn a_short_demo_answers_every_read_of_every_arm() {
    let arguments =
        ["demo", "--seconds", "3", "--rate", "10", "--seed", "5", "--exit", "--format", "json"];
    let ended = curtail(&arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON alone");
    assert_eq!(report["schema"], "curtail.demo/1");
    assert_eq!(report["seed"], 5);
    let arms = report["arms"].as_array().expect("a list");
    let names: Vec<_> = arms.iter().map(|arm| arm["name"].as_str().expect("text")).collect();
    assert_eq!(names, ["direct", "hedged", "tied", "prequal"]);
    for arm in arms {
        assert_eq!(arm["errors"], 0, "{report}");
        assert!(arm["requests"].as_u64() > Some(0), "{report}");
        let quantile = |key: &str| arm[key].as_f64().expect("no errors, so every quantile");
        // A read takes as long as the slowest of 100 shards, and the median of that is above 5 ms
        // whatever is done about it: 0.95^100 of all reads are faster.
        assert!(quantile("p50_ms") > 5.0, "{report}");
        assert!(quantile("p50_ms") <= quantile("p99_ms"), "{report}");
        assert!(quantile("p99_ms") <= quantile("p999_ms"), "{report}");
        assert!(arm["extra_requests_ratio"].as_f64() >= Some(0.0), "{report}");
    }
    // Nobody but the proxies sends anything twice.
    assert_eq!(arms[0]["extra_requests_ratio"], 0.0, "{report}");
}

#[test]
fn an_interrupted_demo_ends_at_once() {
    let mut demo = Running::start(&["demo", "--rate", "10"]);
    assert_eq!(demo.line(), "warming up");
    demo.signal("INT");
    drop(demo.rest());
    assert_eq!(demo.ended().code(), Some(130));
}

#[test]
fn a_demo_that_is_over_stays_up_to_be_played_with() {
    let mut demo = Running::start(&["demo", "--seconds", "1", "--rate", "10"]);
    let url = loop {
        let line = demo.line();
        if let Some((_, quoted)) = line.split_once("hedged         curl ") {
            break quoted.trim_matches('\'').to_owned();
        }
    };
    let (address, path) = url.trim_start_matches("http://").split_once('/').expect("a path");
    let address = address.parse().expect("an address");
    let answer = crate::testbed::get(address, &format!("/{path}"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let url = loop {
        let line = demo.line();
        if let Some((_, url)) = line.split_once("curl http://")
            && url.contains("/api/traces/")
        {
            break url.to_owned();
        }
    };
    let (api, path) = url.split_once('/').expect("a path");
    let trace = crate::testbed::get(api.parse().expect("an address"), &format!("/{path}"));
    assert!(trace.starts_with("HTTP/1.1 200 OK\r\n"), "{url}");
    // A read asks each of 100 shards, once or twice.
    assert_eq!(trace.matches("\"kind\":2,").count(), 100, "{url}");
    assert!((100..=200).contains(&trace.matches("\"kind\":3,").count()), "{url}");
    demo.signal("TERM");
    assert_eq!(demo.ended().code(), Some(0));
    assert!(std::net::TcpStream::connect(address).is_err(), "nothing is left of it");
}
