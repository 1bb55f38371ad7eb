//! An app of three servers whose tail has a known cause.
//!
//! | role | does |
//! |---|---|
//! | `client` | `GET /work`: fetches a payload from storage, posts it to the server, reports the result |
//! | `storage` | `GET /payload/small` and `/payload/large`: arrays of numbers, in JSON |
//! | `server` | `POST /test`: reads the JSON number by number and returns it; `GET /test`: 999 numbers |
//!
//! Load goes to the client. Each of four causes has a key that switches it on: 1 payload in 20 is large, a timeout is
//! too short, the server rejects requests, which the client retries after a backoff, and another job takes CPU time.
//!
//! **Source**: the test app behind Google Cloud's "Identifying causes of app latency",
//! GoogleCloudPlatform/opencensus-jetty-demo (2019): its payloads, timeouts and backoff. That app sent requests in a
//! closed loop and measured itself; here load comes from outside.
//! JSON, sockets and timers are real. The seed decides the service times of storage and server.
//! **Limits**: each role has one thread. The client rejects more than [`WORK_MAX`](client::WORK_MAX) concurrent requests
//! with 503.

mod client;
mod config;
mod peer;
mod running;
mod server;
mod storage;

pub(crate) use config::ClientConfig;
pub use config::{Config, Role, ServerConfig, StorageConfig};
pub use running::Running;

use crate::respond::text;
use bytes::Bytes;
use curtail_http::precise_timer::PreciseTimer;
use curtail_units::{Duration, Rng};
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum size of a body that any role accepts; a large payload has 0.7 MB.
const BODY_BYTES_MAX: usize = 4 << 20;

const SMALL_LEN: usize = 500;

const LARGE_LEN: usize = 100_000;

/// The requests of a role: each has random numbers of its own.
#[derive(Debug)]
struct Requests {
    rng: Rng,
    count: AtomicU64,
}

impl Requests {
    fn new(rng: &Rng) -> Self {
        Self { rng: rng.clone(), count: AtomicU64::new(0) }
    }

    /// The random numbers of the next request.
    fn next(&self) -> Rng {
        self.rng.split_index(self.count.fetch_add(1, Relaxed))
    }
}

/// Waits for `time`, rounded up to a millisecond if the process may not open another file.
async fn wait(time: Duration) {
    static WARNING: std::sync::Once = std::sync::Once::new();
    if time == Duration::ZERO {
        return;
    }
    let precise = async { PreciseTimer::new()?.wait(time).await };
    if let Err(error) = precise.await {
        WARNING.call_once(
            || tracing::warn!(%error, "no timer: waits are rounded up to a millisecond"),
        );
        tokio::time::sleep(time.into()).await;
    }
}

fn json(body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn ok() -> Response<Full<Bytes>> {
    text(StatusCode::OK, "ok\n")
}
