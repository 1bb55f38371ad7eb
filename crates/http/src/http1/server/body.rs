//! The body of a client's request, and the interim responses to it.
//!
//! Nearly always, an attempt in the connection's own task reads the body. Once the response of an HTTP/2 server has
//! begun, a separate task reads the body.

use super::super::Error;
use super::super::framing::Framing;
use super::super::inbound::Inbound;
use super::response::write_interim;
use crate::forwarding::remove_hop_by_hop;
use crate::head::ResponseHead;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// The interim response to `expect: 100-continue` (RFC 9110, section 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Maximum number of bytes of an unneeded body that are read to keep the connection.
const UNWANTED_BYTES_MAX: usize = 64 << 10;

/// Maximum size of interim responses that the client has not read; further interim responses are dropped.
const INTERIM_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct SharedConnection {
    pub(super) inbound: Inbound,
    /// The number of the request in progress, from 1. Only the body of this request may be read.
    request: u64,
    /// Whether the client waits for "100 Continue" before it sends its body.
    is_continue_expected: bool,
    interim: Vec<u8>,
    /// Whether interim responses are still allowed, because the response has not begun.
    can_send_interim: bool,
}

impl SharedConnection {
    pub(super) const fn new(inbound: Inbound) -> Self {
        Self {
            inbound,
            request: 0,
            is_continue_expected: false,
            interim: Vec::new(),
            can_send_interim: false,
        }
    }

    /// Begins a request whose head was read; returns the number of the request.
    pub(super) const fn begin_request(&mut self, is_continue_expected: bool) -> u64 {
        self.is_continue_expected = is_continue_expected;
        self.can_send_interim = true;
        self.request += 1;
        self.request
    }

    /// Reads the next frame of the body; first sends "100 Continue" if the client waits for it.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.is_continue_expected && self.inbound.read.is_empty() {
            self.is_continue_expected = false;
            self.interim.extend_from_slice(CONTINUE);
        }
        ready!(self.poll_interim(cx));
        self.inbound.poll_frame(cx)
    }

    pub(super) fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.interim.is_empty() {
            return Poll::Ready(());
        }
        let mut stream = pin!(&mut self.inbound.stream);
        while !self.interim.is_empty() {
            match ready!(stream.as_mut().poll_write(cx, &self.interim)) {
                Ok(written @ 1..) => drop(self.interim.drain(..written)),
                // A connection that is broken says so when it is read.
                Ok(_) | Err(_) => self.interim.clear(),
            }
        }
        stream.poll_flush(cx).map(drop)
    }

    /// Ends the interim responses, because the response begins. Returns the unwritten interim responses, which precede
    /// the response; "100 Continue" is no longer needed.
    pub(super) fn end_interim(&mut self) -> Vec<u8> {
        self.is_continue_expected = false;
        self.can_send_interim = false;
        std::mem::take(&mut self.interim)
    }

    /// Whether the body comes in chunks, and has not ended.
    pub(super) const fn has_chunks(&self) -> bool {
        matches!(self.inbound.framing, Framing::Chunked(_))
    }

    /// Whether the rest of the body is known to be short enough to be read although nobody needs it, and comes without
    /// "100 Continue". Otherwise the response announces that the connection closes (RFC 9112, section 9.6).
    pub(super) fn may_discard_rest(&self) -> bool {
        let is_short = match self.inbound.framing {
            Framing::Length(bytes) => bytes <= UNWANTED_BYTES_MAX as u64,
            Framing::Ended => true,
            Framing::Chunked(_) | Framing::UntilClosed | Framing::Malformed => false,
        };
        let is_client_waiting = self.is_continue_expected
            && !self.inbound.framing.is_end()
            && self.inbound.read.is_empty();
        is_short && !is_client_waiting
    }

    /// Ends the request in progress: a reader of its body gets no more of it.
    pub(super) const fn end_request(&mut self) {
        self.request += 1;
    }

    /// Discards the rest of a body, of which `discarded` bytes were discarded already. Ready when the body has ended
    /// (true), or when it is too long, broken or malformed.
    pub(super) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        discarded: &mut usize,
    ) -> Poll<bool> {
        while !self.inbound.framing.is_end() && *discarded < UNWANTED_BYTES_MAX {
            let Some(Ok(frame)) = ready!(self.inbound.poll_frame(cx)) else { break };
            *discarded += frame.data_ref().map_or(0, Bytes::len);
        }
        Poll::Ready(self.inbound.framing.is_end())
    }
}

/// Receives the interim responses to a request over HTTP/1.1.
#[derive(Clone, Debug)]
pub struct InterimSink {
    shared: Arc<Mutex<SharedConnection>>,
}

impl InterimSink {
    pub(super) fn new(shared: &Arc<Mutex<SharedConnection>>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    /// Queues an interim response. The caller runs in the connection's own task, which writes it.
    pub fn send(&self, mut head: ResponseHead) {
        let mut shared = lock(&self.shared);
        if !shared.can_send_interim {
            return;
        }
        if shared.interim.len() >= INTERIM_BYTES_MAX {
            tracing::debug!(
                "dropped an interim response: the client does not read the ones before it"
            );
            return;
        }
        remove_hop_by_hop(&mut head.fields);
        write_interim(&mut shared.interim, &head);
    }
}

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    shared: Arc<Mutex<SharedConnection>>,
    request: u64,
}

impl RequestBody {
    pub(super) fn new(shared: &Arc<Mutex<SharedConnection>>, request: u64) -> Self {
        Self { shared: Arc::clone(shared), request }
    }
}

#[cfg(test)]
impl RequestBody {
    /// Returns the body of the request that a client sends over `stream`.
    pub(crate) async fn on(stream: tokio::net::TcpStream) -> Self {
        let stream = crate::stream::Stream::Plain(stream);
        let mut inbound = Inbound::new(stream, bytes::BytesMut::new());
        let mut heads = super::request::RequestHeadReader::default();
        let head = loop {
            if let Some(head) = heads.take(&mut inbound.read, 64 << 10).expect("a request") {
                break head;
            }
            let read = std::future::poll_fn(|cx| inbound.poll_read(cx)).await;
            assert_ne!(read.expect("a connection"), 0, "the client has gone");
        };
        inbound.begin_body(head.framing, &head.head.fields);
        let shared = Arc::new(Mutex::new(SharedConnection::new(inbound)));
        let request = lock(&shared).begin_request(head.is_continue_expected);
        Self::new(&shared, request)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut shared = lock(&self.shared);
        if shared.request != self.request {
            return Poll::Ready(Some(Err(Error::Incomplete(None))));
        }
        shared.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        let shared = lock(&self.shared);
        shared.request == self.request && shared.inbound.framing.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.shared).inbound.framing.size_hint()
    }
}

/// Locks the connection. No code panics while it holds the lock.
pub(super) fn lock(shared: &Mutex<SharedConnection>) -> MutexGuard<'_, SharedConnection> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
