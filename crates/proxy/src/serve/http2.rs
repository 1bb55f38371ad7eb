//! Serves one client over HTTP/2: hyper's server, on a connection with a write timeout.

use super::stream_tasks::{PacedBody, StreamExecutor};
use super::{Serving, reject};
use crate::metrics::ClientTimeout;
use crate::request::respond;
use crate::response::RelayedBody;
use bytes::BytesMut;
use curtail_http::drain::Drain;
use curtail_http::head::{RequestHead, ResponseHead};
use curtail_http::http2::flow_control_window;
use curtail_http::hyper_server::RequestDeadline;
use curtail_http::linger::Lingering;
use curtail_http::replay::ClientBody;
use curtail_http::stream::Stream;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

/// Streams that a client may reset before hyper accepts them; more are an attack (Rapid Reset).
const CLIENT_RESETS_MAX: usize = 200;

/// The same limit for roots at a leaf, where a reset cancels a hedge.
const ROOT_RESETS_MAX: usize = 10_000;

impl Serving {
    pub(super) async fn http2(self, stream: Stream, begun: BytesMut) {
        let watch = self.watch();
        let Self { worker, client, limits, drain } = self;
        let mut drain = Drain::new(&drain);
        let resets = if client.leaf.is_some() { ROOT_RESETS_MAX } else { CLIENT_RESETS_MAX };
        let deadline = RequestDeadline::new((limits.header_timeout.into(), None));
        let service = service_fn(|request: Request<Incoming>| {
            deadline.begin_request();
            let (head, body) = request.into_parts();
            let body = (!body.is_end_stream()).then_some(ClientBody::Http2(body));
            let (worker, client) = (Arc::clone(&worker), Arc::clone(&client));
            async move {
                let response = match RequestHead::from_http2(head) {
                    // hyper's server cannot send interim responses over HTTP/2.
                    Ok(head) => respond(worker, client, head, (body, None)).await,
                    Err(fault) => reject(&worker, &client, fault),
                };
                Ok::<Response<PacedBody>, Infallible>(as_response(response))
            }
        });
        let headers_bytes = limits.headers.as_len();
        let patience = std::time::Duration::from(limits.idle_timeout);
        let stream = watch.stream(stream, limits.write_timeout);
        let streams = StreamExecutor { watch: watch.clone(), write_timeout: limits.write_timeout };
        let connection = http2::Builder::new(streams)
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(headers_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.http2_streams_max)
            .keep_alive_interval(Some(patience / 2))
            .keep_alive_timeout(patience / 2)
            .max_pending_accept_reset_streams(resets)
            // As towards replicas ([`curtail_http::http2`]): a stalled upload must not stall the others.
            .initial_stream_window_size(flow_control_window(limits.http2_stream_window))
            .initial_connection_window_size(flow_control_window(limits.http2_connection_window()))
            .serve_connection(TokioIo::new(Lingering::new(stream, begun)), service);
        let mut connection = pin!(connection);
        let mut is_draining = false;
        let ended = std::future::poll_fn(|cx| {
            if !is_draining && drain.poll(cx).is_ready() {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            connection.as_mut().poll(cx)
        });
        tokio::select! {
            biased;
            ended = ended => if let Err(error) = ended {
                tracing::debug!(%error, "client connection ended");
            },
            () = deadline.passed() => {
                watch.metrics.timed_out.add(&ClientTimeout::Header, 1);
                tracing::debug!("client closed: no request over HTTP/2 within limits.header_timeout");
            }
        }
    }
}

/// The response in hyper's types.
fn as_response((head, body): (ResponseHead, RelayedBody)) -> Response<PacedBody> {
    let mut response = Response::new(PacedBody::new(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = HeaderMap::from(&head.fields);
    response
}
