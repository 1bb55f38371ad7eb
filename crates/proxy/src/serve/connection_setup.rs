//! The setup of a connection, before the first request: the PROXY header, and the time limit of each handshake.

use crate::config::PrecedingProxies;
use crate::listen::Listener;
use crate::metrics::{ClientTimeout, ProxyHeaderFailure};
use curtail_http::accept::WarnLimit;
use curtail_http::drain::LAST_MOMENT;
use curtail_http::proxy_protocol::{self, ConnectionAddresses, ProxyHeaderError};
use curtail_units::Duration;
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// A connection that has just been accepted.
#[derive(Clone, Copy)]
pub(super) struct ConnectionSetup<'a> {
    pub(super) listener: &'a Listener,
    pub(super) timeout: Duration,
    /// Absent on a Unix socket.
    pub(super) peer: Option<SocketAddr>,
}

impl ConnectionSetup<'_> {
    /// The ends of the client's connection, by its PROXY header if the listener expects one; those of a Unix socket are
    /// absent. [`None`] when the connection has to close.
    pub(super) async fn addresses(
        &self,
        stream: &mut TcpStream,
    ) -> Option<Option<ConnectionAddresses>> {
        let own = match self.peer {
            Some(client) => Some(ConnectionAddresses { client, server: stream.local_addr().ok()? }),
            None => None,
        };
        let Some(proxies) = &self.listener.proxy_protocol else { return Some(own) };
        // Boxed, because few connections have a header.
        let header = Box::pin(self.proxy_header(stream, proxies)).await?;
        Some(header.or(own))
    }

    async fn proxy_header(
        &self,
        stream: &mut TcpStream,
        proxies: &PrecedingProxies,
    ) -> Option<Option<ConnectionAddresses>> {
        if !proxies.contain(self.peer.map(|peer| peer.ip().to_canonical())) {
            let why = "the address is not one of proxy_protocol.from";
            return self.reject(ProxyHeaderFailure::Untrusted, why);
        }
        match self.in_time(proxy_protocol::read_header(stream)).await? {
            Ok(addresses) => Some(addresses),
            Err(error) => {
                let reason = match error {
                    ProxyHeaderError::Absent => ProxyHeaderFailure::Absent,
                    ProxyHeaderError::Malformed(_) => ProxyHeaderFailure::Malformed,
                    ProxyHeaderError::Incomplete(_) => ProxyHeaderFailure::Incomplete,
                };
                self.reject(reason, error)
            }
        }
    }

    fn reject<T>(&self, reason: ProxyHeaderFailure, why: impl Display) -> Option<T> {
        static WARNED: WarnLimit = WarnLimit::new();
        self.listener.metrics.proxy_header_failed.add(&reason, 1);
        let (listener, peer) = (&self.listener.name, self.peer_text());
        // A load balancer that only connects checks the health of the proxy.
        if reason != ProxyHeaderFailure::Incomplete && WARNED.is_due() {
            tracing::warn!(listener, peer, %why, "connection closed; further ones are counted, and logged at level debug for ten seconds");
        } else {
            tracing::debug!(listener, peer, %why, "connection closed");
        }
        None
    }

    /// The other end of the connection, for logs; a client of a Unix socket has no address.
    fn peer_text(&self) -> String {
        self.peer.map_or_else(|| "unix:".to_owned(), |peer| peer.to_string())
    }

    /// Runs a handshake within the timeout, or [`LAST_MOMENT`] when idle connections have to close; [`None`] after that.
    pub(super) async fn in_time<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        let closing = self.listener.drain.wait_closing();
        let stopped = async {
            closing.await;
            tokio::time::sleep(LAST_MOMENT.into()).await;
        };
        tokio::select! {
            biased;
            done = tokio::time::timeout(self.timeout.into(), handshake) => {
                if done.is_err() {
                    self.listener.metrics.timed_out.add(&ClientTimeout::Header, 1);
                    let peer = self.peer_text();
                    tracing::debug!(peer, "client closed: no PROXY header, TLS handshake or request within limits.header_timeout");
                }
                done.ok()
            }
            () = stopped => None,
        }
    }
}
