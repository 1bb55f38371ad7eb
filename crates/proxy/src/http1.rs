//! HTTP/1.1 as we speak it with replicas ([`Http1`]) and with clients ([`Server`]).
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

pub(crate) use client::Http1;
pub(crate) use fields::HEAD_BYTES_MAX;
pub(crate) use server::{Answers, InterimSink, RequestBody, Server};

use crate::body::BodyError;
use std::io;

/// What goes wrong with a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the connection was closed before a byte of the request was taken: {0}")]
    Unwritten(io::Error),
    #[error("the connection was closed before a byte of the answer came")]
    Unanswered(#[source] Option<io::Error>),
    #[error("the connection was closed before the message was whole")]
    CutShort(#[source] Option<io::Error>),
    #[error("what came is no message of HTTP/1.1: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Answer(Box<dyn std::error::Error + Send + Sync>),
    #[error("the body is not as long as was announced")]
    BodyLength,
}

impl Error {
    /// Whether a write timed out because the other side read nothing.
    fn is_timeout(&self) -> bool {
        matches!(self, Self::CutShort(Some(source)) if source.kind() == io::ErrorKind::TimedOut)
    }
}
