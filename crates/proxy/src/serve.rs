//! Serving one connection of a client to its end, in HTTP/1.1 or HTTP/2.
//!
//! **HTTP/2 in clear text** is known by its preface ([`curtail_http::preface`]); under TLS it is negotiated.

mod connection_setup;
mod http2;

use crate::client::{CLIENT_SLOW, Client};
use crate::config::{ClientRange, Limits};
use crate::listen::HandedConnection;
use crate::metrics::ClientTimeout;
use crate::request::{own, respond};
use crate::response::RelayedBody;
use crate::watch::Watch;
use crate::worker::{ConnectionCount, Worker};
use bytes::{Bytes, BytesMut};
use connection_setup::ConnectionSetup;
use curtail_http::drain::{Drain, DrainSignal};
use curtail_http::head::{Fault, RequestHead, ResponseHead};
use curtail_http::http1::{self, ServerLimits};
use curtail_http::http2::DuplexStream;
use curtail_http::preface;
use curtail_http::replay::ClientBody;
use curtail_http::service::{InterimSink, Service};
use curtail_http::stream::{self, Stream};
use http::StatusCode;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::net::TcpStream;

/// Serves one connection to its end.
pub(crate) async fn serve(worker: Arc<Worker>, handed: HandedConnection) {
    let HandedConnection { stream, peer, listener, place } = handed;
    let _counted = (ConnectionCount::new(&listener.metrics), place);
    // A reload applies to connections that are accepted after it.
    let snapshot = worker.shared.snapshot.load_full();
    let limits = snapshot.config.limits.clone();
    let Ok(mut stream) = TcpStream::from_std(stream) else { return };
    if peer.is_some() {
        stream::keep_alive(&stream, limits.tcp_keepalive);
    }
    let setup = ConnectionSetup { listener: &listener, timeout: limits.header_timeout, peer };
    let Some(addresses) = setup.addresses(&mut stream).await else { return };
    let address = addresses.map(|addresses| addresses.client.ip().to_canonical());
    let is_trusted = |clients: &ClientRange| clients.contains(address);
    let client = Arc::new(Client {
        addresses,
        address,
        address_text: address.map_or_else(|| "unix:".to_owned(), |address| address.to_string()),
        // The clients of a leaf are roots, which it trusts.
        is_trusted: listener.leaf.is_some()
            || snapshot.config.trusted_proxies.iter().any(is_trusted),
        trusted: Arc::clone(&snapshot.config.trusted_proxies),
        tls: listener.tls.is_some(),
        leaf: listener.leaf.clone(),
        listener: listener.name.clone(),
        metrics: Arc::clone(&listener.metrics),
        has_write_timeout: AtomicBool::new(false),
    });
    drop(snapshot);
    let serving = Serving { worker, client, limits, drain: Arc::clone(&listener.drain) };
    match &listener.tls {
        None => match setup.in_time(preface::begin(&mut stream)).await {
            Some(Ok((begun, true))) => serving.http2(Stream::Plain(stream), begun).await,
            Some(Ok((begun, false))) => serving.http1(Stream::Plain(stream), begun).await,
            Some(Err(error)) => tracing::debug!(?peer, %error, "connection broke at its beginning"),
            None => {}
        },
        Some(tls) => match setup.in_time(tls.acceptor().accept(stream)).await {
            Some(Ok(tls)) => {
                let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                let stream = Stream::Tls(Box::new(tls.into()));
                if is_http2 {
                    serving.http2(stream, BytesMut::new()).await;
                } else {
                    serving.http1(stream, BytesMut::new()).await;
                }
            }
            Some(Err(error)) => {
                serving.client.metrics.tls_failed.add(1);
                tracing::debug!(?peer, %error, "TLS handshake failed");
            }
            None => {}
        },
    }
}

/// HTTP with one client.
struct Serving {
    worker: Arc<Worker>,
    client: Arc<Client>,
    limits: Limits,
    /// The drain signal of the listener.
    drain: Arc<DrainSignal>,
}

impl Serving {
    async fn http1(self, stream: Stream, begun: BytesMut) {
        let drain = Drain::until_closing(&self.drain);
        let (watch, limits) = (self.watch(), self.limits.clone());
        let server_limits = ServerLimits {
            head_bytes_max: limits.headers.as_len(),
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            write_timeout: limits.write_timeout,
        };
        let timers = (&watch.timers, watch.clock);
        let server = http1::Server::new((stream, begun), server_limits, drain, timers);
        if let Some(upgraded) = server.serve(self).await
            && let RelayedBody::Tunnel(tunnel) = upgraded.body
        {
            let client = watch.stream(upgraded.stream, limits.write_timeout);
            tunnel.carry((client, upgraded.read.freeze()), &watch.metrics).await;
        }
    }

    /// The timers of this client's connection, and the counter of its write timeouts.
    fn watch(&self) -> Watch {
        Watch {
            timers: Arc::clone(&self.worker.timers),
            clock: self.worker.shared.process_state.clock,
            metrics: Arc::clone(&self.client.metrics),
        }
    }
}

impl Service for Serving {
    type Body = RelayedBody;

    fn respond(
        &self,
        head: RequestHead,
        body: Option<ClientBody>,
        interim: Option<InterimSink>,
    ) -> impl Future<Output = (ResponseHead, RelayedBody)> + Send {
        respond(Arc::clone(&self.worker), Arc::clone(&self.client), head, (body, interim))
    }

    async fn carry(&self, stream: DuplexStream, body: RelayedBody) {
        if let RelayedBody::Tunnel(tunnel) = body {
            let watch = self.watch();
            let client = watch.stream(stream, self.limits.write_timeout);
            tunnel.carry((client, Bytes::new()), &watch.metrics).await;
        }
    }

    fn reject(&self, fault: Fault) -> (ResponseHead, RelayedBody) {
        reject(&self.worker, &self.client, fault)
    }

    fn write_timed_out(&self, body: &mut RelayedBody) {
        self.client.metrics.timed_out.add(&ClientTimeout::Write, 1);
        body.abandon(CLIENT_SLOW);
    }
}

/// Responds to a malformed request.
fn reject(worker: &Worker, client: &Client, fault: Fault) -> (ResponseHead, RelayedBody) {
    tracing::debug!(error = fault.error, why = fault.why, "rejected a malformed request");
    if fault.status == StatusCode::REQUEST_TIMEOUT {
        client.metrics.timed_out.add(&ClientTimeout::Header, 1);
    }
    client.metrics.malformed.add(1);
    worker.log_malformed(client, fault);
    own(fault.status, fault.error, fault.why)
}
