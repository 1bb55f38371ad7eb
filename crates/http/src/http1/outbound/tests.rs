use super::super::chunked::{Decoder, Piece};
use super::*;
use bytes::BytesMut;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::task::Waker;

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A body in pieces; [`None`] is a pause.
struct Pieces(VecDeque<Option<Frame<Bytes>>>);

impl Pieces {
    /// Pieces of these lengths, all of other bytes.
    fn with_lengths(lengths: &[usize]) -> Self {
        let byte = |at: usize| b'a' + u8::try_from(at % 23).expect("small");
        let piece = |(nth, len): (usize, &usize)| {
            Some(Frame::data((0..*len).map(|at| byte(at + nth)).collect()))
        };
        Self(lengths.iter().enumerate().map(piece).collect())
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flatten().filter_map(Frame::data_ref).flatten().copied().collect()
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.pop_front() {
            Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(None) => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

/// A connection that takes N bytes at once.
struct Narrow {
    taken: Vec<u8>,
    at_once: usize,
    writes: usize,
}

impl Narrow {
    const fn new(at_once: usize) -> Self {
        Self { taken: Vec::new(), at_once, writes: 0 }
    }
}

impl AsyncWrite for Narrow {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let before = self.taken.len();
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let taken = bytes.len().min(self.at_once);
        self.taken.extend_from_slice(&bytes[..taken]);
        self.writes += 1;
        Poll::Ready(Ok(self.taken.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Sends a message with the head `head|`.
fn send(
    outbound: &mut Outbound,
    to: &mut Narrow,
    length: Length,
    body: &mut Pieces,
) -> Result<(), Error> {
    let mut cx = Context::from_waker(Waker::noop());
    outbound.begin(length, true).extend_from_slice(b"head|");
    loop {
        let gathered = outbound.gather(&mut cx, body)?;
        let Poll::Ready(written) = outbound.poll_write(&mut cx, to) else { panic!("it takes all") };
        written.expect("it takes all");
        if gathered.is_ready() && outbound.is_end() {
            return Ok(());
        }
    }
}

/// A body as its reader finds it.
fn decoded(chunks: &[u8]) -> (Vec<u8>, Option<HeaderMap>) {
    let (mut decoder, mut read) = (Decoder::Size, BytesMut::from(chunks));
    let (mut data, mut trailers) = (Vec::new(), None);
    loop {
        match decoder.take(&mut read).expect("good chunks") {
            Piece::Data(piece) => data.extend_from_slice(&piece),
            Piece::Trailers(fields) => trailers = Some(fields),
            Piece::End => break,
            Piece::None => panic!("it has no end"),
        }
    }
    assert_eq!(&*read, b"", "after the end");
    (data, trailers)
}

#[test]
fn a_message_arrives_whole_however_little_is_taken_at_once() {
    let mut outbound = Outbound::default();
    for lengths in [
        &[][..],
        &[1],
        &[0, 3, 0],
        &[COPIED_BYTES_MAX],
        &[COPIED_BYTES_MAX + 1],
        &[5, COPIED_BYTES_MAX + 1, 5],
        &[20_000, 20_000, 1, 20_000],
    ] {
        for at_once in [1, 2, 3, 7, 4_096, 4_099, 5_000, usize::MAX] {
            let body = Pieces::with_lengths(lengths).bytes();
            let of_body = |length| {
                let mut narrow = Narrow::new(at_once);
                let mut pieces = Pieces::with_lengths(lengths);
                send(&mut outbound, &mut narrow, length, &mut pieces).expect("sent");
                narrow.taken.strip_prefix(b"head|").expect("its head").to_vec()
            };
            let mut of_body = of_body;
            assert_eq!(of_body(Length::Known(body.len() as u64)), body);
            assert_eq!(of_body(Length::UntilClosed), body);
            assert_eq!(decoded(&of_body(Length::Chunked)), (body, None), "{lengths:?}, {at_once}");
        }
    }
}

#[test]
fn a_small_message_is_one_write_and_a_large_piece_is_not_copied() {
    let mut outbound = Outbound::default();
    for (lengths, writes) in [(&[10, 10, 10][..], 1), (&[5_000], 2), (&[10, 5_000, 10], 2)] {
        let mut narrow = Narrow::new(usize::MAX);
        send(&mut outbound, &mut narrow, Length::Chunked, &mut Pieces::with_lengths(lengths))
            .expect("sent");
        assert_eq!(narrow.writes, writes, "{lengths:?}");
        assert!(outbound.buffer.capacity() <= 2 * COPIED_BYTES_MAX);
    }
}

#[test]
fn what_there_is_leaves_while_the_body_pauses() {
    let mut outbound = Outbound::default();
    let mut narrow = Narrow::new(usize::MAX);
    let mut body = Pieces::with_lengths(&[3, 3]);
    body.0.insert(1, None);
    let mut cx = Context::from_waker(Waker::noop());
    outbound.begin(Length::Known(6), false).extend_from_slice(b"head|");
    assert!(outbound.is_unwritten());
    assert!(outbound.gather(&mut cx, &mut body).is_pending());
    assert!(outbound.poll_write(&mut cx, &mut narrow).is_ready());
    assert_eq!((narrow.taken.as_slice(), outbound.is_unwritten()), (&b"head|abc"[..], false));
    assert!(outbound.gather(&mut cx, &mut body).is_ready());
    assert!(outbound.poll_write(&mut cx, &mut narrow).is_ready());
    assert_eq!((narrow.taken.as_slice(), outbound.is_end()), (&b"head|abcbcd"[..], true));
}

#[test]
fn trailers_follow_chunks_when_they_are_understood() {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    // One that would deceive a reader that adds it to the head.
    trailers.insert("content-length", "3".parse().expect("a value"));
    let mut kept = trailers.clone();
    kept.remove("content-length");
    for (understood, length, want) in
        [(true, Length::Chunked, Some(kept)), (false, Length::Chunked, None)]
    {
        let mut outbound = Outbound::default();
        let mut body = Pieces::with_lengths(&[3]);
        body.0.push_back(Some(Frame::trailers(trailers.clone())));
        let mut cx = Context::from_waker(Waker::noop());
        outbound.begin(length, understood);
        assert!(outbound.gather(&mut cx, &mut body).is_ready());
        assert_eq!(decoded(&outbound.buffer), (b"abc".to_vec(), want));
    }
}

#[test]
fn a_body_that_is_not_as_long_as_announced_is_an_error() {
    let mut outbound = Outbound::default();
    for (announced, len) in [(3, 2), (3, 4), (0, 1), (3, 0)] {
        let mut narrow = Narrow::new(usize::MAX);
        let length = Length::Known(announced);
        let sent = send(&mut outbound, &mut narrow, length, &mut Pieces::with_lengths(&[len]));
        assert!(matches!(sent, Err(Error::BodyLength)), "{announced}, {len}: {sent:?}");
        assert!(narrow.taken.len() <= "head|".len() + 3, "more than was announced");
    }
}
