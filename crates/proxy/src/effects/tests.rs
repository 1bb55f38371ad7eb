use super::{Due, EffectSender, SENT_EVERY};
use crate::Config;
use crate::holdout::tests::drawn;
use crate::metrics::ResponseClass;
use crate::snapshot::{ConfigSnapshot, ProcessState};
use crate::worker::Shared;
use arc_swap::ArcSwap;
use curtail_units::{Duration, Instant};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

const YAML: &str = "\
listeners: [{address: \"127.0.0.1:0\"}]
routes:
- {path_prefix: /all, upstream: \"shard-*\", fan_out: {to: upstreams}}
- {upstream: search}
upstreams:
  search: {replicas: [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"], holdout: 0.5}
  shard-0: {replicas: [\"http://127.0.0.1:3\"], holdout: 0.5}
  shard-1: {replicas: [\"http://127.0.0.1:4\"], holdout: 0.5}
spans: {endpoint: \"http://127.0.0.1:4318\"}
";

fn sender() -> EffectSender {
    let process_state = ProcessState::for_tests();
    let config = Config::from_yaml("test.yaml", YAML).expect("a configuration");
    let spans = config.spans.clone().expect("it has a receiver");
    let (snapshot, _) = ConfigSnapshot::new(config, &process_state, None).expect("no files");
    let snapshot = ArcSwap::from_pointee(snapshot);
    let (discoveries, drain) = Default::default();
    let health_checks = crate::health::HealthChecks::default();
    let shared = Shared { snapshot, process_state, discoveries, health_checks, drain };
    EffectSender::new(&spans, &Arc::new(shared)).expect("no files")
}

fn at(second: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(second)
}

fn due(sender: &EffectSender, now: Instant, every: Duration) -> Vec<Due> {
    sender.due(&sender.shared.snapshot.load(), now, every)
}

/// Records requests of this minute, half of them without the remedy: four hundred a second, of 1 to 100 ms.
fn record(sender: &EffectSender, minute: u64) {
    let snapshot = sender.shared.snapshot.load();
    let route = &snapshot.fan_outs[0].holdout;
    let of_upstreams = snapshot.upstreams.iter().filter_map(|of| of.holdout.as_ref());
    for holdout in of_upstreams.chain(route.as_deref()) {
        for nth in 0..24_000 {
            let now = at(60 * minute) + Duration::from_us(2_500 * nth);
            let latency = Duration::from_ms(1 + nth / 2 % 100);
            let response = (ResponseClass::Status(StatusCode::OK), latency);
            holdout.record(now, drawn(nth % 2 == 0), response, 1);
        }
    }
}

#[test]
fn the_effects_of_a_route_and_of_an_upstream_are_due_once() {
    let mut sender = sender();
    assert!(due(&sender, at(0), SENT_EVERY).is_empty(), "nothing was measured");
    record(&sender, 0);
    let effects = due(&sender, at(60), SENT_EVERY);
    // The shards have a holdout as well, but the route has the effect on whole requests.
    let names: Vec<_> = effects.iter().map(|due| &*due.name).collect();
    assert_eq!(names, ["route /all", "upstream search"]);
    let bodies = effects.iter().map(|due| serde_json::from_str(&due.body).expect("JSON"));
    let bodies: Vec<Value> = bodies.collect();
    let upstreams = [json!(["shard-0", "shard-1"]), json!(["search"])];
    for (body, upstreams) in bodies.iter().zip(upstreams) {
        assert_eq!((&body["schema"], &body["upstreams"]), (&json!("curtail.effect/1"), &upstreams));
        let policy: Result<curtail_policy::UpstreamConfig, _> =
            serde_json::from_value(body["policy"].clone());
        assert!(policy.is_ok(), "{policy:?}");
        let percentiles = body["percentiles"].as_array().expect("a list");
        assert!(percentiles.iter().any(|of| of["percentile"] == "p99"), "{body:#}");
    }
    assert_eq!((&bodies[0]["route"], &bodies[1]["route"]), (&json!("/all"), &Value::Null));

    let sent = effects.into_iter().map(|due| (due.name, (at(60), due.statement)));
    sender.sent.extend(sent);
    assert!(due(&sender, at(61), SENT_EVERY).is_empty(), "they state nothing new");
    assert_eq!(due(&sender, at(61), Duration::ZERO).len(), 2, "the proxy stops");
    record(&sender, 1);
    let later = at(60) + SENT_EVERY;
    assert_eq!(due(&sender, later, SENT_EVERY).len(), 2, "it is time again");
}
