//! The side of the new process.

use super::{ACCEPT, END, GREETING, READY, SERVING, SOCKETS, SOCKETS_MAX};
use crate::config::ListenAddress;
use curtail_http::listen_socket::ListenSocket;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg, sockopt,
};
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time until the old process responds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval of attempts when the old process is just being replaced by another one.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// The process that serves, and waits for this one.
#[derive(Debug)]
pub(crate) struct OldProcess {
    stream: UnixStream,
    /// Its process ID.
    pub(crate) pid: i32,
}

impl OldProcess {
    /// Connects to the process that serves, and receives its sockets; [`None`] if there is no such process.
    ///
    /// # Errors
    /// When the path is no socket, its process belongs to another user, is no proxy, or does not respond.
    pub(crate) fn receive_sockets(path: &Path) -> io::Result<Option<(Self, Vec<ListenSocket>)>> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            let Some(mut old) = connect(path)? else { return Ok(None) };
            match old.receive() {
                Ok(sockets) => return Ok(Some((old, sockets))),
                // It was replaced meanwhile, or has just stopped.
                Err(error) if is_end(&error) && Instant::now() < deadline => {
                    std::thread::park_timeout(RETRY_AFTER);
                }
                Err(error) => return Err(described(error)),
            }
        }
    }

    /// Asks the old process whether this one may accept connections.
    ///
    /// # Errors
    /// When it may not: the old process serves on, or has ended.
    pub(crate) fn ready(&mut self) -> io::Result<()> {
        let mut response = [0];
        let asked = self.stream.write_all(&[READY]);
        match asked.and_then(|()| self.stream.read_exact(&mut response)) {
            Ok(()) if response[0] == ACCEPT => Ok(()),
            Ok(()) => Err(unexpected(&response, &[ACCEPT])),
            Err(error) if is_end(&error) || error.kind() == ErrorKind::BrokenPipe => {
                let text = "the old process did not wait for this one, or has other listeners since: start again";
                Err(io::Error::new(error.kind(), text))
            }
            Err(error) => Err(described(error)),
        }
    }

    /// Tells the old process that this one accepts connections.
    ///
    /// # Errors
    /// When the old process does not wait any more, and so serves on.
    pub(crate) fn replace(mut self) -> io::Result<()> {
        self.stream.write_all(&[SERVING]).map_err(|error| {
            let text = "the old process did not wait for this one: start again";
            io::Error::new(error.kind(), text)
        })
    }

    fn receive(&mut self) -> io::Result<Vec<ListenSocket>> {
        let mut greeting = [0; GREETING.len()];
        self.stream.read_exact(&mut greeting)?;
        if greeting != GREETING {
            return Err(unexpected(&greeting, GREETING));
        }
        let mut sockets = Vec::new();
        loop {
            match receive_one(&self.stream, &mut sockets)? {
                SOCKETS => {}
                END => return Ok(sockets),
                other => return Err(unexpected(&[other], &[SOCKETS, END])),
            }
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

/// The same error, unless it is that of a time limit.
fn described(error: io::Error) -> io::Error {
    if error.kind() != ErrorKind::WouldBlock {
        return error;
    }
    let text = format!(
        "the process behind it has not responded for {RESPONSE_TIMEOUT:?}; another process may be taking over just now"
    );
    io::Error::new(ErrorKind::TimedOut, text)
}

fn connect(path: &Path) -> io::Result<Option<OldProcess>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::other("there is a file of this name that is no socket"));
        }
        Ok(_) => {}
    }
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    // A full queue of a process that does not accept is an error at once.
    socket.set_nonblocking(true)?;
    match socket.connect(&socket2::SockAddr::unix(path)?) {
        // Its process has ended without removing it.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected.map_err(described)?,
    }
    socket.set_nonblocking(false)?;
    let stream = UnixStream::from(std::os::fd::OwnedFd::from(socket));
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    let peer = sockopt::socket_peercred(&stream)?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        let user = peer.uid.as_raw();
        let text = format!("the process behind it belongs to another user ({user})");
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(Some(OldProcess { stream, pid: peer.pid.as_raw_nonzero().get() }))
}

/// Receives one byte, and the sockets with it.
fn receive_one(stream: &UnixStream, sockets: &mut Vec<ListenSocket>) -> io::Result<u8> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = retry_on_intr(|| {
        let mut data = [IoSliceMut::new(&mut byte)];
        recvmsg(stream, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            for file in files {
                sockets.push(ListenSocket::inherit(file)?);
            }
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        let count = sockets.len();
        let text = format!(
            "only {count} of its sockets have arrived: raise the limit on open files (RLIMIT_NOFILE)"
        );
        return Err(io::Error::other(text));
    }
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(byte[0])
}

fn unexpected(received: &[u8], expected: &[u8]) -> io::Error {
    let text = format!(
        "the process behind it sent \"{}\", not \"{}\": it is another program, or a curtail with another restart protocol",
        received.escape_ascii(),
        expected.escape_ascii(),
    );
    io::Error::new(ErrorKind::InvalidData, text)
}

/// The error of a configuration that has none of the addresses of the old process.
pub(crate) fn has_no_address(listening: &[ListenAddress]) -> io::Error {
    let addresses: Vec<_> = listening.iter().map(ToString::to_string).collect();
    let text = format!(
        "it belongs to a proxy on {}, addresses that this configuration does not have: give each proxy a socket of its own",
        addresses.join(", ")
    );
    io::Error::other(text)
}
