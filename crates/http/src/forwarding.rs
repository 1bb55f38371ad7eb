//! Removes and adds the fields of a head that a proxy must not forward, or must add.

use crate::head::{Fields, Known};
use std::net::IpAddr;

/// Fields that concern one connection only (RFC 9110, section 7.6.1).
pub const HOP_BY_HOP: u32 = Known::Connection.bit()
    | Known::KeepAlive.bit()
    | Known::ProxyConnection.bit()
    | Known::ProxyAuthenticate.bit()
    | Known::Te.bit()
    | Known::TransferEncoding.bit()
    | Known::Upgrade.bit();

/// Returns the names of the fields that `connection` names, in their original case. Nearly always there are none.
pub(crate) fn named_by_connection(fields: &Fields) -> Vec<Vec<u8>> {
    if !fields.has(Known::Connection) {
        return Vec::new();
    }
    let is_field = |word: &&[u8]| {
        // `connection` must not remove the host or the framing of the message.
        ![&b"keep-alive"[..], b"close", b"host", b"content-length", b"transfer-encoding"]
            .iter()
            .any(|other| word.eq_ignore_ascii_case(other))
    };
    fields.words(Known::Connection).filter(is_field).map(<[u8]>::to_vec).collect()
}

/// Removes fields that concern one connection only, and fields that `connection` names. `te: trailers` stays, because
/// gRPC servers require it.
pub fn remove_hop_by_hop(fields: &mut Fields) {
    let wants_trailers = fields.lists(Known::Te, "trailers");
    for name in named_by_connection(fields) {
        fields.remove_named(&name);
    }
    fields.remove(HOP_BY_HOP);
    if wants_trailers {
        fields.push(Known::Te, b"trailers");
    }
}

/// Returns the protocol of the upgrade that a head requests, if `connection` names the upgrade.
///
/// An upgrade to HTTP/2 in clear text is ignored: its requests would bypass all routes and limits, and clients do not
/// need it (RFC 9113, section 3.1, has withdrawn it).
#[must_use]
pub fn upgrade(fields: &Fields) -> Option<Box<[u8]>> {
    let protocol = fields.get(Known::Upgrade)?;
    let is_http2 = fields
        .words(Known::Upgrade)
        .any(|name| name.get(..2).is_some_and(|begin| begin.eq_ignore_ascii_case(b"h2")));
    (fields.lists(Known::Connection, "upgrade") && !is_http2).then(|| protocol.into())
}

/// Adds the fields that request an upgrade on this connection.
pub fn ask_upgrade(fields: &mut Fields, protocol: &[u8]) {
    fields.set(Known::Connection, b"upgrade");
    fields.set(Known::Upgrade, protocol);
}

/// Adds the client and the scheme of this connection, after the entries of earlier proxies. The client of a Unix socket has
/// no address.
pub fn add_forwarded(fields: &mut Fields, client: Option<IpAddr>, client_text: &str, tls: bool) {
    let proto = if tls { "https" } else { "http" };
    if !fields.has(Known::ForwardedProto) {
        fields.push(Known::ForwardedProto, proto.as_bytes());
    }
    if client.is_some() {
        fields.push(Known::ForwardedFor, client_text.as_bytes());
    }
    // Each proxy on the way may have added a line of its own.
    fields.join(Known::ForwardedFor, b", ");
    if fields.has(Known::Forwarded) {
        // RFC 7239, section 6: the format of an address, and of an identifier instead.
        let node = match client {
            Some(IpAddr::V6(client)) => format!("\"[{client}]\""),
            Some(IpAddr::V4(client)) => client.to_string(),
            None => "_unix".to_owned(),
        };
        fields.push(Known::Forwarded, format!("for={node};proto={proto}").as_bytes());
        fields.join(Known::Forwarded, b", ");
    }
}

/// Counts this hop in `max-forwards`; returns false if no hop is left, so that the proxy must not forward the request.
/// A value that is not a number is no limit.
pub fn count_hop(fields: &mut Fields) -> bool {
    let left = fields.get_text(Known::MaxForwards).unwrap_or_default();
    if left.is_empty() || !left.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    let Some(left) = left.parse().unwrap_or(u64::MAX).checked_sub(1) else { return false };
    fields.set(Known::MaxForwards, itoa::Buffer::new().format(left).as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn fields(fields: &[(&'static str, &'static str)]) -> Fields {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        Fields::from(&map)
    }

    #[test]
    fn hop_by_hop_fields_and_those_that_connection_names_are_removed() {
        let mut headers = fields(&[
            ("connection", "close, X-Secret"),
            ("connection", "keep-alive, Host"),
            ("host", "h"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-secret", "1"),
            ("te", "gzip, trailers"),
            ("accept", "*/*"),
        ]);
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers, fields(&[("host", "h"), ("accept", "*/*"), ("te", "trailers")]));
        let mut headers = fields(&[("connection", "Content-Length"), ("content-length", "5")]);
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers, fields(&[("content-length", "5")]), "the framing is unchanged");
    }

    #[test]
    fn an_upgrade_needs_the_connection_to_name_it() {
        assert_eq!(upgrade(&fields(&[("upgrade", "websocket")])), None);
        let asked = fields(&[("upgrade", "websocket"), ("connection", "keep-alive, Upgrade")]);
        assert_eq!(upgrade(&asked).as_deref(), Some(&b"websocket"[..]));
        for http2 in ["h2c", "H2C", "websocket, h2c"] {
            assert_eq!(upgrade(&fields(&[("upgrade", http2), ("connection", "upgrade")])), None);
        }
    }

    #[test]
    fn the_client_is_appended_to_those_before_it() {
        let mut headers = fields(&[
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2, 10.0.0.3"),
            ("x-forwarded-proto", "https"),
        ]);
        add_forwarded(&mut headers, Some([10, 0, 0, 4].into()), "10.0.0.4", false);
        let want = fields(&[
            ("x-forwarded-proto", "https"),
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4"),
        ]);
        assert_eq!(headers, want);
    }

    #[test]
    fn the_client_is_an_element_of_forwarded_where_there_is_one() {
        for (client, element) in [
            ("10.0.0.4", "for=10.0.0.4;proto=https"),
            ("2001:db8::4", "for=\"[2001:db8::4]\";proto=https"),
            ("unix:", "for=_unix;proto=https"),
        ] {
            let mut headers = fields(&[("forwarded", "for=a"), ("forwarded", "for=b")]);
            add_forwarded(&mut headers, client.parse().ok(), client, true);
            let forwarded = headers.get_text(Known::Forwarded);
            assert_eq!(forwarded, Some(&*format!("for=a, for=b, {element}")));
            assert_eq!(headers.all(Known::Forwarded).count(), 1);
        }
    }
}
