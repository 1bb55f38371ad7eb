//! A request to a server: a head that several requests may share, and the request's own fields.
//!
//! It is boxed, so that the futures of an attempt, which hand it on, need not hold it one after the other.
//!
//! HTTP/1.1 writes both without merging them ([`crate::http1`]). HTTP/2 needs one map of both.

use crate::head::{self, Fields, Known, RequestHead, Target};
use crate::replay::OutboundBody;
use crate::service::InterimSink;
use http::{HeaderMap, Method, Request, Uri, Version};
use std::sync::Arc;

/// The length of `00-<trace id>-<parent id>-<flags>`.
pub const TRACEPARENT_LEN: usize = 55;

/// The value of `traceparent` (W3C Trace Context).
pub type Traceparent = [u8; TRACEPARENT_LEN];

/// A request to a server.
#[derive(Debug)]
pub struct OutboundRequest {
    /// The shared head.
    pub head: Arc<RequestHead>,
    /// The body.
    pub body: OutboundBody,
    /// Receives the interim responses to this request.
    pub interim: Option<InterimSink>,
    /// The own `traceparent`, which nearly every request has.
    traceparent: Option<Traceparent>,
    /// All other own fields, which few requests have.
    others: Vec<(Known, Box<[u8]>)>,
    /// The bits of the own fields, which replace fields of the same name in the head.
    own: u32,
}

impl OutboundRequest {
    /// Creates a request with this head and without own fields.
    #[must_use]
    pub fn new(head: Arc<RequestHead>, body: OutboundBody) -> Box<Self> {
        let (interim, traceparent, others, own) = (None, None, Vec::new(), 0);
        Box::new(Self { head, body, interim, traceparent, others, own })
    }

    /// Creates a `GET` without a body.
    #[must_use]
    pub fn get(path: &str, authority: &str) -> Box<Self> {
        let mut fields = Fields::default();
        fields.push(Known::Host, authority.as_bytes());
        let (method, target) = (Method::GET, Target::own(path));
        let version = Version::HTTP_11;
        let head = RequestHead { method, target, authority: None, version, fields };
        Self::new(Arc::new(head), OutboundBody::Empty)
    }

    /// Sets the span of the request.
    pub fn set_traceparent(&mut self, traceparent: Traceparent) {
        self.traceparent = Some(traceparent);
        self.own |= Known::Traceparent.bit();
    }

    /// Sets an own field, which replaces fields of the same name.
    pub fn set(&mut self, known: Known, value: &[u8]) {
        self.others.retain(|(own, _)| *own != known);
        self.others.push((known, value.into()));
        self.own |= known.bit();
    }

    /// Whether the request has a field of this name.
    #[must_use]
    #[inline]
    pub fn has(&self, known: Known) -> bool {
        self.own & known.bit() != 0 || self.head.fields.has(known)
    }

    /// The bits of the own fields, which replace fields of the same name in the head.
    pub(crate) const fn own(&self) -> u32 {
        self.own
    }

    /// Returns all fields that are sent: the known name, the name and the value.
    pub fn fields(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        let is_shared = |(known, ..): &(Known, &[u8], &[u8])| self.own & known.bit() == 0;
        self.head.fields.iter().filter(is_shared).chain(self.own_fields())
    }

    /// Returns the own fields.
    pub(crate) fn own_fields(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        let traceparent = self.traceparent.iter().map(|traceparent| {
            (Known::Traceparent, Known::Traceparent.name().as_bytes(), &traceparent[..])
        });
        let others = self.others.iter();
        let others = others.map(|(known, value)| (*known, known.name().as_bytes(), &**value));
        traceparent.chain(others)
    }

    /// Converts the request to a request with one map of fields.
    pub(crate) fn into_request(self) -> Request<OutboundBody> {
        let mut headers = HeaderMap::with_capacity(self.head.fields.len() + 1 + self.others.len());
        for (_, name, value) in self.fields() {
            head::add_to_map(&mut headers, name, value);
        }
        let mut request = Request::new(self.body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = Uri::from(self.head.target.to_uri_form().into_owned());
        *request.headers_mut() = headers;
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_fields_stand_in_place_of_shared_ones_and_of_each_other() {
        let mut shared = Fields::default();
        for (known, value) in [
            (Known::CurtailClass, "1"),
            (Known::Host, "2"),
            (Known::CurtailClass, "3"),
            (Known::Traceparent, "4"),
            (Known::Te, "5"),
        ] {
            shared.push(known, value.as_bytes());
        }
        let head = RequestHead {
            method: Method::GET,
            target: Target::own("/"),
            authority: None,
            version: Version::HTTP_11,
            fields: shared,
        };
        let traceparent = [b'0'; 55];
        let want = [
            ("curtail-class", &b"8"[..]),
            ("curtail-tie", b"7"),
            ("host", b"2"),
            ("te", b"5"),
            ("traceparent", &traceparent),
        ];
        let mut request = OutboundRequest::new(Arc::new(head), OutboundBody::Empty);
        request.set_traceparent(traceparent);
        let own =
            [(Known::CurtailClass, b"6"), (Known::CurtailTie, b"7"), (Known::CurtailClass, b"8")];
        for (known, value) in own {
            request.set(known, value);
        }
        let mut fields: Vec<_> = request
            .fields()
            .map(|(_, name, value)| (std::str::from_utf8(name).expect("a name"), value))
            .collect();
        fields.sort_unstable();
        assert_eq!(fields, want);
        assert!(
            [Known::CurtailClass, Known::Te, Known::CurtailTie].into_iter().all(|k| request.has(k))
        );
        assert!(!request.has(Known::Upgrade));
        let as_one = request.into_request();
        let mut fields: Vec<_> =
            as_one.headers().iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        fields.sort_unstable();
        assert_eq!(fields, want);
    }
}
