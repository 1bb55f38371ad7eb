//! The signals of a command that serves: stop, reload of the configuration, restart, and one that must not end the process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, Interval};

/// The interval of checks whether the configuration file has changed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Minimum time between two reloads. Each begins a writer of the access log, which needs a while to write its first lines.
const RELOAD_EVERY: Duration = Duration::from_millis(500);

/// SIGINT (Ctrl-C) and SIGTERM.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// With a handler, a write beyond the limit on the size of files fails, and does not end the process.
    _file_size: Signal,
}

impl StopSignals {
    /// Registers for the signals, which from now on no longer kill the process.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            _file_size: signal(SignalKind::from_raw(libc::SIGXFSZ))?,
        })
    }

    /// Waits for one of the signals.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// SIGHUP, and changes of the configuration file.
#[derive(Debug)]
pub struct ReloadSignal {
    hang_up: Signal,
    check: Interval,
    file: Option<PathBuf>,
    /// The modification time and the length of the file, which change when it is written.
    seen: Option<(SystemTime, u64)>,
    /// The earliest time of the next reload. Signals until then are one.
    next: Instant,
}

impl ReloadSignal {
    /// Registers for SIGHUP, which from now on no longer kills the process, and watches `file`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(file: Option<&Path>) -> io::Result<Self> {
        let hang_up = signal(SignalKind::hangup())?;
        let check = tokio::time::interval(CHECK_EVERY);
        let (seen, next) = (file.and_then(stamp), Instant::now());
        Ok(Self { hang_up, check, file: file.map(Path::to_owned), seen, next })
    }

    /// Waits until the configuration must be read again.
    pub async fn received(&mut self) {
        tokio::time::sleep_until(self.next).await;
        loop {
            let is_hang_up = tokio::select! {
                _ = self.hang_up.recv() => true,
                _ = self.check.tick() => false,
            };
            let now = self.file.as_deref().and_then(stamp);
            let has_changed = std::mem::replace(&mut self.seen, now) != now;
            if is_hang_up || has_changed {
                self.next = Instant::now() + RELOAD_EVERY;
                return;
            }
        }
    }
}

/// SIGUSR2: the wish for a new process.
#[derive(Debug)]
pub(crate) struct RestartSignal(Signal);

impl RestartSignal {
    /// Registers for the signal, which from now on no longer kills the process.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn new() -> io::Result<Self> {
        signal(SignalKind::user_defined2()).map(Self)
    }

    /// Waits for the signal.
    pub(crate) async fn received(&mut self) {
        self.0.recv().await;
    }
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
