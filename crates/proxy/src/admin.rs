//! The admin port: health, metrics and the live state, on an address of its own.
//!
//! | path | response |
//! |---|---|
//! | `/healthz` | 200 as long as the process serves at all |
//! | `/readyz` | 200, or 503 as soon as the proxy stops |
//! | `/metrics` | metrics for Prometheus: protobuf with native histograms for a scraper that asks for it, else text |
//! | `/state` | JSON: every upstream, replica and leaf as the policies see them now |

use crate::driver::Upstream;
use crate::fan_out::FanOut;
use crate::leaf::Leaf;
use crate::metrics::{
    ConnectionsSnapshot, LeafSnapshot, ReplicaSnapshot, Snapshot, UpstreamSnapshot,
};
use crate::replica::Replica;
use crate::worker::Worker;
use bytes::Bytes;
use curtail_http::accept::{Accepted, Acceptor};
use curtail_http::progress::ProgressTimer;
use curtail_http::stream::Stream;
use curtail_http::write_timeout::WriteTimeoutStream;
use curtail_metrics::process::Usage;
use curtail_units::Quantile;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Maximum number of connections; each scraper needs one.
const CONNECTIONS_MAX: usize = 64;

/// A scraper that does not complete its headers within this time is disconnected.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A scraper that does not read the response for this long is cut off.
const WRITE_TIMEOUT: curtail_units::Duration = curtail_units::Duration::from_secs(10);

/// Serves the admin port until the worker stops or a reload moves the port; it responds during a drain too.
pub(crate) async fn serve(socket: std::net::TcpListener, worker: Arc<Worker>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut acceptor = match Acceptor::new("admin", socket, places, std::future::pending()) {
        Ok(acceptor) => acceptor,
        Err(error) => {
            tracing::error!(%error, "admin port not registered");
            return;
        }
    };
    // The connections end with this task, when a reload moves the port.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(accepted) = acceptor.next(|| ()) => {
                connections.spawn(serve_one(accepted, Arc::clone(&worker)));
            }
            Some(_) = connections.join_next() => {}
            else => break,
        }
    }
}

async fn serve_one(accepted: Accepted, worker: Arc<Worker>) {
    let timer =
        ProgressTimer::new(&worker.timers, worker.shared.process_state.clock, WRITE_TIMEOUT);
    // Not counted in the listener metrics, which are about clients.
    let stream = WriteTimeoutStream::new(Stream::Plain(accepted.stream), timer, || ());
    let service = service_fn(move |request| {
        let response = respond(&worker, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "admin connection ended");
    }
}

fn respond(worker: &Worker, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "this port accepts only GET\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" if worker.shared.drain.is_begun() => {
            text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        }
        "/readyz" => text(StatusCode::OK, "ready\n"),
        "/metrics" => {
            let accept = request.headers().get_all(header::ACCEPT).iter();
            let form = curtail_metrics::form_for(accept.filter_map(|field| field.to_str().ok()));
            let (kind, bytes) = curtail_metrics::render(form, snapshot(worker));
            let mut response = text(StatusCode::OK, bytes);
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
            response
        }
        "/state" => {
            let mut response = text(StatusCode::OK, format!("{:#}\n", state(worker)));
            let kind = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        _ => text(StatusCode::NOT_FOUND, "expected /healthz, /readyz, /metrics or /state\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}

fn snapshot(worker: &Worker) -> Snapshot {
    let snapshot = worker.shared.snapshot.load_full();
    let process_state = &worker.shared.process_state;
    let connections = |replica: &Replica| ConnectionsSnapshot {
        authority: replica.authority.clone(),
        counts: replica.metrics.read(),
        idle: replica.pools().iter().map(|pool| pool.idle_len()).sum(),
    };
    let upstream = |upstream: &Arc<Upstream>| {
        // Copying the sketch takes some time, and the machine's lock is not held for it.
        let counts = upstream.metrics.read();
        let replicas = upstream.replicas.load_full();
        let (hedge_delay, budget, states) = upstream.look(|machine, now| {
            let state = |id| (machine.in_flight(id), machine.is_ejected(id, now));
            let states: Vec<_> = replicas.ids().map(state).collect();
            (machine.hedge_delay(now), machine.budget_counts(now), states)
        });
        let connections = replicas.values().map(|replica| connections(replica));
        let replicas = states.into_iter().zip(connections);
        UpstreamSnapshot {
            name: upstream.name.clone(),
            counts,
            hedge_delay,
            budget,
            replicas: replicas
                .map(|((in_flight, is_ejected), connections)| ReplicaSnapshot {
                    in_flight,
                    is_ejected,
                    connections,
                })
                .collect(),
        }
    };
    let leaf = |leaf: &Arc<Leaf>| {
        let (queue_len, in_service) =
            leaf.look(|machine| (machine.queue_len(), machine.in_service()));
        let server = leaf.server.replicas.load();
        LeafSnapshot {
            name: leaf.config.name.clone(),
            counts: leaf.metrics.read(),
            queue_len,
            in_service,
            server: connections(server.values().next().expect("a leaf has one server")),
        }
    };
    let fan_out = |route: &Arc<FanOut>| (route.name.clone(), route.metrics.read());
    Snapshot {
        upstreams: snapshot.upstreams.iter().map(upstream).collect(),
        leaves: snapshot.leaves.iter().map(leaf).collect(),
        fan_outs: snapshot.fan_outs.iter().map(fan_out).collect(),
        listeners: snapshot.listeners.iter().map(|(n, m)| (n.clone(), m.read())).collect(),
        process: process_state.process.read(),
        usage: Usage::now(),
        started_unix_ns: process_state.clock.unix_ns(curtail_units::Instant::ZERO),
        spans: snapshot.spans.as_ref().map(|spans| spans.counts()),
        journal_lost: process_state.journal.as_ref().map(|journal| journal.lost()),
    }
}

fn state(worker: &Worker) -> Value {
    let snapshot = worker.shared.snapshot.load_full();
    let upstreams: Vec<Value> = snapshot
        .upstreams
        .iter()
        .map(|upstream| {
            upstream.look(|machine, now| {
                let mut ms = |quantile| machine.latency(now, quantile).map(|d| d.as_ms_f64());
                let latency = json!({
                    "p50_ms": ms(Quantile::P50),
                    "p90_ms": ms(Quantile::P90),
                    "p99_ms": ms(Quantile::P99),
                    "p999_ms": ms(Quantile::P999),
                });
                let (requests, extra) = machine.budget_counts(now);
                let members = upstream.replicas.load();
                let replicas: Vec<Value> = members
                    .iter()
                    .map(|(id, replica)| {
                        json!({
                            "id": id,
                            "name": replica.config.name,
                            "url": replica.config.url.to_string(),
                            "in_flight": machine.in_flight(id),
                            "ejected": machine.is_ejected(id, now),
                            "idle_connections":
                                replica.pools().iter().map(|p| p.idle_len()).sum::<usize>(),
                        })
                    })
                    .collect();
                json!({
                    "name": upstream.name,
                    "group": upstream.group.as_ref().map(|group| group.name()),
                    "recent": latency,
                    "hedge_delay_ms": machine.hedge_delay(now).map(|d| d.as_ms_f64()),
                    "budget": { "requests": requests, "extra": extra },
                    "replicas": replicas,
                })
            })
        })
        .collect();
    let leaves: Vec<Value> = snapshot
        .leaves
        .iter()
        .map(|leaf| {
            let (queued, in_service) =
                leaf.look(|machine| (machine.queue_len(), machine.in_service()));
            json!({
                "name": leaf.config.name,
                "server": leaf.config.server.to_string(),
                "queued": queued,
                "in_service": in_service,
                "concurrency": leaf.config.queue.concurrency,
            })
        })
        .collect();
    json!({
        "schema": "curtail.state/1",
        "draining": worker.shared.drain.is_begun(),
        "upstreams": upstreams,
        "leaves": leaves,
    })
}
