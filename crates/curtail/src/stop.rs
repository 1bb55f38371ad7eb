//! Being told to stop.

use crate::exit;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a command which runs until it is told to stop.
#[derive(Debug)]
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From now on the signals no longer kill the process; they are only told here.
    ///
    /// # Errors
    /// When the system lets nobody receive signals.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one; gives how the process is to end: Ctrl-C interrupts it, SIGTERM is its proper end.
    pub(crate) async fn told(&mut self) -> ExitCode {
        tokio::select! {
            _ = self.interrupt.recv() => ExitCode::from(exit::INTERRUPTED),
            _ = self.terminate.recv() => ExitCode::SUCCESS,
        }
    }
}
