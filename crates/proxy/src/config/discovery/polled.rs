//! The keys of sources that the proxy reads again and again: a file, and a URL.

use curtail_config::{Scalar, ScalarError, Section, displayed_value};
use curtail_http::origin::ServerOrigin;
use curtail_units::Duration;
use http::Uri;
use std::path::PathBuf;

/// A file in the format of Prometheus' `file_sd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    /// Its path.
    pub path: PathBuf,
}

/// A URL that serves the format of Prometheus' `http_sd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSource {
    /// The URL.
    pub url: SourceUrl,
    /// Time between two requests.
    pub interval: Duration,
    /// Trusted certificate authorities (PEM); absent: the system's.
    pub ca_file: Option<PathBuf>,
    /// File of the bearer token; absent: none.
    pub token_file: Option<PathBuf>,
}

/// A URL with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUrl {
    /// Scheme, host and port.
    pub origin: ServerOrigin,
    /// Path and query.
    pub path: String,
}

impl SourceUrl {
    fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok().filter(|_| !text.contains('#'))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Some(Self { origin: ServerOrigin::of_uri(&uri, None)?, path })
    }
}

impl std::fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

displayed_value!(
    SourceUrl,
    "a URL",
    "such as http://127.0.0.1:8080/targets",
    |scalar: &Scalar| scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind),
    Self {
        origin: ServerOrigin { tls: false, host: "localhost".to_owned(), port: 80 },
        path: "/".to_owned(),
    },
    { "type": "string", "pattern": "^https?://[^/]+" }
);

pub(super) fn file(s: &mut Section<'_>) -> FileSource {
    FileSource {
        path: s
            .field("path", "Path of the file. The proxy looks for a change every second. A rename over the file (mv) replaces it at once; a file that is written in place may be read half.")
            .required(),
    }
}

pub(super) fn http(s: &mut Section<'_>) -> HttpSource {
    HttpSource {
        url: s.field("url", "URL of the list.").required(),
        interval: s
            .field("interval", "Time between two requests for the list.")
            .range(Duration::from_ms(100)..=Duration::from_secs(3_600))
            .default(Duration::from_secs(30)),
        ca_file: s
            .field("ca_file", "Trusted certificate authorities (PEM file); absent: the system's.")
            .optional(),
        token_file: s
            .field(
                "token_file",
                "File of the bearer token. The proxy reads it again for each request.",
            )
            .optional(),
    }
}
