//! Which host a request is for: RFC 9110, section 7.2; RFC 9112, section 3.2; RFC 9113, section 8.3.1.
//!
//! A request names exactly one valid host, in its target (`:authority` over HTTP/2, an absolute target over
//! HTTP/1.1) or in `host`, and whoever comes after the proxy sees that one in `host`. Only an HTTP/1.0 client need
//! not name any. An empty host is refused: an http URL always has one (RFC 9110, section 4.2.1).

use super::{Fault, Known, RequestHead};
use http::Version;

const TWO: Fault = Fault::bad_host("it has two `host` fields");
const NONE: Fault = Fault::bad_host("it names no host");
const INVALID: Fault =
    Fault::bad_host("its host is not one valid host name or address with a port");
const OTHER: Fault = Fault::bad_host("its `host` is another one than its `:authority`");

/// Makes `host` the one host that the request is for.
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
        // RFC 9112, section 3.2: a `host` must be there even where it does not count.
        None if head.version == Version::HTTP_11 => return Err(NONE),
        Some(field) if is_http2 && !is_same(field, authority) => return Err(OTHER),
        _ => {}
    }
    head.fields.set(Known::Host, authority);
    Ok(())
}

/// `name`, `name:port`, `[IPv6 address]` or `[IPv6 address]:port`. A comma, which RFC 3986 allows in a name, would
/// make two hosts of one for whoever takes the field for a list, and so would `%` for whoever decodes it.
fn is_host(text: &[u8]) -> bool {
    let port_at = match text {
        [b'[', rest @ ..] => {
            let Some(end) = memchr::memchr(b']', rest) else { return false };
            let address = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            end + 2
        }
        _ => text.iter().position(|byte| !is_name_byte(*byte)).unwrap_or(text.len()),
    };
    match &text[port_at..] {
        _ if port_at == 0 => false,
        [] => true,
        [b':'] => true,
        [b':', port @ ..] => {
            let is_number = port.iter().all(u8::is_ascii_digit);
            let port = std::str::from_utf8(port).ok().filter(|_| is_number);
            port.is_some_and(|port| port.parse::<u16>().is_ok())
        }
        _ => false,
    }
}

const fn is_name_byte(byte: u8) -> bool {
    let is_mark = matches!(
        byte,
        b'-' | b'.'
            | b'_'
            | b'~'
            | b'!'
            | b'$'
            | b'&'
            | b'\''
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b';'
            | b'='
    );
    is_mark || byte.is_ascii_alphanumeric()
}

/// Whether two hosts are the same, in whatever letters; where one alone has a port, it is that of a scheme.
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
