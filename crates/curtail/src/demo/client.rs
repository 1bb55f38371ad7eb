//! The client's connections.
//!
//! Directly to servers it speaks HTTP/1.1, one request at a time on a connection, kept alive; to proxies
//! HTTP/2 with prior knowledge, [`HTTP2_CONNECTIONS`] connections for all requests. Everything runs on one
//! thread.
//! **Limits**: connections are made when they are needed and never given up; how many there can be follows
//! from the bound on reads in flight. A request that takes longer than [`PATIENCE`] has failed.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// A request that takes longer has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Connections to one proxy: one would put all requests behind each other's frames.
const HTTP2_CONNECTIONS: usize = 4;

/// What a request is made of: everything is in its head.
pub(crate) type Outgoing = Request<Empty<Bytes>>;

/// Why a request failed, in words.
pub(crate) type Failure = String;

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Http1 {
    address: SocketAddr,
    idle: RefCell<Vec<http1::SendRequest<Empty<Bytes>>>>,
}

/// The connections to one proxy.
#[derive(Debug)]
pub(crate) struct Http2 {
    connections: Vec<http2::SendRequest<Empty<Bytes>>>,
    next: Cell<usize>,
}

impl Http1 {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, idle: RefCell::default() }
    }

    /// Sends `request` and takes the whole answer.
    pub(crate) async fn ask(&self, request: Outgoing) -> Result<(), Failure> {
        let idle = self.idle.borrow_mut().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect().await.map_err(|e| format!("{}: {e}", self.address))?,
        };
        let exchange = async {
            // Ready when the answer before is through, which it is, or closed.
            connection.ready().await?;
            let response = connection.send_request(request).await?;
            finish(response).await
        };
        let status = exchange.await.map_err(|error| format!("{}: {error}", self.address))?;
        self.idle.borrow_mut().push(connection);
        expect_ok(status)
    }

    async fn connect(
        &self,
    ) -> Result<http1::SendRequest<Empty<Bytes>>, Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its end is seen by the next who asks.
        drop(tokio::spawn(connection));
        Ok(sender)
    }
}

impl Http2 {
    /// Connects to the proxy at `address`.
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..HTTP2_CONNECTIONS {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let executor = TokioExecutor::new();
            let (sender, connection) = http2::handshake(executor, TokioIo::new(stream)).await?;
            drop(tokio::spawn(connection));
            connections.push(sender);
        }
        Ok(Self { connections, next: Cell::new(0) })
    }

    /// Sends `request` and takes the whole answer.
    pub(crate) async fn ask(&self, request: Outgoing) -> Result<(), Failure> {
        let next = self.next.get();
        self.next.set((next + 1) % self.connections.len());
        let mut connection = self.connections[next].clone();
        let exchange = async {
            connection.ready().await?;
            let response = connection.send_request(request).await?;
            finish(response).await
        };
        expect_ok(exchange.await.map_err(|error| error.to_string())?)
    }
}

async fn finish(response: http::Response<Incoming>) -> hyper::Result<StatusCode> {
    let (head, mut body) = response.into_parts();
    while let Some(frame) = body.frame().await {
        // The values themselves are of no interest here, only that all of them came.
        drop(frame?);
    }
    Ok(head.status)
}

fn expect_ok(status: StatusCode) -> Result<(), Failure> {
    if status == StatusCode::OK { Ok(()) } else { Err(format!("status {status}")) }
}
