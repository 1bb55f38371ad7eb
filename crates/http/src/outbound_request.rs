//! A request to a server: a head that several requests may share, and the fields of this request alone.
//!
//! HTTP/1.1 writes both without merging them ([`crate::http1`]); HTTP/2 needs one map.

use crate::head::{self, Fields, Known, RequestHead, Target};
use crate::http1::InterimSink;
use crate::replay::OutboundBody;
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
    /// Its body.
    pub body: OutboundBody,
    /// Receives the interim responses to this request.
    pub interim: Option<InterimSink>,
    /// Nearly every request has its own.
    traceparent: Option<Traceparent>,
    /// Other fields of its own; few requests have any.
    others: Vec<(Known, Box<[u8]>)>,
    /// A bit for each of its own fields. They stand in place of those in the head that have the same name.
    own: u32,
}

impl OutboundRequest {
    /// A request with this head and no fields of its own.
    #[must_use]
    pub const fn new(head: Arc<RequestHead>, body: OutboundBody) -> Self {
        Self { head, body, interim: None, traceparent: None, others: Vec::new(), own: 0 }
    }

    /// A `GET` without a body.
    #[must_use]
    pub fn get(path: &str, authority: &str) -> Self {
        let mut fields = Fields::default();
        fields.push(Known::Host, authority.as_bytes());
        let (method, target) = (Method::GET, Target::own(path));
        let version = Version::HTTP_11;
        let head = RequestHead { method, target, authority: None, version, fields };
        Self::new(Arc::new(head), OutboundBody::Empty)
    }

    /// Says which span the request is.
    pub fn set_traceparent(&mut self, traceparent: Traceparent) {
        self.traceparent = Some(traceparent);
        self.own |= Known::Traceparent.bit();
    }

    /// Adds a field, or puts it in place of those with the same name.
    pub fn set(&mut self, known: Known, value: &[u8]) {
        self.others.retain(|(own, _)| *own != known);
        self.others.push((known, value.into()));
        self.own |= known.bit();
    }

    /// Whether the request has such a field.
    #[must_use]
    #[inline]
    pub fn has(&self, known: Known) -> bool {
        self.own & known.bit() != 0 || self.head.fields.has(known)
    }

    /// All fields as they are sent: which it is, its name, its value.
    pub fn fields(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        let is_shared = |(known, ..): &(Known, &[u8], &[u8])| self.own & known.bit() == 0;
        let shared = self.head.fields.iter().filter(is_shared);
        let traceparent = self.traceparent.iter().map(|traceparent| {
            (Known::Traceparent, Known::Traceparent.name().as_bytes(), &traceparent[..])
        });
        let others = self.others.iter();
        let others = others.map(|(known, value)| (*known, known.name().as_bytes(), &**value));
        shared.chain(traceparent).chain(others)
    }

    /// All in one.
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
