use super::*;
use crate::connect::{ConnectConfig, Protocol};
use crate::origin::ServerOrigin;
use http_body_util::Full;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 16, idle_max: 1 };

/// Far more than any of it needs on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

fn client(address: SocketAddr) -> Client<Full<Bytes>> {
    client_with(address, &ConnectConfig::default())
}

fn client_with(address: SocketAddr, config: &ConnectConfig) -> Client<Full<Bytes>> {
    let connector = Connector::load(&ServerOrigin::from(address), config);
    Client::new(connector.expect("it needs no certificate"), LIMITS)
}

fn post(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/a?b=c").body(Full::from(body)).expect("a request")
}

/// Reads a request with a body of one byte, and responds.
async fn respond(stream: &mut TcpStream, response: &str) -> String {
    let mut read = Vec::new();
    while !read.windows(5).any(|bytes| bytes[..4] == *b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut read).await.expect("a client"), 0, "the client has gone");
    }
    stream.write_all(response.as_bytes()).await.expect("it reads");
    String::from_utf8(read).expect("text")
}

const OK: &str = "HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_used_again_until_the_server_closes_it() {
    let (listener, address) = listen().await;
    let client = client(address);
    let serving = async {
        let mut first = listener.accept().await.expect("a client").0;
        let mut requests = vec![respond(&mut first, OK).await, respond(&mut first, OK).await];
        drop(first);
        let mut second = listener.accept().await.expect("a client").0;
        requests.push(respond(&mut second, OK).await);
        requests
    };
    let sending = async {
        for body in ["1", "2", "3"] {
            let response = client.send(post(body), LONG).await.expect("a response");
            assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"ok"[..]));
            assert_eq!(response.headers["x"], "y");
        }
    };
    let (requests, ()) = tokio::join!(serving, sending);
    for (request, body) in requests.iter().zip(["1", "2", "3"]) {
        assert!(request.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{request}");
        assert!(request.contains(&format!("host: {address}\r\n")), "{request}");
        assert!(request.ends_with(body), "{request}");
    }
}

#[tokio::test]
async fn a_connection_over_http2_is_used_again() {
    let (listener, address) = listen().await;
    let config = ConnectConfig { protocol: Protocol::Http2, ..ConnectConfig::default() };
    let client = client_with(address, &config);
    let serving = async {
        let stream = listener.accept().await.expect("a client").0;
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        let mut requests = Vec::new();
        // Until the client has gone.
        while let Some(Ok((request, mut response))) = connection.accept().await {
            requests.push((request.method().to_string(), request.uri().to_string()));
            let mut body = response.send_response(Response::new(()), false).expect("it is open");
            body.send_data(Bytes::from("ok"), true).expect("it is open");
        }
        requests
    };
    let sending = async move {
        for body in ["1", "2"] {
            let response = client.send(post(body), LONG).await.expect("a response");
            assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"ok"[..]));
        }
    };
    let (requests, ()) = tokio::join!(serving, sending);
    let request = ("POST".to_owned(), format!("http://{address}/a?b=c"));
    assert_eq!(requests, [request.clone(), request]);
}

#[test]
fn a_request_that_comes_back_from_http2_is_addressed_for_http1() {
    let client = client(([127, 0, 0, 1], 1).into());
    let mut request = post("1");
    for (is_http2, uri, version) in [
        (true, "http://127.0.0.1:1/a?b=c", http::Version::HTTP_2),
        (false, "/a?b=c", http::Version::HTTP_11),
    ] {
        client.address(&mut request, is_http2);
        assert_eq!((&*request.uri().to_string(), request.version()), (uri, version));
    }
}

#[tokio::test]
async fn a_connection_is_kept_for_the_idle_timeout_unless_a_body_was_rejected() {
    const REJECTED: &str = "HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
    for (idle_timeout, response, is_kept) in
        [(LONG, OK, true), (Duration::ZERO, OK, false), (LONG, REJECTED, false)]
    {
        let (listener, address) = listen().await;
        let config = ConnectConfig { idle_timeout, ..ConnectConfig::default() };
        let client = client_with(address, &config);
        let serving = async {
            let mut stream = listener.accept().await.expect("a client").0;
            respond(&mut stream, response).await;
            stream
        };
        let (sent, _stream) = tokio::join!(client.send(post("1"), LONG), serving);
        sent.expect("a response");
        assert_eq!(client.has_idle(), is_kept, "{idle_timeout} {response:?}");
    }
}

#[tokio::test]
async fn an_error_names_the_server_and_the_step_that_failed() {
    for (response, says) in [
        ("", "no response: "),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "the response broke off: "),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n12345678901234567",
            "the response has more than 16 bytes",
        ),
    ] {
        let (listener, address) = listen().await;
        let serving = async {
            let mut stream = listener.accept().await.expect("a client").0;
            respond(&mut stream, response).await;
        };
        let client = client(address);
        let (sent, ()) = tokio::join!(client.send(post("1"), LONG), serving);
        let error = sent.expect_err("no complete response").to_string();
        assert!(error.starts_with(&format!("http://{address}: {says}")), "{error}");
        assert!(!client.has_idle(), "{response:?}");
    }
    let (listener, address) = listen().await;
    drop(listener);
    let error = client(address).send(post("1"), LONG).await.expect_err("no server");
    assert!(matches!(error, ClientError::Connect(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_with_its_connection() {
    let (listener, address) = listen().await;
    let client = client(address);
    let serving = async {
        let mut stream = listener.accept().await.expect("a client").0;
        // Until the client gives up.
        while stream.read(&mut [0; 256]).await.is_ok_and(|bytes| bytes > 0) {}
    };
    let (sent, ()) = tokio::join!(client.send(post("1"), Duration::from_ms(50)), serving);
    let error = sent.expect_err("no response").to_string();
    assert_eq!(error, format!("http://{address}: no complete response within 50 ms"));
}
