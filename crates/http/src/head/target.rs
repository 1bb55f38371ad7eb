//! The target of a request: path and query.
//!
//! A target has one of four forms (RFC 9112, section 3.2). Servers get the origin form (`/path?query`), or `*` in an
//! `OPTIONS` request about the whole server. The proxy forwards the bytes of path and query unchanged, except to an
//! HTTP/2 server: the proxy then percent-encodes bytes that are not valid in a URI.

use super::Fault;
use http::Method;
use http::uri::{Authority, PathAndQuery};
use std::borrow::Cow;
use std::fmt::Write as _;

const NO_TARGET: Fault =
    Fault::bad("the request target is not a path, an absolute http URL, or `*` with OPTIONS");
const FRAGMENT: Fault = Fault::bad("the request target has a fragment (`#`)");
const BAD_AUTHORITY: Fault = Fault::bad_host("the host in the request target is not valid");

/// Maximum length of a target: that of [`PathAndQuery`].
pub(crate) const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;

/// Path and query, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A valid path and query, as in nearly all targets.
    Uri(PathAndQuery),
    /// A target with bytes that are not valid in a URI, but that many servers accept, such as `<`.
    Lax(Box<str>),
}

impl Target {
    /// Parses the target of an HTTP/1 request, and the host in an absolute target.
    pub(crate) fn parse(method: &Method, text: &str) -> Result<(Self, Option<Authority>), Fault> {
        // With any target: a server that accepts CONNECT treats the rest of the connection as a tunnel.
        if method == Method::CONNECT {
            return Err(Fault::CONNECT);
        }
        if text.starts_with('/') {
            return Ok((Self::origin(text)?, None));
        }
        if text == "*" && method == Method::OPTIONS {
            return Ok((Self::asterisk(), None));
        }
        let (scheme, rest) = text.split_once("://").ok_or(NO_TARGET)?;
        if !is_http(scheme) {
            return Err(NO_TARGET);
        }
        let path_at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let authority = Authority::try_from(authority).map_err(|_| BAD_AUTHORITY)?;
        let target = match path {
            // RFC 9112, section 3.2.4: `OPTIONS` about the whole server.
            "" if method == Method::OPTIONS => Self::asterisk(),
            "" => Self::origin("/")?,
            path if path.starts_with('/') => Self::origin(path)?,
            query => Self::origin(&format!("/{query}"))?,
        };
        Ok((target, Some(authority)))
    }

    /// Parses the `:path` of an HTTP/2 request, which has no spaces and no control characters.
    pub(crate) fn of_http2(path: &str) -> Result<Self, Fault> {
        match path {
            "*" => Ok(Self::asterisk()),
            _ if path.starts_with('/') => Self::origin(path),
            _ => Err(NO_TARGET),
        }
    }

    /// Fails if this is `*` and the method is not `OPTIONS`.
    pub(crate) fn unless_asterisk_with(self, method: &Method) -> Result<Self, Fault> {
        if self.as_str() == "*" && method != Method::OPTIONS { Err(NO_TARGET) } else { Ok(self) }
    }

    /// Creates a target of the program's own requests.
    ///
    /// # Panics
    /// When `path` is not a valid path.
    #[must_use]
    pub fn own(path: &str) -> Self {
        Self::origin(path).expect("our own paths are valid")
    }

    /// Returns this target with another path, which has no query and no fragment.
    ///
    /// # Errors
    /// When the target becomes too long.
    pub fn with_path(&self, path: &str) -> Result<Self, Fault> {
        let target = format!("{path}{}", &self.as_str()[self.path().len()..]);
        if target.len() > TARGET_BYTES_MAX {
            return Err(Fault::TARGET_TOO_LONG);
        }
        Self::origin(&target)
    }

    const fn asterisk() -> Self {
        Self::Uri(PathAndQuery::from_static("*"))
    }

    fn origin(text: &str) -> Result<Self, Fault> {
        match PathAndQuery::try_from(text) {
            Ok(path) if path.as_str().len() == text.len() => Ok(Self::Uri(path)),
            // `PathAndQuery` cuts the fragment off; a server that keeps it would see another target.
            Ok(_) => Err(FRAGMENT),
            Err(_) if text.contains('#') => Err(FRAGMENT),
            Err(_) => Ok(Self::Lax(text.into())),
        }
    }

    /// Returns the form for a request line.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Uri(path) => path.as_str(),
            Self::Lax(text) => text,
        }
    }

    /// Returns the path without the query.
    #[must_use]
    #[inline]
    pub fn path(&self) -> &str {
        match self {
            Self::Uri(path) => path.path(),
            Self::Lax(text) => text.split('?').next().unwrap_or_default(),
        }
    }

    /// Returns the form for HTTP/2, in which bytes that are not valid in a URI are percent-encoded.
    pub(crate) fn to_uri_form(&self) -> Cow<'_, PathAndQuery> {
        let text = match self {
            Self::Uri(path) => return Cow::Borrowed(path),
            Self::Lax(text) => text,
        };
        let mut encoded = String::with_capacity(text.len() + 16);
        for char in text.chars() {
            if matches!(char, '"' | '<' | '>' | '`') {
                write!(encoded, "%{:02X}", u32::from(char))
                    .expect("writing to a String does not fail");
            } else {
                encoded.push(char);
            }
        }
        Cow::Owned(PathAndQuery::try_from(encoded).unwrap_or(PathAndQuery::from_static("/")))
    }
}

fn is_http(scheme: &str) -> bool {
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests;
