//! One call of a fan-out: a request to one shard or replica, until the whole response is in memory.
//!
//! **Limits**: all bodies of one request share a [`ResponseBuffer`]. The rest of a body that does not fit is not read. A
//! body that is not complete within the upstream's timeout after its headers counts as a timeout.

use super::Shard;
use crate::config::Merge;
use crate::request::{record_own, status_without_replica};
use crate::response::{BufferedBody, Completion, WinningResponse};
use crate::root::{self, NoResponse, Outgoing};
use crate::trail::Trail;
use crate::worker::Worker;
use bytes::{Bytes, BytesMut};
use curtail_http::head::ResponseHead;
use curtail_http::pool::ResponseBody;
use curtail_http::replay::{BodyError, ClientFault};
use curtail_policy::Failure;
use http::StatusCode;
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The name of the failure of a call whose response does not fit.
pub(super) const TOO_LARGE: &str = "response_too_large";

/// The memory that is left for the bodies of one request, in bytes.
#[derive(Debug)]
pub(super) struct ResponseBuffer(AtomicU64);

/// The value of a [`ResponseBuffer`] after its request is done, when no body is kept.
const DISCARD: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct ShardResponse {
    pub(super) head: ResponseHead,
    pub(super) body: Bytes,
}

/// The reason why a shard's response does not count.
#[derive(Debug)]
pub(super) struct CallError {
    /// The status that a client would get from this shard alone.
    pub(super) status: StatusCode,
    pub(super) name: &'static str,
    /// The shard's response, if it is the client's error (4xx).
    pub(super) response: Option<ShardResponse>,
}

impl ResponseBuffer {
    pub(super) const fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Stops keeping bodies, because the request is done. Further bodies are read and dropped.
    pub(super) fn discard(&self) {
        self.0.store(DISCARD, Relaxed);
    }

    /// Takes room for a body or a piece of it; false if it need not be kept.
    fn take(&self, bytes: usize) -> Result<bool, CallError> {
        let less =
            |left: u64| if left == DISCARD { Some(left) } else { left.checked_sub(bytes as u64) };
        let taken = self.0.fetch_update(Relaxed, Relaxed, less);
        let too_large = |_| CallError::new(StatusCode::BAD_GATEWAY, TOO_LARGE);
        taken.map(|left| left != DISCARD).map_err(too_large)
    }
}

impl CallError {
    const fn new(status: StatusCode, name: &'static str) -> Self {
        Self { status, name, response: None }
    }
}

pub(super) async fn run(
    worker: Arc<Worker>,
    shard: Shard,
    (outgoing, trail): (Outgoing, Box<Trail>),
    (buffer, merge): (Arc<ResponseBuffer>, Merge),
) -> Result<ShardResponse, CallError> {
    let upstream = shard.upstream;
    let timeout = outgoing.request.timeout_or(upstream.policy.timeout);
    let WinningResponse { response, completion: mut ending } =
        match root::exchange(&worker, Arc::clone(&upstream), outgoing, trail).await {
            Ok(response) => response,
            Err((why, trail)) => {
                let (status, name) = status_without_replica(why);
                // The upstream does not count a rejected call.
                let upstream = Some(&*upstream).filter(|_| why != NoResponse::UpstreamFull);
                let is_gone = why == NoResponse::Client(ClientFault::Gone);
                let (recorded, error) =
                    if is_gone { (None, trail.client.end_error()) } else { (Some(status), name) };
                record_own(&worker, upstream, trail, (recorded, Some(error)));
                return Err(CallError::new(status, name));
            }
        };
    let body = match response.body {
        BufferedBody::Whole(body, _) => {
            ending.body(body.len());
            buffer.take(body.len()).inspect_err(|error| ending.end_with_error(error.name))?;
            body
        }
        BufferedBody::Open(body) => {
            let read = tokio::time::timeout(timeout.into(), read(body, &mut ending, &buffer)).await;
            read.unwrap_or_else(|_| {
                ending.break_off(&"its body did not end within the timeout");
                Err(CallError::new(StatusCode::GATEWAY_TIMEOUT, "timed_out"))
            })?
        }
    };
    let merge = if buffer.take(0)? { merge } else { Merge::Concatenate };
    let is_server_error = response.head.status.is_server_error();
    let checked = check(ShardResponse { head: response.head, body }, merge);
    match &checked {
        // A response to pass on, or an error of the replica, says enough with its status.
        Err(error) if error.response.is_none() && !is_server_error => {
            ending.end_with_error(error.name)
        }
        Ok(_) | Err(_) => ending.complete(),
    }
    checked
}

/// Reads a body to its end. The caller ends the call if it is whole.
async fn read(
    mut body: ResponseBody,
    ending: &mut Completion,
    buffer: &ResponseBuffer,
) -> Result<Bytes, CallError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let (status, name) = match ending.fail(&error) {
                None => (StatusCode::BAD_GATEWAY, Failure::Broken.name()),
                Some(BodyError::NotKept) => (StatusCode::BAD_GATEWAY, Failure::BodyNotKept.name()),
                Some(BodyError::Client(fault)) => status_without_replica(NoResponse::Client(fault)),
            };
            CallError::new(status, name)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        ending.body(data.len());
        match buffer.take(data.len()) {
            Ok(true) => whole.extend_from_slice(&data),
            Ok(false) => whole = BytesMut::new(),
            Err(error) => {
                ending.abandon(TOO_LARGE);
                return Err(error);
            }
        }
    }
    Ok(whole.freeze())
}

/// Checks that the response can become a part of the merged one.
fn check(response: ShardResponse, merge: Merge) -> Result<ShardResponse, CallError> {
    let status = response.head.status;
    let is_encoded = |(_, name, value): (_, &[u8], &[u8])| {
        name == b"content-encoding" && !value.eq_ignore_ascii_case(b"identity")
    };
    let name = if status.is_client_error() {
        return Err(CallError { status, name: "client_error", response: Some(response) });
    } else if !status.is_success() || status == StatusCode::PARTIAL_CONTENT {
        "bad_status"
    } else if response.head.fields.iter().any(is_encoded) {
        "encoded"
    } else if !merge.accepts(&response.body) {
        "not_a_json_array"
    } else {
        return Ok(response);
    };
    Err(CallError::new(StatusCode::BAD_GATEWAY, name))
}
