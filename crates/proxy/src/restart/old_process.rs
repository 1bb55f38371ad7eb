//! The side of the old process.

use super::{ACCEPT, END, GREETING, READY, SERVING, SOCKETS, SOCKETS_MAX};
use crate::listeners::Listeners;
use rustix::fs::{Mode, fchmod};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// Maximum time from the sockets to [`READY`]; another process can then try.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Maximum time from [`ACCEPT`] to [`SERVING`].
const SERVING_WITHIN: Duration = Duration::from_secs(5);

/// Processes that may wait to take over.
const BACKLOG: i32 = 16;

/// The process that has taken over.
#[derive(Clone, Copy, Debug)]
pub struct NewProcess {
    /// Its process ID, if the system tells.
    pub pid: Option<i32>,
}

/// A socket for `restart.socket`, at first with a name of its own.
#[derive(Debug)]
pub(crate) struct RestartSocket {
    socket: UnixListener,
    path: PathBuf,
    /// The name until [`Self::publish`]; a drop removes it.
    unpublished: Option<PathBuf>,
    /// Device and inode of the file, by which it is known while the socket is open.
    file: (u64, u64),
}

impl RestartSocket {
    /// Opens the socket. Call it within the runtime that will use the socket.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut own = path.as_os_str().to_owned();
        own.push(format!(".{}", std::process::id()));
        let own = PathBuf::from(own);
        match std::fs::remove_file(&own) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        // The file gets the mode of the socket, so nobody else can connect at any time.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        socket.set_nonblocking(true)?;
        socket.bind(&socket2::SockAddr::unix(&own)?)?;
        let file = identity(&own);
        let unpublished = Some(own);
        socket.listen(BACKLOG)?;
        let socket = UnixListener::from_std(socket.into())?;
        Ok(Self { socket, path: path.to_owned(), unpublished, file: file? })
    }

    /// Puts the socket at its path. It replaces one that is there, without a moment in which there is none.
    ///
    /// # Errors
    /// When the directory does not allow it.
    pub(crate) fn publish(&mut self) -> io::Result<()> {
        if let Some(own) = &self.unpublished {
            std::fs::rename(own, &self.path)?;
            self.unpublished = None;
        }
        Ok(())
    }

    /// Puts a new socket at the path if another process has replaced this one there, and then failed.
    fn restore(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            return;
        }
        let restored = Self::open(&self.path).and_then(|mut new| {
            new.publish()?;
            *self = new;
            Ok(())
        });
        if let Err(error) = restored {
            tracing::error!(socket = %self.path.display(), %error, "restart.socket is lost: this process cannot be replaced");
        }
    }
}

impl Drop for RestartSocket {
    fn drop(&mut self) {
        if let Some(own) = &self.unpublished {
            // It may be gone; then there is nothing to do.
            std::fs::remove_file(own).ok();
        }
    }
}

/// Device and inode of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|file| (file.dev(), file.ino()))
}

/// Gives the listeners to new processes, until one serves. Then stops accepting, and tells `replaced`.
pub(crate) async fn run(
    mut socket: RestartSocket,
    listeners: Arc<Mutex<Listeners>>,
    replaced: watch::Sender<Option<NewProcess>>,
) {
    loop {
        let stream = match socket.socket.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "restart.socket: a new process cannot be accepted");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let pid = stream.peer_cred().ok().and_then(|new| new.pid());
        tracing::info!(pid, "restart: a new process receives the listeners");
        match give_listeners(stream, &listeners).await {
            Ok(()) => {
                lock(&listeners).release();
                replaced.send_replace(Some(NewProcess { pid }));
                return;
            }
            Err(error) => {
                tracing::error!(pid, %error, "restart: the new process failed, this one continues");
                socket.restore();
            }
        }
    }
}

/// Returns when the new process serves.
async fn give_listeners(mut stream: UnixStream, listeners: &Mutex<Listeners>) -> io::Result<()> {
    stream.write_all(GREETING).await?;
    let (sockets, version) = {
        let listeners = lock(listeners);
        (listeners.sockets()?, listeners.version())
    };
    for sockets in sockets.chunks(SOCKETS_MAX) {
        let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        stream.async_io(Interest::WRITABLE, || send(&stream, &sockets)).await?;
    }
    stream.write_all(&[END]).await?;
    expect(&mut stream, READY, READY_WITHIN).await?;
    if lock(listeners).version() != version {
        return Err(io::Error::other("the listeners of this process have changed meanwhile"));
    }
    stream.write_all(&[ACCEPT]).await?;
    expect(&mut stream, SERVING, SERVING_WITHIN).await
}

async fn expect(stream: &mut UnixStream, wanted: u8, within: Duration) -> io::Result<()> {
    match tokio::time::timeout(within, stream.read_u8()).await {
        Ok(Ok(byte)) if byte == wanted => Ok(()),
        Ok(Ok(byte)) => Err(io::Error::other(format!("it sent \"{}\"", byte.escape_ascii()))),
        Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(io::Error::other("it ended before it served"))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other(format!("it did not serve within {within:?}"))),
    }
}

/// Sends one byte, and sockets with it.
fn send(stream: &UnixStream, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::other("too many sockets for one message"));
    }
    sendmsg(stream, &[IoSlice::new(&[SOCKETS])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Locks the listeners. Nothing panics while it holds the lock; should it ever, restarts go on.
pub(crate) fn lock(listeners: &Mutex<Listeners>) -> MutexGuard<'_, Listeners> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}
