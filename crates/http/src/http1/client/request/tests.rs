use super::super::super::chunked::{Decoder, Piece};
use super::super::super::framing::Framing;
use super::super::super::outbound::COPIED_BYTES_MAX;
use super::*;
use crate::replay::from_client::{self, KEPT_BYTES_MAX, in_chunks, with_length};
use crate::replay::{BodyError, ClientFault, Replay};
use bytes::BytesMut;
use curtail_units::Rng;
use http::{HeaderValue, Request};
use std::pin::Pin;
use std::sync::Arc;

const SEED: u64 = 9_112;

/// A connection that takes N bytes at a time, and breaks after a number of them.
struct Slow {
    at_once: usize,
    breaks_after: usize,
    taken: Vec<u8>,
    writes: usize,
    is_ready: bool,
}

impl Slow {
    fn new(at_once: usize) -> Self {
        Self { at_once, breaks_after: usize::MAX, taken: Vec::new(), writes: 0, is_ready: false }
    }

    /// Every other time it is not ready.
    fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl AsyncWrite for Slow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_ready(cx));
        let room = self.breaks_after - self.taken.len();
        if room == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let len = buf.len().min(self.at_once).min(room);
        self.taken.extend_from_slice(&buf[..len]);
        self.writes += 1;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(cx).map(Ok)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn request(
    method: &'static str,
    uri: &'static str,
    fields: &[(&'static str, &'static str)],
) -> Box<OutboundRequest> {
    let mut request = Request::new(());
    *request.method_mut() = method.parse().expect("a method");
    *request.uri_mut() = uri.parse().expect("a target");
    for (name, value) in fields {
        request.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    OutboundRequest::new(
        Arc::new(request.into_parts().0.try_into().expect("a valid request")),
        OutboundBody::Empty,
    )
}

/// An attempt that sends this body on.
fn post(body: &Arc<Replay>) -> Box<OutboundRequest> {
    let mut request = request("POST", "/", &[]);
    request.body = OutboundBody::Replay(body.reader());
    request
}

async fn send(
    sending: &mut Sending,
    request: Box<OutboundRequest>,
    stream: &mut Slow,
) -> Result<(), Error> {
    sending.begin(request);
    drive(sending, stream).await
}

async fn drive(sending: &mut Sending, stream: &mut Slow) -> Result<(), Error> {
    std::future::poll_fn(|cx| sending.poll(cx, stream)).await
}

/// All that is written of an attempt to a connection that takes N bytes at a time.
async fn written(request: Box<OutboundRequest>, at_once: usize) -> Vec<u8> {
    let (mut sending, mut stream) = (Sending::new(), Slow::new(at_once));
    send(&mut sending, request, &mut stream).await.expect("the body is as announced");
    assert!(sending.is_done() && !sending.is_unwritten());
    stream.taken
}

const AT_ONCE: [usize; 4] = [1, 2, 7, usize::MAX];

#[tokio::test]
async fn a_head_is_written_as_it_was_asked_but_for_the_framing() {
    for (method, uri, fields, want) in [
        ("GET", "/a/b?c=d&e", &[("host", "x")][..], "GET /a/b?c=d&e HTTP/1.1\r\nhost: x\r\n\r\n"),
        (
            "GET",
            "/",
            &[("a", ""), ("b", "2"), ("a", "1")],
            "GET / HTTP/1.1\r\na: \r\na: 1\r\nb: 2\r\n\r\n",
        ),
        ("GET", "http://x:1/a", &[], "GET /a HTTP/1.1\r\n\r\n"),
        ("OPTIONS", "*", &[], "OPTIONS * HTTP/1.1\r\n\r\n"),
        ("HEAD", "/", &[], "HEAD / HTTP/1.1\r\n\r\n"),
        ("DELETE", "/", &[], "DELETE / HTTP/1.1\r\n\r\n"),
        ("PURGE", "/", &[], "PURGE / HTTP/1.1\r\n\r\n"),
        ("POST", "/", &[], "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
        ("PUT", "/", &[], "PUT / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
        ("PATCH", "/", &[], "PATCH / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
        (
            "GET",
            "/",
            &[("content-length", "5"), ("transfer-encoding", "chunked")],
            "GET / HTTP/1.1\r\n\r\n",
        ),
        (
            "POST",
            "/",
            &[("content-length", "5"), ("a", "1"), ("content-length", "5")],
            "POST / HTTP/1.1\r\na: 1\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        for at_once in AT_ONCE {
            let got = written(request(method, uri, fields), at_once).await;
            assert_eq!(String::from_utf8_lossy(&got), want, "{at_once} bytes at once");
        }
    }
}

#[tokio::test]
async fn own_fields_are_written_in_place_of_shared_ones() {
    let mut request = request("GET", "/", &[("te", "1"), ("b", "2"), ("te", "3")]);
    request.set(Known::Te, b"4");
    request.set(Known::Host, b"\xff");
    let got = written(request, usize::MAX).await;
    assert_eq!(got, b"GET / HTTP/1.1\r\nb: 2\r\nte: 4\r\nhost: \xff\r\nconnection: te\r\n\r\n");
}

#[tokio::test]
async fn a_body_is_framed_as_its_length_is_known() {
    for (sent, want) in [
        (with_length(b"hello"), "content-length: 5\r\n\r\nhello"),
        (
            in_chunks(&[b"hello", b"!"], ""),
            "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
        ),
        (in_chunks(&[], ""), "transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        (
            in_chunks(&[b"sixteen bytes it."], "x-sum: 7\r\nx-sum: 8\r\ncontent-length: 9\r\n"),
            "transfer-encoding: chunked\r\n\r\n11\r\nsixteen bytes it.\r\n0\r\nx-sum: 7\r\nx-sum: 8\r\n\r\n",
        ),
    ] {
        for at_once in AT_ONCE {
            let (body, _client) = from_client::sent(&sent).await;
            let got = written(post(&body), at_once).await;
            let want = format!("POST / HTTP/1.1\r\n{want}");
            assert_eq!(String::from_utf8_lossy(&got), want, "{at_once} bytes at once");
        }
    }
}

/// What a server takes from a request in chunks, and the size of its largest chunk.
fn received(written: &[u8]) -> (Vec<u8>, usize) {
    let head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut written = BytesMut::from(written.strip_prefix(head).expect("a body in chunks"));
    let mut framing = Framing::Chunked(Decoder::Size);
    let (mut data, mut largest) = (Vec::new(), 0);
    loop {
        match framing.take(&mut written).expect("it is well framed") {
            Piece::Data(piece) => {
                largest = largest.max(piece.len());
                data.extend_from_slice(&piece);
            }
            Piece::End => return (data, largest),
            none @ (Piece::None | Piece::Trailers(_)) => {
                panic!("{none:?} after {} bytes", data.len())
            }
        }
    }
}

#[tokio::test]
async fn pieces_that_are_not_copied_arrive_in_their_place() {
    let mut rng = Rng::new(SEED);
    let mut piece =
        |len: usize| -> Vec<u8> { (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect() };
    let pieces =
        [piece(10), piece(COPIED_BYTES_MAX + 1), piece(COPIED_BYTES_MAX), piece(6_000), piece(3)];
    let data = pieces.concat();
    let pieces = pieces.each_ref().map(Vec::as_slice);
    for at_once in AT_ONCE {
        let (body, _client) = from_client::sent(in_chunks(&pieces, "")).await;
        let (got, largest) = received(&written(post(&body), at_once).await);
        assert!(got == data, "{at_once} bytes at once, seed {SEED}");
        assert!(largest > COPIED_BYTES_MAX, "no piece was large: {largest}");

        let (body, _client) = from_client::sent(with_length(&data)).await;
        let head = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", data.len());
        let want = [head.as_bytes(), &data].concat();
        assert!(written(post(&body), at_once).await == want, "{at_once} at once, seed {SEED}");
    }
}

#[tokio::test]
async fn what_is_there_leaves_in_few_writes() {
    let large = [7_u8; COPIED_BYTES_MAX + 1];
    for (sent, want) in [
        (with_length(b"hello"), 1),
        (in_chunks(&[b"a", b"b", b"c"], "x-sum: 7\r\n"), 1),
        // The head with the line before the piece, the piece, and all that is after it.
        (in_chunks(&[&large], "x-sum: 7\r\n"), 3),
    ] {
        let (body, _client) = from_client::sent(&sent).await;
        let first = written(post(&body), usize::MAX).await;
        // Now all of it is there.
        let (mut sending, mut stream) = (Sending::new(), Slow::new(usize::MAX));
        send(&mut sending, post(&body), &mut stream).await.expect("a whole body");
        assert!(stream.taken == first);
        assert_eq!(stream.writes, want, "for {} bytes", first.len());
    }
}

#[tokio::test]
async fn another_attempt_repeats_the_body_with_its_trailers() {
    let (body, _client) = from_client::sent(in_chunks(&[b"hel", b"lo"], "x-sum: 7\r\n")).await;
    let first = written(post(&body), 7).await;
    assert!(first.ends_with(b"0\r\nx-sum: 7\r\n\r\n"), "{}", String::from_utf8_lossy(&first));
    assert_eq!(written(post(&body), usize::MAX).await, first);
    // One that has no trailers is as long as it was.
    let (body, _client) = from_client::sent(in_chunks(&[b"hello"], "")).await;
    written(post(&body), usize::MAX).await;
    let again = written(post(&body), usize::MAX).await;
    assert_eq!(
        String::from_utf8_lossy(&again),
        "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello"
    );
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_announced_is_not_ended() {
    let announced = |body, bytes| {
        let mut sending = Sending { state: WriteState::Writing, body, ..Sending::new() };
        sending.outbound.begin(Length::Known(bytes), true);
        sending
    };
    for bytes in [0, 4, 6, u64::MAX] {
        let (body, _client) = from_client::sent(with_length(b"hello")).await;
        let mut sending = announced(OutboundBody::Replay(body.reader()), bytes);
        let mut stream = Slow::new(usize::MAX);
        let driven = drive(&mut sending, &mut stream).await;
        assert!(matches!(driven, Err(Error::BodyLength)), "{bytes} announced: {driven:?}");
        assert!(!sending.is_done(), "{bytes} announced");
        assert!((stream.taken.len() as u64) <= bytes, "{bytes} announced: {:?}", stream.taken);
    }
    let driven = drive(&mut announced(OutboundBody::Empty, 1), &mut Slow::new(1)).await;
    assert!(matches!(driven, Err(Error::BodyLength)), "{driven:?}");
}

#[tokio::test]
async fn a_client_that_breaks_off_ends_the_request() {
    let whole = in_chunks(&[b"hello"], "");
    let (body, client) = from_client::sent(&whole[..whole.len() - 5]).await;
    drop(client);
    let driven = send(&mut Sending::new(), post(&body), &mut Slow::new(7)).await;
    let gone = BodyError::Client(ClientFault::Gone);
    assert!(
        matches!(&driven, Err(Error::Body(why)) if why.to_string() == gone.to_string()),
        "{driven:?}"
    );
}

#[tokio::test]
async fn an_attempt_that_comes_too_late_for_a_long_body_says_so() {
    let (body, _client) = from_client::sent(with_length(&[7; KEPT_BYTES_MAX + 1])).await;
    written(post(&body), usize::MAX).await;
    let mut stream = Slow::new(usize::MAX);
    let driven = send(&mut Sending::new(), post(&body), &mut stream).await;
    assert!(matches!(driven, Err(Error::Body(BodyError::NotKept))), "{driven:?}");
    assert!(stream.taken.is_empty(), "the kept part must not look like a whole request");
}

#[tokio::test]
async fn a_connection_that_breaks_says_once_why_and_whether_it_took_anything() {
    const HEAD: &str = "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n";
    for (breaks_after, is_unwritten) in [
        (0, true),
        (1, false),
        (HEAD.len() - 1, false),
        (HEAD.len(), false),
        (HEAD.len() + 4, false),
    ] {
        let (body, _client) = from_client::sent(with_length(b"hello")).await;
        let (mut sending, mut stream) = (Sending::new(), Slow::new(7));
        stream.breaks_after = breaks_after;
        send(&mut sending, post(&body), &mut stream).await.expect("a response may say why");
        assert_eq!(stream.taken, [HEAD, "hello"].concat().as_bytes()[..breaks_after]);
        assert_eq!(sending.is_unwritten(), is_unwritten, "after {breaks_after} bytes");
        let kind = sending.take_failure().map(|failure| failure.kind());
        assert_eq!(kind, Some(io::ErrorKind::ConnectionReset), "after {breaks_after} bytes");
        assert!(sending.take_failure().is_none());
        // Nothing more is tried, and the request does not count as sent.
        stream.breaks_after = usize::MAX;
        drive(&mut sending, &mut stream).await.expect("nothing to do");
        assert_eq!((stream.taken.len(), sending.is_done()), (breaks_after, false));
    }
}

#[tokio::test]
async fn a_connection_that_takes_nothing_is_broken() {
    let (mut sending, mut stream) = (Sending::new(), Slow::new(0));
    send(&mut sending, request("GET", "/", &[]), &mut stream)
        .await
        .expect("a response may say why");
    let kind = sending.take_failure().map(|failure| failure.kind());
    assert_eq!((kind, sending.is_done()), (Some(io::ErrorKind::WriteZero), false));
}

#[tokio::test]
async fn nothing_of_one_request_is_left_in_the_next() {
    let (mut sending, mut want) = (Sending::new(), Vec::new());
    let mut stream = Slow::new(5_000);
    assert!(sending.is_done(), "a new connection owes nothing");
    let large = [7_u8; COPIED_BYTES_MAX + 1];
    for sent in [in_chunks(&[&large], "x-sum: 7\r\n"), with_length(&large), with_length(b"hello")] {
        let (body, _client) = from_client::sent(&sent).await;
        send(&mut sending, post(&body), &mut stream).await.expect("a whole body");
        want.extend(written(post(&from_client::sent(&sent).await.0), 5_000).await);
        send(&mut sending, request("GET", "/", &[]), &mut stream).await.expect("no body");
        want.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
        assert!(sending.is_done());
    }
    assert!(stream.taken == want);
}
