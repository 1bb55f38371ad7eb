//! The body of a response: whole, or piece by piece while it is made.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::{mpsc, oneshot};

/// So many pieces wait to be sent.
const WAITING_MAX: usize = 2;

/// A part of a body that is made while it is sent.
#[derive(Debug)]
pub(crate) enum Part {
    Piece(Bytes),
    /// Nothing follows. Without it the response is broken off, so that nobody takes it for a whole one.
    End,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// Nothing is left where it was sent.
    Whole(Option<Bytes>),
    Made(MadeBody),
}

/// A body that is made while it is sent.
#[derive(Debug)]
pub(crate) struct MadeBody {
    parts: mpsc::Receiver<Part>,
    is_ended: bool,
    /// Whoever makes it stops when this is dropped.
    _waits: oneshot::Sender<()>,
}

/// A body whose parts are sent into the channel.
pub(crate) fn made(waits: oneshot::Sender<()>) -> (mpsc::Sender<Part>, MadeBody) {
    let (sender, parts) = mpsc::channel(WAITING_MAX);
    (sender, MadeBody { parts, is_ended: false, _waits: waits })
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let made = match self.get_mut() {
            Self::Whole(bytes) => return Poll::Ready(bytes.take().map(Frame::data).map(Ok)),
            Self::Made(made) => made,
        };
        if made.is_ended {
            return Poll::Ready(None);
        }
        let part = ready!(made.parts.poll_recv(cx));
        made.is_ended = !matches!(part, Some(Part::Piece(_)));
        Poll::Ready(match part {
            Some(Part::Piece(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Part::End) => None,
            None => Some(Err(io::Error::other("the response was broken off"))),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Made(made) => made.is_ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Made(_) => SizeHint::default(),
        }
    }
}
