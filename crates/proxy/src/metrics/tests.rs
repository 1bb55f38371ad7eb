use super::{
    ConnectionsSnapshot, FanOutMetrics, FanOutResult, LeafMetrics, LeafSnapshot, LimitReason,
    LimitTable, ListenerMetrics, ProcessMetrics, ProxyHeaderFailure, ReplicaSnapshot,
    ResponseClass, RouteLimitMetrics, RouteLimitsSnapshot, Snapshot, UpstreamMetrics,
    UpstreamSnapshot, catalogue, reference,
};
use crate::access_log::buffers::AccessLogCounts;
use crate::driver::InFlightSnapshot;
use crate::remedy::AutoRemedy;
use crate::spans::SpanCounts;
use crate::tenants::DecadeSnapshot;
use curtail_http::connection_counts::{ConnectPhases, ConnectionCounters};
use curtail_http::limit_breaker::LimitCounts;
use curtail_metrics::ReloadResult;
use curtail_metrics::process::Usage;
use curtail_metrics::render_text;
use curtail_policy::{
    AttemptId, Circuit, CircuitState, Class, Decided, Effect, Event, Failure, LeafEffect,
    LeafReason, LeafRequestId, Outcome, Reason, RemedyMode, RequestFailure,
};
use curtail_units::{Bytes, Duration, Instant, Ratio};
use http::StatusCode;

fn decide(metrics: &UpstreamMetrics, effect: Effect, reason: Reason) {
    metrics.decided(&Decided { effect, reason });
}

/// An upstream with a hedged request and a failed one behind it.
pub(crate) fn upstream() -> UpstreamSnapshot {
    let metrics = UpstreamMetrics::default();
    let attempt = AttemptId(0);
    decide(&metrics, Effect::Skip, Reason::NoOtherReplica);
    let spent = Reason::BudgetSpent { extra: 3, requests: 100, ratio: Ratio::ZERO };
    decide(&metrics, Effect::Skip, spent);
    decide(&metrics, Effect::Skip, spent);
    let time = Duration::from_ms(1);
    let dry_run = Reason::DryRun { age: time, delay: time, other: time };
    decide(&metrics, Effect::Skip, dry_run);
    metrics.dry_run_won.add(1);
    decide(&metrics, Effect::Respond { attempt }, Reason::FirstAccepted);
    decide(&metrics, Effect::Cancel { attempt }, Reason::Lost { winner: attempt });
    decide(&metrics, Effect::Fail { why: RequestFailure::NoReplica }, Reason::NoReplica);
    // Not expected of a hold, yet never hidden.
    decide(&metrics, Effect::Skip, Reason::ClientGone);
    metrics.handled(&Event::Responded { attempt, outcome: Outcome::Refused });
    metrics.handled(&Event::Failed { attempt, failure: Failure::Broken });
    metrics.handled(&Event::Woke);
    metrics.ended(ResponseClass::Status(StatusCode::OK), Duration::from_ms(3));
    metrics.ended(ResponseClass::Status(StatusCode::BAD_GATEWAY), Duration::from_secs(100));
    metrics.ended(ResponseClass::None, Duration::from_us(50));

    UpstreamSnapshot {
        name: "the \"api\"".to_owned(),
        group: None,
        counts: metrics.read(),
        latencies: Vec::new(),
        hedge_delay: Some(Duration::from_us(12_500)),
        budget: (100, 3),
        holdout: Some(crate::holdout::tests::sample()),
        switchback: Some(crate::switchback::tests::sample()),
        dry_run: Some(crate::holdout::tests::dry_run_sample()),
        remedy_mode: RemedyMode::Auto,
        remedy: Some(AutoRemedy::new(None, Instant::ZERO).read(Instant::ZERO)),
        discovery: Some(crate::discovery::tests::sample()),
        in_flight_limit: Some(InFlightSnapshot {
            in_flight: 7,
            max: 10,
            limit: LimitCounts { rejected: 4, is_open: true },
        }),
        replicas: vec![replica_snapshot()],
    }
}

/// An ejected replica whose connections are all in use.
fn replica_snapshot() -> ReplicaSnapshot {
    let replica = ConnectionCounters::default();
    let phases = ConnectPhases {
        lookup: Duration::from_ms(250),
        tcp: Duration::from_ms(500),
        tls: Duration::ZERO,
    };
    (0..3).for_each(|_| replica.connected(&phases));
    replica.closed.add(2);
    replica.failed.add(1);
    replica.streams_refused.add(2);
    replica.connections_full.reject();
    let connections = ConnectionsSnapshot {
        address: "10.0.0.7:80".to_owned(),
        counts: replica.read(),
        idle: 1,
        waiting: 2,
    };
    ReplicaSnapshot {
        id: curtail_policy::ReplicaId(0),
        name: None,
        url: "http://10.0.0.7:80".to_owned(),
        in_flight: 4,
        circuit: Circuit {
            state: CircuitState::Open,
            failures: 3,
            open_for: Duration::from_ms(100),
        },
        health: Some(crate::health::tests::sample()),
        weight: curtail_policy::Weight::ONE,
        zones: ["a".to_owned()].into(),
        side: Some(crate::config::ZoneSide::Other),
        warm_up_share: Some(0.25),
        suspect_for: Duration::ZERO,
        full_for: Duration::ZERO,
        connections,
    }
}

fn leaf() -> LeafSnapshot {
    let metrics = LeafMetrics::default();
    let request = LeafRequestId(1);
    let decide = |effect, reason| metrics.decided(&Decided { effect, reason });
    decide(LeafEffect::Start { request }, LeafReason::BelowLimit { in_service: 1, concurrency: 1 });
    let waited = Duration::from_ms(20);
    let next = LeafReason::NextInClass { class: Class::Batch, waited };
    decide(LeafEffect::Start { request }, next);
    decide(LeafEffect::Refuse { request }, LeafReason::QueueFull { len: 1, max: 1 });
    decide(LeafEffect::Drop { request }, LeafReason::TwinStarted { waited });
    let tie = curtail_policy::TieId(1);
    decide(LeafEffect::TellTwin { request, tie }, LeafReason::TieStarted);
    LeafSnapshot {
        name: "db".to_owned(),
        counts: metrics.read(),
        queue_len: 5,
        in_service: 2,
        concurrency: 2,
        url: "http://[::1]:90".to_owned(),
        server: ConnectionsSnapshot {
            address: "[::1]:90".to_owned(),
            counts: ConnectionCounters::default().read(),
            idle: 0,
            waiting: 0,
        },
    }
}

/// A proxy with every optional part, so that every metric has a value.
fn snapshot() -> Snapshot {
    let listener = ListenerMetrics::default();
    listener.accepted.add(2);
    listener.closed.add(1);
    listener.waited.add(1);
    listener.tls_failed.add(1);
    listener.proxy_header_failed.add(&ProxyHeaderFailure::Absent, 1);
    listener.unrouted.add(1);
    listener.redirected.add(1);
    listener.malformed.add(1);
    let process = ProcessMetrics::default();
    process.reloads.add(&ReloadResult::Ok, 1);
    process.reloads.add(&ReloadResult::Failed, 1);
    process.invariants_broken.add(1);
    let fan_out = FanOutMetrics::default();
    fan_out.ended(FanOutResult::Partial, 3, Duration::from_ms(20));
    let limits = RouteLimitMetrics::default();
    limits.rejected.add(&LimitReason::ClientRate, 7);
    limits.table_full.add(&LimitTable::Client, 2);
    Snapshot {
        upstreams: vec![upstream()],
        leaves: vec![leaf()],
        fan_outs: vec![("/read".to_owned(), fan_out.read())],
        route_limits: vec![RouteLimitsSnapshot {
            route: "/write".to_owned(),
            counts: limits.read(),
            in_flight: Some((3, 10)),
        }],
        tenants: Some(vec![DecadeSnapshot {
            requests_min: "10".to_owned(),
            tenants: 2,
            requests: 40,
            errors: 1,
            percentiles: vec![("p50", Duration::from_ms(4)), ("p99.9", Duration::from_ms(80))],
        }]),
        listeners: vec![("in".to_owned(), listener.read())],
        process: process.read(),
        usage: Usage { cpu: Some(Duration::from_ms(1_250)), resident: Some(Bytes::from_kib(64)) },
        started_unix_ns: 1_700_000_000_500_000_000,
        spans: Some(SpanCounts {
            recorded: 9,
            sent: 5,
            dropped: 1,
            encoder_panicked: 5,
            undelivered: 2,
            rejected: 3,
            exports_failed: 4,
        }),
        access_log: Some(AccessLogCounts {
            written: 7,
            buffer_full: 8,
            write_failed: 9,
            encoder_panicked: 10,
        }),
        journal_lost: Some(6),
    }
}

#[track_caller]
fn assert_lines(text: &str, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        assert!(text.lines().any(|shown| shown == line), "no line {line:?} in\n{text}");
    }
}

#[test]
fn what_was_counted_of_a_fan_out_is_shown() {
    assert_lines(
        &render_text(snapshot()),
        r#"
        curtail_fan_out_requests_total{route="/read",result="complete"} 0
        curtail_fan_out_requests_total{route="/read",result="partial"} 1
        curtail_fan_out_shards_missing_total{route="/read"} 3
        curtail_fan_out_duration_seconds_count{route="/read"} 1
        "#,
    );
}

#[test]
fn what_the_limits_of_a_route_rejected_is_shown() {
    assert_lines(
        &render_text(snapshot()),
        r#"
        curtail_requests_limited_total{route="/write",reason="client_rate_limit"} 7
        curtail_requests_limited_total{route="/write",reason="route_in_flight_limit"} 0
        curtail_route_in_flight{route="/write"} 3
        curtail_route_in_flight_max{route="/write"} 10
        curtail_limits_table_full_total{route="/write",table="client"} 2
        "#,
    );
}

#[test]
fn what_was_counted_of_tenants_is_shown_by_decade() {
    assert_lines(
        &render_text(snapshot()),
        r#"
        # TYPE curtail_tenants gauge
        curtail_tenants{decade="10"} 2
        curtail_tenant_requests{decade="10"} 40
        curtail_tenant_errors{decade="10"} 1
        curtail_tenant_latency_seconds{decade="10",percentile="p50"} 0.004
        curtail_tenant_latency_seconds{decade="10",percentile="p99.9"} 0.08
        "#,
    );
}

#[test]
fn what_was_counted_of_an_upstream_is_shown() {
    assert_lines(
        &render_text(snapshot()),
        r#"
        # TYPE curtail_requests counter
        curtail_requests_total{upstream="the \"api\"",status="none"} 1
        curtail_requests_total{upstream="the \"api\"",status="2xx"} 1
        curtail_requests_total{upstream="the \"api\"",status="4xx"} 0
        curtail_requests_total{upstream="the \"api\"",status="5xx"} 1
        curtail_responses_total{upstream="the \"api\"",reason="first_accepted"} 1
        curtail_requests_failed_total{upstream="the \"api\"",reason="no_replica"} 1
        curtail_attempts_total{upstream="the \"api\"",reason="retry"} 0
        curtail_attempts_responded_total{upstream="the \"api\"",outcome="refused"} 1
        curtail_attempts_failed_total{upstream="the \"api\"",failure="broken"} 1
        curtail_attempts_cancelled_total{upstream="the \"api\"",reason="lost"} 1
        curtail_remedies_skipped_total{upstream="the \"api\"",reason="budget_spent"} 2
        curtail_remedies_skipped_total{upstream="the \"api\"",reason="no_other_replica"} 1
        curtail_remedies_skipped_total{upstream="the \"api\"",reason="client_gone"} 1
        curtail_hedge_delay_seconds{upstream="the \"api\""} 0.0125
        curtail_budget_requests{upstream="the \"api\""} 100
        curtail_budget_extra{upstream="the \"api\""} 3
        curtail_attempts_in_flight{upstream="the \"api\"",replica="10.0.0.7:80"} 4
        curtail_connections_open{upstream="the \"api\"",replica="10.0.0.7:80"} 1
        curtail_connections_idle{upstream="the \"api\"",replica="10.0.0.7:80"} 1
        curtail_connections_opened_total{upstream="the \"api\"",replica="10.0.0.7:80"} 3
        curtail_connections_failed_total{upstream="the \"api\"",replica="10.0.0.7:80"} 1
        curtail_streams_refused_total{upstream="the \"api\"",replica="10.0.0.7:80"} 2
        curtail_connections_waiting{upstream="the \"api\"",replica="10.0.0.7:80"} 2
        curtail_connections_at_limit{upstream="the \"api\"",replica="10.0.0.7:80",limit="connections"} 1
        curtail_connections_rejected_total{upstream="the \"api\"",replica="10.0.0.7:80",limit="connections"} 1
        curtail_connections_at_limit{upstream="the \"api\"",replica="10.0.0.7:80",limit="waiting"} 0
        curtail_upstream_in_flight{upstream="the \"api\""} 7
        curtail_upstream_in_flight_remaining{upstream="the \"api\""} 3
        curtail_upstream_at_limit{upstream="the \"api\""} 1
        curtail_upstream_requests_rejected_total{upstream="the \"api\""} 4
        curtail_replica_ejected{upstream="the \"api\"",replica="10.0.0.7:80"} 1
        curtail_replica_ejections_total{upstream="the \"api\"",reason="broken"} 0
        curtail_connect_seconds_total{upstream="the \"api\"",replica="10.0.0.7:80",phase="lookup"} 0.75
        curtail_connect_seconds_total{upstream="the \"api\"",replica="10.0.0.7:80",phase="tcp"} 1.5
        curtail_connect_seconds_total{upstream="the \"api\"",replica="10.0.0.7:80",phase="tls"} 0.0
        "#,
    );
}

#[test]
fn latencies_are_shown_as_a_cumulative_histogram() {
    let text = render_text(snapshot());
    assert_lines(
        &text,
        r#"
        # TYPE curtail_request_duration_seconds histogram
        # UNIT curtail_request_duration_seconds seconds
        curtail_request_duration_seconds_count{upstream="the \"api\""} 2
        curtail_request_duration_seconds_bucket{le="0.00289",upstream="the \"api\""} 0
        curtail_request_duration_seconds_bucket{le="0.00345",upstream="the \"api\""} 1
        curtail_request_duration_seconds_bucket{le="83.7",upstream="the \"api\""} 1
        curtail_request_duration_seconds_bucket{le="+Inf",upstream="the \"api\""} 2
        # TYPE curtail_request_cut_short_seconds histogram
        curtail_request_cut_short_seconds_count{upstream="the \"api\""} 1
        curtail_request_cut_short_seconds_bucket{le="0.0001",upstream="the \"api\""} 1
        "#,
    );
}

#[test]
fn what_was_counted_of_leaves_listeners_and_the_process_is_shown() {
    assert_lines(
        &render_text(snapshot()),
        r#"
        curtail_leaf_queue_len{leaf="db"} 5
        curtail_leaf_in_service{leaf="db"} 2
        curtail_leaf_started_total{leaf="db",reason="below_limit"} 1
        curtail_leaf_started_total{leaf="db",reason="next_in_class"} 1
        curtail_leaf_refused_total{leaf="db",reason="queue_full"} 1
        curtail_leaf_refused_total{leaf="db",reason="pushed_out"} 0
        curtail_leaf_dropped_total{leaf="db",reason="twin_started"} 1
        curtail_leaf_twin_cancels_total{leaf="db",reason="tie_started"} 1
        curtail_leaf_wait_seconds_count{leaf="db"} 2
        curtail_leaf_wait_seconds_bucket{le="0.017",leaf="db"} 1
        curtail_leaf_wait_seconds_bucket{le="0.0242",leaf="db"} 2
        curtail_connections_open{leaf="db",replica="[::1]:90"} 0
        curtail_client_connections_open{listener="in"} 1
        curtail_client_connections_accepted_total{listener="in"} 2
        curtail_client_connections_waited_total{listener="in"} 1
        curtail_client_tls_failed_total{listener="in"} 1
        curtail_client_proxy_header_failed_total{listener="in",reason="absent"} 1
        curtail_requests_unrouted_total{listener="in"} 1
        curtail_requests_redirected_total{listener="in"} 1
        curtail_requests_malformed_total{listener="in"} 1
        curtail_spans_recorded_total 9
        curtail_spans_sent_total 5
        curtail_spans_dropped_total{cause="buffer_full"} 1
        curtail_spans_dropped_total{cause="undelivered"} 2
        curtail_spans_dropped_total{cause="rejected"} 3
        curtail_spans_dropped_total{cause="encoder_panicked"} 5
        curtail_span_exports_failed_total 4
        curtail_journal_entries_lost_total 6
        curtail_policy_invariants_broken_total 1
        curtail_config_reloads_total{result="ok"} 1
        curtail_config_reloads_total{result="failed"} 1
        process_cpu_seconds_total 1.25
        process_resident_memory_bytes 65536
        process_start_time_seconds 1700000000.5
        # EOF
        "#,
    );
}

/// The names of `# TYPE` lines, as the exposition has them: without `_total`, without `_info`.
fn families(text: &str) -> Vec<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect()
}

#[test]
fn the_table_and_the_exposition_name_the_same_metrics_in_the_same_order() {
    let text = render_text(snapshot());
    let expected: Vec<_> = catalogue::ALL.iter().map(|metric| metric.name()).collect();
    let expected = expected
        .iter()
        .map(|name| name.strip_suffix("_total").or(name.strip_suffix("_info")).unwrap_or(name));
    assert_eq!(families(&text), expected.collect::<Vec<_>>());
}

/// The labels that a line carries, without `le`.
fn labels_of<'a>(line: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let rest = line.strip_prefix(name)?;
    let rest = rest.strip_prefix("_bucket").unwrap_or(rest);
    let Some(labels) = rest.strip_prefix('{') else {
        return rest.starts_with(' ').then(Vec::new);
    };
    let (labels, _) = labels.split_once("} ")?;
    let keys = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(key, _)| key);
    Some(keys.filter(|key| *key != "le").collect())
}

#[test]
fn every_metric_carries_the_labels_that_the_table_says() {
    let text = render_text(snapshot());
    for metric in catalogue::ALL {
        let name = metric.name();
        let series: Vec<_> = text.lines().filter_map(|line| labels_of(line, &name)).collect();
        assert!(!series.is_empty(), "{name} is not shown");
        for labels in series {
            let all_match =
                metric.labels.iter().zip(&labels).all(|(expected, shown)| {
                    expected.split(" or ").any(|expected| expected == *shown)
                });
            assert!(all_match && labels.len() == metric.labels.len(), "{name}: {labels:?}");
        }
    }
}

#[test]
fn the_reference_names_every_metric_with_its_meaning() {
    let page = reference();
    assert_eq!(page.lines().count(), catalogue::ALL.len() + 2);
    for metric in catalogue::ALL {
        let row = format!("| `{}` | {} |", metric.name(), metric.kind.as_str());
        assert!(page.lines().any(|line| line.starts_with(&row)), "{row}");
        assert!(metric.help.ends_with('.') && !metric.help.contains('|'), "{}", metric.help);
    }
}
