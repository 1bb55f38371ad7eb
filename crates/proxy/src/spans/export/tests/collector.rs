//! A receiver of spans on a real socket, with scripted responses.

use crate::config::{ReplicaUrl, SpansConfig, SpansProtocol};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The response to an export request.
#[derive(Clone, Debug)]
pub(super) enum ScriptedResponse {
    /// Everything is taken.
    Taken,
    /// All spans but this number are accepted.
    TakenBut(u8),
    /// An HTTP status, with `retry-after` if there is one.
    Status(u16, Option<&'static str>),
    /// A gRPC status without a message.
    GrpcStatus(&'static str),
    /// Taken, and the connection is closed after it.
    TakenAndClosed,
    /// No response at all.
    Silence,
}

/// What arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) uri: String,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A receiver that serves until it is dropped with its runtime.
pub(super) struct Collector {
    pub(super) config: SpansConfig,
    socket: Option<socket2::Socket>,
    script: Arc<Mutex<VecDeque<ScriptedResponse>>>,
    arrived: mpsc::Receiver<Arrived>,
    arriving: mpsc::Sender<Arrived>,
}

impl Collector {
    /// A receiver that sends these responses in order, and then accepts everything.
    pub(super) fn new(
        protocol: SpansProtocol,
        script: impl IntoIterator<Item = ScriptedResponse>,
    ) -> Self {
        let mut collector = Self::away(protocol, script);
        collector.come_back();
        collector
    }

    /// A receiver that is down: its port is reserved, and nothing listens on it.
    pub(super) fn away(
        protocol: SpansProtocol,
        script: impl IntoIterator<Item = ScriptedResponse>,
    ) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket");
        let any = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&any.into()).expect("a free port");
        let address = socket.local_addr().expect("an address").as_socket().expect("IPv4");
        let endpoint = ReplicaUrl::parse(&format!("http://{address}")).expect("an address");
        let (arriving, arrived) = mpsc::channel(1_024);
        Self {
            config: SpansConfig {
                endpoint,
                protocol,
                service_name: "tested".to_owned(),
                ca_file: None,
                token_file: None,
                tenant: None,
            },
            socket: Some(socket),
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            arrived,
            arriving,
        }
    }

    /// Begins to listen.
    pub(super) fn come_back(&mut self) {
        let socket = self.socket.take().expect("it was away");
        socket.listen(16).expect("it listens");
        socket.set_nonblocking(true).expect("it is asynchronous");
        let listener = TcpListener::from_std(socket.into()).expect("a runtime");
        let (protocol, script) = (self.config.protocol, Arc::clone(&self.script));
        let arriving = self.arriving.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, arriving) = (Arc::clone(&script), arriving.clone());
                let service = service_fn(move |request| {
                    respond(protocol, request, Arc::clone(&script), arriving.clone())
                });
                let io = TokioIo::new(stream);
                match protocol {
                    SpansProtocol::Http => {
                        tokio::spawn(http1::Builder::new().serve_connection(io, service));
                    }
                    SpansProtocol::Grpc => {
                        let server = http2::Builder::new(TokioExecutor::new());
                        tokio::spawn(server.serve_connection(io, service));
                    }
                }
            }
        });
    }

    /// The next arrival, whatever its response.
    pub(super) async fn next(&mut self) -> Arrived {
        let next = tokio::time::timeout(Duration::from_secs(60), self.arrived.recv());
        next.await.expect("something arrives within a minute").expect("the sender is kept")
    }

    /// What has arrived and was not looked at.
    pub(super) fn rest(&mut self) -> Vec<Arrived> {
        std::iter::from_fn(|| self.arrived.try_recv().ok()).collect()
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn respond(
    protocol: SpansProtocol,
    request: Request<Incoming>,
    script: Arc<Mutex<VecDeque<ScriptedResponse>>>,
    arriving: mpsc::Sender<Arrived>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    // A sender that gives up in the middle has sent nothing.
    let Ok(body) = body.collect().await else {
        std::future::pending::<()>().await;
        unreachable!("pending never ends");
    };
    let (body, headers) = (body.to_bytes(), head.headers);
    let (uri, version) = (head.uri.to_string(), head.version);
    let response =
        script.lock().expect("unpoisoned").pop_front().unwrap_or(ScriptedResponse::Taken);
    arriving.send(Arrived { uri, version, headers, body }).await.ok();
    Ok(match response {
        ScriptedResponse::Taken => taken(protocol, &[]),
        // partial_success { rejected_spans, error_message: "no" }.
        ScriptedResponse::TakenBut(spans) => {
            taken(protocol, &[0x0a, 6, 0x08, spans, 0x12, 2, b'n', b'o'])
        }
        ScriptedResponse::Status(status, retry_after) => {
            let mut response = Response::new(Full::default().boxed());
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            if let Some(after) = retry_after {
                let after = HeaderValue::from_static(after);
                response.headers_mut().insert("retry-after", after);
            }
            response
        }
        ScriptedResponse::GrpcStatus(status) => {
            let mut response = Response::new(Full::default().boxed());
            let headers = response.headers_mut();
            headers.insert("content-type", HeaderValue::from_static("application/grpc"));
            headers.insert("grpc-status", HeaderValue::from_static(status));
            headers.insert("grpc-message", HeaderValue::from_static("scripted"));
            response
        }
        ScriptedResponse::TakenAndClosed => {
            let mut response = taken(protocol, &[]);
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert("connection", close);
            response
        }
        ScriptedResponse::Silence => {
            std::future::pending::<()>().await;
            unreachable!("pending never ends")
        }
    })
}

/// `ExportTraceServiceResponse` made of `message`, in the frame of the transport.
fn taken(protocol: SpansProtocol, message: &[u8]) -> Response<Body> {
    match protocol {
        SpansProtocol::Http => {
            let mut response = Response::new(Full::new(Bytes::copy_from_slice(message)).boxed());
            let kind = HeaderValue::from_static("application/x-protobuf");
            response.headers_mut().insert("content-type", kind);
            response
        }
        SpansProtocol::Grpc => {
            let len = u32::try_from(message.len()).expect("a short message").to_be_bytes();
            let framed = [&[0][..], &len, message].concat();
            let trailers = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                HeaderValue::from_static("0"),
            )]);
            let body = Full::new(Bytes::from(framed)).with_trailers(async { Some(Ok(trailers)) });
            let mut response = Response::new(body.boxed());
            let kind = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert("content-type", kind);
            response
        }
    }
}
