//! An app of three servers whose tail has a cause that is known, because it was switched on.
//!
//! | role | does |
//! |---|---|
//! | `client` | `GET /work`: fetches a payload from storage, posts it to the server, reports the result |
//! | `storage` | `GET /payload/small` and `/payload/large`: arrays of numbers, in JSON |
//! | `server` | `POST /test`: reads the JSON number by number and returns it; `GET /test`: 999 numbers |
//!
//! The client is the app whose latency is looked at; load goes to it. Four causes can be switched on, each by
//! one key: payloads of which 1 in 20 is large, a timeout that is too short, a server that refuses requests,
//! which are sent again after a while, and processor time that somebody else takes.
//!
//! **Source**: the test app behind Google Cloud's "Identifying causes of app latency",
//! GoogleCloudPlatform/opencensus-jetty-demo (2019): its payloads of 500 and 100,000 numbers, its timeouts
//! and its backoff. It sent requests in a closed loop and measured itself; here load comes from outside.
//! **Real**: JSON is parsed and written, bytes go through sockets, timers run. Only how long storage and the
//! server take beside that is drawn, by the seed.
//! **Limits**: each role has one thread, and so one core at most, in one process with the others or alone.
//! [`WORK_MAX`](client::WORK_MAX) requests are worked on at once; more are refused with 503.

mod backoff;
mod busy;
mod client;
mod config;
mod peer;
mod running;
mod server;
mod storage;

pub use config::{Causes, ClientConfig, Config, Role, ServerConfig, StorageConfig};
pub use running::Running;

use crate::respond::text;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;

/// The longest body that any of the three takes; a large payload has 0.7 MB.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The numbers of a small payload.
const SMALL_LEN: usize = 500;

/// The numbers of a large payload.
const LARGE_LEN: usize = 100_000;

/// A response in JSON.
fn json(body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn ok() -> Response<Full<Bytes>> {
    text(StatusCode::OK, "ok\n".to_owned())
}
