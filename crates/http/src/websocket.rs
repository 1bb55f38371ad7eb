//! The WebSocket handshake (RFC 6455, section 4), as far as a proxy takes part in it: between HTTP/1.1, where each side
//! proves with a key that it speaks the protocol, and HTTP/2 (RFC 8441), which has no keys.

use crate::head::{Known, ResponseHead};
use crate::outbound_request::OutboundRequest;
use crate::replay::OutboundBody;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

/// The name of the protocol, in `upgrade` and in `:protocol`.
pub const PROTOCOL: &[u8] = b"websocket";

/// A server appends this to the key before it hashes both (RFC 6455, section 1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the text of a key, whose bytes are random.
#[must_use]
pub fn encode_key(bytes: [u8; 16]) -> String {
    STANDARD.encode(bytes)
}

/// Returns the `sec-websocket-accept` to a key.
#[must_use]
pub fn derive_accept(key: &[u8]) -> String {
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key);
    digest.update(SUFFIX);
    STANDARD.encode(digest.finish())
}

/// Returns the key of a request that is a WebSocket handshake over HTTP/1.1. The key is 16 bytes in Base64: the proxy must not
/// respond to another one in place of a server (RFC 6455, section 4.2.1).
pub(crate) fn handshake_key(request: &OutboundRequest) -> Option<&[u8]> {
    let value = |wanted| {
        let mut fields = request.fields();
        fields.find(|(known, ..)| *known == wanted).map(|(.., value)| value)
    };
    let is_websocket = request.head.method == Method::GET
        && matches!(request.body, OutboundBody::Empty)
        && value(Known::Upgrade)?.eq_ignore_ascii_case(PROTOCOL);
    let is_key = |key: &&[u8]| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    value(Known::SecWebsocketKey).filter(|_| is_websocket).filter(is_key)
}

/// Whether a response 101 opens the WebSocket: `accept` proves that the server has read the key.
pub(crate) fn is_opened(head: &ResponseHead, accept: &str) -> bool {
    let ResponseHead { fields, .. } = head;
    fields.lists(Known::Connection, "upgrade")
        && fields.get(Known::Upgrade).is_some_and(|value| value.eq_ignore_ascii_case(PROTOCOL))
        && fields.all(Known::SecWebsocketAccept).eq([accept.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Fields;
    use http::StatusCode;

    /// The key and its response of RFC 6455, section 1.3.
    const KEY: &[u8] = b"dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    #[test]
    fn the_keys_are_those_of_the_rfc() {
        assert_eq!(encode_key(*b"the sample nonce").as_bytes(), KEY);
        assert_eq!(derive_accept(KEY), ACCEPT);
    }

    #[test]
    fn a_handshake_is_a_get_without_body_that_has_a_valid_key() {
        let request = |fields: &[(Known, &[u8])]| {
            let mut request = OutboundRequest::get("/", "h");
            fields.iter().for_each(|(known, value)| request.set(*known, value));
            request
        };
        let fields = [(Known::Upgrade, &b"WebSocket"[..]), (Known::SecWebsocketKey, KEY)];
        assert_eq!(handshake_key(&request(&fields)), Some(KEY));
        let with_key = |key| [fields[0], (Known::SecWebsocketKey, key)];
        let (short, unpadded) = (with_key(b"dGhlIHNhbXBsZQ=="), with_key(&KEY[..22]));
        for others in [
            &fields[..1],
            &fields[1..],
            &[(Known::Upgrade, b"x"), fields[1]],
            &short,
            &unpadded,
            &with_key(b"the client's"),
        ] {
            assert_eq!(handshake_key(&request(others)), None, "{others:?}");
        }
        let mut with_body = request(&fields);
        with_body.body = OutboundBody::Full("x".into());
        assert_eq!(handshake_key(&with_body), None);
    }

    #[test]
    fn a_response_opens_the_websocket_with_all_of_its_fields() {
        let right = [
            (Known::Connection, "Upgrade"),
            (Known::Upgrade, "WebSocket"),
            (Known::SecWebsocketAccept, ACCEPT),
        ];
        let is_opened = |fields: &[(Known, &str)]| {
            let mut head = ResponseHead::new(StatusCode::SWITCHING_PROTOCOLS);
            head.fields = Fields::default();
            fields.iter().for_each(|(known, value)| head.fields.push(*known, value.as_bytes()));
            is_opened(&head, ACCEPT)
        };
        assert!(is_opened(&right));
        for at in 0..right.len() {
            let mut wrong = right;
            wrong[at].1 = "other";
            assert!(!is_opened(&wrong), "{wrong:?}");
            wrong[at] = (Known::Date, "absent");
            assert!(!is_opened(&wrong), "{wrong:?}");
        }
        assert!(!is_opened(&[&right[..], &right[2..]].concat()), "two responses to the key");
    }
}
