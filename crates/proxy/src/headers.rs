//! Header fields: what a proxy takes away, and what it adds.

use arrayvec::ArrayVec;
use curtail_policy::{Load, TieId, TieRole};
use curtail_units::Duration;
use http::Uri;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, TE,
    TRANSFER_ENCODING, UPGRADE,
};

/// The class of a request or an attempt: a client may set it, a root sets it for its leaves.
pub(crate) const CLASS: HeaderName = HeaderName::from_static("curtail-class");
/// What one copy of a tie must know: `<id, 16 hex digits>;<first|second>;<authority of the twin's leaf>`.
pub(crate) const TIE: HeaderName = HeaderName::from_static("curtail-tie");
/// What a leaf has to say of an attempt that the server never saw: `refused` or `twin-started`.
pub(crate) const LEAF: HeaderName = HeaderName::from_static("curtail-leaf");
/// The load of a replica, in a leaf's answer to a probe.
pub(crate) const LOAD: HeaderName = HeaderName::from_static("curtail-load");
/// The constant name of what went wrong, in every answer that the proxy itself makes.
pub(crate) const ERROR: HeaderName = HeaderName::from_static("curtail-error");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields that concern one connection only (RFC 9110, section 7.6.1).
static HOP_BY_HOP: [HeaderName; 7] =
    [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, TE, TRANSFER_ENCODING, UPGRADE];

/// The lengths of their names, a bit for each: most other names are told from them by that alone.
const HOP_BY_HOP_LENGTHS: u64 = 1 << 2 | 1 << 7 | 1 << 10 | 1 << 16 | 1 << 17 | 1 << 18;

/// Removes what concerns one connection only, and what `connection` names besides; `te: trailers` stays,
/// because gRPC servers insist on it.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages have none, or `connection: keep-alive` alone: a look at each name is cheaper than a
    // search for each of the seven.
    let may_be = |name: &&HeaderName| {
        let len = name.as_str().len();
        len < 64 && HOP_BY_HOP_LENGTHS >> len & 1 == 1
    };
    let present: ArrayVec<&HeaderName, { HOP_BY_HOP.len() }> = headers
        .keys()
        .filter(may_be)
        .filter_map(|name| HOP_BY_HOP.iter().find(|wanted| *wanted == name))
        .collect();
    let wants_trailers = present.contains(&&TE) && lists(headers, TE, "trailers");
    if present.contains(&&CONNECTION) {
        remove_named_by_connection(headers);
    }
    if present.contains(&&TRANSFER_ENCODING) {
        // Where both were there the chunks counted (RFC 9112, section 6.3): a length that goes on without
        // them would cut the body short.
        headers.remove(CONTENT_LENGTH);
    }
    for name in present {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes the fields that `connection` names.
fn remove_named_by_connection(headers: &mut HeaderMap) {
    let names_none = |value: &HeaderValue| value == "keep-alive" || value == "close";
    if headers.get_all(CONNECTION).iter().all(names_none) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // Nobody may take away whom the request is for.
        .filter(|name| *name != HOST)
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Whether a field that is a list of words has `word`.
fn lists(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        value.to_str().is_ok_and(|value| {
            value.split(',').any(|listed| listed.trim().eq_ignore_ascii_case(word))
        })
    })
}

/// The protocol that a request asks to change to, if its connection says so.
///
/// HTTP/2 in clear text is not one: a replica that agreed would be spoken to past every route and limit, and
/// clients do well without (RFC 9113, section 3.1, has withdrawn it).
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers.contains_key(UPGRADE) && lists(headers, CONNECTION, "upgrade");
    let is_http2 = |protocol: &HeaderValue| {
        protocol.to_str().map_or(true, |protocol| {
            protocol.split(',').any(|name| name.trim().to_ascii_lowercase().starts_with("h2"))
        })
    };
    headers.get(UPGRADE).filter(|protocol| asks && !is_http2(protocol)).cloned()
}

/// Puts back what a change of protocol needs on this connection.
pub(crate) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Says for whom, and over what, a request is forwarded.
pub(crate) fn add_forwarded(headers: &mut HeaderMap, client: &HeaderValue, tls: bool) {
    let proto = HeaderValue::from_static(if tls { "https" } else { "http" });
    headers.entry(FORWARDED_PROTO).or_insert(proto);
    if !headers.contains_key(FORWARDED_FOR) {
        headers.insert(FORWARDED_FOR, client.clone());
        return;
    }
    // Each proxy on the way may have added a line of its own.
    let before = headers.get_all(FORWARDED_FOR).iter().chain([client]);
    let all = before.map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b", "[..]);
    if let Ok(value) = HeaderValue::from_bytes(&all) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Makes sure that `host` says whom the client asked, which over HTTP/2 stands in `:authority`.
pub(crate) fn ensure_host(headers: &mut HeaderMap, uri: &Uri) {
    if let Some(authority) = uri.authority() {
        let host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host);
        if let Ok(host) = HeaderValue::from_str(host) {
            headers.insert(HOST, host);
        }
    }
}

/// Writes a tie for a leaf.
pub(crate) fn write_tie(id: TieId, role: TieRole, twin: &str) -> Option<HeaderValue> {
    let role = match role {
        TieRole::First => "first",
        TieRole::Second => "second",
    };
    HeaderValue::from_str(&format!("{:016x};{role};{twin}", id.0)).ok()
}

/// Reads a tie at a leaf: its name, and where the twin is queued.
pub(crate) fn read_tie(value: &HeaderValue) -> Option<(TieId, &str)> {
    let mut parts = value.to_str().ok()?.splitn(3, ';');
    let (id, _role, twin) = (parts.next()?, parts.next()?, parts.next()?);
    Some((TieId(u64::from_str_radix(id, 16).ok()?), twin))
}

/// Writes a load for a root.
pub(crate) fn write_load(load: Load) -> Option<HeaderValue> {
    let text = format!("in_flight={};latency_ns={}", load.in_flight, load.latency.as_ns());
    HeaderValue::from_str(&text).ok()
}

/// Reads a load at a root.
pub(crate) fn read_load(value: &HeaderValue) -> Option<Load> {
    let (in_flight, latency) = value.to_str().ok()?.split_once(';')?;
    Some(Load {
        in_flight: in_flight.strip_prefix("in_flight=")?.parse().ok()?,
        latency: Duration::from_ns(latency.strip_prefix("latency_ns=")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn hop_by_hop_fields_and_those_that_connection_names_are_removed() {
        let mut headers = map(&[
            ("connection", "close, X-Secret"),
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-secret", "1"),
            ("te", "gzip, trailers"),
            ("content-length", "5"),
            ("accept", "*/*"),
        ]);
        remove_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("accept", "*/*"), ("te", "trailers")]));
    }

    #[test]
    fn an_upgrade_needs_the_connection_to_name_it() {
        assert_eq!(upgrade(&map(&[("upgrade", "websocket")])), None);
        let asked = map(&[("upgrade", "websocket"), ("connection", "keep-alive, Upgrade")]);
        assert_eq!(upgrade(&asked), Some(HeaderValue::from_static("websocket")));
        for http2 in ["h2c", "H2C", "websocket, h2c"] {
            assert_eq!(upgrade(&map(&[("upgrade", http2), ("connection", "upgrade")])), None);
        }
    }

    #[test]
    fn ties_and_loads_are_read_as_they_were_written() {
        let tie = write_tie(TieId(0xfeed), TieRole::Second, "[::1]:80").expect("plain text");
        assert_eq!(read_tie(&tie), Some((TieId(0xfeed), "[::1]:80")));
        let load = Load { in_flight: 7, latency: Duration::from_us(1_500) };
        assert_eq!(read_load(&write_load(load).expect("plain text")), Some(load));
        for garbage in ["", ";", "in_flight=x;latency_ns=1", "in_flight=1"] {
            assert_eq!(read_load(&HeaderValue::from_static(garbage)), None, "{garbage:?}");
        }
    }

    #[test]
    fn the_client_is_appended_to_those_before_it() {
        let mut headers = map(&[
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2, 10.0.0.3"),
            ("x-forwarded-proto", "https"),
        ]);
        add_forwarded(&mut headers, &HeaderValue::from_static("10.0.0.4"), false);
        let want = map(&[
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4"),
            ("x-forwarded-proto", "https"),
        ]);
        assert_eq!(headers, want);
    }
}
