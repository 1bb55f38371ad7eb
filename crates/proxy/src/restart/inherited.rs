//! Listening sockets that this process has got from another one: from the proxy before it, or from systemd.

use crate::config::ListenAddress;
use curtail_http::listen_socket::ListenSocket;
use std::io;
use std::os::fd::OwnedFd;

/// Listening sockets that have not been used yet.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets(Vec<ListenSocket>);

impl InheritedSockets {
    /// The sockets of systemd's socket activation (`sd_listen_fds(3)`), if it has started this process.
    pub(crate) fn from_systemd() -> Self {
        let mut sockets = listenfd::ListenFd::from_env();
        let count = sockets.len();
        let mut take = |index| -> io::Result<Option<ListenSocket>> {
            // The first one is not taken if it is of another kind.
            let tcp = sockets.take_tcp_listener(index).map(|socket| socket.map(OwnedFd::from));
            let unix =
                |_| sockets.take_unix_listener(index).map(|socket| socket.map(OwnedFd::from));
            tcp.or_else(unix)?.map(ListenSocket::inherit).transpose()
        };
        let take = |index| match take(index) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(index, %error, "a socket from systemd is not used: it is no listener of TCP or of a Unix socket");
                None
            }
        };
        Self((0..count).filter_map(take).collect())
    }

    pub(crate) fn extend(&mut self, sockets: Vec<ListenSocket>) {
        self.0.extend(sockets);
    }

    /// Removes and returns the socket that listens on `address`.
    pub(crate) fn take(&mut self, address: &ListenAddress) -> Option<ListenSocket> {
        let index = self.0.iter().position(|socket| is_at(socket, address))?;
        Some(self.0.swap_remove(index))
    }

    /// Whether the socket that listens on `address` has not been taken.
    pub(crate) fn has(&self, address: &ListenAddress) -> bool {
        self.0.iter().any(|socket| is_at(socket, address))
    }

    /// Closes the sockets that no listener has taken.
    pub(crate) fn close_rest(&mut self) {
        for socket in self.0.drain(..) {
            if let Some(address) = address_of(&socket) {
                tracing::warn!(%address, "an inherited socket is closed: no listener has its address");
            }
        }
    }
}

/// The address of a socket.
pub(crate) fn address_of(socket: &ListenSocket) -> Option<ListenAddress> {
    let unix = || socket.file().map(|file| ListenAddress::Unix(file.path().to_owned()));
    socket.tcp_address().map(ListenAddress::Tcp).or_else(unix)
}

fn is_at(socket: &ListenSocket, address: &ListenAddress) -> bool {
    address_of(socket).as_ref() == Some(address)
}
