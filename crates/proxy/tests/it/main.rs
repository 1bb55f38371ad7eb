//! The proxy over real sockets: real clients before it, scripted replicas and leaves behind it.
//!
//! One module for each promise: [`pass_through`] (messages pass unchanged), [`repetition`] (what may be sent
//! twice, and what never), [`hidden_failures`], [`cancelled_hedges`] and [`refused_streams`] (what clients do not notice),
//! [`holdout`] (one draw for each request), [`leaves`] (queues, ties, probes), [`no_harm`] (the cost limits of the defaults), [`bad_input`] (rejected input,
//! which costs other clients nothing), [`stalled`] (clients and replicas that stop reading or sending hold little
//! memory and delay no other client), [`hostile`] (a table of peers that break or abuse a protocol), [`smuggling`] (requests that servers and proxies could read differently),
//! [`groups`] (shared budget and latencies), [`probes`] (which outlive their requests), [`tenants`] (percentiles by
//! tenant), [`spans`] (of what is cancelled), [`route_changes`] (headers, path prefixes, redirects), [`route_overrides`] (retries, idle timeouts, gRPC deadlines), [`access_log`], [`health`] (checks of replicas), [`proxy_protocol`] (the addresses of clients of clients), [`unix_sockets`], [`websocket`] (over HTTP/2), [`route_limits`], [`circuit_breaker`] (ejections and limits), [`weights`] (shares of replicas), [`zones`] (requests that stay near), [`idle_connections`] (opened ahead of requests), and [`operation`] (drain, reload, journal). The other
//! modules are helpers.
//!
//! Nothing sleeps: a test waits for an event, a counter or a connection, and has a [`deadline`]. Where time
//! itself is tested (a client that is too slow), it is the proxy that waits.

mod access_log;
mod bad_input;
mod body;
mod cancelled_hedges;
mod certificates;
mod circuit_breaker;
mod client;
mod deadline;
mod directory;
mod discovery;
mod fan_out;
mod frames;
mod groups;
mod health;
mod hidden_failures;
mod holdout;
mod hostile;
mod idle_connections;
mod leaves;
mod logs;
mod metrics;
mod no_harm;
mod operation;
mod pass_through;
mod probes;
mod program;
mod proxy;
mod proxy_protocol;
mod quorum;
mod raw_replica;
mod refused_streams;
mod repetition;
mod replica;
mod route_changes;
mod route_limits;
mod route_overrides;
mod routing;
mod smuggling;
mod spans;
mod stalled;
mod steady;
mod tenants;
mod unix_sockets;
mod websocket;
mod weights;
mod wire;
mod zones;
