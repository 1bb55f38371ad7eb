//! The body of a response: whole or streamed.

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::Frame;
use std::io;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of chunks that wait to be sent.
const WAITING_MAX: usize = 2;

/// A part of a streamed body.
#[derive(Debug)]
pub(crate) enum BodyPart {
    Chunk(Bytes),
    /// The end of the body. Without this part the response is aborted, so that no client takes it for complete.
    End,
}

/// The body of a response: whole, or streamed.
pub(crate) type ResponseBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, io::Error>>;

/// Creates a body that streams parts from a channel; the body drops `waits` when it ends or is dropped.
pub(crate) fn stream(waits: oneshot::Sender<()>) -> (mpsc::Sender<BodyPart>, ResponseBody) {
    let (sender, parts) = mpsc::channel(WAITING_MAX);
    let frames = unfold(Some((parts, waits)), |state| async {
        let (mut parts, waits) = state?;
        match parts.recv().await {
            Some(BodyPart::Chunk(bytes)) => Some((Ok(Frame::data(bytes)), Some((parts, waits)))),
            Some(BodyPart::End) => None,
            None => Some((Err(io::Error::other("the response was aborted")), None)),
        }
    });
    (sender, Either::Right(StreamBody::new(frames).boxed_unsync()))
}
