//! A thread that runs tasks on a runtime of its own.

use std::io;
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with its own runtime. Dropping this ends the thread, which drops its tasks, and waits for that. Only a task
/// of the thread does not wait when it drops the last owner: it would wait for itself.
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
        let run = move || {
            drop(own.block_on(stopped));
            // A name lookup may still hang on another thread of the runtime; the owner does not wait for that.
            own.shutdown_background();
        };
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

#[cfg(test)]
mod tests {
    use super::RuntimeThread;
    use std::sync::mpsc;
    use tokio::sync::oneshot;

    #[test]
    fn its_own_task_may_drop_it_and_the_other_tasks_end() {
        let owner = RuntimeThread::start("owner").expect("a thread");
        let runtime = owner.runtime().clone();
        let (dropped, other_ends) = mpsc::sync_channel::<()>(1);
        runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(dropped);
        });
        let (start, started) = oneshot::channel::<()>();
        runtime.spawn(async move {
            started.await.expect("it is sent");
            drop(owner);
        });
        start.send(()).expect("the task waits");
        assert_eq!(other_ends.recv(), Err(mpsc::RecvError), "the other task was dropped");
    }
}
