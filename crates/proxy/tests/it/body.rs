//! Bodies that tests send: whole, piece by piece as the test says, or long bodies that are never buffered as a whole.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn whole(data: impl Into<Bytes>) -> Body {
    Full::new(data.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The sending end of a body that the test continues and ends.
pub(crate) struct Sender(mpsc::Sender<io::Result<Frame<Bytes>>>);

/// A body without a known length, and the end that feeds it; dropping that end ends the body well.
pub(crate) fn channel() -> (Sender, Body) {
    let (sender, receiver) = mpsc::channel(1);
    (Sender(sender), Fed(receiver).boxed_unsync())
}

impl Sender {
    /// Waits until there is room; false when the reader has gone.
    pub(crate) async fn data(&self, data: impl Into<Bytes>) -> bool {
        self.0.send(Ok(Frame::data(data.into()))).await.is_ok()
    }

    pub(crate) async fn trailers(self, trailers: HeaderMap) {
        self.0.send(Ok(Frame::trailers(trailers))).await.expect("somebody reads");
    }

    /// Waits until the reader has gone.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Breaks the body off; hyper then resets the stream, or closes the connection.
    pub(crate) async fn break_off(self) {
        self.0.send(Err(io::Error::other("broken off by the test"))).await.ok();
    }
}

struct Fed(mpsc::Receiver<io::Result<Frame<Bytes>>>);

impl HttpBody for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx)
    }
}

/// The pieces of a long body.
const PIECE_BYTES: u64 = 64 * 1024;

/// A prime: no piece of a long body begins like the one before it, so none is lost or swapped unnoticed.
const PERIOD: u64 = 251;

static PATTERN: LazyLock<Bytes> =
    LazyLock::new(|| (0..PIECE_BYTES + PERIOD).map(|place| (place % PERIOD) as u8).collect());

/// What a long body has at `place`: `len` bytes of it, at most a piece.
fn pattern(place: u64, len: u64) -> Bytes {
    let from = usize::try_from(place % PERIOD).expect("small");
    let len = usize::try_from(len).expect("a piece fits in memory");
    PATTERN.slice(from..from + len)
}

/// How far a long body has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    bytes: AtomicU64,
    moved: Notify,
}

impl Progress {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    fn moved_to(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Waits until nothing has moved for a while. On a busy machine that may be too early, and then shows
    /// less than there is to see; it never shows more.
    pub(crate) async fn until_still(&self) -> u64 {
        const QUIET: Duration = Duration::from_millis(300);
        while tokio::time::timeout(QUIET, self.moved.notified()).await.is_ok() {}
        self.bytes()
    }
}

/// `bytes` bytes, generated as the reader polls them; `handed` counts them.
pub(crate) fn long(bytes: u64, handed: &Arc<Progress>) -> Body {
    Long { bytes, handed: Arc::clone(handed) }.boxed_unsync()
}

struct Long {
    bytes: u64,
    handed: Arc<Progress>,
}

impl HttpBody for Long {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let from = self.handed.bytes();
        let len = PIECE_BYTES.min(self.bytes - from);
        if len == 0 {
            return Poll::Ready(None);
        }
        self.handed.moved_to(from + len);
        Poll::Ready(Some(Ok(Frame::data(pattern(from, len)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes - self.handed.bytes())
    }
}

/// Reads a body to its end and checks it to be that of [`long`]; returns its length.
pub(crate) async fn check_long<B>(mut body: B) -> Result<u64, B::Error>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        for piece in data.chunks(pattern(0, PIECE_BYTES).len()) {
            let len = piece.len() as u64;
            assert!(piece == pattern(read, len), "bytes changed between {read} and {}", read + len);
            read += len;
        }
    }
    Ok(read)
}
