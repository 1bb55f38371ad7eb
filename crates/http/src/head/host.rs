//! The host of a request: RFC 9110, section 7.2; RFC 9112, section 3.2; RFC 9113, section 8.3.1.
//!
//! A request names exactly one valid host: in its target (`:authority` over HTTP/2, an absolute target over HTTP/1.1)
//! or in `host`. The proxy forwards this host in `host`. Only an HTTP/1.0 request may name no host. An empty host is
//! rejected, because an http URL always has a host (RFC 9110, section 4.2.1).

use super::fields::number;
use super::{Fault, Known, RequestHead};
use http::Version;

const TWO: Fault = Fault::bad_host("the request has two `host` headers");
const NONE: Fault = Fault::bad_host("the request names no host");
const INVALID: Fault =
    Fault::bad_host("the host is not one valid name or address, with or without a port");
const OTHER: Fault = Fault::bad_host("`host` and `:authority` differ");

pub(super) fn settle(head: &mut RequestHead) -> Result<(), Fault> {
    let field = head.fields.get(Known::Host);
    if head.fields.all(Known::Host).nth(1).is_some() {
        return Err(TWO);
    }
    if field.is_some_and(|host| !is_host(host)) {
        return Err(INVALID);
    }
    let is_http2 = head.version == Version::HTTP_2;
    let Some(authority) = head.authority.as_ref().map(|authority| authority.as_str().as_bytes())
    else {
        let may_lack = head.version == Version::HTTP_10;
        return if field.is_some() || may_lack { Ok(()) } else { Err(NONE) };
    };
    if !is_host(authority) {
        return Err(INVALID);
    }
    match field {
        // RFC 9112, section 3.2: `host` is required even with an absolute target.
        None if head.version == Version::HTTP_11 => return Err(NONE),
        Some(field) if is_http2 && !is_same(field, authority) => return Err(OTHER),
        _ => {}
    }
    head.fields.set(Known::Host, authority);
    Ok(())
}

/// Whether a text is `name`, `name:port`, `[IPv6 address]` or `[IPv6 address]:port`. RFC 3986 also allows a comma and
/// `%` in a name, but a server that splits lists or decodes texts would read another host.
#[must_use]
pub fn is_host(text: &[u8]) -> bool {
    let port_at = match text {
        [b'[', rest @ ..] => {
            let Some(end) = memchr::memchr(b']', rest) else { return false };
            let address = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            end + 2
        }
        _ => text.iter().position(|byte| !IS_NAME_BYTE[usize::from(*byte)]).unwrap_or(text.len()),
    };
    match &text[port_at..] {
        _ if port_at == 0 => false,
        [] => true,
        [b':'] => true,
        [b':', port @ ..] => number(port).is_some_and(|port| u16::try_from(port).is_ok()),
        _ => false,
    }
}

/// Whether a byte may be in a name. This is a table, because each byte of each request's host is checked.
static IS_NAME_BYTE: [bool; 256] = {
    let name_bytes =
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-._~!$&'()*+;=";
    let mut table = [false; 256];
    let mut nth = 0;
    while nth < name_bytes.len() {
        table[name_bytes[nth] as usize] = true;
        nth += 1;
    }
    table
};

/// Whether two hosts are equal; ignores case and the default port of a scheme.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
        || without_default_port(one).eq_ignore_ascii_case(other)
        || without_default_port(other).eq_ignore_ascii_case(one)
}

fn without_default_port(host: &[u8]) -> &[u8] {
    let default = [&b":80"[..], b":443", b":"];
    default.iter().find_map(|port| host.strip_suffix(*port)).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_the_same_with_and_without_the_port_of_its_scheme() {
        for (one, other, same) in [
            ("h", "H", true),
            ("h:80", "h", true),
            ("h", "h:443", true),
            ("h:", "h", true),
            ("h:81", "h", false),
            ("h:81", "H:81", true),
            ("h:80", "h:443", false),
            ("h", "i", false),
            ("[::80]", "[::80]:80", true),
        ] {
            assert_eq!(is_same(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
            assert_eq!(is_same(other.as_bytes(), one.as_bytes()), same, "{other} {one}");
        }
    }
}
