//! The tasks of one client's HTTP/2 streams, and the write timeout of their responses.
//!
//! hyper reads a piece of the body and then waits for the client to grant room, without polling the body: a client that
//! grants none would hold the stream for ever. The body ([`PacedBody`]) therefore records each poll in a task-local.
//! Our task wraps hyper's and ends at the timeout; h2 then resets that one stream.
//! **Limits**: a client must read [`PIECE_BYTES_MAX`] of each response, or the rest of it, within
//! [`Limits::write_timeout`](crate::config::Limits::write_timeout).

use crate::metrics::ClientTimeout;
use crate::response::{BodyError, RelayedBody};
use crate::watch::Watch;
use bytes::Bytes;
use curtail_units::Duration;
use http_body::{Body, Frame, SizeHint};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// The maximum size of a piece, that of a frame, so that progress is seen frame by frame.
const PIECE_BYTES_MAX: usize = 16 << 10;

tokio::task_local! {
    static PACE: Cell<Pace>;
}

/// The progress of a stream's response.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Pieces passed to hyper so far.
    pieces: u64,
    /// Whether hyper waits for the client to grant room for the last piece.
    is_waiting: bool,
}

/// Runs the tasks of a connection's streams.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor {
    pub(super) watch: Watch,
    pub(super) write_timeout: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let (watch, mut timer) = (self.watch.clone(), self.watch.timer(self.write_timeout));
        tokio::spawn(PACE.scope(Cell::default(), async move {
            let mut stream = pin!(stream);
            let is_stuck = poll_fn(|cx| {
                if stream.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                let pace = PACE.with(Cell::get);
                if pace.is_waiting {
                    return timer.poll(cx, pace.pieces).map(|()| true);
                }
                timer.rest();
                Poll::Pending
            });
            if is_stuck.await {
                watch.metrics.timed_out.add(&ClientTimeout::Write, 1);
                tracing::debug!(
                    "stream reset: the client did not read the response within limits.write_timeout"
                );
            }
        }));
    }
}

/// The body of a response, which reports its progress to the stream's task.
#[derive(Debug)]
pub(super) struct PacedBody {
    body: RelayedBody,
    /// The rest of a large piece.
    rest: Bytes,
}

impl PacedBody {
    pub(super) const fn new(body: RelayedBody) -> Self {
        Self { body, rest: Bytes::new() }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = self.poll_piece(cx);
        let is_waiting = matches!(piece, Poll::Ready(Some(Ok(_))));
        // hyper polls a body only in the task of its stream.
        PACE.try_with(|pace| {
            let pieces = pace.get().pieces + u64::from(is_waiting);
            pace.set(Pace { pieces, is_waiting });
        })
        .ok();
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
