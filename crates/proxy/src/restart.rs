//! Restart without interruption: a new process takes over the listening sockets of the one that serves.
//!
//! | step | old process | new process |
//! |---|---|---|
//! | 1 | serves | reads its configuration, and connects to `restart.socket` |
//! | 2 | sends its listening sockets (`SCM_RIGHTS`, `unix(7)`), and serves on | uses them for the same addresses |
//! | 3 | serves | accepts connections, puts a socket of its own at the path, and sends [`READY`] |
//! | 4 | accepts no more connections; each of its connections closes after its next response | serves |
//! | 5 | exits after its last connection, or after `restart.drain` | serves |
//!
//! Both processes accept from the same queue of the kernel, so no connection is refused or reset. If the new process fails
//! before step 3, the old one serves on.

pub(crate) mod hand_over;
pub(crate) mod inherited;
pub(crate) mod systemd;
pub(crate) mod take_over;

/// The first bytes from the old process. They name the protocol and its version.
const GREETING: &[u8] = b"curtail-restart/1\n";

/// A byte from the old process that has sockets with it.
const SOCKETS: u8 = b's';

/// The last byte from the old process.
const END: u8 = b'.';

/// The byte from the new process when it accepts connections.
const READY: u8 = b'r';

/// Sockets in one message; the kernel allows 253 (`SCM_MAX_FD`).
const SOCKETS_MAX: usize = 200;
