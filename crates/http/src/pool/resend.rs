//! Exchanges over HTTP/2, which are sent again when the server provably did not process them.
//!
//! A server ends a connection with a GOAWAY, which excludes the streams that it will not process, or refuses one stream
//! with `REFUSED_STREAM` (RFC 9113, sections 6.8 and 8.7). Both are usual: a server may limit the requests of each
//! connection, and the client does not know the server's limit of streams before its SETTINGS arrive.
//!
//! The request opens a connection and has its first stream. Otherwise the requests that one GOAWAY excludes would meet on
//! the next connection, and most of them would be excluded again. A server that refuses a stream may be about to close
//! the connection. While connection attempts fail, the request uses what a new request would use.
//!
//! A server may lower its limit of streams after a request has leased one. The request then leases one as a new request.
//!
//! **Limits**: [`RESENDS_MAX`], [`RESENDS_REFUSED_MAX`]; only a body that the replay buffer keeps; the limits of the pool.

use super::http2::Http2Lease;
use super::{ExchangeError, NewLease, Pool, PoolResponse};
use crate::clock::Clock;
use crate::connection_counts::ConnectPhases;
use crate::http2;
use crate::outbound_request::OutboundRequest;
use std::sync::Arc;

/// Maximum number of times that one exchange is sent again after a GOAWAY, and leases again because no stream was free.
pub(super) const RESENDS_MAX: usize = 3;

/// Maximum number of times that one exchange is sent again after a refused stream, which may be how the server reacts to
/// overload.
const RESENDS_REFUSED_MAX: usize = 1;

/// The resends of one exchange, by cause.
#[derive(Default)]
struct Resends {
    /// After the server refused the request.
    refused: usize,
    /// After the server lowered its limit of streams.
    without_stream: usize,
}

impl Pool {
    /// Sends a request over HTTP/2, and again if the server did not process it.
    pub(super) async fn exchange_http2(
        self: &Arc<Self>,
        (mut lease, mut phases): (Http2Lease, Option<ConnectPhases>),
        mut request: Box<OutboundRequest>,
        clock: &Clock,
    ) -> Result<PoolResponse, ExchangeError> {
        let mut resends = Resends::default();
        loop {
            let error = match self.http2.exchange(lease, &mut request).await {
                Ok((head, body)) => return Ok(PoolResponse { head, body, phases }),
                Err(error) => error,
            };
            let is_refused = error.is_refused();
            self.check_resend(error, &mut resends, &request)?;
            let new;
            (new, phases) = if is_refused {
                self.lease_for_resend(clock).await?
            } else {
                self.lease_as_new(clock).await?
            };
            lease = match new {
                NewLease::Http2(lease) => lease,
                NewLease::Http1(lease) => {
                    return self.exchange_http1((lease, phases), request, clock).await;
                }
            };
        }
    }

    /// Whether a request may be sent again after this error.
    fn check_resend(
        &self,
        error: http2::Error,
        resends: &mut Resends,
        request: &OutboundRequest,
    ) -> Result<(), ExchangeError> {
        if matches!(error, http2::Error::NoStream) && resends.without_stream < RESENDS_MAX {
            resends.without_stream += 1;
            return Ok(());
        }
        let is_reset = matches!(error, http2::Error::Reset(_));
        let resends_max = if is_reset { RESENDS_REFUSED_MAX } else { RESENDS_MAX };
        if !error.is_refused() || resends.refused >= resends_max {
            return Err(self.failed(error.into()));
        }
        self.counters.streams_refused.add(1);
        if request.body.is_lost() {
            let server = self.server();
            return Err(ExchangeError::UnprocessedBody { server, source: error });
        }
        resends.refused += 1;
        tracing::debug!(server = self.server(), %error, resends = resends.refused, "sending a request again that the server did not process");
        Ok(())
    }

    async fn lease_for_resend(
        self: &Arc<Self>,
        clock: &Clock,
    ) -> Result<(NewLease, Option<ConnectPhases>), ExchangeError> {
        let waiting = self.count_waiting()?;
        self.http2.remove_closed();
        if let Some(attempt) = self.attempts.begin_for_first_stream(&*self.http2) {
            return self.open_for_all(attempt, clock).await;
        }
        drop(waiting);
        self.lease_as_new(clock).await
    }

    /// Leases a stream or a connection as for a new request.
    async fn lease_as_new(
        self: &Arc<Self>,
        clock: &Clock,
    ) -> Result<(NewLease, Option<ConnectPhases>), ExchangeError> {
        match self.lease_http2(clock.now(), clock) {
            Some(lease) => Ok((NewLease::Http2(lease), None)),
            None => self.connect(clock, false).await,
        }
    }
}
