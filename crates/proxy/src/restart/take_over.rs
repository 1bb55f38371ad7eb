//! The side of the new process.

use super::{END, GREETING, READY, SOCKETS, SOCKETS_MAX};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time until the old process has sent its sockets.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval of attempts when the old process is just being replaced by another one.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// The process that serves, and waits for this one to be ready.
#[derive(Debug)]
pub(crate) struct OldProcess(UnixStream);

impl OldProcess {
    /// Connects to the process that serves, and gets its sockets; [`None`] if there is no such process.
    ///
    /// # Errors
    /// When the path is no socket, its process belongs to another user, is no proxy, or does not respond.
    pub(crate) fn find(path: &Path) -> io::Result<Option<(Self, Vec<TcpListener>)>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Some(mut stream) = connect(path)? else { return Ok(None) };
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            match receive(&mut stream) {
                Ok(sockets) => return Ok(Some((Self(stream), sockets))),
                // It was replaced meanwhile, or has just stopped.
                Err(error) if is_end(&error) && Instant::now() < deadline => {
                    std::thread::park_timeout(RETRY_AFTER);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let text = format!("the process behind it has not responded for {PATIENCE:?}");
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells the old process that this one accepts connections.
    pub(crate) fn replace(mut self) {
        if let Err(error) = self.0.write_all(&[READY]) {
            tracing::warn!(%error, "the old process ended before this one was ready");
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

fn connect(path: &Path) -> io::Result<Option<UnixStream>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::other("there is a file of this name that is no socket"));
        }
        Ok(_) => {}
    }
    let stream = match UnixStream::connect(path) {
        // Its process has ended without removing it.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected?,
    };
    let owner = sockopt::socket_peercred(&stream)?.uid;
    if !owner.is_root() && owner != rustix::process::geteuid() {
        let text = format!("the process behind it belongs to another user ({})", owner.as_raw());
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(Some(stream))
}

fn receive(stream: &mut UnixStream) -> io::Result<Vec<TcpListener>> {
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting)?;
    if greeting != GREETING {
        return Err(unexpected(&greeting));
    }
    let mut sockets = Vec::new();
    loop {
        match receive_one(stream, &mut sockets)? {
            SOCKETS => {}
            END => return Ok(sockets),
            other => return Err(unexpected(&[other])),
        }
    }
}

/// Receives one byte, and the sockets with it.
fn receive_one(stream: &UnixStream, sockets: &mut Vec<TcpListener>) -> io::Result<u8> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(stream, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            sockets.extend(files.map(TcpListener::from));
        }
    }
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(byte[0])
}

fn unexpected(bytes: &[u8]) -> io::Error {
    let text = format!(
        "the process behind it sent {:?}, not {:?}: is it a curtail proxy of this version?",
        bytes.escape_ascii().to_string(),
        GREETING.escape_ascii().to_string(),
    );
    io::Error::new(ErrorKind::InvalidData, text)
}
