//! Turns: how much a connection does before the other tasks of its thread run.
//!
//! Tokio ends the turn of a task after 128 reads and writes, of any size. If each of them moves 64 KiB, or thousands of
//! frames or chunks, a few busy connections delay the requests of all others by milliseconds. Bytes and pieces therefore
//! count as well.
//!
//! Many busy connections delay others even so: a short request would wait for a turn of each of them. Long bodies over
//! HTTP/1.1 therefore wait in a [`Line`], from which one at a time reads on, after all other tasks that can run. While the
//! buffers of 200 unread downloads fill, other requests wait for one of them, not for 200.
//! **Limits**: a turn has about 64 KiB that are read, 128 pieces of HTTP/1.1 bodies, and [`TURN_FRAMES_MAX`] frames of
//! HTTP/2, or 8 requests. A line has one place for each connection, also if it has just closed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::task::coop::poll_proceed;

/// Maximum number of frames that an HTTP/2 connection takes in one turn: a frame may have only 9 bytes.
pub(crate) const TURN_FRAMES_MAX: usize = 128;

/// The cost of a request, in frames. Each request becomes a task, so a burst of them would put a task for
/// each stream before the requests of all other connections.
pub(crate) const TURN_REQUEST_FRAMES: usize = 16;

/// The number of bytes that count as one read.
const READ_BYTES: usize = 512;

/// The number of bytes of a body after which it waits in the line.
const LONG_BYTES: usize = 64 << 10;

thread_local! {
    /// The line of this worker.
    static LINE: Arc<Line> = Arc::default();
}

/// The long bodies of a worker that have something to read.
#[derive(Debug, Default)]
struct Line(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// In the order in which they came.
    wakers: VecDeque<Waker>,
    /// The number of the first one.
    first: u64,
    /// Whether a task lets them read.
    is_served: bool,
}

/// The turns of a body.
#[derive(Debug, Default)]
pub(crate) struct BodyTurns {
    /// The bytes that were read since the body last came out of the line.
    bytes: usize,
    /// Its line, and its number there.
    place: Option<(Arc<Line>, u64)>,
}

impl BodyTurns {
    /// Counts bytes of the body that were read.
    pub(crate) const fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Ready when the body may be read: a long one has waited in the line.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.bytes < LONG_BYTES {
            return Poll::Ready(());
        }
        let Some((line, number)) = &self.place else {
            let line = LINE.with(Arc::clone);
            let number = line.join(cx.waker());
            self.place = Some((line, number));
            return Poll::Pending;
        };
        if line.is_waiting(*number, cx.waker()) {
            return Poll::Pending;
        }
        *self = Self::default();
        Poll::Ready(())
    }
}

impl Line {
    /// Returns the number of the new last one.
    fn join(self: &Arc<Self>, waker: &Waker) -> u64 {
        let mut waiting = self.lock();
        let number = waiting.first + waiting.wakers.len() as u64;
        waiting.wakers.push_back(waker.clone());
        if !std::mem::replace(&mut waiting.is_served, true) {
            tokio::spawn(Arc::clone(self).serve());
        }
        number
    }

    fn is_waiting(&self, number: u64, waker: &Waker) -> bool {
        let mut waiting = self.lock();
        let place = number.checked_sub(waiting.first).and_then(|place| usize::try_from(place).ok());
        let known = place.and_then(|place| waiting.wakers.get_mut(place));
        known.map(|known| known.clone_from(waker)).is_some()
    }

    /// Lets one after the other read. Between two of them, all tasks that can run have their turn.
    async fn serve(self: Arc<Self>) {
        while let Some(first) = self.take_first() {
            first.wake();
            tokio::task::yield_now().await;
        }
    }

    fn take_first(&self) -> Option<Waker> {
        let mut waiting = self.lock();
        let first = waiting.wakers.pop_front();
        waiting.is_served = first.is_some();
        waiting.first += u64::from(first.is_some());
        first
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the size of a read; the read itself counts already.
pub(crate) fn count_bytes(cx: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / READ_BYTES {
        if count_piece(cx).is_pending() {
            return;
        }
    }
}

/// Counts a piece of a body, such as a chunk; pending if the turn is over.
pub(crate) fn count_piece(cx: &mut Context<'_>) -> Poll<()> {
    poll_proceed(cx).map(|counted| counted.made_progress())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Counts the pieces that are left of a turn after this many bytes.
    fn pieces_after(bytes: usize) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(poll_fn(|cx| {
            count_bytes(cx, bytes);
            let pieces = std::iter::from_fn(|| count_piece(cx).is_ready().then_some(()));
            Poll::Ready(pieces.count())
        }))
    }

    #[test]
    fn bytes_and_pieces_end_a_turn() {
        assert_eq!(pieces_after(0), 128);
        assert_eq!(pieces_after(500), 128);
        assert_eq!(pieces_after(8 << 10), 112);
        assert_eq!(pieces_after(64 << 10), 0);
    }

    #[test]
    fn between_two_long_bodies_all_other_tasks_run() {
        const BODIES: usize = 100;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let reads = Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let mut bodies = tokio::task::JoinSet::new();
            for _ in 0..BODIES {
                let reads = Arc::clone(&reads);
                bodies.spawn(async move {
                    let mut turns = BodyTurns::default();
                    for _ in 0..10 {
                        turns.count(LONG_BYTES);
                        poll_fn(|cx| turns.poll(cx)).await;
                        reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }
            let reads = || reads.load(std::sync::atomic::Ordering::Relaxed);
            while reads() == 0 {
                tokio::task::yield_now().await;
            }
            for _ in 0..BODIES {
                let before = reads();
                tokio::task::yield_now().await;
                assert!(reads() - before <= 2, "{} bodies were read meanwhile", reads() - before);
            }
            bodies.join_all().await;
            assert_eq!(reads(), 10 * BODIES);
        });
    }

    #[tokio::test]
    async fn a_short_body_does_not_wait_and_one_that_has_gone_holds_up_no_other() {
        let mut short = BodyTurns::default();
        short.count(LONG_BYTES - 1);
        assert!(short.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        let mut gone = BodyTurns::default();
        gone.count(LONG_BYTES);
        assert!(gone.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(gone);
        short.count(1);
        poll_fn(|cx| short.poll(cx)).await;
    }
}
