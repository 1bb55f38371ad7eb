//! Upgraded connections: client and replica speak another protocol than HTTP, and their bytes pass unchanged.

use crate::leaf::LeafPermit;
use crate::metrics::{ClientTimeout, ListenerMetrics};
use crate::response::Completion;
use bytes::Bytes;
use curtail_http::pool::ServerTunnel;
use curtail_http::progress::ProgressTimer;
use curtail_http::stream::{ByteStream, ResetAtDrop};
use curtail_http::write_timeout::{WriteTimeoutStream, is_write_timeout};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use tokio::io::AsyncWriteExt;

/// The replica's side of an upgraded connection, until the client has the response.
#[derive(Debug)]
pub(crate) struct Tunnel {
    replica: ServerTunnel,
    completion: Completion,
    /// The permit at a leaf, where the request is in service until the tunnel is closed.
    permit: Option<LeafPermit>,
    /// Ready when no byte has passed in either direction for too long; absent: there is no limit.
    idle: Option<ProgressTimer>,
}

impl Tunnel {
    pub(crate) const fn new(
        replica: ServerTunnel,
        completion: Completion,
        permit: Option<LeafPermit>,
        idle: Option<ProgressTimer>,
    ) -> Self {
        Self { replica, completion, permit, idle }
    }

    /// Carries bytes both ways until both sides have closed or the tunnel is idle for too long. `prefix` are bytes
    /// already read from the client.
    pub(crate) async fn carry<F: Fn() + Unpin, S: ByteStream + ResetAtDrop>(
        mut self,
        (mut client, prefix): (WriteTimeoutStream<F, S>, Bytes),
        metrics: &ListenerMetrics,
    ) {
        let moved = client.moved();
        let mut idle = self.idle.take();
        let is_idle = poll_fn(|cx| match &mut idle {
            Some(timer) => timer.poll(cx, moved.load(Ordering::Relaxed)),
            None => Poll::Pending,
        });
        let carried = async {
            let mut replica = self.replica.open().await?;
            replica.write_all(&prefix).await?;
            tokio::io::copy_bidirectional(&mut client, &mut replica).await
        };
        let carried = tokio::select! {
            biased;
            carried = carried => Some(carried),
            () = is_idle => None,
        };
        let (from_client, to_client) = client.bytes();
        self.completion.tunneled(from_client + prefix.len() as u64, to_client);
        match carried {
            Some(carried) => {
                if let Err(error) = &carried {
                    tracing::debug!(%error, "upgraded connection failed");
                }
                match carried {
                    Err(error) if is_write_timeout(&error) => {
                        self.completion.abandon("client_slow")
                    }
                    Err(_) if client.has_failed() => self.completion.abandon("client_gone"),
                    carried => {
                        self.completion.end(carried.is_ok());
                        LeafPermit::finish(self.permit.take());
                    }
                }
            }
            None => {
                metrics.timed_out.add(&ClientTimeout::StreamIdle, 1);
                self.completion.time_out();
            }
        }
    }
}
