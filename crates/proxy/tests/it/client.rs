//! Clients before the proxy, over HTTP/1.1 and HTTP/2, in clear text and under TLS.

use crate::body::{self, Body};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The name that clients ask for.
pub(crate) const HOST: &str = "service.test";

/// A connection to the proxy.
pub(crate) enum Client {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct FullResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// Connects under TLS, to the proxy whose certificate is for `name`.
pub(crate) async fn tls_stream(
    address: SocketAddr,
    name: &'static str,
    config: Arc<rustls::ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.expect("the proxy listens");
    let name = ServerName::try_from(name).expect("a name");
    TlsConnector::from(config).connect(name, stream).await
}

impl Client {
    /// Connects in clear text; HTTP/2 with prior knowledge.
    pub(crate) async fn connect(address: SocketAddr, version: Version) -> Self {
        let stream = TcpStream::connect(address).await.expect("the proxy listens");
        stream.set_nodelay(true).expect("a TCP connection");
        Self::over(stream, version == Version::HTTP_2).await
    }

    /// Connects under TLS, to the proxy whose certificate is for `localhost`, and speaks what is negotiated.
    pub(crate) async fn connect_tls(
        address: SocketAddr,
        config: Arc<rustls::ClientConfig>,
    ) -> std::io::Result<Self> {
        let stream = tls_stream(address, "localhost", config).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Self::over(stream, is_http2).await)
    }

    /// Speaks HTTP over an open connection.
    pub(crate) async fn over<S>(stream: S, is_http2: bool) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        if is_http2 {
            let connected = http2::handshake(TokioExecutor::new(), io).await;
            let (sender, connection) = connected.expect("an HTTP/2 connection");
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.expect("an HTTP/1.1 connection");
            tokio::spawn(connection.with_upgrades());
            Self::Http1(sender)
        }
    }

    /// Another handle on the same HTTP/2 connection.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Http1(_) => panic!("an HTTP/1.1 connection carries one request at a time"),
            Self::Http2(sender) => Self::Http2(sender.clone()),
        }
    }

    pub(crate) const fn version(&self) -> Version {
        match self {
            Self::Http1(_) => Version::HTTP_11,
            Self::Http2(_) => Version::HTTP_2,
        }
    }

    /// Whether another request can be sent on this connection.
    pub(crate) async fn is_open(&mut self) -> bool {
        match self {
            Self::Http1(sender) => sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn try_send(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Sends a request and reads its response to the end, which must come.
    pub(crate) async fn send(&mut self, request: Request<Body>) -> FullResponse {
        let response = self.try_send(request).await.expect("a response");
        FullResponse::read(response).await.expect("a whole response")
    }

    pub(crate) async fn get(&mut self, path: &str) -> FullResponse {
        let request = self.request("GET", path);
        self.send(request).await
    }

    /// A request without a body, in the form that this connection wants.
    pub(crate) fn request(&self, method: &str, path: &str) -> Request<Body> {
        self.request_with(method, path, body::empty())
    }

    /// A request with a body, in the form that this connection wants.
    pub(crate) fn request_with(&self, method: &str, path: &str, body: Body) -> Request<Body> {
        let builder = Request::builder().method(method);
        let builder = match self {
            Self::Http1(_) => builder.uri(path).header("host", HOST),
            Self::Http2(_) => builder.uri(format!("http://{HOST}{path}")),
        };
        builder.body(body).expect("a valid request")
    }
}

impl FullResponse {
    pub(crate) async fn read(response: Response<Incoming>) -> hyper::Result<Self> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        Ok(Self { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    /// The value of a field that is there at most once.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let all: Vec<_> = self.headers.get_all(name).iter().collect();
        assert!(all.len() < 2, "{name} is there {} times: {:?}", all.len(), self.headers);
        all.first().map(|value| value.to_str().expect("plain text"))
    }

    /// The name of what went wrong, if the proxy says that something did.
    pub(crate) fn error(&self) -> Option<&str> {
        self.get("curtail-error")
    }
}
