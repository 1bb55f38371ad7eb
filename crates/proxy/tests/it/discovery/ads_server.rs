//! A control plane of Envoy with one assignment, over ADS, which fails on command.

use crate::body::{self, Body};
use crate::replica::{Replica, Speaks};
use bytes::{Buf as _, Bytes, BytesMut};
use curtail_protobuf::{Fields, Value, bytes_field, message_field, varint_field};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

const TYPE_URL: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The way in which a control plane fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Streams end with this gRPC status.
    Status(u8),
    /// One stream ends without an error.
    OneEnd,
    /// A message that claims to have a gigabyte, and has no end.
    Gigabyte,
    /// A message that is no protobuf.
    Nonsense,
}

/// A request of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) version: String,
    pub(super) cluster: String,
    pub(super) nonce: String,
    /// The message of `error_detail`.
    pub(super) error: Option<String>,
    pub(super) node: String,
}

/// A server that runs until it is dropped.
pub(super) struct AdsServer {
    replica: Replica,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    version: u64,
    assignment: Option<Vec<u8>>,
    fault: Option<Fault>,
    requests: Vec<Sent>,
    nonces: u64,
}

/// An endpoint: its host, its port, and its health status.
pub(super) type Endpoint = (String, u16, u64);

/// A healthy endpoint.
pub(super) fn healthy(address: SocketAddr) -> Endpoint {
    (address.ip().to_string(), address.port(), 1)
}

impl AdsServer {
    /// Starts a control plane that has no assignment yet.
    pub(super) async fn start_at(address: SocketAddr) -> Self {
        let (changed, _) = watch::channel(());
        let shared = Arc::new(Shared { state: Mutex::default(), changed });
        let serving = Arc::clone(&shared);
        let replica = Replica::start_at(address, Speaks::Http2, move |request| {
            std::future::ready(respond(&serving, request))
        });
        Self { replica: replica.await, shared }
    }

    pub(super) async fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.replica.address()
    }

    /// Sends an assignment: the endpoints of each priority.
    pub(super) fn set(&self, priorities: &[&[Endpoint]]) {
        self.shared.change(|state| {
            state.version += 1;
            state.assignment = Some(assignment(priorities));
        });
    }

    pub(super) fn set_fault(&self, fault: Option<Fault>) {
        self.shared.change(|state| state.fault = fault);
    }

    /// Waits for a request like this one.
    pub(super) async fn until_sent(&self, is: impl Fn(&Sent) -> bool) -> Sent {
        let mut changed = self.shared.changed.subscribe();
        loop {
            let found = self.requests().into_iter().find(&is);
            if let Some(found) = found {
                return found;
            }
            changed.changed().await.expect("the server runs");
        }
    }

    pub(super) fn requests(&self) -> Vec<Sent> {
        self.shared.lock().requests.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.send_replace(());
    }
}

fn assignment(priorities: &[&[Endpoint]]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes_field(&mut out, 1, b"search");
    for (priority, endpoints) in (0..).zip(priorities) {
        message_field(&mut out, 2, |locality| {
            for (host, port, health) in *endpoints {
                message_field(locality, 2, |lb_endpoint| {
                    message_field(lb_endpoint, 1, |endpoint| {
                        message_field(endpoint, 1, |address| {
                            message_field(address, 1, |socket| {
                                bytes_field(socket, 2, host.as_bytes());
                                varint_field(socket, 3, u64::from(*port));
                            });
                        });
                    });
                    varint_field(lb_endpoint, 2, *health);
                });
            }
            varint_field(locality, 5, priority);
        });
    }
    out
}

fn respond(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    assert_eq!(request.uri().path(), path);
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let (sender, body) = body::channel();
    tokio::spawn(read(Arc::clone(shared), request.into_body()));
    tokio::spawn(write(Arc::clone(shared), sender));
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

/// Puts down the requests of a stream until it ends.
async fn read(shared: Arc<Shared>, mut body: Incoming) {
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(&[0, a, b, c, d]) = buffer.first_chunk::<5>() {
            let len = u32::from_be_bytes([a, b, c, d]) as usize;
            if buffer.len() < 5 + len {
                break;
            }
            buffer.advance(5);
            let request = decode(&buffer.split_to(len));
            shared.change(|state| state.requests.push(request));
        }
    }
}

fn decode(message: &[u8]) -> Sent {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let second = |bytes: &[u8], wanted: u64| {
        Fields(bytes).find_map(|field| match field {
            (number, Value::Bytes(bytes)) if number == wanted => Some(text(bytes)),
            _ => None,
        })
    };
    let mut sent = Sent::default();
    for field in Fields(message) {
        match field {
            (1, Value::Bytes(bytes)) => sent.version = text(bytes),
            (2, Value::Bytes(bytes)) => sent.node = second(bytes, 1).expect("a node has an ID"),
            (3, Value::Bytes(bytes)) => sent.cluster = text(bytes),
            (4, Value::Bytes(bytes)) => assert_eq!(bytes, TYPE_URL.as_bytes()),
            (5, Value::Bytes(bytes)) => sent.nonce = text(bytes),
            (6, Value::Bytes(bytes)) => sent.error = second(bytes, 2),
            other => panic!("{other:?}"),
        }
    }
    sent
}

/// Sends each version of the assignment, until the proxy has gone.
async fn write(shared: Arc<Shared>, sender: body::Sender) {
    let mut changed = shared.changed.subscribe();
    let mut sent = 0;
    loop {
        changed.mark_unchanged();
        let (fault, version, message) = {
            let mut state = shared.lock();
            state.nonces += 1;
            let message = state
                .assignment
                .as_ref()
                .map(|assignment| response(state.version, state.nonces, assignment));
            let fault = state.fault;
            state.fault = fault.filter(|fault| *fault != Fault::OneEnd);
            (fault, state.version, message)
        };
        match (fault, message) {
            (Some(Fault::Status(code)), _) => return end(sender, code).await,
            (Some(Fault::OneEnd), _) => return end(sender, 0).await,
            (Some(Fault::Gigabyte), _) => {
                sender.data(Bytes::from_static(b"\0\x40\0\0\0")).await;
                while sender.data(vec![0; 64 << 10]).await {}
                return;
            }
            (Some(Fault::Nonsense), _) => {
                sender.data(Bytes::from_static(b"\0\0\0\0\x02\x0a\x09")).await;
            }
            (None, Some(message)) if version > sent => {
                sent = version;
                // Pieces, as a network makes them.
                let (start, rest) = message.split_at(3);
                if !sender.data(start.to_vec()).await || !sender.data(rest.to_vec()).await {
                    return;
                }
            }
            (None, _) => {}
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

fn response(version: u64, nonce: u64, assignment: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    bytes_field(&mut message, 1, version.to_string().as_bytes());
    message_field(&mut message, 2, |any| {
        bytes_field(any, 1, TYPE_URL.as_bytes());
        bytes_field(any, 2, assignment);
    });
    bytes_field(&mut message, 4, TYPE_URL.as_bytes());
    bytes_field(&mut message, 5, format!("nonce-{nonce}").as_bytes());
    let len = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[0], &len[..], &message].concat()
}

async fn end(sender: body::Sender, code: u8) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", u16::from(code).into());
    trailers.insert("grpc-message", HeaderValue::from_static("this server fails"));
    sender.trailers(trailers).await;
}
