//! The body of a response, which keeps its lease until its end.

use super::ResponseError;
use super::http1::Http1Body;
use crate::http2;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
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

impl ResponseBody {
    pub(super) const fn upgrade(body: Incoming, upgrade: OnUpgrade) -> Self {
        Self(Source::Upgrade(body, upgrade))
    }

    /// Returns the upgraded connection, if an upgrade was requested.
    #[must_use]
    pub fn into_upgrade(self) -> Option<OnUpgrade> {
        match self.0 {
            Source::Upgrade(_, upgrade) => Some(upgrade),
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
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Http1(body) => body.is_end(),
            Source::Http2(body) => body.is_end(),
            Source::Upgrade(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Http1(body) => body.size_hint(),
            Source::Http2(body) => body.size_hint(),
            Source::Upgrade(body, _) => body.size_hint(),
        }
    }
}
