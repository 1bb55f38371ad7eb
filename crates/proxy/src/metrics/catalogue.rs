//! The one table of all metrics: name, unit, labels and meaning of each.
//!
//! The exposition and the reference page both come from this table, so they agree.

use curtail_metrics::process::{BUILD, PROCESS_CPU, PROCESS_MEMORY, PROCESS_START};
use curtail_metrics::{
    CONFIG_RELOADS, Metric, MetricType, Unit, counter, gauge, histogram_seconds, with_unit,
};

const UPSTREAM: &[&str] = &["upstream"];
const UPSTREAM_REASON: &[&str] = &["upstream", "reason"];
const REPLICA: &[&str] = &["upstream or leaf", "replica"];
const DECADE: &[&str] = &["decade"];
const LISTENER: &[&str] = &["listener"];
const LISTENER_REASON: &[&str] = &["listener", "reason"];
const LEAF: &[&str] = &["leaf"];
const LEAF_REASON: &[&str] = &["leaf", "reason"];

/// Defines metrics, and `ALL` with the shared ones after them, in the order of the exposition.
macro_rules! catalogue {
    (shared [$($shared:ident),*]; $($name:ident = $metric:expr;)*) => {
        $(pub(super) static $name: Metric = $metric;)*
        pub(super) static ALL: &[&Metric] = &[$(&$name,)* $(&$shared),*];
    };
}

catalogue! {
    shared [CONFIG_RELOADS, BUILD, PROCESS_CPU, PROCESS_MEMORY, PROCESS_START];
    REQUESTS = counter(
        "curtail_requests",
        &["upstream", "status"],
        "Completed requests, by the first digit of the response status. `grpc_failure`: status 200 with a gRPC status that is a failure of the server (2, 4, 12, 13, 14, 15). `none`: the client disconnected before a response. `cancelled`: a fan-out did not need this call any more. `incomplete`: the response broke off after its headers.",
    );
    REQUEST_DURATION = histogram_seconds(
        "curtail_request_duration",
        UPSTREAM,
        "Time from the headers of a request to the end of its complete response.",
    );
    REQUEST_CUT_SHORT = histogram_seconds(
        "curtail_request_cut_short",
        UPSTREAM,
        "Age of a request when its client disconnected, a fan-out cancelled it, or its response broke off. The full duration of the request would have been longer.",
    );
    RESPONSES = counter(
        "curtail_responses",
        UPSTREAM_REASON,
        "Responses forwarded to clients, by the reason for the choice. `first_accepted`: the first response whose status is not retried, which may be an error such as 500. `nothing_better`: each response had a status that is retried.",
    );
    REQUESTS_FAILED = counter(
        "curtail_requests_failed",
        UPSTREAM_REASON,
        "Requests without a response from a replica, by the reason why the proxy sent no further attempt.",
    );
    ATTEMPTS = counter(
        "curtail_attempts",
        UPSTREAM_REASON,
        "Attempts sent, by reason: first attempt, hedge (slower_than_quantile, slower_than_cap), copy of a tie, retry after a failure, further attempt after an overdue one.",
    );
    ATTEMPTS_RESPONDED = counter(
        "curtail_attempts_responded",
        &["upstream", "outcome"],
        "Attempts whose response began, by outcome. If the response breaks off later, the attempt counts in curtail_attempts_failed, too.",
    );
    ATTEMPTS_FAILED = counter(
        "curtail_attempts_failed",
        &["upstream", "failure"],
        "Attempts without a complete response, by failure.",
    );
    ATTEMPTS_CANCELLED = counter(
        "curtail_attempts_cancelled",
        UPSTREAM_REASON,
        "Cancelled attempts, by reason. `lost`: another attempt responded first. `client_gone`: the client disconnected, was too slow or sent a malformed body. `enough`, `deadline`, `too_many_failed`, `canary_failed`, `rest_rejected`: a fan-out did not need the call any more.",
    );
    REMEDIES_SKIPPED = counter(
        "curtail_remedies_skipped",
        UPSTREAM_REASON,
        "Hedges and other remedies that were due, but that the proxy skipped, by reason.",
    );
    PROBES = counter("curtail_probes", UPSTREAM_REASON, "Probes sent to leaves, by reason.");
    HEDGE_DELAY = with_unit(
        MetricType::Gauge,
        Unit::Seconds,
        "curtail_hedge_delay",
        UPSTREAM,
        "Current hedge delay; absent if hedging is off.",
    );
    BUDGET_REQUESTS = gauge("curtail_budget_requests", UPSTREAM, "Requests within the window of the budget.");
    BUDGET_EXTRA = gauge("curtail_budget_extra", UPSTREAM, "Extra attempts within the window of the budget.");
    UPSTREAM_IN_FLIGHT = gauge(
        "curtail_upstream_in_flight",
        UPSTREAM,
        "Requests in flight to an upstream with `in_flight_max`.",
    );
    UPSTREAM_REMAINING = gauge(
        "curtail_upstream_in_flight_remaining",
        UPSTREAM,
        "Requests that may start before an upstream is at `in_flight_max`.",
    );
    UPSTREAM_AT_LIMIT = gauge(
        "curtail_upstream_at_limit",
        UPSTREAM,
        "1 if an upstream at `in_flight_max` has rejected requests in the last seconds (an open circuit breaker), otherwise 0.",
    );
    UPSTREAM_REJECTED = counter(
        "curtail_upstream_requests_rejected",
        UPSTREAM,
        "Requests rejected because an upstream was at `in_flight_max`. No replica got them.",
    );
    IN_FLIGHT = gauge(
        "curtail_attempts_in_flight",
        &["upstream", "replica"],
        "Attempts in flight at a replica.",
    );
    EJECTED = gauge(
        "curtail_replica_ejected",
        &["upstream", "replica"],
        "1 while the replica is ejected after failures, otherwise 0. When all replicas are ejected, the proxy uses all of them.",
    );
    SUSPECT = gauge(
        "curtail_replica_suspect",
        &["upstream", "replica"],
        "1 while the replica is suspect, otherwise 0: another replica overtook one of its attempts. Until it responds, and at most 8 times the age of that attempt (longer if that happens again), balancing rules that compare replicas avoid it, so it has few attempts in flight.",
    );
    FULL = gauge(
        "curtail_replica_full",
        &["upstream", "replica"],
        "1 while the replica is full, otherwise 0: its limit of connections has just rejected an attempt, and `least_request` and `peak_ewma` avoid it.",
    );
    EJECTIONS = counter(
        "curtail_replica_ejections",
        UPSTREAM_REASON,
        "Ejections of replicas after failures in a row, by the last failure. `not_sent`: the attempt was not executed. `broken`: it broke off. `bad_response`: 502, 503, 504, or gRPC's \"unavailable\". `timed_out`: the request timed out. `overdue`: another attempt responded when this one was overdue.",
    );
    HEALTHY = gauge(
        "curtail_replica_healthy",
        &["upstream", "replica"],
        "1 if the replica is healthy, by its health checks, 0 if it is unhealthy; absent without the key `health_check` and before the first check. When no replica is healthy, the proxy uses all of them.",
    );
    HEALTH_CHECKS = counter(
        "curtail_health_checks",
        &["upstream", "result"],
        "Health checks of the replicas of an upstream: `passed` or `failed`. Present with the key `health_check`.",
    );
    ATTEMPT_ZONES = counter(
        "curtail_attempt_zones",
        &["upstream", "zone"],
        "Attempts by the zone of their replica: `same` as that of the proxy, or `other`. Present if the zones of the proxy and of a replica are known.",
    );
    HOLDOUT_REQUESTS = counter(
        "curtail_holdout_requests",
        &["upstream", "side"],
        "Measured requests of an upstream with a holdout. `holdout`: without hedges and ties. `remedy`: all others.",
    );
    HOLDOUT_EXTRA = gauge(
        "curtail_holdout_extra_ratio",
        &["upstream", "period"],
        "Attempts per request with the remedy, minus those without it, in this hour or day.",
    );
    HOLDOUT_LATENCY = with_unit(
        MetricType::Gauge,
        Unit::Seconds,
        "curtail_holdout_latency",
        &["upstream", "period", "percentile", "side", "bound"],
        "Latency percentiles with and without the remedy in this hour or day, each with its interval (95 % for both sides together, at all times); absent until 100 requests of each side are beyond the percentile.",
    );
    HOLDOUT_VERDICT = gauge(
        "curtail_holdout_verdict",
        &["upstream", "period", "percentile"],
        "1: the percentile is lower with the remedy. -1: it is higher. 0: undecided.",
    );
    SWITCHBACK_LATENCY = with_unit(
        MetricType::Gauge,
        Unit::Seconds,
        "curtail_switchback_latency",
        &["upstream", "period", "percentile", "side", "bound"],
        "Latency percentiles of all requests in this day's time blocks without hedges and ties (side `holdout`) and in the other blocks (side `remedy`), each with its interval; absent until each side has 60 blocks.",
    );
    SWITCHBACK_VERDICT = gauge(
        "curtail_switchback_verdict",
        &["upstream", "period", "percentile"],
        "1: the percentile of all requests is lower in time blocks with the remedy. -1: it is higher. 0: undecided.",
    );
    DRY_RUN_WON = counter(
        "curtail_dry_run_hedges_won",
        UPSTREAM,
        "Hedges of a dry run that would have been faster than the true response, by the latest latency of another replica. All hedges of a dry run: curtail_remedies_skipped with the reason `dry_run`.",
    );
    DRY_RUN_LATENCY = with_unit(
        MetricType::Gauge,
        Unit::Seconds,
        "curtail_dry_run_latency",
        &["upstream", "period", "percentile", "side", "bound"],
        "Latency percentiles of a dry run in this hour or day: as measured (side `holdout`), and estimated with hedges (side `remedy`), each with its interval.",
    );
    REMEDY_STATE = gauge(
        "curtail_remedy_state",
        &["upstream", "state"],
        "1 for the present state of the remedies of an upstream with `remedy: auto`, otherwise 0: dry_run, trial, on, off.",
    );
    REMEDY_DECISIONS = counter(
        "curtail_remedy_decisions",
        UPSTREAM_REASON,
        "Decisions about the remedies of an upstream with `remedy: auto`, by reason. Not every decision changes the state.",
    );
    FAN_OUT_REQUESTS = counter(
        "curtail_fan_out_requests",
        &["route", "result"],
        "Requests of a route that fans out. `complete`: as many shards or replicas as needed responded. `partial`: the deadline passed first. `failed`: an error. `too_large`: the bodies exceeded response_max. `client_gone`: the client disconnected.",
    );
    FAN_OUT_REST_CALLS = counter(
        "curtail_fan_out_rest_calls",
        &["route", "result"],
        "Calls that were open when the client got its response (`rest: finish`). `finished`: they ran to their end. `cancelled`: too many of them were open.",
    );
    FAN_OUT_SHARDS_MISSING = counter(
        "curtail_fan_out_shards_missing",
        &["route"],
        "Shards or replicas that failed, or had no response at the deadline. Divided by the number of requests, it is the mean per request. Calls that a request did not need any more do not count.",
    );
    FAN_OUT_DURATION = histogram_seconds(
        "curtail_fan_out_duration",
        &["route"],
        "Time from the headers of a request that fans out to the start of its merged response, or to its failure.",
    );
    LIMITS_REJECTED = counter(
        "curtail_requests_limited",
        &["route", "reason"],
        "Requests that a limit of their route has rejected (`routes[].limits`), by the limit. `ambiguous_client`, `ambiguous_tenant`: the header of the client or tenant occurs several times. No replica got them.",
    );
    LIMITS_IN_FLIGHT = gauge(
        "curtail_route_in_flight",
        &["route"],
        "Requests in flight on a route with `limits.in_flight_max`.",
    );
    LIMITS_IN_FLIGHT_MAX = gauge(
        "curtail_route_in_flight_max",
        &["route"],
        "Maximum number of requests in flight on a route.",
    );
    LIMITS_TABLE_FULL = counter(
        "curtail_limits_table_full",
        &["route", "table"],
        "Requests that no limit for their `client` or `tenant` was applied to, because the table of clients or tenants was full.",
    );
    TENANTS = gauge(
        "curtail_tenants",
        DECADE,
        "Tenants of this hour and the one before, by decade of size: the smallest number of requests of its tenants, 1, 10, 100, and so on. Present with the key `tenants`.",
    );
    TENANT_REQUESTS = gauge(
        "curtail_tenant_requests",
        DECADE,
        "Requests of the tenants of a decade, in this hour and the one before.",
    );
    TENANT_ERRORS = gauge(
        "curtail_tenant_errors",
        DECADE,
        "Failed requests of the tenants of a decade, in this hour and the one before.",
    );
    TENANT_LATENCY = with_unit(
        MetricType::Gauge,
        Unit::Seconds,
        "curtail_tenant_latency",
        &["decade", "percentile"],
        "Latency percentiles of all requests of the tenants of a decade, in this hour and the one before. The error is at most 1.6 %.",
    );
    DISCOVERY_LOOKUPS = counter(
        "curtail_discovery_lookups",
        &["upstream", "result"],
        "Lookups of the replicas of an upstream, and reports of sources that report changes. `found`: the response has replicas. `partial`: it has replicas, and a part of it failed, such as the AAAA records or an EndpointSlice. `empty`: it has none. `failed`: no response, a lost connection, or an error. Present with the key `discovery`.",
    );
    DISCOVERY_AGE = with_unit(
        MetricType::Gauge,
        Unit::Seconds,
        "curtail_discovery_last_success_age",
        UPSTREAM,
        "Time since the last lookup with another result than `failed`; 0 while a source that reports changes is connected; absent before the first response.",
    );
    DISCOVERY_ENDPOINTS = gauge(
        "curtail_discovery_endpoints",
        UPSTREAM,
        "Discovered addresses of replicas, stale ones included.",
    );
    CONNECTIONS_OPEN = gauge("curtail_connections_open", REPLICA, "Open connections to a replica.");
    CONNECTIONS_IDLE = gauge("curtail_connections_idle", REPLICA, "Idle HTTP/1.1 connections to a replica.");
    CONNECTIONS_OPENED = counter("curtail_connections_opened", REPLICA, "Connections opened.");
    CONNECTIONS_FAILED = counter("curtail_connections_failed", REPLICA, "Failed connection attempts.");
    STREAMS_REFUSED = counter(
        "curtail_streams_refused",
        REPLICA,
        "Requests that a replica refused over HTTP/2 by `REFUSED_STREAM`, or excluded by `GOAWAY`. The proxy sends most of them again, and they do not count against the replica.",
    );
    CONNECTIONS_WAITING = gauge(
        "curtail_connections_waiting",
        REPLICA,
        "Requests that wait for a connection attempt to a replica.",
    );
    CONNECTIONS_AT_LIMIT = gauge(
        "curtail_connections_at_limit",
        &["upstream or leaf", "replica", "limit"],
        "1 if a limit of the connections to a replica has rejected requests in the last seconds (an open circuit breaker), otherwise 0. `connections`: all of them were in use, or half of them by unfinished uploads. `waiting`: connect.waiting_max.",
    );
    CONNECTIONS_REJECTED = counter(
        "curtail_connections_rejected",
        &["upstream or leaf", "replica", "limit"],
        "Attempts that were not sent because of a limit of the connections to a replica. They fail as `connection_limit` and do not count against the replica.",
    );
    CONNECT = with_unit(
        MetricType::Counter,
        Unit::Seconds,
        "curtail_connect",
        &["upstream or leaf", "replica", "phase"],
        "Total time of connection attempts, by phase: lookup, tcp, tls. Divided by the number of opened connections, it is the mean per connection.",
    );
    LEAF_QUEUE_LEN = gauge("curtail_leaf_queue_len", LEAF, "Queued requests at a leaf.");
    LEAF_IN_SERVICE = gauge("curtail_leaf_in_service", LEAF, "Requests in service at the server behind a leaf.");
    LEAF_STARTED = counter("curtail_leaf_started", LEAF_REASON, "Requests started at the server, by reason.");
    LEAF_REFUSED = counter("curtail_leaf_refused", LEAF_REASON, "Requests rejected because the queue is full.");
    LEAF_DROPPED = counter(
        "curtail_leaf_dropped",
        LEAF_REASON,
        "Copies of a tie that never reached the server, because their twin had started.",
    );
    LEAF_TWIN_CANCELS = counter(
        "curtail_leaf_twin_cancels",
        LEAF_REASON,
        "Cancellations sent to the leaf of the twin.",
    );
    LEAF_WAIT = histogram_seconds("curtail_leaf_wait", LEAF, "Queueing time of started requests at a leaf.");
    CLIENTS_OPEN = gauge("curtail_client_connections_open", LISTENER, "Open client connections.");
    CLIENTS_ACCEPTED = counter("curtail_client_connections_accepted", LISTENER, "Accepted client connections.");
    CLIENTS_WAITED = counter(
        "curtail_client_connections_waited",
        LISTENER,
        "Client connections that waited because connections_max were open.",
    );
    CLIENTS_TLS_FAILED = counter(
        "curtail_client_tls_failed",
        LISTENER,
        "Client connections that ended in the TLS handshake, as those without an accepted client certificate.",
    );
    CLIENTS_PROXY_HEADER_FAILED = counter(
        "curtail_client_proxy_header_failed",
        LISTENER_REASON,
        "Client connections of a listener with `proxy_protocol` that were closed for their PROXY header, by reason: the connection is from an address that may not send one (`untrusted`), begins with something else (`absent`), has an invalid header (`malformed`), or ended before the header was complete (`incomplete`).",
    );
    UNROUTED = counter(
        "curtail_requests_unrouted",
        LISTENER,
        "Requests without a matching route, or with a path that is ambiguous between routes or under the changes of its route.",
    );
    REDIRECTED = counter("curtail_requests_redirected", LISTENER, "Requests that their route redirected.");
    MALFORMED = counter(
        "curtail_requests_malformed",
        LISTENER,
        "Malformed requests, requests without a valid host, and requests that were not complete in time.",
    );
    CLIENT_TIMEOUTS = counter(
        "curtail_client_timeouts",
        LISTENER_REASON,
        "Clients disconnected by a timeout. `header`: incomplete request headers. `body`: a pause within a request body. `write`: a response that the client does not read. `stream_idle`: no byte in either direction.",
    );
    SPANS_RECORDED = counter("curtail_spans_recorded", &[], "Spans written to the buffer.");
    SPANS_SENT = counter("curtail_spans_sent", &[], "Spans accepted by the receiver.");
    SPANS_DROPPED = counter(
        "curtail_spans_dropped",
        &["cause"],
        "Lost spans. `buffer_full`: never written to the buffer. `undelivered`: dropped after retries. `rejected`: rejected by the receiver. `encoder_panicked`: a bug of Curtail; the log has it.",
    );
    SPAN_EXPORTS_FAILED = counter("curtail_span_exports_failed", &[], "Failed exports of spans, including retries.");
    ACCESS_LOG_WRITTEN = counter(
        "curtail_access_log_lines_written",
        &[],
        "Lines written to the access log. Present with the key `access_log`.",
    );
    ACCESS_LOG_DROPPED = counter(
        "curtail_access_log_lines_dropped",
        &["cause"],
        "Lines of the access log that were dropped. `buffer_full`: the file could not keep up. `write_failed`: the file could not be written, for example because the disk is full. `encoder_panicked`: a bug of Curtail; the log has it.",
    );
    JOURNAL_LOST = counter(
        "curtail_journal_entries_lost",
        &[],
        "Journal entries lost because the writer could not keep up.",
    );
    INVARIANTS_BROKEN = counter(
        "curtail_policy_invariants_broken",
        &[],
        "Panics and impossible decisions of a policy's state machine, which are bugs of Curtail. The proxy resets the policy, and passes its requests straight through.",
    );
}
