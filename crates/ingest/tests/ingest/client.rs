//! A sender of OTLP.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io::Write as _;
use std::net::SocketAddr;
use tokio::net::TcpStream;

pub(crate) const TRACES: &str = "/v1/traces";
pub(crate) const GRPC_TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// An response, with all that it had.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl TestResponse {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name).or_else(|| self.trailers.get(name))?;
        Some(value.to_str().expect("text"))
    }
}

/// A request to be sent to a path.
pub(crate) fn post(path: &str, content_type: &str) -> http::request::Builder {
    Request::post(path).header("content-type", content_type).header("te", "trailers")
}

/// Sends a request over a connection of its own.
pub(crate) async fn send(
    to: SocketAddr,
    version: Version,
    head: http::request::Builder,
    body: impl Into<Bytes>,
) -> TestResponse {
    let stream = TokioIo::new(TcpStream::connect(to).await.expect("it listens"));
    let head = head.header("host", to.to_string());
    let body = Full::new(body.into());
    if version == Version::HTTP_2 {
        let head = head.uri_with_authority(to);
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
        let driving = tokio::spawn(connection);
        let response = sender.send_request(head.body(body).expect("a request")).await;
        let response = collect(response.expect("an response")).await;
        driving.abort();
        response
    } else {
        let (mut sender, connection) = http1::handshake(stream).await.expect("HTTP/1.1");
        let driving = tokio::spawn(connection);
        let response = sender.send_request(head.body(body).expect("a request")).await;
        let response = collect(response.expect("an response")).await;
        driving.abort();
        response
    }
}

async fn collect(response: http::Response<hyper::body::Incoming>) -> TestResponse {
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body");
    let trailers = body.trailers().cloned().unwrap_or_default();
    TestResponse { status: head.status, headers: head.headers, body: body.to_bytes(), trailers }
}

trait WithAuthority {
    fn uri_with_authority(self, to: SocketAddr) -> Self;
}

impl WithAuthority for http::request::Builder {
    /// Over HTTP/2 a request says whom it asks in its target.
    fn uri_with_authority(self, to: SocketAddr) -> Self {
        let path = self.uri_ref().expect("a target").path().to_owned();
        self.uri(format!("http://{to}{path}"))
    }
}

/// In gRPC's frame.
pub(crate) fn framed(message: &[u8], is_compressed: bool) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("short");
    [&[u8::from(is_compressed)], &len.to_be_bytes()[..], message].concat()
}

/// Compressed as this encoding says.
pub(crate) fn compressed(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).expect("compressed");
            encoder.finish().expect("compressed")
        }
        "deflate" | "zlib" => {
            let mut encoder =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).expect("compressed");
            encoder.finish().expect("compressed")
        }
        "snappy" => {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).expect("compressed");
            encoder.into_inner().expect("compressed")
        }
        "lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).expect("compressed");
            encoder.finish().expect("compressed")
        }
        "zstd" => zstd::encode_all(bytes, 1).expect("compressed"),
        "identity" => bytes.to_vec(),
        other => panic!("{other} is not known here"),
    }
}
