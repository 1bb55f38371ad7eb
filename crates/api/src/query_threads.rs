//! The threads that run queries: a separate runtime with a low priority, so that ingest has precedence on busy cores.
//!
//! A query consists of tasks of this runtime, so one query uses all threads, and several queries share the threads.

use rustix::process::setpriority_process;
use std::io;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// The nice value of the threads. On a core with a busy thread of normal priority, such a thread gets a quarter.
const NICE: i32 = 5;

/// The runtime of queries.
#[derive(Debug)]
pub(crate) struct QueryThreads {
    /// [`None`] after the stop.
    runtime: Option<Runtime>,
}

impl QueryThreads {
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(count)
            .thread_name("query")
            .on_thread_start(lower_priority)
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Runs a query.
    ///
    /// # Panics
    /// After [`stop`](Self::stop).
    pub(crate) fn spawn<F>(&self, query: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime.as_ref().expect("it is not stopped").spawn(query)
    }

    /// Ends the threads, and waits until they have ended.
    pub(crate) async fn stop(mut self) {
        let runtime = self.runtime.take();
        // Only a thread that may block can wait for others; a panic of theirs was reported where it occurred.
        tokio::task::spawn_blocking(move || drop(runtime)).await.ok();
    }
}

impl Drop for QueryThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of this thread; on Linux, each thread has its own priority.
fn lower_priority() {
    if let Err(error) = setpriority_process(None, NICE) {
        tracing::warn!(%error, "queries run with the priority of ingest");
    }
}
