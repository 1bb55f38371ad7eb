//! Requests for an upgrade: over a connection of their own in HTTP/1.1, and WebSockets also over a stream of HTTP/2.
//!
//! HTTP/2 has no other upgrades (RFC 9113, section 8.6), and WebSockets only with servers that announce them (RFC 8441).
//! Where the protocol is to be negotiated and no connection is open, a new one finds out what the server speaks. Without
//! such an HTTP/2 connection, HTTP/1.1 is used. A server of HTTP/2 alone gets any other request without its upgrade.

use super::http2::Http2Lease;
use super::resend::RESENDS_MAX;
use super::{
    ExchangeError, NewLease, Pool, PoolResponse, ResponseBody, ResponseError, Transport as _,
};
use crate::clock::Clock;
use crate::connect::{ConnectError, Offer, Protocol};
use crate::connection_counts::{ConnectPhases, CountedStream};
use crate::forwarding;
use crate::head::{Known, ResponseHead};
use crate::http2::{self, ConnectBody};
use crate::outbound_request::OutboundRequest;
use crate::websocket;
use ::http::{StatusCode, Version};
use hyper_util::rt::TokioIo;
use std::sync::Arc;

/// The outcome of a request for an upgrade.
pub(super) enum UpgradeAttempt {
    Response(PoolResponse),
    /// The server knows no such upgrade; nothing was sent.
    Unsent(Box<OutboundRequest>),
}

impl Pool {
    /// Sends a request for an upgrade, if the server may know the upgrade.
    pub(super) async fn exchange_upgrade(
        self: &Arc<Self>,
        mut request: Box<OutboundRequest>,
        clock: &Clock,
    ) -> Result<UpgradeAttempt, ExchangeError> {
        if let Some(accept) = websocket::handshake_key(&request).map(websocket::derive_accept)
            && let Some(response) = self.exchange_websocket(&mut request, &accept, clock).await?
        {
            return Ok(UpgradeAttempt::Response(response));
        }
        if self.config.protocol == Protocol::Http2 {
            return Ok(UpgradeAttempt::Unsent(request));
        }
        self.exchange_over_own(request, clock).await
    }

    /// Sends the handshake of a WebSocket over HTTP/2; [`None`] if the server does not accept WebSockets.
    async fn exchange_websocket(
        self: &Arc<Self>,
        request: &mut OutboundRequest,
        accept: &str,
        clock: &Clock,
    ) -> Result<Option<PoolResponse>, ExchangeError> {
        let mut without_stream = 0;
        while let Some((lease, phases)) = self.lease_for_websocket(clock).await? {
            let (head, body) = match self.http2.connect(lease, request).await {
                Ok(response) => response,
                // The server has lowered its limit of streams since the lease.
                Err(ResponseError::Http2(http2::Error::NoStream))
                    if without_stream < RESENDS_MAX =>
                {
                    without_stream += 1;
                    continue;
                }
                Err(error) => return Err(self.failed(error)),
            };
            let (head, body) = match body {
                ConnectBody::Accepted(stream) => {
                    (into_switching_protocols(head, accept), stream.into())
                }
                ConnectBody::Refused(body) => (head, body.into()),
            };
            return Ok(Some(PoolResponse { head, body, phases }));
        }
        Ok(None)
    }

    /// Leases a stream of a connection whose server accepts WebSockets. A server gets a new connection for that if it may
    /// speak nothing else, or if it has none that would tell.
    async fn lease_for_websocket(
        self: &Arc<Self>,
        clock: &Clock,
    ) -> Result<Option<(Http2Lease, Option<ConnectPhases>)>, ExchangeError> {
        let opens = || {
            let has_none = || self.http2.connection_count() == 0;
            self.config.protocol == Protocol::Http2 || (self.attempts.may_share() && has_none())
        };
        let (mut lease, phases) = match self.lease_http2(clock.now(), clock) {
            Some(lease) => (lease, None),
            None if opens() => match self.connect(clock, false).await? {
                (NewLease::Http2(lease), phases) => (lease, phases),
                (NewLease::Http1(lease), _) => {
                    self.http1.put_idle(lease, clock.now());
                    return Ok(None);
                }
            },
            None => return Ok(None),
        };
        let accepts = lease.accepts_connect().await.map_err(|error| self.failed(error))?;
        Ok(accepts.then_some((lease, phases)))
    }

    /// Sends a request over a new HTTP/1.1 connection, which does not return to the pool; unless the server refuses
    /// HTTP/1.1 in the TLS handshake.
    async fn exchange_over_own(
        &self,
        request: Box<OutboundRequest>,
        clock: &Clock,
    ) -> Result<UpgradeAttempt, ExchangeError> {
        // The key of an HTTP/2 client's handshake is the proxy's own. A client of HTTP/1.1 checks the response itself.
        let key = websocket::handshake_key(&request);
        let accept =
            key.filter(|_| request.head.version == Version::HTTP_2).map(websocket::derive_accept);
        let waiting = self.count_waiting()?;
        let (connected, counted) = match self.open(clock, Offer::Http1).await {
            Ok(opened) => opened,
            Err(ExchangeError::Connect(ConnectError::NoVersion { .. })) => {
                return Ok(UpgradeAttempt::Unsent(request));
            }
            Err(error) => return Err(error),
        };
        drop(waiting);
        let phases = Some(connected.phases);
        let io = TokioIo::new(CountedStream { stream: connected.stream, _counted: counted });
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(|_| self.not_sent())?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "upgraded connection ended");
            }
        });
        let response = sender.send_request(request.into_request()).await;
        let mut response = response.map_err(|source| self.broken(source))?;
        let upgrade = hyper::upgrade::on(&mut response);
        let (head, body) = response.into_parts();
        let head = ResponseHead::from(head);
        if head.status == StatusCode::SWITCHING_PROTOCOLS
            && accept.is_some_and(|accept| !websocket::is_opened(&head, &accept))
        {
            return Err(ExchangeError::BadHandshake { server: self.server() });
        }
        let body = ResponseBody::upgrade(body, upgrade);
        Ok(UpgradeAttempt::Response(PoolResponse { head, body, phases }))
    }
}

/// Converts the head of a response that opens a WebSocket to that of HTTP/1.1, a 101 (Switching Protocols).
fn into_switching_protocols(mut head: ResponseHead, accept: &str) -> ResponseHead {
    head.status = StatusCode::SWITCHING_PROTOCOLS;
    forwarding::ask_upgrade(&mut head.fields, websocket::PROTOCOL);
    head.fields.set(Known::SecWebsocketAccept, accept.as_bytes());
    head
}
