//! A thread that runs tasks on a runtime of its own.

use std::io;
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with its own runtime. Dropping this drops the tasks and, on any other thread, waits for
/// the end of the thread.
#[derive(Debug)]
pub struct RuntimeThread {
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeThread {
    /// Starts a thread of this name, without tasks.
    ///
    /// # Errors
    /// When the system gives no thread, or the process may not open another file.
    pub fn start(name: &str) -> io::Result<Self> {
        let own = Builder::new_current_thread().enable_all().build()?;
        let runtime = own.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || drop(own.block_on(stopped));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { runtime, stop: Some(stop), thread: Some(thread) })
    }

    /// The runtime, which runs the tasks that are spawned on it.
    #[must_use]
    pub const fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|own| own.thread().id() != thread::current().id()) {
            // A panic of the thread was reported when it happened.
            drop(thread.join());
        }
    }
}
