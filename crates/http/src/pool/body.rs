//! The body of a response, which keeps its lease until its end.

use super::ResponseError;
use super::http1::Http1Body;
use crate::http2::{self, DuplexStream};
use crate::stream::ByteStream;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a response. If the body is dropped before its end, the HTTP/1.1 connection closes, or the HTTP/2 stream
/// is reset.
#[derive(Debug)]
pub struct ResponseBody(Source);

#[derive(Debug)]
enum Source {
    Http1(Http1Body),
    Http2(http2::ResponseBody),
    /// The body of a server that may have declined an upgrade.
    Upgrade(Incoming, OnUpgrade),
    /// No body: the stream carries a WebSocket.
    WebSocket(DuplexStream),
}

/// The server's side of an upgraded connection.
#[derive(Debug)]
pub enum ServerTunnel {
    /// A connection that was HTTP/1.1.
    Http1(OnUpgrade),
    /// A stream of an HTTP/2 connection.
    Http2(DuplexStream),
}

impl ServerTunnel {
    /// Waits for the byte stream.
    ///
    /// # Errors
    /// When the connection broke.
    pub async fn open(self) -> io::Result<Box<dyn ByteStream>> {
        Ok(match self {
            Self::Http1(upgrade) => {
                Box::new(TokioIo::new(upgrade.await.map_err(io::Error::other)?))
            }
            Self::Http2(stream) => Box::new(stream),
        })
    }
}

impl From<Http1Body> for ResponseBody {
    fn from(body: Http1Body) -> Self {
        Self(Source::Http1(body))
    }
}

impl From<http2::ResponseBody> for ResponseBody {
    fn from(body: http2::ResponseBody) -> Self {
        Self(Source::Http2(body))
    }
}

impl From<DuplexStream> for ResponseBody {
    fn from(stream: DuplexStream) -> Self {
        Self(Source::WebSocket(stream))
    }
}

impl ResponseBody {
    pub(super) const fn upgrade(body: Incoming, upgrade: OnUpgrade) -> Self {
        Self(Source::Upgrade(body, upgrade))
    }

    /// Returns the upgraded connection, if an upgrade was requested.
    #[must_use]
    pub fn into_upgrade(self) -> Option<ServerTunnel> {
        match self.0 {
            Source::Upgrade(_, upgrade) => Some(ServerTunnel::Http1(upgrade)),
            Source::WebSocket(stream) => Some(ServerTunnel::Http2(stream)),
            Source::Http1(_) | Source::Http2(_) => None,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match &mut self.0 {
            Source::Http1(body) => body.poll_frame(cx).map_err(ResponseError::from),
            Source::Http2(body) => body.poll_frame(cx).map_err(ResponseError::from),
            Source::Upgrade(body, _) => Pin::new(body).poll_frame(cx).map_err(ResponseError::from),
            Source::WebSocket(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(body) => body.is_end(),
            Source::Http2(body) => body.is_end(),
            Source::Upgrade(body, _) => body.is_end_stream(),
            Source::WebSocket(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(body) => body.size_hint(),
            Source::Http2(body) => body.size_hint(),
            Source::Upgrade(body, _) => body.size_hint(),
            Source::WebSocket(_) => SizeHint::with_exact(0),
        }
    }
}
