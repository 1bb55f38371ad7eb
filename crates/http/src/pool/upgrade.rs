//! Upgrades: a request for another protocol gets an HTTP/1.1 connection of its own, which does not return to the pool.

use super::{ExchangeError, Exchanged, Pool, ResponseBody};
use crate::clock::Clock;
use crate::connect::Offer;
use crate::outbound_request::OutboundRequest;
use hyper_util::rt::TokioIo;

impl Pool {
    pub(super) async fn exchange_upgrade(
        &self,
        request: OutboundRequest,
        clock: &Clock,
    ) -> Result<Exchanged, ExchangeError> {
        let (connected, counted) = self.open(clock, Offer::Http1).await?;
        let phases = Some(connected.phases);
        let io = TokioIo::new(connected.stream);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(|_| self.not_sent())?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "upgraded connection ended");
            }
            drop(counted);
        });
        let response = sender.send_request(request.into_request()).await;
        let mut response = response.map_err(|source| self.broken(source))?;
        let upgrade = hyper::upgrade::on(&mut response);
        let (head, body) = response.into_parts();
        Ok(Exchanged { head: head.into(), body: ResponseBody::upgrade(body, upgrade), phases })
    }
}
