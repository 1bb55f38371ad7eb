//! The body of a response: whole or streamed.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of chunks that wait to be sent.
const WAITING_MAX: usize = 2;

/// A part of a streamed body.
#[derive(Debug)]
pub(crate) enum BodyPart {
    Chunk(Bytes),
    /// The end of the body. Without it the response is aborted, so that no client takes it for complete.
    End,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// [`None`] once it is sent.
    Whole(Option<Bytes>),
    Streamed(StreamedBody),
}

/// A streamed body.
#[derive(Debug)]
pub(crate) struct StreamedBody {
    parts: mpsc::Receiver<BodyPart>,
    is_ended: bool,
    /// Stops the sender when it is dropped.
    _waits: oneshot::Sender<()>,
}

/// A body that streams the parts from the channel.
pub(crate) fn stream(waits: oneshot::Sender<()>) -> (mpsc::Sender<BodyPart>, StreamedBody) {
    let (sender, parts) = mpsc::channel(WAITING_MAX);
    (sender, StreamedBody { parts, is_ended: false, _waits: waits })
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let streamed = match self.get_mut() {
            Self::Whole(bytes) => return Poll::Ready(bytes.take().map(Frame::data).map(Ok)),
            Self::Streamed(streamed) => streamed,
        };
        if streamed.is_ended {
            return Poll::Ready(None);
        }
        let part = ready!(streamed.parts.poll_recv(cx));
        streamed.is_ended = !matches!(part, Some(BodyPart::Chunk(_)));
        Poll::Ready(match part {
            Some(BodyPart::Chunk(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(BodyPart::End) => None,
            None => Some(Err(io::Error::other("the response was aborted"))),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Streamed(streamed) => streamed.is_ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Streamed(_) => SizeHint::default(),
        }
    }
}
