//! Listening sockets: of TCP, or a Unix socket with its file (`unix(7)`).
//!
//! A stale file, which a process has left behind that ended without removing it, is replaced. The file is removed with
//! the last clone of its socket, unless another process listens on it.
//!
//! **Limit**: if another process binds a new socket to the path between the check and the removal, its file is removed. Linux
//! has no call that removes a file only if it is still the same.

use crate::accept::BACKLOG;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A listening socket that does not block.
#[derive(Debug)]
pub enum ListenSocket {
    /// On an address of TCP.
    Tcp(TcpListener),
    /// On a Unix socket. The socket closes before its file is removed.
    Unix(UnixListener, Arc<SocketFile>),
}

impl From<TcpListener> for ListenSocket {
    fn from(socket: TcpListener) -> Self {
        Self::Tcp(socket)
    }
}

impl ListenSocket {
    /// Listens on a Unix socket, whose file gets this mode. It replaces a stale file.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::AddrInUse`] when a process listens there, or the file is no socket.
    pub fn bind_unix(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() && !remove_if_stale(path)? {
            let text = "another process listens there";
            return Err(io::Error::new(ErrorKind::AddrInUse, text));
        }
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&socket2::SockAddr::unix(path)?)?;
        let file = Arc::new(SocketFile::new(path));
        // Before anybody can connect.
        file.set_mode(mode)?;
        socket.listen(BACKLOG)?;
        Ok(Self::Unix(OwnedFd::from(socket).into(), file))
    }

    /// Takes a socket that listens in another process, too.
    ///
    /// # Errors
    /// When it listens on nothing that has a name.
    pub fn inherit(socket: OwnedFd) -> io::Result<Self> {
        let socket = socket2::Socket::from(socket);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        if address.as_socket().is_some() {
            return Ok(Self::Tcp(socket.into()));
        }
        let path = address.as_pathname().ok_or(ErrorKind::InvalidInput)?;
        let file = Arc::new(SocketFile::new(path));
        Ok(Self::Unix(OwnedFd::from(socket).into(), file))
    }

    /// The address, on TCP.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// The file, on a Unix socket.
    #[must_use]
    pub const fn file(&self) -> Option<&Arc<SocketFile>> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(_, file) => Some(file),
        }
    }

    /// Whether clients that connect to its address reach it: not if the file of a Unix socket was deleted or replaced.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.file().is_none_or(|file| file.is_present())
    }

    /// Returns another handle of the socket.
    ///
    /// # Errors
    /// When the process may not open another file.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Unix(socket, file) => Self::Unix(socket.try_clone()?, Arc::clone(file)),
        })
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket, _) => socket.as_fd(),
        }
    }
}

/// The file of a Unix socket, which is removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The device and the inode, which no other file gets while the socket is open; absent: there was no file.
    id: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), id: file_id(path) }
    }

    /// Whether the path still leads to this file.
    fn is_present(&self) -> bool {
        self.id.is_some() && file_id(&self.path) == self.id
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the mode; absent: it stays as the umask of the process has made it.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_mode(&self, mode: Option<u32>) -> io::Result<()> {
        let Some(mode) = mode else { return Ok(()) };
        std::fs::set_permissions(&self.path, PermissionsExt::from_mode(mode))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // After a restart, the new process listens on the socket; systemd listens on its own ones.
        if let Err(error) = remove_if_stale(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(file = %self.path.display(), %error, "the file of a Unix socket is not removed");
        }
    }
}

fn file_id(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Removes the file of a socket on which nobody listens; returns false if somebody does.
fn remove_if_stale(path: &Path) -> io::Result<bool> {
    if !path.symlink_metadata()?.file_type().is_socket() {
        let text = "there is a file of this name that is no socket";
        return Err(io::Error::new(ErrorKind::AddrInUse, text));
    }
    // Of another type than the listener: it is found (EPROTOTYPE) as soon as it is bound, and gets no connection, for which
    // systemd would start the service again.
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)?;
    match socket.connect(&socket2::SockAddr::unix(path)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        // Somebody has it, perhaps one whom this process may not reach.
        Ok(()) | Err(_) => return Ok(false),
    }
    std::fs::remove_file(path).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_a_socket_without_a_listener_is_replaced_and_the_last_clone_removes_the_file() {
        let folder = std::env::temp_dir().join(format!("curtail-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("s");
        let bind = || ListenSocket::bind_unix(&path, Some(0o620));
        std::fs::write(&path, "data").expect("a file");
        assert_eq!(bind().expect_err("it is no socket").kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).expect("it is still there"), b"data");
        std::fs::remove_file(&path).expect("the file");
        // Nobody listens any more.
        drop(UnixListener::bind(&path).expect("a socket"));
        let first = bind().expect("it was stale");
        assert!(!remove_if_stale(&path).expect("a socket"));
        let ListenSocket::Unix(socket, _) = &first else { panic!("it is a Unix socket") };
        let waiting = socket.accept().expect_err("the check is no client");
        assert_eq!(waiting.kind(), ErrorKind::WouldBlock);
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o620);
        assert_eq!(bind().expect_err("it is in use").kind(), ErrorKind::AddrInUse);
        let clone = first.try_clone().expect("another handle");
        drop(first);
        UnixStream::connect(&path).expect("the clone listens");
        // Another process that takes the socket over has the same file.
        let fd = clone.as_fd().try_clone_to_owned().expect("another handle");
        let inherited = ListenSocket::inherit(fd).expect("a listening socket");
        assert_eq!(inherited.file().map(|file| file.path()), Some(&*path));
        drop(clone);
        UnixStream::connect(&path).expect("the other process listens");
        drop(inherited);
        assert!(!path.exists());
        // A socket that does not listen yet.
        let bound = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let bound = bound.expect("a socket");
        bound.bind(&socket2::SockAddr::unix(&path).expect("a path")).expect("the name is free");
        assert_eq!(bind().expect_err("it is in use").kind(), ErrorKind::AddrInUse);
        drop(bound);
        assert!(remove_if_stale(&path).expect("a socket"));
        std::fs::remove_dir_all(&folder).expect("the temporary folder");
    }
}
