//! The target of requests: a URL whose host is looked up once.

use curtail_http::connect::{self, ConnectConfig, Connector};
use curtail_http::origin::ServerOrigin;
use curtail_http::tls::{TlsError, Trust};
use http::Uri;
use http::uri::InvalidUri;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;

/// The protocol of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: in clear text with prior knowledge, under TLS by ALPN.
    Http2,
    /// gRPC, one message each way, over HTTP/2.
    Grpc,
}

impl Protocol {
    /// The name in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
        }
    }
}

/// The target of requests.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host` or `host:port`, as in requests.
    pub authority: String,
    /// The server; its certificate must have the name of its host.
    pub origin: ServerOrigin,
    /// Path and query of the URL, for requests without their own.
    pub path: String,
    /// The addresses of the host, at least one. Connections use them in turn; after a failure, the next one.
    pub addresses: Vec<SocketAddr>,
}

/// A target that cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum TargetError {
    /// The text is not the URL of a target.
    #[error("{url:?} is no target: {problem}: expected http://HOST[:PORT][/PATH] or https://…")]
    Url { url: String, problem: String },
    /// The name of the host could not be looked up.
    #[error("the name {host:?} was not looked up: {source}")]
    Lookup { host: String, source: io::Error },
}

impl Target {
    /// Parses `url` and looks up its host.
    ///
    /// # Errors
    /// When the scheme of `url` is not `http` or `https`, a part of `url` would not be sent, or the host is not known.
    pub fn look_up(url: &str) -> Result<Self, TargetError> {
        let (origin, uri) = parse_url(url)?;
        if url.contains(['{', '}']) {
            let problem = "it has a brace (a template such as {word} belongs in --path; write a brace as %7B or %7D)";
            return Err(TargetError::Url { url: url.to_owned(), problem: problem.to_owned() });
        }
        let host = &*origin.host;
        let lookup = |source| TargetError::Lookup { host: host.to_owned(), source };
        let addresses: Vec<SocketAddr> =
            (host, origin.port).to_socket_addrs().map_err(lookup)?.collect();
        if addresses.is_empty() {
            return Err(lookup(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
        }
        let authority = uri.authority().map_or_else(|| origin.authority(), ToString::to_string);
        let path = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        Ok(Self { authority, origin, path, addresses })
    }

    /// Prepares connections that trust the certificates of `ca_file`, else any if `is_insecure`, else the system's.
    ///
    /// # Errors
    /// When `ca_file` cannot be read or has no certificate, the system has none, or no certificate can have the host's
    /// name.
    pub fn connector(
        &self,
        protocol: Protocol,
        ca_file: Option<&Path>,
        is_insecure: bool,
    ) -> Result<Connector, TlsError> {
        let trust = match ca_file {
            None if is_insecure => Trust::any_certificate(),
            _ => Trust::load(ca_file, self.origin.tls)?,
        };
        let protocol = match protocol {
            Protocol::Http1 => connect::Protocol::Http1,
            Protocol::Http2 | Protocol::Grpc => connect::Protocol::Http2,
        };
        Connector::new(&self.origin, &ConnectConfig { protocol, ..Default::default() }, &trust)
    }
}

/// Parses the URL of a target. All of the URL is sent, so it has no user name, no password and no fragment.
///
/// # Errors
/// When the scheme of `url` is not `http` or `https`, or a part of `url` would not be sent.
pub fn parse_url(url: &str) -> Result<(ServerOrigin, Uri), TargetError> {
    let wrong =
        |problem: &str| TargetError::Url { url: url.to_owned(), problem: problem.to_owned() };
    let uri: Uri = url.parse().map_err(|error: InvalidUri| wrong(&error.to_string()))?;
    if let Some(scheme) = uri.scheme_str().filter(|scheme| !matches!(*scheme, "http" | "https")) {
        return Err(wrong(&format!("the scheme is {scheme}")));
    }
    if let Some((_, host)) =
        uri.authority().and_then(|authority| authority.as_str().rsplit_once('@'))
    {
        // The error does not repeat the password.
        let url = format!("{}://***@{host}{}", uri.scheme_str().unwrap_or_default(), uri.path());
        let problem = "a user name or password in it is not sent (the header `authorization: Basic …` sends them)";
        return Err(TargetError::Url { url, problem: problem.to_owned() });
    }
    // A parsed URI has lost its fragment.
    if url.contains('#') {
        return Err(wrong(
            "the part from # on is never sent (write a # of the path or query as %23)",
        ));
    }
    if uri.scheme().is_none() && !url.starts_with('/') {
        return Err(wrong(&format!("it has no scheme: did you mean http://{url}?")));
    }
    let origin = ServerOrigin::of_uri(&uri, None).ok_or_else(|| wrong("it names no server"))?;
    Ok((origin, uri))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.origin.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::look_up("http://127.0.0.1:8983/solr/select?q=a").expect("a target");
        assert_eq!(target.authority, "127.0.0.1:8983");
        assert_eq!(target.path, "/solr/select?q=a");
        assert_eq!(target.addresses, ["127.0.0.1:8983".parse().expect("an address")]);
        assert_eq!(target.to_string(), "http://127.0.0.1:8983/solr/select?q=a");
        let target = Target::look_up("https://[::1]").expect("a target");
        assert_eq!(
            (target.authority.as_str(), target.origin.host.as_str(), target.origin.tls),
            ("[::1]", "::1", true)
        );
        assert_eq!(target.addresses[0].port(), 443);
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for (url, says) in [
            ("127.0.0.1:80", "is no target"),
            ("ftp://127.0.0.1", "the scheme is ftp"),
            ("http://", "is no target"),
            ("http://127.0.0.1/?q={word}", "such as {word} belongs in --path"),
            ("http://127.0.0.1:x/", "it names no server"),
            ("http://127.0.0.1/?q=a b", "invalid uri character"),
            ("http://name.invalid/", "was not looked up"),
            ("http://127.0.0.1/?q=#1", "the part from # on is never sent"),
            (
                "http://user:secret@127.0.0.1/",
                "\"http://***@127.0.0.1/\" is no target: a user name",
            ),
            ("http://user:secret@127.0.0.1/?q={word}", "a user name"),
            ("http://:secret@127.0.0.1/", "\"http://***@127.0.0.1/\" is no target: a user name"),
        ] {
            let error = Target::look_up(url).expect_err(url).to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
