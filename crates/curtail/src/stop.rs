//! The signals that stop a command: SIGINT (Ctrl-C) and SIGTERM.

use curtail_generator::Stop;
use std::io;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM.
#[derive(Debug)]
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Registers for the signals, which from now on no longer kill the process.
    ///
    /// # Errors
    /// When the system allows no signal handler.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the first of them.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A runtime of this thread for signals.
fn signal_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().build()
}

/// Prints the addresses of a service and waits for a signal.
///
/// # Errors
/// When the system gives no signals, or `print` fails.
pub(crate) fn serve_until_signal(
    print: impl FnOnce() -> io::Result<()>,
) -> anyhow::Result<ExitCode> {
    signal_runtime()?.block_on(async {
        // The reader of the addresses may send a signal next.
        let mut signals = StopSignals::new()?;
        print()?;
        signals.received().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Runs a load, which a signal stops early.
///
/// # Errors
/// When the system gives no signals.
pub(crate) fn run_until_signal<T: Send>(run: impl FnOnce(&Stop) -> T + Send) -> io::Result<T> {
    let stop = Stop::default();
    let runtime = signal_runtime()?;
    let mut signals = {
        let _entered = runtime.enter();
        StopSignals::new()?
    };
    Ok(std::thread::scope(|scope| {
        let (over, is_over) = tokio::sync::oneshot::channel::<()>();
        let stop = &stop;
        let running = scope.spawn(move || {
            // It is dropped however the run ends.
            let _over = over;
            run(stop)
        });
        runtime.block_on(async {
            tokio::select! {
                () = signals.received() => stop.stop(),
                _ = is_over => {}
            }
        });
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }))
}
