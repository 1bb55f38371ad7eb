//! The heads of requests and responses: first line and fields.
//!
//! A proxy forwards nearly all fields unread. [`Fields`] therefore keeps the received text, in order, and a bit for
//! each field that a proxy reads ([`Known`]): the bit says without a search whether the field is there. The fields of
//! HTTP/2, which its library has in a map, are converted.
//! **Limits**: those of the reader of the head; texts are shorter than 4 GiB.

mod fault;
mod fields;
mod host;
mod known;
mod target;

pub use fault::Fault;
pub use fields::{Fields, RepeatedField};
pub(crate) use fields::{add_to_map, write_field};
pub use host::is_host;
pub use known::Known;
pub(crate) use target::TARGET_BYTES_MAX;
pub use target::Target;

use http::uri::Authority;
use http::{Method, StatusCode, Version, request, response};

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: Target,
    /// The host and port in an absolute target, or in `:authority`.
    pub authority: Option<Authority>,
    /// The version of HTTP with which the request arrived.
    pub version: Version,
    /// The headers.
    pub fields: Fields,
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub fields: Fields,
}

impl RequestHead {
    /// Sets `host` to the one host of the request, from the target or from the header.
    ///
    /// # Errors
    /// When the request names no host, several hosts or an invalid host.
    pub fn settle_host(&mut self) -> Result<(), Fault> {
        host::settle(self)
    }

    /// Returns the memory of the head in bytes, without what it shares with others.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.target.as_str().len() + self.fields.memory()
    }

    /// Returns the host and port of the request, as the client wrote them.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let authority = self.authority.as_ref().map(Authority::as_str);
        authority.or_else(|| self.fields.get_text(Known::Host))
    }

    /// Returns the bytes of the host and port of the request, as the client wrote them, even if they are not UTF-8.
    #[must_use]
    pub fn host_bytes(&self) -> Option<&[u8]> {
        let authority = self.authority.as_ref().map(|authority| authority.as_str().as_bytes());
        authority.or_else(|| self.fields.get(Known::Host))
    }
}

impl ResponseHead {
    /// Creates the head of a response without headers.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self { status, fields: Fields::default() }
    }
}

/// The head of a request of the `http` crate, whose target is a path or a URL.
impl TryFrom<request::Parts> for RequestHead {
    type Error = Fault;

    fn try_from(parts: request::Parts) -> Result<Self, Fault> {
        let (target, authority) = Target::parse(&parts.method, &parts.uri.to_string())?;
        let fields = Fields::from(&parts.headers);
        Ok(Self { method: parts.method, target, authority, version: parts.version, fields })
    }
}

impl From<response::Parts> for ResponseHead {
    fn from(parts: response::Parts) -> Self {
        Self { status: parts.status, fields: Fields::from(&parts.headers) }
    }
}
