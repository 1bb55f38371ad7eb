//! Serving one connection of a client to its end, whatever it speaks.
//!
//! **HTTP/2 in clear text** is known by its preface ([`crate::preface`]); under TLS it is negotiated.

mod lingering;

use crate::answer::AnswerBody;
use crate::body::ClientBody;
use crate::config::Limits;
use crate::drain::Drain;
use crate::head::{AnswerHead, RequestHead};
use crate::http1::{self, Answers};
use crate::listen::Handed;
use crate::preface;
use crate::request::{Client, answer, own};
use crate::stream::Stream;
use crate::worker::{ConnectionCount, Worker};
use bytes::BytesMut;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use lingering::Lingering;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpStream;

/// How many streams a client may have open on one connection.
const STREAMS_MAX: u32 = 1_000;

/// Streams that a client has reset before we looked at them: more is taken for an attack (Rapid Reset).
const CLIENT_RESETS_MAX: usize = 200;

/// The same between roots and leaves, where resets are how hedges are cancelled.
const ROOT_RESETS_MAX: usize = 10_000;

/// A connection on which nothing was asked when the proxy is told to stop has this long for a request that
/// may be on its way.
const LAST_MOMENT: std::time::Duration = std::time::Duration::from_millis(100);

/// Flow control towards clients.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Serves one connection to its end.
pub(crate) async fn serve(worker: Arc<Worker>, handed: Handed) {
    let Handed { stream, peer, listener, permit } = handed;
    let _counted = (ConnectionCount::new(&worker, &listener.metrics), permit);
    let client = Arc::new(Client {
        address: peer.ip().to_string(),
        tls: listener.tls.is_some(),
        leaf: listener.leaf.clone(),
        metrics: Arc::clone(&listener.metrics),
    });
    let Ok(mut stream) = TcpStream::from_std(stream) else { return };
    // A reload is for the connections that come after it.
    let limits = worker.shared.site.load().config.limits.clone();
    let serving = Serving { worker, client, limits };
    match &listener.tls {
        None => match serving.in_time(preface::begin(&mut stream)).await {
            Some(Ok((begun, true))) => serving.http2(Stream::Plain(stream), begun).await,
            Some(Ok((begun, false))) => serving.http1(Stream::Plain(stream), begun).await,
            Some(Err(error)) => tracing::debug!(%peer, %error, "connection broke at its beginning"),
            None => tracing::debug!(%peer, "nothing was asked in time"),
        },
        Some(acceptor) => match serving.in_time(acceptor.accept(stream)).await {
            Some(Ok(tls)) => {
                let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                let stream = Stream::Tls(Box::new(tls.into()));
                if is_http2 {
                    serving.http2(stream, BytesMut::new()).await;
                } else {
                    serving.http1(stream, BytesMut::new()).await;
                }
            }
            Some(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            None => tracing::debug!(%peer, "TLS handshake took too long"),
        },
    }
}

/// HTTP with one client.
struct Serving {
    worker: Arc<Worker>,
    client: Arc<Client>,
    limits: Limits,
}

impl Serving {
    /// What comes before the first request has the time of a header; hardly any when the proxy stops.
    async fn in_time<T>(&self, beginning: impl Future<Output = T>) -> Option<T> {
        let mut draining = self.worker.shared.draining.subscribe();
        let stopped = async {
            drop(draining.wait_for(|draining| *draining).await);
            tokio::time::sleep(LAST_MOMENT).await;
        };
        let patience = std::time::Duration::from(self.limits.header_timeout);
        tokio::select! {
            biased;
            begun = tokio::time::timeout(patience, beginning) => begun.ok(),
            () = stopped => None,
        }
    }

    async fn http1(self, stream: Stream, begun: BytesMut) {
        let drain = Drain::new(&self.worker.shared);
        let clock = self.worker.shared.lasting.clock;
        let server = http1::Server::new((stream, begun), &self.limits, drain, clock);
        if let Some(changed) = server.serve(self).await
            && let AnswerBody::Tunnel(tunnel) = changed.body
        {
            tunnel.carry(changed.stream, changed.read.freeze()).await;
        }
    }

    async fn http2(self, stream: Stream, begun: BytesMut) {
        let Self { worker, client, limits } = self;
        let mut drain = Drain::new(&worker.shared);
        let resets = if client.leaf.is_some() { ROOT_RESETS_MAX } else { CLIENT_RESETS_MAX };
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_asked);
        let service = service_fn(move |request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            let (head, body) = request.into_parts();
            let body = (!body.is_end_stream()).then_some(ClientBody::Http2(body));
            let answer = answer(Arc::clone(&worker), Arc::clone(&client), head.into(), body);
            async move { Ok::<Response<AnswerBody>, Infallible>(as_response(answer.await)) }
        });
        let headers_bytes = limits.headers.as_len();
        let patience = std::time::Duration::from(limits.idle_timeout);
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(headers_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS_MAX)
            .keep_alive_interval(Some(patience / 2))
            .keep_alive_timeout(patience / 2)
            .max_pending_accept_reset_streams(resets)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .serve_connection(TokioIo::new(Lingering::new(stream, begun)), service);
        let mut connection = pin!(connection);
        let mut is_told = false;
        let ended = std::future::poll_fn(|cx| {
            if !is_told && drain.poll(cx).is_ready() {
                is_told = true;
                connection.as_mut().graceful_shutdown();
            }
            connection.as_mut().poll(cx)
        });
        // hyper has no such limit over HTTP/2: a client that never asks would stay for ever.
        let never_asked = async {
            tokio::time::sleep(limits.header_timeout.into()).await;
            if has_asked.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            ended = ended => if let Err(error) = ended {
                tracing::debug!(%error, "client connection ended");
            },
            () = never_asked => tracing::debug!("nothing was asked in time over HTTP/2"),
        }
    }
}

impl Answers for Serving {
    type Body = AnswerBody;

    fn answer(
        &self,
        head: RequestHead,
        body: Option<http1::RequestBody>,
    ) -> impl Future<Output = (AnswerHead, AnswerBody)> {
        let body = body.map(ClientBody::Http1);
        answer(Arc::clone(&self.worker), Arc::clone(&self.client), head, body)
    }

    fn refuse(&self, fault: http1::Fault) -> (AnswerHead, AnswerBody) {
        tracing::debug!(error = fault.error, why = fault.why, "a client sent no request");
        self.client.metrics.malformed();
        own(fault.status, fault.error, fault.why)
    }
}

/// As HTTP/2 needs it.
fn as_response((head, body): (AnswerHead, AnswerBody)) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = HeaderMap::from(&head.fields);
    response
}
