//! The admin port: health, metrics and the live state, on an address of its own.
//!
//! | path | response |
//! |---|---|
//! | `/healthz` | 200 as long as the process serves at all |
//! | `/readyz` | 200, or 503 as soon as the proxy stops |
//! | `/metrics` | metrics for Prometheus: protobuf with native histograms, or `OpenMetrics`, for a scraper that asks for it, else its plain text |
//! | `/state` | JSON: every upstream, replica and leaf as the policies see them now |
//! | `/tenants` | JSON: latencies by tenant, and by decade of size; 404 without the key `tenants` |
//! | `/debug/pprof/…` | profiles of the process: [`curtail_profile`] |

use crate::discovery::DiscoverySnapshot;
use crate::driver::Upstream;
use crate::fan_out::FanOut;
use crate::health::HealthSnapshot;
use crate::holdout::HoldoutSnapshot;
use crate::leaf::Leaf;
use crate::metrics::{
    ConnectionsSnapshot, LeafSnapshot, ReplicaSnapshot, RouteLimitsSnapshot, Snapshot,
    UpstreamSnapshot,
};
use crate::remedy::RemedySnapshot;
use crate::replica::Replica;
use crate::route_limits::RouteLimits;
use crate::tenants::TenantsReport;
use crate::worker::Worker;
use bytes::Bytes;
use curtail_http::accept::{AcceptedConnection, Acceptor};
use curtail_http::drain::DrainSignal;
use curtail_http::hyper_server::{self, Connections};
use curtail_http::limit_breaker::LimitCounts;
use curtail_http::listen_socket::ListenSocket;
use curtail_http::progress::ProgressTimer;
use curtail_http::stream::Stream;
use curtail_http::write_timeout::WriteTimeoutStream;
use curtail_metrics::process::Usage;
use curtail_policy::{Circuit, CircuitState};
use curtail_units::{Duration, Quantile};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Maximum number of connections; each scraper needs one.
const CONNECTIONS_MAX: usize = 64;

/// A scraper that does not complete its headers within this time is disconnected.
const HEADER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// A scraper that does not read the response for this long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The quantiles of `/state`, with their names. `/metrics` has none: each takes some microseconds under the lock.
const QUANTILES: [(&str, Quantile); 4] = [
    ("p50_ms", Quantile::P50),
    ("p90_ms", Quantile::P90),
    ("p99_ms", Quantile::P99),
    ("p999_ms", Quantile::P999),
];

/// Serves the admin port until the worker stops, a reload moves the port, or a new process has taken it over (`released`).
/// It responds during a drain, too.
pub(crate) async fn serve(socket: ListenSocket, worker: Arc<Worker>, released: Arc<DrainSignal>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let Ok(mut acceptor) = Acceptor::new("admin", socket, places, released.wait()) else { return };
    // The connections end with this task, when a reload moves the port.
    let mut connections = Connections::default();
    while let Some(accepted) = acceptor.next(|| ()).await {
        connections.spawn(serve_one(accepted, Arc::clone(&worker), released.wait()));
    }
    drop(acceptor);
    connections.join().await;
}

async fn serve_one(
    accepted: AcceptedConnection,
    worker: Arc<Worker>,
    released: impl Future<Output = ()>,
) {
    let timer =
        ProgressTimer::new(&worker.timers, worker.shared.process_state.clock, WRITE_TIMEOUT);
    // Not counted in the listener metrics, which are about clients.
    let stream = WriteTimeoutStream::new(Stream::Plain(accepted.stream), timer, || ());
    let builder = hyper_server::builder(HEADER_TIMEOUT).http1_only();
    let respond = move |request| respond(Arc::clone(&worker), request);
    hyper_server::serve(ready(Ok(stream)), builder, (HEADER_TIMEOUT, None), released, respond)
        .await;
}

async fn respond(worker: Arc<Worker>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (request, _) = request.into_parts();
    if request.method != Method::GET && request.method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "this port accepts only GET\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri.path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" if worker.shared.drain.is_begun() => {
            text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        }
        "/readyz" => text(StatusCode::OK, "ready\n"),
        "/metrics" => {
            let accept = request.headers.get_all(header::ACCEPT).iter();
            let form = curtail_metrics::form_for(accept.filter_map(|field| field.to_str().ok()));
            let tenants = read_tenants(&worker, |report| report.decades()).await;
            let snapshot = Snapshot { tenants, ..snapshot(&worker, &[]) };
            let (kind, bytes) = curtail_metrics::render(form, snapshot);
            let mut response = text(StatusCode::OK, bytes);
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
            response
        }
        "/state" => json_text(format!("{:#}\n", state(&worker))),
        "/tenants" => {
            let page = read_tenants(&worker, |report| format!("{:#}\n", report.to_json())).await;
            let missing = || text(StatusCode::NOT_FOUND, "the key tenants is not configured\n");
            page.map_or_else(missing, json_text)
        }
        path if path.starts_with(curtail_profile::PREFIX) => {
            curtail_profile::respond(&request.method, path, request.uri.query()).await
        }
        _ => text(
            StatusCode::NOT_FOUND,
            "expected /healthz, /readyz, /metrics, /state, /tenants or /debug/pprof/\n",
        ),
    }
}

/// Reads the latencies by tenant on a thread of its own, because that takes longer than requests may wait; [`None`]: there
/// are none.
async fn read_tenants<T: Send + 'static>(
    worker: &Worker,
    read: impl FnOnce(TenantsReport) -> T + Send + 'static,
) -> Option<T> {
    let tenants = worker.shared.snapshot.load().tenants.clone()?;
    let now = worker.shared.process_state.clock.now();
    tokio::task::spawn_blocking(move || read(tenants.read(now))).await.ok()
}

fn json_text(body: String) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, body);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}

fn upstream_snapshot(upstream: &Upstream, quantiles: &[(&str, Quantile)]) -> UpstreamSnapshot {
    let members = upstream.replicas.load_full();
    // Only numbers: every request takes the lock of the machine.
    let (latencies, hedge_delay, budget, states): (Vec<_>, _, _, _) =
        upstream.look(|machine, now| {
            let state = |id| {
                let in_flight = machine.in_flight(id);
                let avoided_for = (machine.suspect_for(id, now), machine.full_for(id, now));
                (in_flight, machine.circuit(id, now), machine.warm_up_share(id, now), avoided_for)
            };
            let states: Vec<_> = members.ids().map(state).collect();
            let latencies = quantiles.iter().map(|(_, q)| machine.latency(now, *q)).collect();
            (latencies, machine.peek_hedge_delay(now), machine.budget_counts(now), states)
        });
    let has_checks = upstream.has_health_check();
    let replica = |((id, replica), state): ((_, &Arc<Replica>), _)| {
        let (in_flight, circuit, warm_up_share, (suspect_for, full_for)) = state;
        let connections = connections(replica);
        let (name, url) = (replica.config.name.clone(), replica.config.server().to_string());
        let health = has_checks.then(|| replica.health.read(upstream.clock.now()));
        let present = replica.present_placement.load();
        ReplicaSnapshot {
            id,
            name,
            url,
            in_flight,
            circuit,
            health,
            weight: present.placement.weight,
            zones: Arc::clone(&present.placement.zones),
            side: present.side,
            warm_up_share,
            suspect_for,
            full_for,
            connections,
        }
    };
    UpstreamSnapshot {
        name: upstream.name.clone(),
        group: upstream.group.as_ref().map(|group| group.name().to_owned()),
        counts: upstream.metrics.read(),
        latencies,
        hedge_delay,
        budget,
        holdout: upstream
            .holdout
            .as_ref()
            .map(|holdout| holdout.read(upstream.clock.now()).at_ratio(upstream.holdout_ratio())),
        switchback: upstream.switchback.as_ref().map(|of| of.read(upstream.clock.now())),
        remedy_mode: upstream.policy.remedy,
        remedy: upstream.auto.as_ref().map(|auto| auto.read(upstream.clock.now())),
        dry_run: upstream.dry_run.as_ref().map(|dry_run| dry_run.read(upstream.clock.now())),
        discovery: upstream.discovery().map(|discovery| discovery.read(upstream.clock.now())),
        in_flight_limit: upstream.in_flight_limit.read(),
        replicas: members.iter().zip(states).map(replica).collect(),
    }
}

fn connections(replica: &Replica) -> ConnectionsSnapshot {
    ConnectionsSnapshot {
        address: replica.address.clone(),
        counts: replica.metrics.read(),
        idle: replica.idle_len(),
        waiting: replica.waiting_len(),
    }
}

fn snapshot(worker: &Worker, quantiles: &[(&str, Quantile)]) -> Snapshot {
    let snapshot = worker.shared.snapshot.load_full();
    let process_state = &worker.shared.process_state;
    let leaf = |leaf: &Arc<Leaf>| {
        let (queue_len, in_service) =
            leaf.look(|machine| (machine.queue_len(), machine.in_service()));
        let server = leaf.server.replicas.load();
        LeafSnapshot {
            name: leaf.config.name.clone(),
            counts: leaf.metrics.read(),
            queue_len,
            in_service,
            concurrency: leaf.config.queue.concurrency,
            url: leaf.config.server.to_string(),
            server: connections(server.values().next().expect("a leaf has one server")),
        }
    };
    let fan_out = |route: &Arc<FanOut>| (route.name.clone(), route.metrics.read());
    let route_limits = |limits: &Arc<RouteLimits>| RouteLimitsSnapshot {
        route: limits.name.clone(),
        counts: limits.metrics.read(),
        in_flight: limits.in_flight(),
    };
    let upstreams = snapshot.upstreams.iter();
    Snapshot {
        upstreams: upstreams.map(|upstream| upstream_snapshot(upstream, quantiles)).collect(),
        leaves: snapshot.leaves.iter().map(leaf).collect(),
        fan_outs: snapshot.fan_outs.iter().map(fan_out).collect(),
        route_limits: snapshot.route_limits.iter().map(route_limits).collect(),
        tenants: None,
        listeners: snapshot.listeners.iter().map(|(n, m)| (n.clone(), m.read())).collect(),
        process: process_state.process.read(),
        usage: Usage::now(),
        started_unix_ns: process_state.clock.unix_ns(curtail_units::Instant::ZERO),
        spans: snapshot.spans.as_ref().map(|spans| spans.counts()),
        access_log: snapshot.access_log.as_ref().map(|_| process_state.access_lines.counts()),
        journal_lost: process_state.journal.as_ref().map(|journal| journal.lost()),
    }
}

/// The mode of the remedies, and the state if they are switched by their effect.
fn remedy_json(upstream: &UpstreamSnapshot) -> Value {
    let mut json = upstream.remedy.map_or_else(|| json!({}), RemedySnapshot::to_json);
    json["mode"] = upstream.remedy_mode.name().into();
    json
}

/// The numbers of a dry run: those of a holdout, the hedges that would have been sent, and the time since its end, if the
/// remedies have left it: the numbers stay until the next dry run.
fn dry_run_json(upstream: &UpstreamSnapshot, dry_run: &HoldoutSnapshot) -> Value {
    let mut skipped = upstream.counts.skipped.iter();
    let hedges = skipped.find(|(reason, _)| *reason == "dry_run").map_or(0, |(_, count)| *count);
    let mut json = dry_run.to_json();
    json["hedges"] = hedges.into();
    json["hedges_won"] = upstream.counts.dry_run_won.into();
    let end_age = upstream.remedy.and_then(|remedy| remedy.dry_run_end_age);
    json["ended_age_s"] = end_age.map(Duration::as_secs_f64).into();
    json
}

/// The circuit of a replica: its state, the failures in a row, and the rest of an ejection.
fn circuit_json(circuit: &Circuit) -> Value {
    let Circuit { state, failures, open_for } = circuit;
    json!({ "state": state.name(), "failures": failures, "open_for_ms": open_for.as_ms_f64() })
}

/// A limit as a circuit breaker: open if it has rejected requests lately.
fn limit_json(limit: LimitCounts) -> Value {
    let state = if limit.is_open { CircuitState::Open } else { CircuitState::Closed };
    json!({ "state": state.name(), "rejected": limit.rejected })
}

fn replica_json(replica: &ReplicaSnapshot) -> Value {
    json!({
        "id": replica.id,
        "name": replica.name,
        "url": replica.url,
        "in_flight": replica.in_flight,
        "ejected": replica.circuit.state == CircuitState::Open,
        "circuit": circuit_json(&replica.circuit),
        "health": replica.health.as_ref().map(HealthSnapshot::to_json),
        "weight": replica.weight.get(),
        "zones": replica.zones.to_vec(),
        "zone": replica.side.map(|side| side.name()),
        "warm_up_share": replica.warm_up_share,
        "suspect": replica.suspect_for > Duration::ZERO,
        "suspect_for_ms": replica.suspect_for.as_ms_f64(),
        "full": replica.full_for > Duration::ZERO,
        "full_for_ms": replica.full_for.as_ms_f64(),
        "idle_connections": replica.connections.idle,
        "limits": {
            "connections": limit_json(replica.connections.counts.connections_full),
            "waiting": limit_json(replica.connections.counts.waiting_full),
        },
        "waiting_for_connection": replica.connections.waiting,
    })
}

fn state(worker: &Worker) -> Value {
    let ms = |duration: Option<Duration>| duration.map(|duration| duration.as_ms_f64());
    let upstream = |upstream: &UpstreamSnapshot| {
        let latencies = QUANTILES.iter().zip(&upstream.latencies);
        let latencies = latencies.map(|((name, _), latency)| (*name, ms(*latency)));
        let (requests, extra) = upstream.budget;
        json!({
            "name": upstream.name,
            "group": upstream.group,
            "recent": latencies.collect::<BTreeMap<_, _>>(),
            "hedge_delay_ms": ms(upstream.hedge_delay),
            "budget": { "requests": requests, "extra": extra },
            "holdout": upstream.holdout.as_ref().map(HoldoutSnapshot::to_json),
            "switchback": upstream.switchback.as_ref().map(HoldoutSnapshot::to_json),
            "remedy": remedy_json(upstream),
            "dry_run": upstream.dry_run.as_ref().map(|dry_run| dry_run_json(upstream, dry_run)),
            "discovery": upstream.discovery.as_ref().map(DiscoverySnapshot::to_json),
            "in_flight_limit": upstream.in_flight_limit.map(|of| {
                let mut json = limit_json(of.limit);
                (json["in_flight"], json["max"]) = (of.in_flight.into(), of.max.into());
                json
            }),
            "replicas": upstream.replicas.iter().map(replica_json).collect::<Vec<_>>(),
        })
    };
    let leaf = |leaf: &LeafSnapshot| {
        json!({
            "name": leaf.name,
            "server": leaf.url,
            "queued": leaf.queue_len,
            "in_service": leaf.in_service,
            "concurrency": leaf.concurrency,
        })
    };
    let route_limits = |limits: &RouteLimitsSnapshot| {
        let rejected: BTreeMap<_, _> = limits.counts.rejected.iter().copied().collect();
        let (in_flight, max) = limits.in_flight.unzip();
        json!({ "route": limits.route, "in_flight": in_flight, "in_flight_max": max, "rejected": rejected })
    };
    let now = worker.shared.process_state.clock.now();
    let fan_out = |route: &Arc<FanOut>| {
        let holdout = route.holdout.as_ref().map(|holdout| holdout.read(now).to_json());
        let switchback = route.switchback.as_ref().map(|of| of.read(now).to_json());
        json!({ "route": route.name, "holdout": holdout, "switchback": switchback })
    };
    let fan_outs: Vec<_> = worker.shared.snapshot.load().fan_outs.iter().map(fan_out).collect();
    let snapshot = snapshot(worker, &QUANTILES);
    json!({
        "schema": "curtail.state/1",
        "draining": worker.shared.drain.is_begun(),
        "zone": worker.shared.snapshot.load().config.zone,
        "upstreams": snapshot.upstreams.iter().map(upstream).collect::<Vec<_>>(),
        "fan_outs": fan_outs,
        "route_limits": snapshot.route_limits.iter().map(route_limits).collect::<Vec<_>>(),
        "leaves": snapshot.leaves.iter().map(leaf).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::{dry_run_json, replica_json};
    use crate::metrics::UpstreamSnapshot;
    use crate::metrics::tests::upstream;
    use curtail_units::Duration;
    use serde_json::Value;

    #[test]
    fn a_suspect_replica_says_for_how_long() {
        let mut replica = upstream().replicas.swap_remove(0);
        for (suspect_for, suspect) in [(Duration::ZERO, false), (Duration::from_ms(80), true)] {
            replica.suspect_for = suspect_for;
            let json = replica_json(&replica);
            assert_eq!(json["suspect"], suspect);
            assert_eq!(json["suspect_for_ms"], suspect_for.as_ms_f64());
        }
    }

    #[test]
    fn a_dry_run_that_has_ended_says_so() {
        let mut upstream = upstream();
        let dry_run = upstream.dry_run.take().expect("it has one");
        let ended = |of: &UpstreamSnapshot| dry_run_json(of, &dry_run)["ended_age_s"].clone();
        assert_eq!(ended(&upstream), Value::Null);
        upstream.remedy.as_mut().expect("it is auto").dry_run_end_age =
            Some(Duration::from_ms(1_500));
        assert_eq!(ended(&upstream), 1.5);
    }
}
