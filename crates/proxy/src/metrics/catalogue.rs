//! The one table of all metrics: name, unit, labels and meaning of each.
//!
//! The exposition writes from it and the reference page is made of it, so the two agree.

use curtail_metrics::process::{BUILD, PROCESS_CPU, PROCESS_MEMORY, PROCESS_START};
use curtail_metrics::{
    CONFIG_RELOADS, Metric, MetricType, Unit, counter, gauge, histogram_seconds,
};

const UPSTREAM: &[&str] = &["upstream"];
const UPSTREAM_REASON: &[&str] = &["upstream", "reason"];
const REPLICA: &[&str] = &["upstream or leaf", "replica"];
const LISTENER: &[&str] = &["listener"];
const LEAF: &[&str] = &["leaf"];
const LEAF_REASON: &[&str] = &["leaf", "reason"];

pub(super) static REQUESTS: Metric = counter(
    "curtail_requests",
    &["upstream", "status"],
    "Completed requests, by the first digit of the response status; none: the client disconnected before a response, incomplete: the response broke off after its headers.",
);
pub(super) static REQUEST_DURATION: Metric = histogram_seconds(
    "curtail_request_duration",
    UPSTREAM,
    "Time from a request's header to the end of its complete response.",
);
pub(super) static REQUEST_CUT_SHORT: Metric = histogram_seconds(
    "curtail_request_cut_short",
    UPSTREAM,
    "Age of a request when its client disconnected or its response broke off: a lower bound of the duration that it would have had.",
);
pub(super) static RESPONSES: Metric = counter(
    "curtail_responses",
    UPSTREAM_REASON,
    "Responses forwarded to clients, by the reason for the choice.",
);
pub(super) static REQUESTS_FAILED: Metric = counter(
    "curtail_requests_failed",
    UPSTREAM_REASON,
    "Requests without a response from a replica, by the reason that no further attempt was sent.",
);
pub(super) static ATTEMPTS: Metric = counter(
    "curtail_attempts",
    UPSTREAM_REASON,
    "Attempts sent, by reason: first attempt, hedge (slower_than_quantile, slower_than_cap), copy of a tie, retry after a failure, further attempt after an overdue one.",
);
pub(super) static ATTEMPTS_RESPONDED: Metric = counter(
    "curtail_attempts_responded",
    &["upstream", "outcome"],
    "Attempts whose response began, by outcome; a response that breaks off later counts in curtail_attempts_failed as well.",
);
pub(super) static ATTEMPTS_FAILED: Metric = counter(
    "curtail_attempts_failed",
    &["upstream", "failure"],
    "Attempts without a complete response, by failure.",
);
pub(super) static ATTEMPTS_CANCELLED: Metric = counter(
    "curtail_attempts_cancelled",
    UPSTREAM_REASON,
    "Cancelled attempts, by reason; lost: another attempt responded first.",
);
pub(super) static REMEDIES_SKIPPED: Metric = counter(
    "curtail_remedies_skipped",
    UPSTREAM_REASON,
    "Remedies that were due and skipped, by reason.",
);
pub(super) static PROBES: Metric =
    counter("curtail_probes", UPSTREAM_REASON, "Probes sent to leaves, by reason.");
pub(super) static HEDGE_DELAY: Metric = Metric {
    base: "curtail_hedge_delay",
    unit: Some(Unit::Seconds),
    kind: MetricType::Gauge,
    labels: UPSTREAM,
    help: "Current hedge delay; absent if hedging is off.",
};
pub(super) static BUDGET_REQUESTS: Metric =
    gauge("curtail_budget_requests", UPSTREAM, "Requests within the window of the budget.");
pub(super) static BUDGET_EXTRA: Metric =
    gauge("curtail_budget_extra", UPSTREAM, "Extra attempts within the window of the budget.");
pub(super) static IN_FLIGHT: Metric = gauge(
    "curtail_attempts_in_flight",
    &["upstream", "replica"],
    "Attempts in flight at a replica.",
);
pub(super) static EJECTED: Metric = gauge(
    "curtail_replica_ejected",
    &["upstream", "replica"],
    "1 while the replica is ejected after failures, else 0; when all replicas are \
        ejected, all are tried.",
);
pub(super) static FAN_OUT_REQUESTS: Metric = counter(
    "curtail_fan_out_requests",
    &["route", "result"],
    "Requests of a route that fans out; complete: as many shards as needed responded, partial: the deadline passed first, failed: an error, too_large: the bodies exceeded response_max, client_gone: the client left.",
);
pub(super) static FAN_OUT_SHARDS_MISSING: Metric = counter(
    "curtail_fan_out_shards_missing",
    &["route"],
    "Shards whose response is not in the response of a fan-out. Divided by the requests it is the mean.",
);
pub(super) static FAN_OUT_DURATION: Metric = histogram_seconds(
    "curtail_fan_out_duration",
    &["route"],
    "Time from the header of a request that fans out to its merged response.",
);
pub(super) static CONNECTIONS_OPEN: Metric =
    gauge("curtail_connections_open", REPLICA, "Open connections to a replica.");
pub(super) static CONNECTIONS_IDLE: Metric =
    gauge("curtail_connections_idle", REPLICA, "Idle HTTP/1.1 connections to a replica.");
pub(super) static CONNECTIONS_OPENED: Metric =
    counter("curtail_connections_opened", REPLICA, "Connections opened.");
pub(super) static CONNECTIONS_FAILED: Metric =
    counter("curtail_connections_failed", REPLICA, "Failed connection attempts.");
pub(super) static CONNECT: Metric = Metric {
    base: "curtail_connect",
    unit: Some(Unit::Seconds),
    kind: MetricType::Counter,
    labels: &["upstream or leaf", "replica", "phase"],
    help: "Total time of connection attempts, by phase: lookup, tcp, tls. Divided by the \
        connections opened, it is the mean.",
};
pub(super) static LEAF_QUEUE_LEN: Metric =
    gauge("curtail_leaf_queue_len", LEAF, "Queued requests at a leaf.");
pub(super) static LEAF_IN_SERVICE: Metric =
    gauge("curtail_leaf_in_service", LEAF, "Requests in service at the server behind a leaf.");
pub(super) static LEAF_STARTED: Metric =
    counter("curtail_leaf_started", LEAF_REASON, "Requests started at the server, by reason.");
pub(super) static LEAF_REFUSED: Metric =
    counter("curtail_leaf_refused", LEAF_REASON, "Requests rejected because the queue is full.");
pub(super) static LEAF_DROPPED: Metric = counter(
    "curtail_leaf_dropped",
    LEAF_REASON,
    "Copies of a tie that never reached the server, because their twin had started.",
);
pub(super) static LEAF_TWIN_CANCELS: Metric = counter(
    "curtail_leaf_twin_cancels",
    LEAF_REASON,
    "Cancellations sent to the leaf of the twin.",
);
pub(super) static LEAF_WAIT: Metric =
    histogram_seconds("curtail_leaf_wait", LEAF, "Queueing time of started requests at a leaf.");
pub(super) static CLIENTS_OPEN: Metric =
    gauge("curtail_client_connections_open", LISTENER, "Open client connections.");
pub(super) static CLIENTS_ACCEPTED: Metric =
    counter("curtail_client_connections_accepted", LISTENER, "Accepted client connections.");
pub(super) static CLIENTS_WAITED: Metric = counter(
    "curtail_client_connections_waited",
    LISTENER,
    "Client connections that waited because connections_max were open.",
);
pub(super) static UNROUTED: Metric = counter(
    "curtail_requests_unrouted",
    LISTENER,
    "Requests without a matching route, or with a path that is ambiguous between routes.",
);
pub(super) static MALFORMED: Metric = counter(
    "curtail_requests_malformed",
    LISTENER,
    "Malformed requests, requests without a valid host, and requests that do not arrive \
        in time.",
);
pub(super) static CLIENT_TIMEOUTS: Metric = counter(
    "curtail_client_timeouts",
    &["listener", "reason"],
    "Clients disconnected by a timeout; header: incomplete request headers, body: a pause \
        within a request body, write: a response that the client does not read, stream_idle: \
        no byte in either direction.",
);
pub(super) static SPANS_RECORDED: Metric =
    counter("curtail_spans_recorded", &[], "Spans written to the buffer.");
pub(super) static SPANS_SENT: Metric =
    counter("curtail_spans_sent", &[], "Spans accepted by the receiver.");
pub(super) static SPANS_DROPPED: Metric = counter(
    "curtail_spans_dropped",
    &["cause"],
    "Lost spans; buffer_full: never written, undelivered: dropped after retries, \
        rejected: rejected by the receiver.",
);
pub(super) static SPAN_EXPORTS_FAILED: Metric =
    counter("curtail_span_exports_failed", &[], "Failed exports of spans, including retries.");
pub(super) static JOURNAL_LOST: Metric = counter(
    "curtail_journal_entries_lost",
    &[],
    "Journal entries lost because the writer could not keep up.",
);
pub(super) static INVARIANTS_BROKEN: Metric = counter(
    "curtail_policy_invariants_broken",
    &[],
    "Panics of a policy's state machine (a defect of Curtail); the policy is reset, and its requests pass straight through.",
);

/// All metrics, in the order of the exposition.
pub(super) static ALL: &[&Metric] = &[
    &REQUESTS,
    &REQUEST_DURATION,
    &REQUEST_CUT_SHORT,
    &RESPONSES,
    &REQUESTS_FAILED,
    &ATTEMPTS,
    &ATTEMPTS_RESPONDED,
    &ATTEMPTS_FAILED,
    &ATTEMPTS_CANCELLED,
    &REMEDIES_SKIPPED,
    &PROBES,
    &HEDGE_DELAY,
    &BUDGET_REQUESTS,
    &BUDGET_EXTRA,
    &IN_FLIGHT,
    &EJECTED,
    &FAN_OUT_REQUESTS,
    &FAN_OUT_SHARDS_MISSING,
    &FAN_OUT_DURATION,
    &CONNECTIONS_OPEN,
    &CONNECTIONS_IDLE,
    &CONNECTIONS_OPENED,
    &CONNECTIONS_FAILED,
    &CONNECT,
    &LEAF_QUEUE_LEN,
    &LEAF_IN_SERVICE,
    &LEAF_STARTED,
    &LEAF_REFUSED,
    &LEAF_DROPPED,
    &LEAF_TWIN_CANCELS,
    &LEAF_WAIT,
    &CLIENTS_OPEN,
    &CLIENTS_ACCEPTED,
    &CLIENTS_WAITED,
    &UNROUTED,
    &MALFORMED,
    &CLIENT_TIMEOUTS,
    &SPANS_RECORDED,
    &SPANS_SENT,
    &SPANS_DROPPED,
    &SPAN_EXPORTS_FAILED,
    &JOURNAL_LOST,
    &CONFIG_RELOADS,
    &INVARIANTS_BROKEN,
    &BUILD,
    &PROCESS_CPU,
    &PROCESS_MEMORY,
    &PROCESS_START,
];
