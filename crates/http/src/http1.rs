//! HTTP/1.1 with servers ([`ClientConnection`]) and with clients ([`Server`]).
//!
//! Both sides drive a connection in the task that uses it, so no other task has to be woken. If a reader understands a
//! length differently from the sender, it confuses two messages (request smuggling, response splitting). Both sides
//! therefore reject a message that could be read in two ways.
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
pub(crate) use server::with_date;
pub use server::{InterimSink, RequestBody, Server, ServerLimits, UpgradedConnection};

use crate::replay::BodyError;
use std::io;

/// Why a message cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No part of the request was sent.
    #[error("the connection was closed before it accepted a byte of the request: {0}")]
    Unwritten(io::Error),
    /// The server closed the connection before its response.
    #[error("the connection was closed before the first byte of the response")]
    NoResponse(#[source] Option<io::Error>),
    /// The connection ended within a message.
    #[error("the connection was closed before the message was complete")]
    Incomplete(#[source] Option<io::Error>),
    /// The other side does not speak HTTP/1.1.
    #[error("not a valid HTTP/1.1 message: {0}")]
    Malformed(&'static str),
    /// The body of a request cannot be sent.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body of a response broke off.
    #[error(transparent)]
    Response(Box<dyn std::error::Error + Send + Sync>),
    /// The body contradicts its announced length.
    #[error("the body contradicts its announced length")]
    BodyLength,
}

impl Error {
    /// Whether a write timed out because the other side read nothing.
    fn is_timeout(&self) -> bool {
        matches!(self, Self::Incomplete(Some(source)) if source.kind() == io::ErrorKind::TimedOut)
    }
}
