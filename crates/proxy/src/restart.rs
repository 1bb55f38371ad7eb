//! Restart without interruption: a new process takes over the listening sockets of the one that serves.
//!
//! | step | old process | new process |
//! |---|---|---|
//! | 1 | serves | reads its configuration, and connects to `restart.socket` |
//! | 2 | sends its listening sockets (`SCM_RIGHTS`, `unix(7)`) | prepares everything that can fail, and sends [`READY`] |
//! | 3 | sends [`ACCEPT`], if its listeners are the same as in step 2 | accepts connections, puts a socket of its own at the path, and sends [`SERVING`] |
//! | 4 | accepts no more connections; each of its connections closes after its next response | serves |
//! | 5 | exits after its last connection, or after `restart.drain` | serves |
//!
//! Until step 4 the old process accepts connections, too: both use one queue of the kernel. If the new process ends before
//! step 4, the old one serves on. Without [`ACCEPT`], the new process has accepted nothing, and ends with an error.

pub(crate) mod inherited;
mod new_process;
pub(crate) mod old_process;
pub(crate) mod systemd;

use crate::StartError;
use crate::config::{ListenAddress, RestartConfig};
use crate::listeners::Listeners;
use curtail_http::runtime_thread::RuntimeThread;
use inherited::InheritedSockets;
use new_process::OldProcess;
use old_process::{NewProcess, RestartSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// The first bytes from the old process. They name the protocol and its version.
const GREETING: &[u8] = b"curtail-restart/1\n";

/// A byte from the old process that has sockets with it.
const SOCKETS: u8 = b's';

/// The byte from the old process after the last socket.
const END: u8 = b'.';

/// The byte from the new process when nothing can fail any more.
const READY: u8 = b'r';

/// The byte from the old process that lets the new one accept connections.
const ACCEPT: u8 = b'a';

/// The byte from the new process when it accepts connections.
const SERVING: u8 = b'v';

/// Sockets in one message; the kernel allows 253 (`SCM_MAX_FD`).
const SOCKETS_MAX: usize = 200;

/// The restart at the start of a process: the old process if there is one, and the socket for the next one.
#[derive(Debug)]
pub(crate) struct Takeover {
    path: PathBuf,
    thread: RuntimeThread,
    socket: RestartSocket,
    old: Option<OldProcess>,
    /// The addresses of the sockets of the old process.
    received: Vec<ListenAddress>,
}

/// The thread that gives the listeners to a new process.
#[derive(Debug)]
pub(crate) struct RestartThread {
    _thread: RuntimeThread,
    pub(crate) replaced: watch::Receiver<Option<NewProcess>>,
}

impl Takeover {
    /// Adds the sockets of the old process to `inherited`, and prepares a socket for the next process.
    ///
    /// # Errors
    /// When `restart.socket` cannot be used.
    pub(crate) fn begin(
        RestartConfig { socket: path, .. }: &RestartConfig,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, StartError> {
        let failed = |source| StartError::Restart { socket: path.clone(), source };
        let (old, sockets) = OldProcess::receive_sockets(path).map_err(failed)?.unzip();
        let sockets = sockets.unwrap_or_default();
        let received = sockets.iter().filter_map(inherited::address_of).collect();
        inherited.extend(sockets);
        let thread = RuntimeThread::start("restart")?;
        let socket = {
            let _entered = thread.runtime().enter();
            RestartSocket::open(path).map_err(failed)?
        };
        Ok(Self { path: path.clone(), thread, socket, old, received })
    }

    /// The process ID of the old process, if there is one.
    pub(crate) fn old_pid(&self) -> Option<i32> {
        self.old.as_ref().map(|old| old.pid)
    }

    /// Waits until the old process lets this one accept connections. `unused` are the sockets that no listener has taken.
    ///
    /// # Errors
    /// When the old process serves on, or belongs to another service.
    pub(crate) fn ready(&mut self, unused: &InheritedSockets) -> Result<(), StartError> {
        let Some(old) = &mut self.old else { return Ok(()) };
        let is_unused = |address| unused.has(address);
        let ready = if !self.received.is_empty() && self.received.iter().all(is_unused) {
            Err(new_process::has_no_address(&self.received))
        } else {
            old.ready()
        };
        ready.map_err(|source| StartError::Restart { socket: self.path.clone(), source })
    }

    /// Replaces the old process, and gives the listeners to the next one.
    ///
    /// # Errors
    /// When the old process does not wait any more, or the directory of `restart.socket` cannot be written to.
    pub(crate) fn finish(
        mut self,
        listeners: &Arc<Mutex<Listeners>>,
    ) -> Result<RestartThread, StartError> {
        let published = self.socket.publish();
        let replaced = published.and_then(|()| self.old.map_or(Ok(()), OldProcess::replace));
        replaced.map_err(|source| StartError::Restart { socket: self.path, source })?;
        let (sender, replaced) = watch::channel(None);
        let giving = old_process::run(self.socket, Arc::clone(listeners), sender);
        self.thread.runtime().spawn(giving);
        Ok(RestartThread { _thread: self.thread, replaced })
    }
}
