//! Why a connection or a stream ended.

use crate::http1::HEAD_BYTES_MAX;
use crate::replay::BodyError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// An error code of HTTP/2 (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub(super) u32);

#[expect(missing_docs, reason = "these are the names of the RFC")]
impl ErrorCode {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match names.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {}", self.0),
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The other side closed the connection.
    #[error("the other side closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[source] Arc<io::Error>),
    /// The other side violated the protocol, or a limit; it got a GOAWAY.
    #[error("{code}: {why}")]
    Violation {
        /// The code in the GOAWAY.
        code: ErrorCode,
        /// What it did.
        why: &'static str,
    },
    /// The other side ended the connection with a GOAWAY.
    #[error("the other side ended the connection with GOAWAY {0}")]
    GoneAway(ErrorCode),
    /// The other side does not respond to a ping.
    #[error("the other side did not respond to a ping in time")]
    Silent,
    /// This side closed the connection because it is no longer needed.
    #[error("the connection is no longer needed")]
    Unneeded,
    /// No complete SETTINGS, or no complete head of a request, arrived in time.
    #[error("no complete SETTINGS or request headers arrived in time")]
    HeaderTimeout,
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// Why an exchange over HTTP/2 ended before it was complete.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No part of the request was sent.
    #[error("the connection ended before the request was written: {0}")]
    Unwritten(#[source] ConnectionError),
    /// The other side has lowered its limit of streams, and all allowed streams are open.
    #[error("the other side allows no further stream on the connection")]
    NoStream,
    /// The other side's GOAWAY excludes the stream, which it has not processed and will not process.
    #[error("the other side ended the connection with GOAWAY {0} before it processed the request")]
    Unprocessed(ErrorCode),
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The other side reset the stream.
    #[error("the other side reset the stream: {0}")]
    Reset(ErrorCode),
    /// This side reset the stream, because what came over it is not valid.
    #[error("not a valid HTTP/2 message: {0}")]
    Malformed(&'static str),
    /// This side has ended the stream.
    #[error("the stream was cancelled")]
    Cancelled,
    /// This side has reset the stream, because the body of the request did not end.
    #[error("the request could not be sent: {0}")]
    Body(#[source] BodyError),
    /// The server switched protocols.
    #[error("the server sent `101 Switching Protocols`, which is not valid over HTTP/2")]
    SwitchedProtocols,
    /// The head or the trailers are too large.
    #[error("the server's headers or trailers are larger than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
}

impl Error {
    /// Whether the server provably did not process the request (RFC 9113, section 8.7).
    pub(crate) fn is_unprocessed(&self) -> bool {
        match self {
            Self::Unwritten(_) | Self::NoStream | Self::Unprocessed(_) => true,
            Self::Reset(code) => *code == ErrorCode::REFUSED_STREAM,
            Self::Connection(_)
            | Self::Malformed(_)
            | Self::Cancelled
            | Self::Body(_)
            | Self::SwitchedProtocols
            | Self::HeadTooLong => false,
        }
    }

    /// Whether the other side has reset the stream, or its connection has ended without a violation.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Reset(_) => true,
            Self::Connection(error) => !matches!(error, ConnectionError::Violation { .. }),
            Self::Unwritten(_)
            | Self::Unprocessed(_)
            | Self::Malformed(_)
            | Self::Cancelled
            | Self::Body(_)
            | Self::SwitchedProtocols
            | Self::HeadTooLong
            | Self::NoStream => false,
        }
    }

    /// Whether the server itself said so, by `REFUSED_STREAM` or `GOAWAY` (RFC 9113, sections 6.8 and 8.7).
    pub(crate) fn is_refused(&self) -> bool {
        let is_gone_away = matches!(self, Self::Unwritten(ConnectionError::GoneAway(_)));
        let is_unsent = matches!(self, Self::Unwritten(_) | Self::NoStream);
        is_gone_away || (self.is_unprocessed() && !is_unsent)
    }
}
