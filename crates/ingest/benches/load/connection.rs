//! One connection to a server, with one batch on its way.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::str::FromStr;
use tokio::net::TcpStream;

/// How batches are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
}

/// gRPC's acknowledgement: an empty message in its frame.
const TAKEN: &[u8] = &[0; 5];

pub(crate) struct Connection {
    to: SocketAddr,
    sender: Sender,
}

enum Sender {
    Http(http1::SendRequest<Full<Bytes>>),
    Grpc(http2::SendRequest<Full<Bytes>>),
}

impl FromStr for Protocol {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "http" => Ok(Self::Http),
            "grpc" => Ok(Self::Grpc),
            _ => Err(()),
        }
    }
}

impl Protocol {
    /// How many bytes stand before the message.
    pub(crate) const fn prefix(self) -> usize {
        match self {
            Self::Http => 0,
            Self::Grpc => 5,
        }
    }

    /// A batch as a body.
    pub(crate) fn framed(self, batch: Vec<u8>) -> Bytes {
        match self {
            Self::Http => batch.into(),
            Self::Grpc => {
                let len = u32::try_from(batch.len()).expect("less than a megabyte");
                [&[0], &len.to_be_bytes()[..], &batch].concat().into()
            }
        }
    }
}

impl Connection {
    pub(crate) async fn open(to: SocketAddr, protocol: Protocol) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{to}: {error}");
        let stream = TcpStream::connect(to).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let stream = TokioIo::new(stream);
        // What becomes of the connection is seen by who sends.
        let sender = match protocol {
            Protocol::Http => {
                let made = http1::handshake(stream).await.map_err(|error| failed(&error))?;
                drop(tokio::spawn(made.1));
                Sender::Http(made.0)
            }
            Protocol::Grpc => {
                let made = http2::handshake(TokioExecutor::new(), stream).await;
                let made = made.map_err(|error| failed(&error))?;
                drop(tokio::spawn(made.1));
                Sender::Grpc(made.0)
            }
        };
        Ok(Self { to, sender })
    }

    /// Sends a batch; all of it must be taken.
    pub(crate) async fn send(&mut self, batch: Bytes) -> Result<(), String> {
        let (path, content_type) = match self.sender {
            Sender::Http(_) => ("/v1/traces", "application/x-protobuf"),
            Sender::Grpc(_) => {
                ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", "application/grpc")
            }
        };
        let request = Request::post(format!("http://{}{path}", self.to))
            .header("host", self.to.to_string())
            .header("content-type", content_type)
            .header("te", "trailers")
            .body(Full::new(batch))
            .map_err(|error| format!("{path}: {error}"))?;
        let exchanged = async {
            let response = match &mut self.sender {
                Sender::Http(sender) => sender.send_request(request).await?,
                Sender::Grpc(sender) => sender.send_request(request).await?,
            };
            let (head, body) = response.into_parts();
            Ok::<_, hyper::Error>((head, body.collect().await?))
        };
        let (head, body) = exchanged.await.map_err(|error| format!("{}: {error}", self.to))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let body = body.to_bytes();
        let is_taken = head.status == StatusCode::OK
            && match self.sender {
                Sender::Http(_) => body.is_empty(),
                Sender::Grpc(_) => body == TAKEN && is_ok(&head.headers, &trailers),
            };
        if is_taken {
            return Ok(());
        }
        let (status, headers) = (head.status, head.headers);
        Err(format!("{}: not taken: {status}, {headers:?}, {trailers:?}, {body:?}", self.to))
    }
}

fn is_ok(headers: &HeaderMap, trailers: &HeaderMap) -> bool {
    trailers
        .get("grpc-status")
        .or_else(|| headers.get("grpc-status"))
        .is_some_and(|code| code == "0")
}
