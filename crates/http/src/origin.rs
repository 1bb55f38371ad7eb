//! The address of a server: scheme, host and port (RFC 6454).

use http::Uri;
use std::net::SocketAddr;

/// `http://host:port` or `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerOrigin {
    /// Whether the server uses TLS.
    pub tls: bool,
    /// The name or address to connect to, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ServerOrigin {
    /// Parses `http://host[:port]` or `https://host[:port]`, with no path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // A parsed URI has lost its fragment.
        let uri: Uri = text.parse().ok().filter(|_| !text.contains('#'))?;
        let has_no_path = uri.path_and_query().is_none_or(|p| p.as_str() == "/");
        Self::of_uri(&uri, None).filter(|_| has_no_path)
    }

    /// Returns the server of a URI without a user name. The port of a URI without one is `default_port`, or that of the
    /// scheme.
    #[must_use]
    pub fn of_uri(uri: &Uri, default_port: Option<u16>) -> Option<Self> {
        let (tls, scheme_port) = match uri.scheme_str()? {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return None,
        };
        let authority = uri.authority().filter(|a| !a.as_str().contains('@'))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().or(default_port).unwrap_or(scheme_port);
        let is_host_only = authority.as_str().len() == authority.host().len();
        let is_valid = !host.is_empty() && (authority.port().is_some() || is_host_only);
        is_valid.then(|| Self { tls, host: host.to_owned(), port })
    }

    /// Returns `host:port`, with brackets around an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl From<SocketAddr> for ServerOrigin {
    /// Returns a server in clear text.
    fn from(address: SocketAddr) -> Self {
        Self { tls: false, host: address.ip().to_string(), port: address.port() }
    }
}

impl std::fmt::Display for ServerOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::ServerOrigin;

    #[test]
    fn an_address_is_written_as_it_was_read() {
        for url in
            ["http://a:1", "https://b.example:443", "http://[::1]:65535", "http://1.2.3.4:80"]
        {
            assert_eq!(ServerOrigin::parse(url).expect(url).to_string(), url);
        }
        let port = |text| ServerOrigin::parse(text).map(|url| url.port);
        assert_eq!(port("http://a"), Some(80));
        assert_eq!(port("https://a/"), Some(443));
        for wrong in [
            "a:1",
            "ftp://a:1",
            "http://",
            "http://a:1/path",
            "http://u@a:1",
            "http://a:x",
            "http://a:1#x",
        ] {
            assert_eq!(port(wrong), None, "{wrong}");
        }
    }
}
