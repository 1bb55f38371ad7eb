//! The fields that may be trailers.

use crate::head::Known;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Framing, routing, authentication, content fields, and fields that modify the request, which take effect before
/// trailers arrive (RFC 9110, section 6.5.1). As trailers they would deceive a server that merges trailers into the headers. A message over HTTP/2 with
/// connection-specific fields is malformed (RFC 9113, section 8.2.2).
pub(crate) static FOR_HEADS: [HeaderName; 25] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TRAILER,
    header::HOST,
    header::TE,
    header::MAX_FORWARDS,
    header::CACHE_CONTROL,
    header::EXPECT,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::PROXY_AUTHENTICATE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Whether a field may be a trailer.
#[must_use]
pub fn may_be_trailer(name: &HeaderName) -> bool {
    // A client must not forge the forwarded fields in trailers either, nor a framing field with `_`.
    let forbidden = Known::FORWARDED | Known::FramingAlias.bit();
    let is_forbidden = Known::of(name.as_str().as_bytes()).bit() & forbidden != 0;
    !is_forbidden && !FOR_HEADS.contains(name)
}

/// Removes all fields that must not be trailers, and the whitespace around values (RFC 9113, section 8.2.1).
///
/// # Panics
/// Never: a part of a valid value is valid.
pub fn remove_others(trailers: &mut HeaderMap) {
    let others: Vec<_> = trailers.keys().filter(|name| !may_be_trailer(name)).cloned().collect();
    for name in others {
        trailers.remove(name);
    }
    for value in trailers.values_mut() {
        let trimmed = value.as_bytes().trim_ascii();
        if trimmed.len() < value.len() {
            *value = HeaderValue::from_bytes(trimmed).expect("a part of a valid value");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_around_trailers_is_removed() {
        let mut trailers = HeaderMap::new();
        for value in [" \ta b ", "c", "\t"] {
            trailers.append("x", HeaderValue::from_static(value));
        }
        remove_others(&mut trailers);
        assert_eq!(trailers.get_all("x").iter().collect::<Vec<_>>(), ["a b", "c", ""]);
    }
}
