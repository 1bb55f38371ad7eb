//! Envoy's EDS as a source of endpoints: one stream to a control plane, which sends the assignment of a cluster.
//!
//! The stream is that of the aggregated discovery service, with the state-of-the-world protocol. The proxy accepts
//! (ACK) or rejects (NACK) each response; after a rejected one, the endpoints of the last accepted one stay. Each
//! upstream has a stream of its own.
//!
//! Each stream begins without a version, so that the control plane sends the assignment again. The protocol suggests
//! the last version of the stream before; but a control plane that numbers its versions anew after a restart would
//! then withhold a change.
//! **Source**: Envoy documentation, "xDS REST and gRPC protocol".
//! **Limits**: [`MESSAGE_BYTES_MAX`] of a response, and [`super::feed::ENDPOINTS_MAX`].

mod messages;

use super::control_plane::{client, cut, headers};
use super::feed::{Feed, Parts};
use crate::config::{EdsSource, Protocol};
use bytes::{Buf as _, Bytes, BytesMut};
use curtail_http::client::StreamedBody;
use curtail_http::grpc;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use messages::{DiscoveryRequest, DiscoveryResponse};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// Maximum size of a response; an endpoint has a hundred bytes, or some hundreds with metadata.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Requests that wait for a control plane that does not read.
const REQUESTS_MAX: usize = 4;
/// Maximum time for which a request waits.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// Time after which a stream without an assignment is reported, as in Envoy and gRPC.
const FIRST_ASSIGNMENT_MAX: Duration = Duration::from_secs(15);
/// Wait before a rejection is sent, which doubles with each further one.
const REJECTION_DELAY_MIN: Duration = Duration::from_secs(1);
const REJECTION_DELAY_MAX: Duration = Duration::from_secs(30);
/// The next stream begins at most this time after one that the control plane has ended without an error: control planes
/// limit the age of their streams.
const REOPEN_MAX: Duration = Duration::from_secs(1);
/// The error of a stream that ends before its assignment.
const ENDED: &str = "the control plane has ended the stream";
/// A control plane sends nothing, not even headers, until it has an assignment. Pings find one that is gone.
const HEAD_MAX: curtail_units::Duration = curtail_units::Duration::from_secs(1 << 30);

/// A session with a control plane; returns why it has ended.
pub(super) async fn run(source: &EdsSource, feed: &mut Feed) -> Result<Infallible, String> {
    loop {
        run_stream(source, feed).await?;
        // Proxies that lost a control plane together do not come back together.
        let wait = REOPEN_MAX.mul_f64(1.0 - feed.jitter() / 2.0);
        feed.wait_for(tokio::time::sleep(wait)).await;
    }
}

/// One stream, until the control plane ends it without an error, after it has sent the assignment.
///
/// # Errors
/// Any other end of the stream.
async fn run_stream(source: &EdsSource, feed: &mut Feed) -> Result<(), String> {
    let files = feed.files();
    let client = client(&files, &source.server, &source.access, (Protocol::Http2, 0)).await?;
    let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
    let mut subscription = DiscoveryRequest::new(source);
    send(&requests, &subscription).await?;
    let mut request = Request::new(RequestBody(receiver));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(PATH);
    *request.headers_mut() = headers(&files, source.access.token_file.as_deref()).await?;
    let fields = request.headers_mut();
    fields.insert(header::TE, HeaderValue::from_static("trailers"));
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let opening = client.send_streaming(request, HEAD_MAX);
    let response =
        wait_for_first(feed, source, opening).await.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("HTTP status {}: expected 200", response.status().as_u16()));
    }
    let (head, body) = response.into_parts();
    let mut messages = Messages { body, buffer: BytesMut::new(), headers: head.headers };
    let first = wait_for_first(feed, source, messages.next()).await?;
    let mut message = first.ok_or(ENDED)?;
    let (mut has_assignment, mut delay) = (false, REJECTION_DELAY_MIN);
    loop {
        let response = DiscoveryResponse::decode(&message)?;
        let taken = take(source, &response, feed);
        let is_rejected = taken.is_err();
        match &taken {
            Ok(has_cluster) => {
                has_assignment |= has_cluster;
                if !has_assignment {
                    let EdsSource { cluster, node_id, .. } = source;
                    feed.fail(format!(
                        "the response has no cluster {cluster:?} for node {node_id:?}: check both"
                    ));
                }
            }
            Err(error) => {
                let version = cut(response.version);
                feed.fail(format!("version {version:?} is rejected: {error}"));
            }
        }
        subscription.acknowledge(&response, taken.err());
        if is_rejected {
            // Some control planes send a rejected version again at once.
            feed.wait_for(tokio::time::sleep(delay)).await;
            delay = (2 * delay).min(REJECTION_DELAY_MAX);
        } else {
            delay = REJECTION_DELAY_MIN;
        }
        feed.wait_for(send(&requests, &subscription)).await?;
        message = match feed.wait_for(messages.next()).await? {
            Some(message) => message,
            None if has_assignment && !is_rejected => return Ok(()),
            None => return Err(ENDED.to_owned()),
        };
    }
}

/// Takes the assignment of a response; returns whether it has the one of the cluster.
///
/// # Errors
/// What cannot be used, for the control plane and for the log.
fn take(
    source: &EdsSource,
    response: &DiscoveryResponse<'_>,
    feed: &mut Feed,
) -> Result<bool, String> {
    match response.assignment(&source.cluster)? {
        Some(assignment) => {
            let (part, summary) = assignment.into_part(response.version);
            let parts: Parts = vec![(source.cluster.clone(), Ok(part))];
            feed.set(parts, summary);
            Ok(true)
        }
        // A response may leave out what has not changed.
        None => {
            feed.confirm();
            Ok(false)
        }
    }
}

/// Waits for the first response. If it takes long, a report says so, and the wait goes on.
async fn wait_for_first<T>(
    feed: &mut Feed,
    source: &EdsSource,
    first: impl Future<Output = T>,
) -> T {
    let mut first = pin!(first);
    if let Ok(first) = feed.wait_for(timeout(FIRST_ASSIGNMENT_MAX, &mut first)).await {
        return first;
    }
    let seconds = FIRST_ASSIGNMENT_MAX.as_secs();
    let EdsSource { cluster, node_id, .. } = source;
    feed.fail(format!(
        "no assignment within {seconds} s: the control plane has no cluster {cluster:?} for node {node_id:?}, waits for \
         requests of further clusters (a cache of go-control-plane with ads=true), or hangs"
    ));
    feed.wait_for(first).await
}

async fn send(
    requests: &mpsc::Sender<Bytes>,
    request: &DiscoveryRequest<'_>,
) -> Result<(), String> {
    let message = request.encode();
    let prefix = grpc::prefix(message.len()).expect("names and a nonce are short");
    let sending = requests.send([&prefix[..], &message].concat().into());
    match timeout(REQUEST_MAX, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the stream has ended".to_owned()),
        Err(_) => {
            Err(format!("the control plane reads no request for {} s", REQUEST_MAX.as_secs()))
        }
    }
}

/// The requests of a stream, one frame each.
#[derive(Debug)]
struct RequestBody(mpsc::Receiver<Bytes>);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|request| request.map(|request| Ok(Frame::data(request))))
    }
}

/// The messages of a response.
struct Messages {
    body: StreamedBody<RequestBody>,
    buffer: BytesMut,
    headers: HeaderMap,
}

impl Messages {
    /// The next message; [`None`]: the control plane has ended the stream without an error.
    ///
    /// # Errors
    /// When the stream ends otherwise, with the status of the control plane.
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        let mut trailers = None;
        loop {
            if let Some(message) = self.complete_message()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => return Err(format!("the stream broke: {error}")),
                None => return read_end(trailers.as_ref(), &self.headers).map(|()| None),
            }
        }
    }

    fn complete_message(&mut self) -> Result<Option<Bytes>, String> {
        if self.buffer.len() < grpc::PREFIX_BYTES {
            return Ok(None);
        }
        let (len, is_compressed) = grpc::read_prefix(&self.buffer)?;
        if is_compressed {
            return Err("the message is compressed, which the request did not ask for".to_owned());
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > MESSAGE_BYTES_MAX {
            let mib = MESSAGE_BYTES_MAX >> 20;
            return Err(format!("a response has {len} bytes: expected at most {mib} MiB"));
        }
        if self.buffer.len() - grpc::PREFIX_BYTES < len {
            return Ok(None);
        }
        self.buffer.advance(grpc::PREFIX_BYTES);
        Ok(Some(self.buffer.split_to(len).freeze()))
    }
}

/// Reads the status at a stream's end.
///
/// # Errors
/// When it is not that of success.
fn read_end(trailers: Option<&HeaderMap>, headers: &HeaderMap) -> Result<(), String> {
    Err(match grpc::status(trailers, headers) {
        Some((0, _)) => return Ok(()),
        Some((12, _)) => {
            "the server has no aggregated discovery service (gRPC status 12)".to_owned()
        }
        Some((code, message)) => format!("gRPC status {code}: {}", cut(&message)),
        None => "the stream ended without grpc-status".to_owned(),
    })
}
