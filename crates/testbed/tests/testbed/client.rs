//! A client that asks one server, one request after the other on one connection.

use bytes::Bytes;
use curtail_testbed::{Running, TestbedConfig};
use curtail_units::{Duration, Instant};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::sync::Arc;

/// The version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Empty<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Empty<Bytes>>),
}

/// A connection to one server.
pub(crate) struct Client {
    sender: Sender,
}

/// A response with its whole body.
pub(crate) struct FullResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// `queue`, `service` and `fault` of `server-timing`; zero when there is none.
    pub(crate) spent: [Duration; 3],
}

/// When a request was sent and when its response was there, on the testbed's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) sent: Instant,
    pub(crate) responded: Instant,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, version: Version) -> Self {
        let io = TokioIo::new(tokio::net::TcpStream::connect(address).await.expect("it listens"));
        let sender = match version {
            Version::Http1 => {
                let (sender, connection) =
                    hyper::client::conn::http1::handshake(io).await.expect("a connection");
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Version::Http2 => {
                let (sender, connection) =
                    hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                        .await
                        .expect("a connection");
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        Self { sender }
    }

    pub(crate) async fn send(&mut self, request: Request<Empty<Bytes>>) -> FullResponse {
        self.try_send(request).await.expect("a response")
    }

    pub(crate) async fn try_send(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> hyper::Result<FullResponse> {
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await.expect("the connection is kept alive");
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await.expect("the connection is kept alive");
                sender.send_request(request).await
            }
        };
        Ok(FullResponse::of(response?).await)
    }

    pub(crate) async fn get(&mut self, path: &str) -> FullResponse {
        self.send(request("GET", path)).await
    }

    /// Reads one key of shard 0 and tells when.
    pub(crate) async fn read(&mut self, testbed: &Running) -> (Stay, FullResponse) {
        let sent = testbed.now();
        let response = self.get("/shard/0/keys?k=a").await;
        (Stay { sent, responded: testbed.now() }, response)
    }
}

impl FullResponse {
    async fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let timing = head.headers.get("server-timing").map(|value| {
            let text = value.to_str().expect("plain text");
            ["queue", "service", "fault"].map(|name| duration(text, name))
        });
        let body = body.collect().await.expect("a whole body").to_bytes();
        Self {
            status: head.status,
            body: String::from_utf8(body.to_vec()).expect("text"),
            spent: timing.unwrap_or_default(),
        }
    }
}

fn duration(timing: &str, name: &str) -> Duration {
    let part = timing.split(", ").find(|part| part.starts_with(name)).expect("all three are there");
    let ms: f64 = part.split("dur=").nth(1).expect("a value").parse().expect("a number");
    Duration::from_secs_f64(ms / 1_000.0)
}

pub(crate) fn request(method: &str, path: &str) -> Request<Empty<Bytes>> {
    let builder = Request::builder().method(method).uri(format!("http://testbed{path}"));
    // HTTP/1.1 clients send a path and the host; HTTP/2 takes both from the whole URL.
    builder.header("host", "testbed").body(Empty::new()).expect("a valid request")
}

/// Starts what `yaml` describes.
pub(crate) fn start(yaml: &str, seed: u64) -> Arc<Running> {
    let config = TestbedConfig::from_yaml("test.yaml", yaml).expect("no errors");
    Arc::new(Running::start(&config, seed).expect("loopback and threads"))
}
