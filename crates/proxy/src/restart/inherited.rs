//! Listening sockets that this process has got from another one: from the proxy before it, or from systemd.

use std::io;
use std::net::{SocketAddr, TcpListener};

/// Listening sockets that have not been used yet.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets(Vec<TcpListener>);

impl InheritedSockets {
    /// The sockets of systemd's socket activation (`sd_listen_fds(3)`), if it has started this process.
    pub(crate) fn from_systemd() -> Self {
        let mut sockets = listenfd::ListenFd::from_env();
        let count = sockets.len();
        let take = |index| match sockets.take_tcp_listener(index) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(index, %error, "a socket from systemd is not used: it is no TCP listener");
                None
            }
        };
        Self((0..count).filter_map(take).collect())
    }

    pub(crate) fn extend(&mut self, sockets: Vec<TcpListener>) {
        self.0.extend(sockets);
    }

    /// Removes and returns the socket that listens on `address`.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub(crate) fn take(&mut self, address: SocketAddr) -> io::Result<Option<TcpListener>> {
        let listens = |socket: &TcpListener| socket.local_addr().is_ok_and(|own| own == address);
        let Some(index) = self.0.iter().position(listens) else { return Ok(None) };
        let socket = self.0.swap_remove(index);
        socket.set_nonblocking(true)?;
        Ok(Some(socket))
    }

    /// Whether the socket that listens on `address` has not been taken.
    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|socket| socket.local_addr().is_ok_and(|own| own == address))
    }

    /// Closes the sockets that no listener has taken.
    pub(crate) fn close_rest(&mut self) {
        for socket in self.0.drain(..) {
            if let Ok(address) = socket.local_addr() {
                tracing::warn!(%address, "an inherited socket is closed: no listener has its address");
            }
        }
    }
}
