//! Sends the body of a request over a stream.

use crate::replay::OutboundBody;
use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

#[derive(Debug)]
pub(super) struct BodySender {
    stream: SendStream<Bytes>,
    body: OutboundBody,
    /// A piece that waits for flow-control credit of the server. Credit is requested only for a piece, because other
    /// streams cannot use the credit that this stream reserves.
    piece: Option<Bytes>,
    is_done: bool,
}

impl BodySender {
    pub(super) const fn new(stream: SendStream<Bytes>, body: OutboundBody, is_done: bool) -> Self {
        Self { stream, body, piece: None, is_done }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    pub(super) fn reset(&mut self, reason: Reason) {
        self.stream.send_reset(reason);
        self.is_done = true;
    }

    /// Sends as much of the body as the server accepts; ready at the end of the body. A failed stream reports its error
    /// on the receiving side.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_done {
            // The server may want no more of the request.
            self.is_done = self.stream.poll_reset(cx).is_ready();
            if self.is_done {
                break;
            }
            if let Some(piece) = &mut self.piece {
                if self.stream.capacity() == 0 {
                    self.is_done = !matches!(ready!(self.stream.poll_capacity(cx)), Some(Ok(_)));
                    continue;
                }
                let sent = self.stream.send_data(std::mem::take(piece), false);
                self.piece = None;
                self.is_done = sent.is_err();
                continue;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        // The rest stays here until h2 grants more room.
                        self.stream.reserve_capacity(1);
                        self.piece = Some(data);
                    }
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        // Trailers on a stream that has ended are lost, which does no harm.
                        self.stream.send_trailers(trailers).ok();
                        self.is_done = true;
                    }
                },
                Some(Err(error)) => {
                    tracing::debug!(%error, "failed to send the whole request body");
                    self.reset(Reason::INTERNAL_ERROR);
                }
                None => {
                    self.stream.send_data(Bytes::new(), true).ok();
                    self.is_done = true;
                }
            }
        }
        Poll::Ready(())
    }
}
