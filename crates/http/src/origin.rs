//! The address of a server: scheme, host and port (RFC 6454), or a Unix socket, written `http://unix:/path` as nginx does.

use http::Uri;
use std::net::SocketAddr;
use std::path::Path;

/// Maximum length of the path of a Unix socket (`sun_path` of `unix(7)`).
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// The start of the host of a Unix socket.
const UNIX: &str = "unix:";

/// `http://host:port` or `https://host:port`, or `http://unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerOrigin {
    /// Whether the server uses TLS.
    pub tls: bool,
    /// The name or address to connect to, without brackets; `unix:/path` for a Unix socket.
    pub host: String,
    /// The port; 0 for a Unix socket.
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

    /// Parses the same, or `http://unix:/path`.
    #[must_use]
    pub fn parse_with_unix(text: &str) -> Option<Self> {
        let unix = || {
            let host = text.strip_prefix("http://")?;
            parse_unix(host).filter(|_| !Self::has_uri_behind_unix(host))?;
            Some(Self { tls: false, host: host.to_owned(), port: 0 })
        };
        Self::parse(text).or_else(unix)
    }

    /// Whether nginx reads the end of `unix:/path` as a path of HTTP: `unix:/run/app.sock:/search`.
    #[must_use]
    pub fn has_uri_behind_unix(host: &str) -> bool {
        host.strip_prefix(UNIX).is_some_and(|path| path.contains(":/") || path.ends_with(':'))
    }

    /// The path of a Unix socket.
    #[must_use]
    pub fn unix_path(&self) -> Option<&Path> {
        // The host of a URI has no slash, but it may have a colon in brackets.
        self.host.strip_prefix(UNIX).filter(|path| path.starts_with('/')).map(Path::new)
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

    /// Returns the authority of requests that name no host: `host:port`, or `localhost` for a Unix socket.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.unix_path().is_some() { "localhost".to_owned() } else { self.address() }
    }

    /// Returns `host:port`, with brackets around an IPv6 address, or `unix:/path`.
    #[must_use]
    pub fn address(&self) -> String {
        if self.unix_path().is_some() {
            self.host.clone()
        } else if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Parses `unix:/path`: an absolute path of a Unix socket.
#[must_use]
pub fn parse_unix(text: &str) -> Option<&Path> {
    let path = text.strip_prefix(UNIX).filter(|path| path.starts_with('/'))?;
    let is_path = |byte: u8| !byte.is_ascii_control();
    let is_valid = path.len() <= UNIX_PATH_BYTES_MAX && path.bytes().all(is_path);
    is_valid.then(|| Path::new(path)).filter(|path| path.file_name().is_some())
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
        write!(f, "{scheme}://{}", self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::{ServerOrigin, UNIX_PATH_BYTES_MAX};
    use std::path::Path;

    #[test]
    fn a_unix_socket_has_an_absolute_path() {
        let longest = format!("/{}", "x".repeat(UNIX_PATH_BYTES_MAX - 1));
        for path in ["/run/app.sock", "/a b=c:d", &longest] {
            let url = format!("http://unix:{path}");
            assert_eq!(ServerOrigin::parse(&url), None);
            let origin = ServerOrigin::parse_with_unix(&url).expect(path);
            assert_eq!(origin.unix_path(), Some(Path::new(path)));
            assert_eq!((origin.to_string(), origin.authority()), (url, "localhost".to_owned()));
        }
        let too_long = format!("http://unix:{longest}x");
        for url in [
            "unix:/run/app.sock",
            "http://unix:",
            "http://unix:/",
            "http://unix:run/app.sock",
            "http://unix://run/..",
            "http://unix:/run/app.sock:/x",
            "http://unix:/run/app.sock:",
            "https://unix:/run/app.sock",
            "http://unix:/run/\0",
            &too_long,
        ] {
            assert_eq!(ServerOrigin::parse_with_unix(url), None, "{url}");
        }
        let named = ServerOrigin::parse_with_unix("http://unix:80").expect("a host of this name");
        assert_eq!((named.unix_path(), &*named.host), (None, "unix"));
        assert_eq!(ServerOrigin::parse("http://[unix:/x]:80"), None);
        let bracketed = "http://[unix:x]:80";
        let named = ServerOrigin::parse(bracketed).expect("a host with a colon");
        assert_eq!((named.unix_path(), &*named.to_string()), (None, bracketed));
    }

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
