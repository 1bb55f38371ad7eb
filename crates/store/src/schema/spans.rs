//! The table of spans: one row for each span.
//!
//! Common attributes of OpenTelemetry's semantic conventions have a column each, and so do their former names. All
//! other attributes are in maps, one for each kind of value. Lists, maps and bytes are JSON in `attributes_json`. If an
//! attribute has a column, but the value is of another kind than the column, the value is in the map for its kind.
//!
//! `weight` is the number of spans that a row stands for (see [`tail`](crate::tail)); null means one.
//!
//! **Source**: OpenTelemetry semantic conventions 1.38.

use super::{
    Field, Form, Kind, MaxIndex, Origin, Schema, Table, envelope, fields, optional, required,
};
use curtail_otlp::Signal;
use std::sync::LazyLock;

fields! {
    after envelope::LEN;
    TRACE_ID "trace_id" required(Kind::Wide);
    SPAN_ID "span_id" required(Kind::Narrow);
    PARENT_ID "parent_span_id" optional(Kind::Narrow);
    START "start_ns" required(Kind::Long);
    DURATION "duration_ns" required(Kind::Long);
    NAME "name" optional(Kind::Text);
    KIND "kind" optional(Kind::Text);
    STATUS "status" optional(Kind::Text);
    STATUS_MESSAGE "status_message" optional(Kind::Text);
    TRACE_STATE "trace_state" optional(Kind::Text);
    FLAGS "flags" optional(Kind::Int);
    DROPPED_EVENTS "dropped_events" optional(Kind::Int);
    DROPPED_LINKS "dropped_links" optional(Kind::Int);
    EVENTS "events" Form::List(&[
        ("time_ns", Kind::Long),
        ("name", Kind::Text),
        ("attributes", Kind::Text),
        ("dropped_attributes", Kind::Int),
    ]);
    LINKS "links" Form::List(&[
        ("trace_id", Kind::Wide),
        ("span_id", Kind::Narrow),
        ("trace_state", Kind::Text),
        ("attributes", Kind::Text),
        ("dropped_attributes", Kind::Int),
        ("flags", Kind::Int),
    ]);
    WEIGHT "weight" optional(Kind::Int);
}

/// Attributes of spans with a column of their own.
const OF_SPANS: &[(&str, &str, Kind)] = &[
    ("http.request.method", "http_request_method", Kind::Text),
    ("http.response.status_code", "http_response_status_code", Kind::Int),
    ("http.route", "http_route", Kind::Text),
    ("http.request.resend_count", "http_request_resend_count", Kind::Int),
    ("http.request.body.size", "http_request_body_size", Kind::Int),
    ("http.response.body.size", "http_response_body_size", Kind::Int),
    ("url.scheme", "url_scheme", Kind::Text),
    ("url.path", "url_path", Kind::Text),
    ("url.query", "url_query", Kind::Text),
    ("url.full", "url_full", Kind::Text),
    ("server.address", "server_address", Kind::Text),
    ("server.port", "server_port", Kind::Int),
    ("client.address", "client_address", Kind::Text),
    ("network.peer.address", "network_peer_address", Kind::Text),
    ("network.peer.port", "network_peer_port", Kind::Int),
    ("network.protocol.version", "network_protocol_version", Kind::Text),
    ("user_agent.original", "user_agent_original", Kind::Text),
    ("error.type", "error_type", Kind::Text),
    ("rpc.system", "rpc_system", Kind::Text),
    ("rpc.service", "rpc_service", Kind::Text),
    ("rpc.method", "rpc_method", Kind::Text),
    ("rpc.grpc.status_code", "rpc_grpc_status_code", Kind::Int),
    ("db.system.name", "db_system_name", Kind::Text),
    ("db.namespace", "db_namespace", Kind::Text),
    ("db.collection.name", "db_collection_name", Kind::Text),
    ("db.operation.name", "db_operation_name", Kind::Text),
    ("db.query.text", "db_query_text", Kind::Text),
    ("db.query.summary", "db_query_summary", Kind::Text),
    ("messaging.system", "messaging_system", Kind::Text),
    ("messaging.operation.name", "messaging_operation_name", Kind::Text),
    ("messaging.destination.name", "messaging_destination_name", Kind::Text),
    ("peer.service", "peer_service", Kind::Text),
    ("user.id", "user_id", Kind::Text),
    ("enduser.id", "enduser_id", Kind::Text),
    ("session.id", "session_id", Kind::Text),
    ("code.function.name", "code_function_name", Kind::Text),
    ("thread.id", "thread_id", Kind::Int),
    ("thread.name", "thread_name", Kind::Text),
    // Former names, which are still sent.
    ("http.method", "http_method", Kind::Text),
    ("http.status_code", "http_status_code", Kind::Int),
    ("http.target", "http_target", Kind::Text),
    ("http.url", "http_url", Kind::Text),
    ("net.peer.name", "net_peer_name", Kind::Text),
    ("net.peer.port", "net_peer_port", Kind::Int),
    ("db.system", "db_system", Kind::Text),
    ("db.name", "db_name", Kind::Text),
    ("db.operation", "db_operation", Kind::Text),
    ("db.statement", "db_statement", Kind::Text),
];

/// The values of `kind` by OTLP's number.
pub(crate) const KINDS: [&str; 6] =
    ["unspecified", "internal", "server", "client", "producer", "consumer"];

/// The values of `status` by OTLP's number.
pub(crate) const STATUSES: [&str; 3] = ["unset", "ok", "error"];

/// The number of the index of the slowest span of each service. A query for these reads only their pages.
pub const SLOWEST: usize = 0;

/// The table of spans.
pub static SPANS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "spans",
    schema: Schema::ingested(FIELDS, OF_SPANS),
    order: (TRACE_ID, START),
    identity: Some(SPAN_ID),
    zones: &[TRACE_ID, START, DURATION],
    indexes: &[MaxIndex { key: "curtail.slowest", number: DURATION, text: envelope::SERVICE }],
    origin: Origin::Ingested(Signal::Traces),
});
