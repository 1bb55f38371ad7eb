//! Turns: how much a connection does before the other tasks of its thread run.
//!
//! Tokio ends the turn of a task after 128 reads and writes, of any size. If each of them moves 64 KiB, or thousands of
//! frames or chunks, busy connections delay the requests of all others: 200 downloads that read 512 KiB in each turn made
//! others wait for 150 ms. Bytes and pieces therefore count as well.
//! **Limits**: a turn has about 64 KiB that are read, 128 pieces of HTTP/1.1 bodies, and [`TURN_FRAMES_MAX`] frames of
//! HTTP/2, or 8 requests.

use std::task::{Context, Poll};
use tokio::task::coop::poll_proceed;

/// Maximum number of frames that an HTTP/2 connection takes in one turn: a frame may have only 9 bytes.
pub(crate) const TURN_FRAMES_MAX: usize = 128;

/// The cost of a request, in frames. Each request becomes a task, so a burst of them would put a task for
/// each stream before the requests of all other connections.
pub(crate) const TURN_REQUEST_FRAMES: usize = 16;

/// The number of bytes that count as one read.
const READ_BYTES: usize = 512;

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
}
