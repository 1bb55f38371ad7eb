//! The task of a connection: it reads and writes, and detects a peer that fails silently.

use super::error::ConnectionError;
use super::frame::{FRAME_HEAD_LEN, FrameHead, kind};
use super::state::{Arrival, ConnectionState, Shared, lock};
use crate::linger::{LINGER, Linger};
use crate::turn::{self, TURN_FRAMES_MAX};
use bytes::BytesMut;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep, timeout};

const READ_BYTES: usize = 8 << 10;

/// Maximum size of the read buffer, which grows while reads keep filling it.
const READ_BYTES_MAX: usize = 64 << 10;

/// A buffer with more capacity is freed when it is empty.
const IDLE_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Driver<S> {
    stream: S,
    read: BytesMut,
    read_bytes: usize,
    /// Whether frames may remain in `read` because too many of this side wait to be written, or the turn was over.
    is_held_back: bool,
    writing: Vec<u8>,
    written: usize,
    /// The instant of the last read.
    last_read: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Creates the driver of a connection whose first bytes, `prefix`, have already been read.
    pub(super) fn new(stream: S, prefix: BytesMut) -> Self {
        Self {
            stream,
            is_held_back: !prefix.is_empty(),
            read: prefix,
            read_bytes: READ_BYTES,
            writing: Vec::new(),
            written: 0,
            last_read: Instant::now(),
        }
    }

    pub(super) const fn last_read(&self) -> Instant {
        self.last_read
    }

    /// Whether the beginning of a header block has arrived, but not the rest of its frame. Frames that are held back are
    /// not late.
    pub(super) fn has_partial_headers(&self) -> bool {
        let head = self.read.first_chunk::<FRAME_HEAD_LEN>().map(FrameHead::parse);
        !self.is_held_back
            && head.is_some_and(|head| matches!(head.kind, kind::HEADERS | kind::CONTINUATION))
    }

    /// Reads and writes for one turn; ready when the connection is over. Requests that have arrived go to `accept`.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        accept: &mut dyn FnMut(Arrival),
    ) -> Poll<()> {
        let mut frames_left = TURN_FRAMES_MAX;
        loop {
            let written = self.poll_write(cx, shared);
            if let Poll::Ready(Err(error)) = written {
                self.fail(shared, error.into());
                return Poll::Ready(());
            }
            let mut state = lock(shared);
            if state.is_over() {
                if written.is_ready() && !state.has_output() {
                    return Poll::Ready(());
                }
                if state.failure().is_some() {
                    // Only the last frames remain.
                    state.set_driver(cx);
                    return Poll::Pending;
                }
            }
            if state.is_output_full() {
                if written.is_ready() {
                    continue;
                }
                state.set_driver(cx);
                return Poll::Pending;
            }
            if frames_left == 0 {
                drop(state);
                // All tasks that can run have their turn first, including those whose sockets have become ready meanwhile.
                return pin!(tokio::task::yield_now()).poll(cx);
            }
            if self.is_held_back {
                self.receive(state, &mut frames_left, accept);
                continue;
            }
            drop(state);
            match self.poll_read(cx) {
                Poll::Ready(Ok(1..)) => self.receive(lock(shared), &mut frames_left, accept),
                Poll::Ready(Ok(_)) => {
                    self.fail(shared, ConnectionError::Closed);
                    return Poll::Ready(());
                }
                Poll::Ready(Err(error)) => {
                    self.fail(shared, error.into());
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    let mut state = lock(shared);
                    let has_more = state.has_output() || state.is_over();
                    if written.is_pending() || !has_more {
                        state.set_driver(cx);
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Writes the last frames, and closes the connection so that they are not lost.
    pub(super) async fn close(mut self, shared: &Shared) {
        let last_frames = poll_fn(|cx| self.poll(cx, shared, &mut |_| {}));
        if timeout(LINGER, last_frames).await.is_ok() {
            let mut linger = Linger::default();
            poll_fn(|cx| linger.poll(cx, &mut self.stream)).await;
        }
    }

    fn receive(
        &mut self,
        mut state: std::sync::MutexGuard<'_, ConnectionState>,
        frames_left: &mut usize,
        accept: &mut dyn FnMut(Arrival),
    ) {
        // A violation ends the connection: a request that was written must not be sent again.
        self.note_written(&mut state);
        state.receive(&mut self.read, self.last_read, frames_left);
        self.is_held_back = state.is_output_full() || *frames_left == 0;
        let arrivals = state.take_arrivals();
        drop(state);
        arrivals.into_iter().for_each(accept);
    }

    fn fail(&self, shared: &Shared, error: ConnectionError) {
        let mut state = lock(shared);
        self.note_written(&mut state);
        state.fail(error);
    }

    /// Notes how much of the output the connection has accepted.
    pub(super) fn note_written(&self, state: &mut ConnectionState) {
        state.note_written(self.writing.len() - self.written);
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < READ_BYTES / 4 {
            self.read.reserve(self.read_bytes);
        }
        let read = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx));
        if self.read.len() == self.read.capacity() {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        }
        turn::count_bytes(cx, *read.as_ref().unwrap_or(&0));
        self.last_read = Instant::now();
        Poll::Ready(read)
    }

    /// Writes all bytes that wait.
    fn poll_write(&mut self, cx: &mut Context<'_>, shared: &Shared) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(&mut self.stream);
        let mut has_written = false;
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                lock(shared).take_output(&mut self.writing);
                if self.writing.is_empty() {
                    break;
                }
            }
            let written = ready!(stream.as_mut().poll_write(cx, &self.writing[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            has_written = true;
        }
        if self.writing.capacity() > IDLE_BYTES_MAX && !has_written {
            self.writing = Vec::new();
        }
        stream.poll_flush(cx)
    }
}

/// Pings a peer that is silent, and notices when it does not respond.
#[derive(Debug)]
pub(super) struct KeepAlive {
    interval: Duration,
    timeout: Duration,
    /// Whether the peer is pinged only while streams are in use.
    needs_streams: bool,
    sleep: Pin<Box<Sleep>>,
    /// The time of the ping without a response.
    pinged: Option<Instant>,
}

impl KeepAlive {
    pub(super) fn new(interval: Duration, timeout: Duration, needs_streams: bool) -> Self {
        let sleep = Box::pin(tokio::time::sleep(interval));
        Self { interval, timeout, needs_streams, sleep, pinged: None }
    }

    /// Ready when the peer has failed.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        last_read: Instant,
    ) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            let mut state = lock(shared);
            let now = Instant::now();
            if self.pinged.is_some_and(|pinged| last_read < pinged && state.is_ping_unanswered()) {
                return Poll::Ready(());
            }
            self.pinged = None;
            let due = last_read + self.interval;
            let next = if now < due {
                due
            } else if self.needs_streams && state.stream_count() == 0 && !state.is_over() {
                now + self.interval
            } else {
                state.ping();
                self.pinged = Some(now);
                now + self.timeout
            };
            self.sleep.as_mut().reset(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{PREFACE, put_ping, put_settings};
    use super::super::state::{ProtocolLimits, Role};
    use super::*;
    use crate::turn::TURN_REQUEST_FRAMES;
    use std::sync::{Arc, Mutex};
    use std::task::Waker;
    use tokio::io::{DuplexStream, ReadBuf};

    const LIMITS: ProtocolLimits = ProtocolLimits {
        stream_window: 1_000,
        connection_window: 100_000,
        streams_max: 100,
        list_bytes_max: 10_000,
        resets_max: 10,
    };

    /// Gives the driver one turn; returns the number of bytes that it has written to the client.
    fn turn(
        driver: &mut Driver<DuplexStream>,
        shared: &Shared,
        client: &mut DuplexStream,
    ) -> usize {
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(driver.poll(cx, shared, &mut |_| {}).is_pending());
        let mut bytes = vec![0; 1 << 20];
        let mut written = ReadBuf::new(&mut bytes);
        let read = Pin::new(client).poll_read(cx, &mut written);
        assert!(!matches!(read, Poll::Ready(Err(_))));
        written.filled().len()
    }

    #[test]
    fn a_turn_has_at_most_128_frames() {
        let mut begun = PREFACE.to_vec();
        put_settings(&mut begun, &[]);
        for _ in 1..10 * TURN_FRAMES_MAX {
            put_ping(&mut begun, 0, [0; 8]);
        }
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let mut driver = Driver::new(server, BytesMut::from(&*begun));
        let shared = Arc::new(Mutex::new(ConnectionState::new(Role::Server, LIMITS, 0)));
        // The first turn also has the settings of both sides.
        turn(&mut driver, &shared, &mut client);
        for _ in 1..10 {
            let pongs = turn(&mut driver, &shared, &mut client) / (FRAME_HEAD_LEN + 8);
            assert_eq!(pongs, TURN_FRAMES_MAX);
        }
        assert_eq!(turn(&mut driver, &shared, &mut client), 0);
    }

    #[test]
    fn a_turn_has_at_most_8_requests() {
        let mut begun = PREFACE.to_vec();
        put_settings(&mut begun, &[]);
        for nth in 0..64 {
            // HEADERS with END_STREAM and END_HEADERS: `GET / HTTP/2` for the host `a`.
            begun.extend_from_slice(&[0, 0, 6, kind::HEADERS, 5, 0, 0, 0, 2 * nth + 1]);
            begun.extend_from_slice(&[0x82, 0x86, 0x84, 0x41, 1, b'a']);
        }
        let (_client, server) = tokio::io::duplex(1 << 20);
        let mut driver = Driver::new(server, BytesMut::from(&*begun));
        let shared = Arc::new(Mutex::new(ConnectionState::new(Role::Server, LIMITS, 0)));
        let cx = &mut Context::from_waker(Waker::noop());
        for turn in 1..=8 {
            let mut accepted = 0;
            let polled = driver.poll(cx, &shared, &mut |request| {
                assert!(matches!(request, Arrival::Respond(request) if request.head.is_ok()));
                accepted += 1;
            });
            assert!(polled.is_pending());
            assert_eq!(accepted, TURN_FRAMES_MAX / TURN_REQUEST_FRAMES, "turn {turn}");
        }
    }
}
