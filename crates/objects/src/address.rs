//! Where a request goes: scheme, host and port.

use http::Uri;
use http::header::HeaderValue;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) is_tls: bool,
    /// A name, or an address of IPv4, or one of IPv6 without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Why a URI is nowhere.
#[derive(Debug, thiserror::Error)]
#[error("{0}: expected https://host/… or http://host/…")]
pub(crate) struct NoAddress(Uri);

impl Address {
    /// That of a URI.
    pub(crate) fn of(uri: &Uri) -> Result<Self, NoAddress> {
        let nowhere = || NoAddress(uri.clone());
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(nowhere()),
        };
        let host = uri.host().ok_or_else(nowhere)?;
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { is_tls, host: host.trim_matches(['[', ']']).to_owned(), port })
    }
}

/// What a request says of the host.
pub(crate) fn host_field(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    HeaderValue::from_str(host).ok()
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_from_a_uri() {
        for (uri, is_tls, shown, field) in [
            (
                "https://b.s3.eu-west-1.amazonaws.com/k",
                true,
                "b.s3.eu-west-1.amazonaws.com:443",
                None,
            ),
            ("http://127.0.0.1:9000/b/k?x=y", false, "127.0.0.1:9000", None),
            ("http://[::1]/k", false, "[::1]:80", Some("[::1]")),
            ("http://me@h:1/k", false, "h:1", None),
        ] {
            let uri: Uri = uri.parse().expect("a URI");
            let address = Address::of(&uri).expect("an address");
            assert_eq!((address.is_tls, address.to_string().as_str()), (is_tls, shown));
            let field = field.unwrap_or_else(|| shown.trim_end_matches(":443"));
            assert_eq!(host_field(&uri).expect("a host"), field);
        }
        for uri in ["/k", "ftp://h/k", "h:1"] {
            Address::of(&uri.parse().expect("a URI")).expect_err("it is nowhere");
        }
    }
}
