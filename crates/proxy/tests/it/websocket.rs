//! WebSockets over HTTP/2 (RFC 8441): of clients, by the `h2` crate, and of replicas, on hyper.

mod ends;
mod http1_replicas;
mod http2_replicas;

use crate::raw_replica::RawReplica;
use crate::wire::{Message, Wire};
use bytes::{Bytes, BytesMut};
use curtail_http::websocket;
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response};
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// A connection to the proxy that knows that the proxy accepts WebSockets.
struct Http2Client {
    sender: SendRequest<Bytes>,
}

/// The client's side of a stream.
struct ClientStream {
    sender: SendStream<Bytes>,
    receiver: RecvStream,
    unread: BytesMut,
}

impl Http2Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the proxy listens");
        stream.set_nodelay(true).expect("a TCP connection");
        let handshake = h2::client::Builder::new()
            // A stream that is not read does not stop the others.
            .initial_connection_window_size(8 << 20)
            .handshake(stream)
            .await;
        let (sender, connection) = handshake.expect("an HTTP/2 connection");
        tokio::spawn(connection);
        // The setting of the proxy arrives.
        while !sender.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        Self { sender }
    }

    /// Sends a request, and `early` right after it, and waits for the response.
    async fn ask(
        &mut self,
        request: Request<()>,
        early: &'static str,
    ) -> (Response<()>, ClientStream) {
        let (response, mut sender) = self.send(request, false).await;
        if !early.is_empty() {
            sender.send_data(early.into(), false).expect("the stream is open");
        }
        ClientStream::read(response, sender).await
    }

    /// Sends a request that is no handshake, and waits for the response.
    async fn get(&mut self) -> (Response<()>, ClientStream) {
        let request = Request::get("http://service.test/").body(()).expect("a valid request");
        let (response, sender) = self.send(request, true).await;
        ClientStream::read(response, sender).await
    }

    async fn send(
        &mut self,
        request: Request<()>,
        is_end: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut ready = self.sender.clone().ready().await.expect("it is open");
        ready.send_request(request, is_end).expect("it is valid")
    }

    /// Opens a WebSocket.
    async fn open(&mut self) -> ClientStream {
        let (response, stream) = self.ask(handshake(), "").await;
        assert_eq!(response.status(), 200, "{response:?}");
        stream
    }
}

impl ClientStream {
    async fn read(response: ResponseFuture, sender: SendStream<Bytes>) -> (Response<()>, Self) {
        let (head, receiver) = response.await.expect("a response").into_parts();
        let stream = Self { sender, receiver, unread: BytesMut::new() };
        (Response::from_parts(head, ()), stream)
    }

    fn send(&mut self, data: impl Into<Bytes>) {
        self.sender.send_data(data.into(), false).expect("the stream is open");
    }

    /// Says that nothing more will be sent.
    fn end(&mut self) {
        self.sender.send_data(Bytes::new(), true).expect("the stream is open");
    }

    /// The next `len` bytes.
    async fn read_exact(&mut self, len: usize) -> Bytes {
        while self.unread.len() < len {
            let data = self.receiver.data().await.expect("more data").expect("no reset");
            self.receiver.flow_control().release_capacity(data.len()).expect("it was received");
            self.unread.extend_from_slice(&data);
        }
        self.unread.split_to(len).freeze()
    }

    /// The rest, and the code of the reset that ends it.
    async fn read_to_end(mut self) -> (Bytes, Option<Reason>) {
        loop {
            match self.receiver.data().await {
                Some(Ok(data)) => {
                    let flow = self.receiver.flow_control();
                    flow.release_capacity(data.len()).expect("it was received");
                    self.unread.extend_from_slice(&data);
                }
                Some(Err(error)) => return (self.unread.freeze(), error.reason()),
                None => return (self.unread.freeze(), None),
            }
        }
    }
}

/// A WebSocket handshake over HTTP/2.
fn handshake() -> Request<()> {
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://service.test/chat?room=1")
        .extension(Protocol::from_static("websocket"))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat");
    request.body(()).expect("a valid request")
}

/// Checks the response that opens a WebSocket over HTTP/2: it has nothing that only HTTP/1.1 has.
fn assert_opened(response: &Response<()>) {
    assert_eq!(response.status(), 200, "{response:?}");
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
    for gone in ["upgrade", "connection", "sec-websocket-accept", "content-length"] {
        assert!(!response.headers().contains_key(gone), "{response:?}");
    }
}

/// A WebSocket handshake over HTTP/1.1, with the key of RFC 6455, section 1.3.
const HTTP1_HANDSHAKE: &str = "GET /chat?room=1 HTTP/1.1\r\nhost: service.test\r\n\
    connection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The response to that key.
const HTTP1_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The response of an HTTP/1.1 replica that opens the WebSocket.
fn agreement(request: &Message) -> String {
    let key = request.head.get("sec-websocket-key").expect("the proxy sends a key");
    let accept = websocket::derive_accept(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {accept}\r\nsec-websocket-protocol: chat\r\n\r\n"
    )
}

/// A replica that opens WebSockets and sends every byte back, and a last word when the client has ended. Other requests
/// get a response.
async fn echoing() -> RawReplica {
    RawReplica::start(|mut wire, record, _| async move {
        while let Some(request) = record.read(&mut wire).await {
            if request.head.get("upgrade").is_some() {
                return echo(wire, &request).await;
            }
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain").await;
        }
    })
    .await
}

async fn echo(mut wire: Wire, request: &Message) {
    wire.send(agreement(request)).await;
    while let Ok(byte) = wire.read_exact(1).await {
        wire.send(byte).await;
    }
    // The other side may have gone.
    wire.write("the last word").await.ok();
}
