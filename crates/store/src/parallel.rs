//! Runs futures as tasks of the caller's runtime, so that a query uses all cores of its runtime.

use futures_util::stream::{self, Stream, StreamExt as _};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The number of threads that run tasks of the caller's runtime.
///
/// # Panics
/// Outside of a runtime.
#[must_use]
pub fn worker_count() -> usize {
    Handle::current().metrics().num_workers()
}

/// Runs futures as tasks, `max` at once, and passes on their results in the order of the futures. Tasks end when the
/// stream is dropped.
///
/// # Panics
/// Outside of a runtime, or when a future panics.
pub fn run_in_order<F>(
    max: usize,
    futures: impl Iterator<Item = F>,
) -> impl Stream<Item = F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let runtime = Handle::current();
    stream::iter(futures.map(move |future| Task(runtime.spawn(future)))).buffered(max)
}

/// A task that is aborted on drop.
struct Task<T>(JoinHandle<T>);

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(output) => Poll::Ready(output),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime shuts down, and the caller with it.
                Err(_cancelled) => Poll::Pending,
            },
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
