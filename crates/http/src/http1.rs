//! HTTP/1.1 with servers ([`ClientConnection`]) and with clients ([`Server`]).
//!
//! Both sides drive a connection in the very task that uses it: nobody else has to be woken. Whoever reads
//! a length in another way than its sender meant it takes one message for another (request smuggling,
//! response splitting), so what could be read in two ways is refused on both.
//!
//! **Source**: RFC 9112.

mod chunked;
mod client;
mod fields;
mod framing;
mod inbound;
mod outbound;
mod server;

pub use client::ClientConnection;
pub(crate) use fields::HEAD_BYTES_MAX;
pub use server::{InterimSink, RequestBody, Server, ServerLimits, Service, UpgradedConnection};

use crate::replay::BodyError;
use std::io;

/// What goes wrong with a message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection took nothing of the request.
    #[error("the connection was closed before a byte of the request was taken: {0}")]
    Unwritten(io::Error),
    /// The other side closed the connection before its response.
    #[error("the connection was closed before a byte of the response came")]
    NoResponse(#[source] Option<io::Error>),
    /// The connection ended within a message.
    #[error("the connection was closed before the message was whole")]
    Incomplete(#[source] Option<io::Error>),
    /// The other side does not speak HTTP/1.1.
    #[error("what came is no message of HTTP/1.1: {0}")]
    Malformed(&'static str),
    /// The body of a request cannot be sent.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body of a response broke off.
    #[error(transparent)]
    Response(Box<dyn std::error::Error + Send + Sync>),
    /// The body contradicts its announced length.
    #[error("the body is not as long as was announced")]
    BodyLength,
}

impl Error {
    /// Whether a write timed out because the other side read nothing.
    fn is_timeout(&self) -> bool {
        matches!(self, Self::Incomplete(Some(source)) if source.kind() == io::ErrorKind::TimedOut)
    }
}
