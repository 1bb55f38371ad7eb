//! Why a server does not start, or stops.

use curtail_http::tls::TlsError;
use curtail_objects::OpenError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum StartError {
    /// A file or folder that the configuration names, or one in the data folder.
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    /// A certificate or its key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The object store of the tables.
    #[error(transparent)]
    Objects(#[from] OpenError),
    /// A table or the log.
    #[error("cannot open the tables {tables}")]
    Store { tables: String, source: Box<curtail_store::OpenError> },
    /// An address of a listener.
    #[error("{}; choose another address with {key}", describe_listen(*.address, .source))]
    Listen { key: &'static str, address: SocketAddr, source: io::Error },
    /// The system refuses a thread or a runtime.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// A thread has panicked during the start.
    #[error(transparent)]
    Panicked(#[from] ServerPanicked),
}

fn describe_listen(address: SocketAddr, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::AddrInUse {
        format!("port {} is already in use", address.port())
    } else {
        format!("cannot listen on {address}")
    }
}

/// A thread of the server has ended, which is a bug. All acknowledged batches are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a thread of the server has panicked")]
pub struct ServerPanicked;
