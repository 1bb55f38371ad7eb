//! The request of one attempt: the head that all attempts of a request share, and what is this one's own.
//!
//! Over HTTP/1.1 both are written from where they lie ([`crate::http1`]); only HTTP/2 needs them as one.

use crate::body::AttemptBody;
use arrayvec::ArrayVec;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header, request};
use std::sync::Arc;

/// The fields of [`AttemptRequest::own`]: the span, the class, a tie, two for a change of protocol, the host.
const OWN_MAX: usize = 6;

/// What is sent to a replica.
#[derive(Debug)]
pub(crate) struct AttemptRequest {
    pub(crate) head: Arc<request::Parts>,
    /// They stand in place of those in the head that have the same name.
    own: ArrayVec<(HeaderName, HeaderValue), OWN_MAX>,
    pub(crate) body: AttemptBody,
}

impl AttemptRequest {
    pub(crate) fn new(head: Arc<request::Parts>, body: AttemptBody) -> Self {
        Self { head, own: ArrayVec::new(), body }
    }

    /// A message of our own to a leaf.
    pub(crate) fn get(uri: Uri, authority: &str) -> Self {
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        if let Ok(host) = HeaderValue::from_str(authority) {
            request.headers_mut().insert(header::HOST, host);
        }
        Self::new(Arc::new(request.into_parts().0), AttemptBody::Empty)
    }

    /// Adds a field, or puts it in place of those with the same name.
    pub(crate) fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        self.own.retain(|(own, _)| *own != name);
        self.own.push((name, value));
    }

    pub(crate) fn has(&self, name: &HeaderName) -> bool {
        self.own.iter().any(|(own, _)| own == name) || self.head.headers.contains_key(name)
    }

    /// All fields as they are sent.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let is_shared = |name: &HeaderName| !self.own.iter().any(|(own, _)| own == name);
        let shared = self.head.headers.iter().filter(move |(name, _)| is_shared(name));
        shared.chain(self.own.iter().map(|(name, value)| (name, value)))
    }

    /// All in one.
    pub(crate) fn into_request(self) -> Request<AttemptBody> {
        let mut headers = HeaderMap::with_capacity(self.head.headers.len() + OWN_MAX);
        headers.extend(self.head.headers.clone());
        for (name, value) in self.own {
            headers.insert(name, value);
        }
        let mut request = Request::new(self.body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = self.head.uri.clone();
        *request.headers_mut() = headers;
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_fields_stand_in_place_of_shared_ones_and_of_each_other() {
        let mut shared = Request::new(());
        for (name, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")] {
            shared.headers_mut().append(name, HeaderValue::from_static(value));
        }
        let want = [("a", &b"7"[..]), ("b", b"2"), ("c", b"4"), ("d", b"6")];
        let mut request = AttemptRequest::new(Arc::new(shared.into_parts().0), AttemptBody::Empty);
        for (name, value) in [("a", "5"), ("d", "6"), ("a", "7")] {
            request.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut fields: Vec<_> =
            request.fields().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        fields.sort_unstable();
        assert_eq!(fields, want);
        assert!(["a", "c", "d"].iter().all(|name| request.has(&HeaderName::from_static(name))));
        assert!(!request.has(&HeaderName::from_static("e")));
        let as_one = request.into_request();
        let mut fields: Vec<_> =
            as_one.headers().iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        fields.sort_unstable();
        assert_eq!(fields, want);
    }
}
