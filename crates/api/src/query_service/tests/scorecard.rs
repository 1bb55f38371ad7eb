//! `GET /api/v1/scorecard`: which events of a store count.

use super::*;
use curtail_otlp::events;
use serde_json::json;
use std::time::SystemTime;

const DAY_NS: u64 = 86_400_000_000_000;

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_nanos()).expect("before 2554")
}

/// Events of a service, with the same body.
fn kept(service: &str, time_ns: u64, name: &str, bodies: &[Value]) -> (Signal, Vec<u8>) {
    let resource = json!({ "service.name": service }).to_string();
    let bodies: Vec<String> = bodies.iter().map(Value::to_string).collect();
    (Signal::Logs, events::batch(&resource, time_ns, name, &bodies).expect("an object"))
}

fn prediction() -> Value {
    let remedy = json!({
        "name": "tie", "config": "balance: random\nhedge: false\ntie: {message_delay: 1ms}\n", "p99_ms": 20.0,
        "p99_band_ms": [10.0, 40.0], "extra_sent_ratio": 0.01,
    });
    json!({ "prediction": { "model": { "shards": 1 }, "remedies": [remedy], "recommended": null } })
}

fn effect() -> Value {
    let budget = json!({ "ratio": 0.02, "window": 10_000_000_000_u64, "reserve": 10 });
    json!({
        "remedy": "ties", "upstreams": ["search"], "extra_ratio": 0.02,
        "policy": {
            "balance": { "policy": "random" }, "hedge": null,
            "tie": { "delay": null, "message_delay": 1_000_000 }, "retry": null,
            "budget": budget, "timeout": 60_000_000_000_u64,
        },
        "percentiles": [{
            "percentile": "p99", "latency_ms": { "holdout": 150.0, "remedy": 20.0 },
            "interval_ms": { "holdout": [140.0, 160.0], "remedy": [18.0, 22.0] },
        }],
    })
}

#[test]
fn an_effect_of_this_week_has_its_prediction_of_last_week() {
    let now = now_ns();
    let service = TestService::with(&[
        kept("shop", now - 8 * DAY_NS, events::PREDICTION, &[prediction()]),
        kept("shop", now - DAY_NS, events::EFFECT, &[effect()]),
    ]);
    for (since, expected) in [("7d", json!(["within_band"])), ("1h", json!([]))] {
        let scorecard = service.json(&format!("/api/v1/scorecard?since={since}"));
        let entries = scorecard["remedies"].as_array().expect("a list");
        let verdicts: Vec<_> = entries.iter().map(|entry| entry["verdict"].clone()).collect();
        assert_eq!(json!(verdicts), expected, "{since}: {scorecard:#}");
    }
}

#[test]
fn events_of_other_services_do_not_hide_those_of_a_service() {
    let now = now_ns();
    // Events of the same time with the same body would count as one.
    let others: Vec<Value> = (0..10_050).map(|nth| json!({ "nth": nth })).collect();
    let service = TestService::with(&[
        kept("shop", now - 3 * DAY_NS, events::PREDICTION, &[prediction()]),
        kept("shop", now - 2 * DAY_NS, events::EFFECT, &[effect()]),
        kept("noisy", now - DAY_NS, events::EFFECT, &others),
    ]);
    let of = |query: &str| service.json(&format!("/api/v1/scorecard{query}"));
    let shop = of("?service=shop");
    assert_eq!(
        (&shop["remedies"][0]["verdict"], &shop["left_out"]),
        (&json!("within_band"), &json!(0))
    );
    let (status, body) = service.get("/api/v1/scorecard?service=shp");
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    assert!(body.contains("did you mean shop?"), "{body}");
    // The two of the shop are the oldest ones.
    let all = of("");
    assert_eq!((&all["malformed"], &all["left_out"]), (&json!(10_000), &json!(52)));
}

#[test]
fn a_mistyped_parameter_is_named() {
    let service = TestService::with(&[kept("shop", now_ns(), events::EFFECT, &[effect()])]);
    let (status, body) = service.get("/api/v1/scorecard?services=shop");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains("did you mean service?"), "{body}");
    // Clients of Tempo and Jaeger send parameters that Curtail does not know.
    for target in ["/api/search?q=%7B%7D&unknown=1", "/jaeger/api/services?unknown=1&unknown=2"] {
        assert_eq!(service.get(target).0, StatusCode::OK, "{target}");
    }
}
