//! The body of a client's request, read from its connection by whoever needs it: nearly always an attempt
//! in the connection's own task, over HTTP/2 that of the connection to the replica.

use super::super::Error;
use super::super::inbound::Inbound;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// What a client waits for that has said `expect: 100-continue` (RFC 9110, section 10.1.1).
const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// So much of a body that nobody wants is read so that the connection can be kept.
const UNWANTED_BYTES_MAX: usize = 64 << 10;

/// A connection with a client.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) inbound: Inbound,
    /// The request in progress, counted from one: its body alone may be read.
    request: u64,
    /// What is still to be said before the client sends its body.
    go_on: &'static [u8],
}

impl Asking {
    pub(super) const fn new(inbound: Inbound) -> Self {
        Self { inbound, request: 0, go_on: b"" }
    }

    /// The head of a request was read; returns the request's number.
    pub(super) const fn begin_request(&mut self, waits_to_go_on: bool) -> u64 {
        self.go_on = if waits_to_go_on { GO_ON } else { b"" };
        self.request += 1;
        self.request
    }

    /// The next frame of the body. A client that waits for a word before it sends it is given the word.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        while !self.go_on.is_empty() && self.inbound.read.is_empty() {
            match pin!(&mut self.inbound.stream).poll_write(cx, self.go_on) {
                Poll::Ready(Ok(written @ 1..)) => self.go_on = &self.go_on[written..],
                // A connection that is broken says so when it is read.
                Poll::Ready(_) => self.go_on = b"",
                Poll::Pending => return Poll::Pending,
            }
        }
        self.inbound.poll_frame(cx)
    }

    /// The answer begins: what is left of a word that was begun stands before it, and one that was not
    /// said is not needed any more.
    pub(super) fn take_begun_word(&mut self) -> &'static [u8] {
        let left = std::mem::take(&mut self.go_on);
        if left.len() < GO_ON.len() { left } else { b"" }
    }

    /// Takes what is there of a body that nobody wants; returns whether it has ended with that.
    pub(super) fn pass_over(&mut self, cx: &mut Context<'_>) -> bool {
        // Whoever still reads it is late.
        self.request += 1;
        let mut unwanted_bytes = 0;
        while !self.inbound.framing.is_end() && unwanted_bytes < UNWANTED_BYTES_MAX {
            let Poll::Ready(Some(Ok(frame))) = self.inbound.poll_frame(cx) else { break };
            unwanted_bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        self.inbound.framing.is_end()
    }
}

/// The body of a request.
#[derive(Debug)]
pub(crate) struct RequestBody {
    asking: Arc<Mutex<Asking>>,
    /// The request that it belongs to.
    request: u64,
}

impl RequestBody {
    pub(super) fn new(asking: &Arc<Mutex<Asking>>, request: u64) -> Self {
        Self { asking: Arc::clone(asking), request }
    }
}

#[cfg(test)]
impl RequestBody {
    /// The body of the request that a client sends there.
    pub(crate) async fn on(stream: tokio::net::TcpStream) -> Self {
        let stream = crate::stream::Stream::Plain(stream);
        let mut inbound = Inbound::new(stream, bytes::BytesMut::new());
        let mut heads = super::request::HeadReader::default();
        let head = loop {
            if let Some(head) = heads.take(&mut inbound.read, 64 << 10).expect("a request") {
                break head;
            }
            let read = std::future::poll_fn(|cx| inbound.poll_read(cx)).await;
            assert_ne!(read.expect("a connection"), 0, "the client has gone");
        };
        inbound.begin_body(head.framing);
        let asking = Arc::new(Mutex::new(Asking::new(inbound)));
        let request = lock(&asking).begin_request(head.waits_to_go_on);
        Self::new(&asking, request)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut asking = lock(&self.asking);
        if asking.request != self.request {
            return Poll::Ready(Some(Err(Error::CutShort(None))));
        }
        asking.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        let asking = lock(&self.asking);
        asking.request == self.request && asking.inbound.framing.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.asking).inbound.framing.size_hint()
    }
}

/// Nothing panics while it holds the lock.
pub(super) fn lock(asking: &Mutex<Asking>) -> MutexGuard<'_, Asking> {
    asking.lock().unwrap_or_else(PoisonError::into_inner)
}
