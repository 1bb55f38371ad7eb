//! One request and response over a stream of a connection.
//!
//! Until the response begins, the attempt's own task sends the request body and reads the interim responses. A separate
//! task then sends the rest of the body, because a client that does not read the response may still send.
//!
//! **Limits**: [`HEAD_BYTES_MAX`] for the headers of a response with its interim responses, and for its trailers; sizes
//! of fields are those of HPACK.

use super::StreamLease;
use super::activity::StreamCount;
use super::body_sender::BodySender;
use crate::head::{Known, ResponseHead};
use crate::http1::{HEAD_BYTES_MAX, InterimSink};
use crate::replay::OutboundBody;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::JoinHandle;

/// The overhead of a field in HPACK (RFC 7541, section 4.1).
const FIELD_BYTES: usize = 32;

/// Why an exchange over HTTP/2 ended without a complete response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No part of the request was sent.
    #[error("the connection ended before the request was written: {0}")]
    Unwritten(#[source] h2::Error),
    /// The stream or its connection failed.
    #[error(transparent)]
    Stream(#[from] h2::Error),
    /// The server switched protocols.
    #[error("the server sent `101 Switching Protocols`, which is not valid over HTTP/2")]
    SwitchedProtocols,
    /// The head or the trailers are too large.
    #[error("the server's headers or trailers are larger than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
}

impl Error {
    /// Whether the server provably did not process the request.
    pub(crate) fn is_unprocessed(&self) -> bool {
        match self {
            Self::Unwritten(_) => true,
            Self::Stream(error) => is_unprocessed(error),
            Self::SwitchedProtocols | Self::HeadTooLong => false,
        }
    }
}

/// Whether the server provably did not process the request of a stream (RFC 9113, section 8.7): it refused the stream,
/// or its GOAWAY excludes the stream. The end of a connection is an I/O error, even after a GOAWAY.
#[must_use]
pub fn is_unprocessed(error: &h2::Error) -> bool {
    let refused = error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (refused || error.is_go_away())
}

impl StreamLease {
    /// Sends a request and waits for the head of its response; interim responses go to `interim`. Dropping the future
    /// resets the stream.
    pub(crate) async fn send(
        mut self,
        request: Request<OutboundBody>,
        interim: Option<InterimSink>,
    ) -> Result<(ResponseHead, Http2Body), Error> {
        poll_fn(|cx| self.sender.poll_ready(cx)).await.map_err(Error::Unwritten)?;
        let (head, body) = request.into_parts();
        let mut request = Request::from_parts(head, ());
        set_content_length(&mut request, &body);
        let has_none = body.is_end_stream();
        let (response, stream) = self.sender.send_request(request, has_none)?;
        let exchange = Exchange {
            sender: Some(self.sender),
            response,
            sending: BodySender::new(stream, body, has_none),
            interim,
            head_bytes: 0,
            count: self.stream,
        };
        exchange.finish().await
    }
}

struct Exchange {
    /// The sender, until the stream is open; the stream may wait for the server's limit of streams.
    sender: Option<SendRequest<Bytes>>,
    response: ResponseFuture,
    sending: BodySender,
    interim: Option<InterimSink>,
    /// The size of the interim responses so far, and then of the response's head.
    head_bytes: usize,
    count: StreamCount,
}

impl Exchange {
    async fn finish(mut self) -> Result<(ResponseHead, Http2Body), Error> {
        let response = poll_fn(|cx| self.poll_head(cx)).await?;
        let (head, stream) = response.into_parts();
        let head = ResponseHead::from(head);
        let sending = (!self.sending.is_done()).then(|| {
            let mut sending = self.sending;
            tokio::spawn(async move { poll_fn(|cx| sending.poll(cx)).await })
        });
        let body = Http2Body {
            left: announced_length(&head, &stream),
            stream,
            is_data_done: false,
            sending,
            count: self.count,
        };
        Ok((head, body))
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, Error>> {
        if let Some(sender) = &mut self.sender {
            // Only the stream knows whether it was opened before the connection ended.
            ready!(sender.poll_ready(cx)).ok();
            self.sender = None;
        }
        // The response may begin before the request is complete.
        let _ = self.sending.poll(cx);
        while let Some(interim) = ready!(self.response.poll_informational(cx)) {
            self.take_interim(interim?)?;
        }
        let response = ready!(Pin::new(&mut self.response).poll(cx))?;
        self.take_head(response.headers())?;
        Poll::Ready(Ok(response))
    }

    /// Counts the size of a head; fails beyond the limit.
    fn take_head(&mut self, fields: &HeaderMap) -> Result<(), Error> {
        self.count.note_heard();
        self.head_bytes += fields_bytes(fields);
        if self.head_bytes > HEAD_BYTES_MAX {
            self.sending.reset(Reason::ENHANCE_YOUR_CALM);
            return Err(Error::HeadTooLong);
        }
        Ok(())
    }

    /// Passes an interim response on, except "100 Continue", which concerns only this connection.
    fn take_interim(&mut self, interim: Response<()>) -> Result<(), Error> {
        self.take_head(interim.headers())?;
        match interim.status() {
            // RFC 9113, section 8.6.
            StatusCode::SWITCHING_PROTOCOLS => {
                self.sending.reset(Reason::PROTOCOL_ERROR);
                return Err(Error::SwitchedProtocols);
            }
            StatusCode::CONTINUE => {}
            _ => {
                if let Some(sink) = &self.interim {
                    sink.send(interim.into_parts().0.into());
                }
            }
        }
        Ok(())
    }
}

/// Sets `content-length` when the length is known and the client's own field was not forwarded.
fn set_content_length(request: &mut Request<()>, body: &OutboundBody) {
    let has_meaning =
        !matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT);
    let length = body.size_hint().exact().filter(|bytes| *bytes > 0 || has_meaning);
    if let Some(bytes) = length {
        request.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| bytes.into());
    }
}

/// Returns the size of a head with its status in HPACK.
fn fields_bytes(fields: &HeaderMap) -> usize {
    let text = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        name.as_str().len() + value.len() + FIELD_BYTES
    };
    FIELD_BYTES + fields.iter().map(text).sum::<usize>()
}

/// Returns the length of the response body, if known. h2 has already rejected contradicting lengths.
fn announced_length(head: &ResponseHead, stream: &RecvStream) -> Option<u64> {
    let length = head.fields.get_text(Known::ContentLength).and_then(|text| text.parse().ok());
    length.or_else(|| stream.is_end_stream().then_some(0))
}

/// The body of a response. Dropping it before its end resets the stream.
#[derive(Debug)]
pub(crate) struct Http2Body {
    stream: RecvStream,
    /// The number of remaining bytes, if known.
    left: Option<u64>,
    is_data_done: bool,
    sending: Option<JoinHandle<()>>,
    count: StreamCount,
}

impl Http2Body {
    /// Reads the next frame. Each piece returns its flow-control credit to the server.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if !self.is_data_done {
            if let Some(data) = ready!(self.stream.poll_data(cx)) {
                return Poll::Ready(self.taken(data).map(|data| data.map(Frame::data)));
            }
            self.is_data_done = true;
        }
        let trailers = match ready!(self.stream.poll_trailers(cx)) {
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            trailers => trailers?,
        };
        self.count.note_heard();
        if trailers.as_ref().is_some_and(|trailers| fields_bytes(trailers) > HEAD_BYTES_MAX) {
            return Poll::Ready(Some(Err(Error::HeadTooLong)));
        }
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn taken(&mut self, data: Result<Bytes, h2::Error>) -> Option<Result<Bytes, Error>> {
        let taken = data.and_then(|data| {
            self.stream.flow_control().release_capacity(data.len())?;
            Ok(data)
        });
        match taken {
            Ok(data) => {
                self.count.note_heard();
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                Some(Ok(data))
            }
            // The response is complete, and the server wants no more of the request (RFC 9113, section 8.1).
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Returns the number of remaining bytes, if known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        // A complete response does not end its request.
        if let Some(sending) = self.sending.take().filter(|_| !self.is_end()) {
            sending.abort();
        }
    }
}
