//! The responses of the servers.
//!
//! | request | response |
//! |---|---|
//! | `GET /shard/17/keys?k=a&k=b` | the values of the keys in shard 17, as JSON, after the service time |
//! | `GET /keys?k=a&k=b` | the same for the server's own shard, whichever it is: the request of a fan-out |
//! | `GET /healthz` | `ok`, once the server is not stalled |
//! | `GET /executions` | the number of executions that this server has begun |
//!
//! A request may name its tenant in `x-tenant` and its class in `curtail-class`. A response has the times of the
//! request in `server-timing` (W3C), in milliseconds: `queue`, `service`, and `fault` for stalls, slowness and shared
//! cores. The fault `errors` sends a 503 instead, breaks the connection off, or never responds.
//! **Limits**: [`KEYS_MAX`] keys of [`KEY_LEN_MAX`] letters, digits, `-`, `_` and `.` each; anything else
//! is rejected with 400, another shard than this server's with 421.

use crate::listener::Respond;
use crate::machine::Times;
use crate::server::{ExecutionRecord, Rejection, Server};
use bytes::Bytes;
use curtail_model::ExecutionOutcome;
use curtail_policy::Class;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use std::fmt::Write as _;

const KEYS_MAX: usize = 1_000;

const KEY_LEN_MAX: usize = 64;

const TENANT: HeaderName = HeaderName::from_static("x-tenant");
const CLASS: HeaderName = HeaderName::from_static("curtail-class");
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The error that breaks the connection off without a response.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("broken off by the fault `errors`")]
pub(crate) struct ConnectionBreak;

impl Respond for Server {
    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, ConnectionBreak> {
        if request.method() != Method::GET {
            return Ok(expected_method("GET"));
        }
        Ok(match request.uri().path() {
            "/healthz" => {
                self.resumed().await;
                text(StatusCode::OK, "ok\n")
            }
            "/executions" => {
                let count = self.executions.of_server(self.id.number);
                text(StatusCode::OK, format!("{count}\n"))
            }
            "/keys" => return read_keys(self, &request).await,
            path => match shard_of(path) {
                Some(shard) if shard == self.id.shard => return read_keys(self, &request).await,
                Some(shard) => {
                    let here = self.id.shard;
                    let what =
                        format!("shard {shard} is not here: this server holds shard {here}\n");
                    text(StatusCode::MISDIRECTED_REQUEST, what)
                }
                None => text(
                    StatusCode::NOT_FOUND,
                    "expected /keys?k=KEY, /shard/NUMBER/keys?k=KEY, /healthz or /executions\n",
                ),
            },
        })
    }
}

fn shard_of(path: &str) -> Option<usize> {
    path.strip_prefix("/shard/")?.strip_suffix("/keys")?.parse().ok()
}

async fn read_keys(
    server: &Server,
    request: &Request<Incoming>,
) -> Result<Response<Full<Bytes>>, ConnectionBreak> {
    let keys = match keys_of(request.uri().query().unwrap_or_default()) {
        Ok(keys) => keys,
        Err(what) => return Ok(text(StatusCode::BAD_REQUEST, what)),
    };
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let class = header(CLASS).and_then(Class::from_name).unwrap_or_default();
    let unavailable = |what: &'static str| text(StatusCode::SERVICE_UNAVAILABLE, what);
    let ExecutionRecord { outcome, times } = match server.execute(class, header(TENANT)).await {
        Ok(executed) => executed,
        Err(Rejection) => return Ok(unavailable("the queue is full\n")),
    };
    match outcome {
        ExecutionOutcome::Success => {}
        ExecutionOutcome::BadResponse => return Ok(unavailable("bad by the fault `errors`\n")),
        ExecutionOutcome::BrokenConnection => return Err(ConnectionBreak),
        // Until the client goes away.
        ExecutionOutcome::NoResponse => std::future::pending().await,
    }
    let mut response = Response::new(Full::new(Bytes::from(values(server, &keys))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(SERVER_TIMING, timing(times));
    Ok(response)
}

fn keys_of(query: &str) -> Result<Vec<&str>, String> {
    let mut keys = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let Some(key) = parameter.strip_prefix("k=") else {
            return Err(format!("unknown parameter {parameter:?}: expected k=KEY\n"));
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if key.is_empty() || key.len() > KEY_LEN_MAX || !key.bytes().all(plain) {
            return Err(format!(
                "key {key:?}: expected 1 to {KEY_LEN_MAX} letters, digits, '-', '_' or '.'\n"
            ));
        }
        keys.push(key);
    }
    if keys.is_empty() || keys.len() > KEYS_MAX {
        return Err(format!("{} keys: expected 1 to {KEYS_MAX}, as k=KEY\n", keys.len()));
    }
    Ok(keys)
}

/// The values of `keys`: made up, but the same from every replica.
fn values(server: &Server, keys: &[&str]) -> String {
    let (shard, replica) = (server.id.shard, server.id.replica);
    let mut json = format!("{{\"shard\":{shard},\"replica\":{replica},\"values\":{{");
    for (nth, key) in keys.iter().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        // FNV-1a: any fixed function of the key will do.
        let value = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        write!(json, "{comma}\"{key}\":\"{value:016x}\"").expect("a String takes everything");
    }
    json.push_str("}}\n");
    json
}

fn timing(times: Times) -> HeaderValue {
    let [queue, service, fault] =
        [times.queue, times.service, times.fault].map(curtail_units::Duration::as_ms_f64);
    let value = format!("queue;dur={queue:.3}, service;dur={service:.3}, fault;dur={fault:.3}");
    HeaderValue::try_from(value).expect("digits and plain words")
}

/// The response to a method that is not `allowed`.
pub(crate) fn expected_method(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, format!("expected {allowed}\n"));
    refusal.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    refusal
}

pub(crate) fn text(status: StatusCode, what: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(what.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
