//! A fan-out without a client, in a state that only the middle of a reload has.

use super::respond;
use crate::Config;
use crate::root::Outgoing;
use crate::snapshot::{ConfigSnapshot, ProcessState};
use crate::spans::sample;
use crate::trail::Trail;
use crate::worker::{Shared, Worker};
use arc_swap::ArcSwap;
use curtail_http::head::RequestHead;
use curtail_policy::Request;
use http::StatusCode;
use std::sync::Arc;

const YAML: &str = "\
listeners: [{address: \"127.0.0.1:0\"}]
routes: [{upstream: s, fan_out: {to: replicas, needed: 3}}]
upstreams: {s: {replicas: [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\", \"http://127.0.0.1:3\"]}}
";

#[tokio::test]
async fn fewer_replicas_than_needed_are_an_error_without_a_call() {
    let process_state = ProcessState::for_tests();
    let config = Config::from_yaml("test.yaml", YAML).expect("a configuration");
    let (snapshot, _) = ConfigSnapshot::new(config, &process_state, None).expect("no files");
    // A reload replaces the replicas before it replaces the routes.
    let mut fewer = snapshot.config.upstreams[0].clone();
    fewer.replicas.pop();
    let upstream = Arc::clone(&snapshot.upstreams[0]);
    upstream.apply(upstream.prepare(&fewer, None).expect("no files"));

    let fan_out = Arc::clone(&snapshot.fan_outs[0]);
    let snapshot = ArcSwap::from_pointee(snapshot);
    let (discoveries, drain) = Default::default();
    let health_checks = crate::health::HealthChecks::default();
    let shared = Shared { snapshot, process_state, discoveries, health_checks, drain };
    let worker = Arc::new(Worker::new(0, Arc::new(shared)));
    let request = http::Request::get("http://test/").body(()).expect("a valid request");
    let head = Arc::new(RequestHead::try_from(request.into_parts().0).expect("a valid head"));
    let (context, now) = (worker.trace_context(&head.fields), upstream.clock.now());
    let trail = Box::new(Trail::new(context, now, Arc::clone(&head), Arc::new(sample::client())));
    let outgoing = Outgoing {
        head,
        body: None,
        request: Request::READ,
        failed_statuses: None,
        eligible: None,
        upgrade: None,
        is_traced: false,
        response_buffer_bytes: 1_024,
        interim: None,
    };
    let (head, _) = respond(&worker, fan_out, outgoing, trail).await;
    assert_eq!(head.status, StatusCode::SERVICE_UNAVAILABLE);
    let field = |name: &str| {
        let mut named = head.fields.iter().filter(|(_, found, _)| *found == name.as_bytes());
        String::from_utf8_lossy(named.next().expect("a header").2).into_owned()
    };
    assert_eq!(field("curtail-error"), "too_few_replicas");
    assert_eq!(field("curtail-replicas"), "0/2");
    let machine = upstream.look(|machine, now| machine.budget_counts(now));
    assert_eq!(machine, (0, 0), "no call has arrived");
}
