//! Upgraded connections: client and replica speak another protocol than HTTP, and their bytes pass unchanged.

use crate::client::CLIENT_SLOW;
use crate::leaf::LeafPermit;
use crate::metrics::{ClientTimeout, ListenerMetrics};
use crate::response::Completion;
use bytes::Bytes;
use curtail_http::pool::ServerTunnel;
use curtail_http::progress::ProgressTimer;
use curtail_http::stream::{ByteStream, ClientStream};
use curtail_http::write_timeout::{WriteTimeoutStream, is_write_timeout};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// The interval of checks for a client that has gone after the end of its direction, which no read finds out.
const GONE_INTERVAL: Duration = Duration::from_secs(5);

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
    pub(crate) async fn carry<F: Fn() + Unpin, S: ByteStream + ClientStream>(
        self,
        (client, prefix): (WriteTimeoutStream<F, S>, Bytes),
        metrics: &ListenerMetrics,
    ) {
        let moved = client.moved();
        let Self { replica, mut completion, mut permit, mut idle } = self;
        let is_idle = poll_fn(|cx| match &mut idle {
            Some(timer) => timer.poll(cx, moved.load(Ordering::Relaxed)),
            None => Poll::Pending,
        });
        let client = Mutex::new(client);
        let prefix_len = prefix.len() as u64;
        let mut bytes = TunnelBytes { client: &client, prefix_len, completion: &mut completion };
        let carried = async {
            let mut replica = replica.open().await?;
            replica.write_all(&prefix).await?;
            tokio::io::copy_bidirectional(&mut Shared(&client), &mut replica).await
        };
        let gone = async {
            loop {
                tokio::time::sleep(GONE_INTERVAL).await;
                if lock(&client).is_gone() {
                    return;
                }
            }
        };
        let carried = tokio::select! {
            biased;
            carried = carried => Carried::Ended(carried.map(|_| ())),
            () = is_idle => Carried::Idle,
            () = gone => Carried::ClientGone,
        };
        bytes.count();
        let TunnelBytes { completion, .. } = &mut bytes;
        match carried {
            Carried::Ended(carried) => {
                if let Err(error) = &carried {
                    tracing::debug!(%error, "upgraded connection failed");
                }
                match carried {
                    Err(error) if is_write_timeout(&error) => completion.abandon(CLIENT_SLOW),
                    Err(_) if lock(&client).has_failed() => completion.lose_client(),
                    carried => {
                        match carried {
                            Ok(()) => completion.complete(),
                            Err(error) => completion.break_off(&error),
                        }
                        LeafPermit::finish(permit.take());
                    }
                }
            }
            Carried::ClientGone => completion.lose_client(),
            Carried::Idle => {
                metrics.timed_out.add(&ClientTimeout::StreamIdle, 1);
                completion.time_out();
            }
        }
    }
}

/// How the bytes of an upgraded connection came to their end.
enum Carried {
    /// Both sides have closed, or one has failed.
    Ended(io::Result<()>),
    ClientGone,
    Idle,
}

/// Counts the bytes of an upgraded connection, also when it is dropped because the proxy stops.
struct TunnelBytes<'a, F: Fn() + Unpin, S: ByteStream + ClientStream> {
    client: &'a Mutex<WriteTimeoutStream<F, S>>,
    /// The bytes that were read from the client before.
    prefix_len: u64,
    completion: &'a mut Completion,
}

impl<F: Fn() + Unpin, S: ByteStream + ClientStream> TunnelBytes<'_, F, S> {
    /// Sets the bytes of both directions.
    fn count(&mut self) {
        let (from_client, to_client) = lock(self.client).bytes();
        self.completion.tunneled(self.prefix_len + from_client, to_client);
    }
}

impl<F: Fn() + Unpin, S: ByteStream + ClientStream> Drop for TunnelBytes<'_, F, S> {
    fn drop(&mut self) {
        self.count();
    }
}

/// A stream that two futures of one task share: one carries its bytes, the other one looks at its state.
struct Shared<'a, S>(&'a Mutex<S>);

fn lock<S>(stream: &Mutex<S>) -> MutexGuard<'_, S> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: AsyncRead + Unpin> AsyncRead for Shared<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(self.0)).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Shared<'_, S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(self.0)).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(self.0)).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        lock(self.0).is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(self.0)).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(self.0)).poll_shutdown(cx)
    }
}
