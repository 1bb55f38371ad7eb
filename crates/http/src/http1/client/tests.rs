use super::super::inbound::READ_BYTES_MAX;
use super::*;
use crate::replay::from_client::{self, with_length};
use crate::replay::{BodyError, ClientFault, OutboundBody};
use http::{Request, StatusCode};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Far more than any of it needs on a busy machine.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it hangs")
}

/// A connection, and its server's end.
async fn connected() -> (ClientConnection, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (stream, replica) = tokio::join!(TcpStream::connect(address), listener.accept());
    let stream = Stream::Plain(stream.expect("connected"));
    let connection = ClientConnection::new(stream);
    (connection, replica.expect("accepted").0)
}

fn request(method: http::Method, body: OutboundBody) -> Box<OutboundRequest> {
    let mut request = Request::new(());
    *request.method_mut() = method;
    OutboundRequest::new(
        Arc::new(request.into_parts().0.try_into().expect("a valid request")),
        body,
    )
}

fn get() -> Box<OutboundRequest> {
    request(http::Method::GET, OutboundBody::Empty)
}

const GET: &str = "GET / HTTP/1.1\r\n\r\n";

/// What a server does when it has read a request.
#[derive(Clone, Copy, Debug)]
enum Then {
    Stays,
    Closes,
    Resets,
}

impl Then {
    fn do_with(self, replica: TcpStream) -> Option<TcpStream> {
        match self {
            Self::Stays => return Some(replica),
            Self::Closes => {}
            Self::Resets => replica.set_zero_linger().expect("a socket"),
        }
        None
    }
}

async fn expect(replica: &mut TcpStream, request: &str) {
    let mut read = vec![0; request.len()];
    replica.read_exact(&mut read).await.expect("a request");
    assert_eq!(String::from_utf8_lossy(&read), request);
}

/// Waits until something has come, or the connection is closed; nothing is read.
async fn notice(connection: &ClientConnection) {
    let Stream::Plain(stream) = &connection.inbound.stream else { panic!("it is plain") };
    in_time(stream.readable()).await.expect("a socket");
}

/// Sends a request that gets this response.
async fn exchange(
    connection: &mut ClientConnection,
    replica: &mut TcpStream,
    response: &str,
) -> Result<ResponseHead, Error> {
    let responding = async {
        expect(replica, GET).await;
        replica.write_all(response.as_bytes()).await.expect("written");
    };
    in_time(async { tokio::join!(connection.send(get()), responding) }).await.0
}

/// The body to its end, and whether it had trailers.
async fn body(connection: &mut ClientConnection) -> (Vec<u8>, bool, Option<Error>) {
    let (mut data, mut has_trailers) = (Vec::new(), false);
    loop {
        match in_time(std::future::poll_fn(|cx| connection.poll_frame(cx))).await {
            None => return (data, has_trailers, None),
            Some(Err(error)) => return (data, has_trailers, Some(error)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => data.extend_from_slice(&piece),
                Err(_) => has_trailers = true,
            },
        }
    }
}

#[tokio::test]
async fn a_connection_is_usable_until_the_replica_closes_or_speaks_unasked() {
    for then in [Then::Closes, Then::Resets] {
        let (mut connection, replica) = connected().await;
        assert!(connection.is_usable());
        then.do_with(replica);
        notice(&connection).await;
        assert!(!connection.is_usable(), "{then:?}");
    }
    let (mut connection, mut replica) = connected().await;
    replica.write_all(b"H").await.expect("written");
    notice(&connection).await;
    assert!(!connection.is_usable());
    assert!(!connection.is_usable(), "unexpected bytes are not forgotten");
}

#[tokio::test]
async fn a_closed_connection_is_noticed_by_a_task_that_has_done_much() {
    let (mut connection, replica) = connected().await;
    drop(replica);
    notice(&connection).await;
    let is_usable = std::future::poll_fn(|cx| {
        while let Poll::Ready(step) = tokio::task::coop::poll_proceed(cx) {
            step.made_progress();
        }
        Poll::Ready(connection.is_usable())
    });
    assert!(!in_time(is_usable).await);
}

#[tokio::test]
async fn trailers_that_connection_names_are_removed() {
    let (mut connection, mut replica) = connected().await;
    let response = "HTTP/1.1 200 OK\r\nconnection: keep-alive, X-Hop\r\ntransfer-encoding: chunked\r\n\r\n\
                    0\r\nx-hop: 1\r\nx-sum: 2\r\n\r\n";
    exchange(&mut connection, &mut replica, response).await.expect("a response");
    let frame = in_time(std::future::poll_fn(|cx| connection.poll_frame(cx))).await;
    let trailers = frame.expect("a frame").expect("well framed").into_trailers();
    let trailers = trailers.expect("no data");
    let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-sum"]);
}

#[tokio::test]
async fn a_connection_is_free_after_an_response_that_leaves_it_so() {
    for (response, is_free) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: 1\r\n\r\n", true),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", true),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", false),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", false),
        // More bytes than the response has: they belong to no request.
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok\n", false),
        ("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", false),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\nok", false),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            false,
        ),
    ] {
        let (mut connection, mut replica) = connected().await;
        let received = exchange(&mut connection, &mut replica, response).await;
        received.unwrap_or_else(|error| panic!("{response:?}: {error}"));
        if !connection.is_end() {
            assert!(!connection.is_reusable(), "{response:?} is not through");
        }
        let (.., error) = body(&mut connection).await;
        assert!(error.is_none() && connection.is_end(), "{response:?}: {error:?}");
        assert_eq!(
            (connection.is_reusable(), connection.is_usable()),
            (is_free, is_free),
            "{response:?}"
        );
        if is_free {
            let again = "HTTP/1.1 201 Created\r\ncontent-length: 3\r\n\r\nnew";
            let received = exchange(&mut connection, &mut replica, again).await.expect("again");
            assert_eq!(received.status, StatusCode::CREATED);
            assert_eq!(body(&mut connection).await.0, b"new", "after {response:?}");
        }
    }
}

#[tokio::test]
async fn a_response_to_head_has_no_body_whatever_it_says() {
    let (mut connection, mut replica) = connected().await;
    for fields in ["content-length: 5\r\n", "transfer-encoding: chunked\r\n", ""] {
        let responding = async {
            expect(&mut replica, "HEAD / HTTP/1.1\r\n\r\n").await;
            let response = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            replica.write_all(response.as_bytes()).await.expect("written");
        };
        let head = request(http::Method::HEAD, OutboundBody::Empty);
        let received = in_time(async { tokio::join!(connection.send(head), responding) }).await.0;
        received.unwrap_or_else(|error| panic!("{fields:?}: {error}"));
        assert!(connection.is_end() && connection.is_usable(), "{fields:?}");
    }
}

#[tokio::test]
async fn an_early_response_is_given_and_the_connection_is_free_when_the_request_is_through() {
    let whole = with_length(b"0123456789");
    let (sent, held_back) = whole.split_at(whole.len() - 6);
    let (replay, mut client) = from_client::sent(sent).await;
    let (mut connection, mut replica) = connected().await;
    let post = request(http::Method::POST, OutboundBody::Replay(replay.reader()));
    let responding = async {
        expect(&mut replica, "POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\n0123").await;
        let response = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
        replica.write_all(response).await.expect("written");
    };
    let received = in_time(async { tokio::join!(connection.send(post), responding) }).await.0;
    assert_eq!(received.expect("a response").status, StatusCode::PAYLOAD_TOO_LARGE);
    let (data, _, error) = body(&mut connection).await;
    assert!(data == b"no" && error.is_none(), "{error:?}");
    assert_eq!(
        (connection.is_end(), connection.is_reusable(), connection.is_usable()),
        (true, false, false)
    );

    client.write_all(held_back).await.expect("the pipe takes it");
    let through = std::future::poll_fn(|cx| {
        connection.drive_sending(cx).expect("a whole body");
        if connection.sending.is_done() { Poll::Ready(()) } else { Poll::Pending }
    });
    in_time(through).await;
    assert!(connection.is_reusable() && connection.is_usable());
    in_time(expect(&mut replica, "456789")).await;
}

#[tokio::test]
async fn a_request_goes_on_when_its_client_goes_on() {
    let whole = with_length(b"0123456789");
    let (sent, held_back) = whole.split_at(whole.len() - 6);
    let (replay, mut client) = from_client::sent(sent).await;
    let (mut connection, mut replica) = connected().await;
    let post = request(http::Method::POST, OutboundBody::Replay(replay.reader()));
    let responding = async {
        expect(&mut replica, "POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\n0123").await;
        for byte in held_back.chunks(1) {
            client.write_all(byte).await.expect("the pipe takes it");
            expect(&mut replica, std::str::from_utf8(byte).expect("digits")).await;
        }
        // In pieces too: each wakes the waiting reader.
        for piece in ["HTTP/1.1 2", "00 OK\r\ncontent-", "length: 0\r\n\r", "\n"] {
            replica.write_all(piece.as_bytes()).await.expect("written");
            tokio::task::yield_now().await;
        }
    };
    let received = in_time(async { tokio::join!(connection.send(post), responding) }).await.0;
    received.expect("a response");
    assert!(connection.is_reusable());
}

#[tokio::test]
async fn failures_of_an_exchange_are_distinguished() {
    let name = |error: &Error| match error {
        Error::Unwritten(_) => "unwritten",
        Error::NoResponse(_) => "no response",
        Error::Incomplete(_) => "cut short",
        Error::Malformed(_) => "bad response",
        Error::Body(_) | Error::Response(_) | Error::BodyLength => "body",
    };
    for (response, then, want) in [
        ("", Then::Closes, "no response"),
        ("", Then::Resets, "no response"),
        ("H", Then::Closes, "cut short"),
        ("HTTP/1.1 200 OK\r\n", Then::Closes, "cut short"),
        ("HTTP/1.1 100 Continue\r\n\r\n", Then::Closes, "cut short"),
        ("HTTP/2 200\r\n\r\n", Then::Stays, "bad response"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n", Then::Stays, "bad response"),
    ] {
        let (mut connection, mut replica) = connected().await;
        let responding = async {
            expect(&mut replica, GET).await;
            replica.write_all(response.as_bytes()).await.expect("written");
            then.do_with(replica)
        };
        let (received, _replica) =
            in_time(async { tokio::join!(connection.send(get()), responding) }).await;
        let error = received.expect_err("there is no response");
        assert_eq!(name(&error), want, "{response:?}, then it {then:?}: {error:?}");
        assert!(!connection.is_reusable(), "{response:?}, then it {then:?}");
    }
}

#[tokio::test]
async fn bytes_before_the_request_was_sent_are_no_response_to_it() {
    for early_response in
        ["", "HTTP/1.1 4", "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"]
    {
        let (mut connection, mut replica) = connected().await;
        replica.write_all(early_response.as_bytes()).await.expect("written");
        Then::Resets.do_with(replica);
        notice(&connection).await;
        let received = in_time(connection.send(get())).await;
        assert!(matches!(received, Err(Error::Unwritten(_))), "{early_response:?}: {received:?}");
        assert!(!connection.is_reusable(), "{early_response:?}");
    }
}

#[tokio::test]
async fn a_client_that_breaks_off_ends_the_exchange() {
    let whole = with_length(b"0123456789");
    let (replay, client) = from_client::sent(&whole[..whole.len() - 1]).await;
    drop(client);
    let (mut connection, _replica) = connected().await;
    let post = request(http::Method::POST, OutboundBody::Replay(replay.reader()));
    let received = in_time(connection.send(post)).await;
    assert!(
        matches!(received, Err(Error::Body(BodyError::Client(ClientFault::Gone)))),
        "{received:?}"
    );
    assert!(!connection.is_reusable());
}

#[tokio::test]
async fn a_body_until_the_end_of_the_connection_ends_with_it_alone() {
    for (then, want) in [(Then::Closes, true), (Then::Resets, false)] {
        let (mut connection, mut replica) = connected().await;
        let received = exchange(&mut connection, &mut replica, "HTTP/1.1 200 OK\r\n\r\n").await;
        received.expect("a response");
        replica.write_all(b"all of it").await.expect("written");
        let frame = in_time(std::future::poll_fn(|cx| connection.poll_frame(cx))).await;
        let data = frame.expect("more").expect("data").into_data().expect("data");
        assert_eq!((&data[..], connection.is_end()), (&b"all of it"[..], false));
        then.do_with(replica);
        let (.., error) = body(&mut connection).await;
        assert_eq!(error.is_none(), want, "it {then:?}: {error:?}");
        assert!(matches!(error, None | Some(Error::Incomplete(Some(_)))), "it {then:?}: {error:?}");
        assert_eq!((connection.is_end(), connection.is_reusable()), (want, false), "it {then:?}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_never_an_end() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    const CHUNKS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (head, come, data) in [
        (LENGTH, "", ""),
        (LENGTH, "hell", "hell"),
        (CHUNKS, "", ""),
        (CHUNKS, "5", ""),
        (CHUNKS, "5\r\nhell", "hell"),
        (CHUNKS, "5\r\nhello", "hello"),
        (CHUNKS, "5\r\nhello\r\n", "hello"),
        (CHUNKS, "5\r\nhello\r\n0", "hello"),
        (CHUNKS, "5\r\nhello\r\n0\r\n", "hello"),
        (CHUNKS, "5\r\nhello\r\n0\r\na: 1\r\n", "hello"),
    ] {
        let (mut connection, mut replica) = connected().await;
        let response = [head, come].concat();
        exchange(&mut connection, &mut replica, &response).await.expect("a head");
        drop(replica);
        let (got, _, error) = body(&mut connection).await;
        assert!(matches!(error, Some(Error::Incomplete(None))), "{response:?}: {error:?}");
        assert_eq!(String::from_utf8_lossy(&got), data, "{response:?}");
        assert!(!connection.is_end() && !connection.is_reusable(), "{response:?}");
    }
}

#[tokio::test]
async fn a_long_body_is_never_buffered() {
    const BYTES: usize = 4 << 20;
    let (mut connection, mut replica) = connected().await;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n");
    exchange(&mut connection, &mut replica, &head).await.expect("a head");
    let sending = tokio::spawn(async move {
        replica.write_all(&vec![7; BYTES]).await.expect("written");
        replica
    });
    let (mut left, mut most_bytes) = (BYTES, 0);
    while left > 0 {
        assert_eq!(connection.size_hint().exact(), Some(left as u64));
        let frame = in_time(std::future::poll_fn(|cx| connection.poll_frame(cx))).await;
        let data = frame.expect("more").expect("data").into_data().expect("data");
        left -= data.len();
        most_bytes = most_bytes.max(connection.inbound.read.capacity() + data.len());
    }
    assert!(most_bytes <= 2 * READ_BYTES_MAX, "{most_bytes} bytes were buffered");
    let _replica = sending.await.expect("all was taken");
    assert!(connection.is_usable());
}
