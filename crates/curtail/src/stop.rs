//! Being told to stop.

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

    /// Waits for one. It is the usual end of a service, and interrupts what has yet to give a result.
    pub(crate) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
