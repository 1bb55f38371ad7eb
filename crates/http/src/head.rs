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
pub use fields::Fields;
pub(crate) use fields::add_to_map;
pub use known::Known;
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
    /// Converts the head of an HTTP/2 request to the form of HTTP/1.1.
    ///
    /// # Errors
    /// When it is not a valid request.
    pub fn from_http2(parts: request::Parts) -> Result<Self, Fault> {
        let request::Parts { method, uri, version, headers, .. } = parts;
        let uri = uri.into_parts();
        let (mut fields, has_whitespace) = Fields::from_map(&headers);
        if has_whitespace {
            // RFC 9113, section 8.2.1.
            return Err(Fault::bad("a header value begins or ends with whitespace"));
        }
        if fields.has(Known::FramingAlias) {
            return Err(Fault::FRAMING_ALIAS);
        }
        fields.settle_length(false).map_err(Fault::bad)?;
        // RFC 9113, section 8.2.3: clients may split cookies over several fields; HTTP/1.1 allows one.
        fields.join(Known::Cookie, b"; ");
        let target = Target::of_http2(&method, uri.scheme.as_ref(), uri.path_and_query)?;
        Ok(Self { method, target, authority: uri.authority, version, fields })
    }

    /// Sets `host` to the one host of the request, from the target or from the header.
    ///
    /// # Errors
    /// When the request names no host, several hosts or an invalid host.
    pub fn settle_host(&mut self) -> Result<(), Fault> {
        host::settle(self)
    }

    /// Returns the host and port of the request, as the client wrote them.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let authority = self.authority.as_ref().map(Authority::as_str);
        authority.or_else(|| self.fields.get_text(Known::Host))
    }
}

impl ResponseHead {
    /// Creates the head of a response without headers.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self { status, fields: Fields::default() }
    }
}

#[cfg(test)]
impl From<request::Parts> for RequestHead {
    fn from(parts: request::Parts) -> Self {
        Self::from_http2(parts).expect("a request that a test makes is valid")
    }
}

impl From<response::Parts> for ResponseHead {
    fn from(parts: response::Parts) -> Self {
        Self { status: parts.status, fields: Fields::from(&parts.headers) }
    }
}
