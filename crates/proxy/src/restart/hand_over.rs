//! The side of the old process.

use super::{END, GREETING, READY, SOCKETS, SOCKETS_MAX};
use crate::listeners::Listeners;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::Permissions;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// Maximum time from the sockets to [`READY`]; another process can then try.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Processes that may wait to take over.
const BACKLOG: i32 = 16;

/// The process that has taken over.
#[derive(Clone, Copy, Debug)]
pub struct NewProcess {
    /// Its process ID, if the system tells.
    pub pid: Option<i32>,
}

/// The socket at `restart.socket`. Dropping it removes the file, unless another process has replaced it.
#[derive(Debug)]
pub(crate) struct RestartSocket {
    socket: UnixListener,
    path: PathBuf,
    /// The file, by which it is known again while the socket is open.
    inode: u64,
}

impl RestartSocket {
    /// Puts a socket at `path`. It replaces one that is there, without a moment in which there is none.
    ///
    /// Call it within the runtime that will use the socket.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut own = path.as_os_str().to_owned();
        own.push(format!(".{}", std::process::id()));
        let own = PathBuf::from(own);
        match std::fs::remove_file(&own) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&socket2::SockAddr::unix(&own)?)?;
        // Before `listen`: nobody else can connect at any time.
        std::fs::set_permissions(&own, Permissions::from_mode(0o600))?;
        socket.listen(BACKLOG)?;
        let socket = UnixListener::from_std(socket.into())?;
        let inode = own.metadata()?.ino();
        std::fs::rename(&own, path)?;
        Ok(Self { socket, path: path.to_owned(), inode })
    }
}

impl Drop for RestartSocket {
    fn drop(&mut self) {
        if self.path.metadata().is_ok_and(|file| file.ino() == self.inode)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(socket = %self.path.display(), %error, "restart.socket was not removed");
        }
    }
}

/// Gives the listeners to new processes, until one is ready. Then stops accepting, and tells `replaced`.
pub(crate) async fn run(
    socket: RestartSocket,
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
        tracing::info!(pid, "restart: a new process gets the listeners");
        match tokio::time::timeout(READY_WITHIN, hand_over(stream, &listeners)).await {
            Ok(Ok(())) => {
                lock(&listeners).release();
                replaced.send_replace(Some(NewProcess { pid }));
                return;
            }
            Ok(Err(error)) => {
                tracing::error!(pid, %error, "restart: the new process failed, this one continues");
            }
            Err(_) => {
                tracing::error!(pid, within = ?READY_WITHIN, "restart: the new process was not ready, this one continues");
            }
        }
    }
}

async fn hand_over(mut stream: UnixStream, listeners: &Mutex<Listeners>) -> io::Result<()> {
    stream.write_all(GREETING).await?;
    let sockets = lock(listeners).sockets()?;
    for sockets in sockets.chunks(SOCKETS_MAX) {
        let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        stream.async_io(Interest::WRITABLE, || send(&stream, &sockets)).await?;
    }
    stream.write_all(&[END]).await?;
    match stream.read_u8().await {
        Ok(READY) => Ok(()),
        Ok(other) => Err(io::Error::other(format!("it sent {:?}", char::from(other)))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(io::Error::other("it ended before it was ready"))
        }
        Err(error) => Err(error),
    }
}

/// Sends one byte, and sockets with it.
fn send(stream: &UnixStream, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = control.push(SendAncillaryMessage::ScmRights(sockets));
    debug_assert!(fits, "a chunk has at most `SOCKETS_MAX` sockets");
    sendmsg(stream, &[IoSlice::new(&[SOCKETS])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn lock(listeners: &Mutex<Listeners>) -> std::sync::MutexGuard<'_, Listeners> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}
