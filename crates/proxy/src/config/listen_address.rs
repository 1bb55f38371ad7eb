//! The address of a listener: of TCP, or a Unix socket.

use curtail_config::{Scalar, ScalarError, Value};
use curtail_http::origin::parse_unix;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address with a port.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether the system chooses the port.
    pub(crate) const fn has_any_port(&self) -> bool {
        match self {
            Self::Tcp(address) => address.port() == 0,
            Self::Unix(_) => false,
        }
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Value for ListenAddress {
    const NOUN: &'static str = "an address with a port";
    const DETAIL: &'static str = "such as 127.0.0.1:8080 or \"[::1]:8080\" (quoted), or a Unix socket such as unix:/run/curtail.sock";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        let read = |text: &str| {
            let unix = || parse_unix(text).map(|path| Self::Unix(path.to_owned()));
            text.parse().ok().map(Self::Tcp).or_else(unix)
        };
        scalar.text().and_then(read).ok_or(ScalarError::Kind)
    }

    fn defect(text: &str) -> Option<String> {
        if text.starts_with('/') {
            return Some("has no unix: before its path".to_owned());
        }
        match text.strip_prefix("unix:") {
            None => SocketAddr::defect(text),
            Some(path) if path.starts_with('/') => None,
            Some(_) => Some("has no absolute path".to_owned()),
        }
    }

    fn write(&self) -> String {
        serde_json::Value::from(self.to_string()).to_string()
    }

    fn placeholder() -> Self {
        Self::Tcp(SocketAddr::placeholder())
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "pattern": "^(.+:[0-9]+|unix:/.+)$" })
    }
}
