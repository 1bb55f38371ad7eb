//! The heads of requests and answers: what was asked or answered, and the fields.
//!
//! A proxy passes nearly all fields on without a look at them, and looks for the same few each time. So
//! fields are kept as the text in which they came, in their order, with a mark at each of those few
//! ([`Known`]); one that is not there is known not to be without a search. HTTP/2, whose fields come and go
//! as a map, is given one.
//!
//! **Limits**: those of whoever read the head; texts are shorter than 4 GiB.

mod fields;
mod known;

pub(crate) use fields::{Fields, add_to_map};
pub(crate) use known::Known;

use http::{Method, StatusCode, Uri, Version, request, response};

/// The head of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// The version of HTTP that it came over.
    pub(crate) version: Version,
    pub(crate) fields: Fields,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
}

impl RequestHead {
    /// The host and port that are asked for, as the client wrote them.
    pub(crate) fn host(&self) -> Option<&str> {
        let authority = self.uri.authority().map(http::uri::Authority::as_str);
        authority.or_else(|| std::str::from_utf8(self.fields.get(Known::Host)?).ok())
    }
}

impl AnswerHead {
    pub(crate) fn new(status: StatusCode) -> Self {
        Self { status, fields: Fields::default() }
    }
}

impl From<request::Parts> for RequestHead {
    fn from(parts: request::Parts) -> Self {
        let request::Parts { method, uri, version, headers, .. } = parts;
        Self { method, uri, version, fields: Fields::from(&headers) }
    }
}

impl From<response::Parts> for AnswerHead {
    fn from(parts: response::Parts) -> Self {
        Self { status: parts.status, fields: Fields::from(&parts.headers) }
    }
}
