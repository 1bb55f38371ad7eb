//! The URL of a server in arguments of commands: `http://HOST[:PORT][/PATH]` or `https://…`.

use curtail_http::origin::ServerOrigin;
use http::Uri;
use std::str::FromStr;

/// The URL of a server, without user name, query and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) origin: ServerOrigin,
    /// The prefix of the paths of requests; empty or without a slash at its end.
    pub(crate) path: String,
}

impl ServerUrl {
    /// Parses `text`. If `text` has no port, the port is `port`, or else the default of the scheme.
    pub(crate) fn parse(text: &str, port: Option<u16>) -> Option<Self> {
        let uri: Uri = text.parse().ok().filter(|_| !text.contains(['@', '?', '#']))?;
        let path = uri.path().trim_end_matches('/').to_owned();
        Some(Self { origin: ServerOrigin::of_uri(&uri, port)?, path })
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected http://HOST:PORT or https://HOST:PORT".to_owned();
        Self::parse(text, None).ok_or_else(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::ServerUrl;

    #[test]
    fn an_address_has_a_host_and_may_have_a_port_and_a_path() {
        for (text, origin, path) in [
            ("http://a", "http://a:80", ""),
            ("https://a", "https://a:443", ""),
            ("http://a:3200/", "http://a:3200", ""),
            ("https://[::1]:3200/base/", "https://[::1]:3200", "/base"),
        ] {
            let parsed = ServerUrl::parse(text, None).expect(text);
            assert_eq!((parsed.origin.to_string(), &*parsed.path), (origin.to_owned(), path));
        }
        let parsed = ServerUrl::parse("https://a", Some(3200)).expect("a URL");
        assert_eq!(parsed.origin.port, 3200);
    }

    #[test]
    fn a_url_with_an_unused_part_is_rejected() {
        for text in [
            "a:80",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:",
            "http://a:99999",
            "http://user:secret@a",
            "http://a/?x=1",
            "http://a/#x",
            "http://a:80#x",
        ] {
            assert_eq!(ServerUrl::parse(text, None), None, "{text}");
        }
    }
}
