//! Draining: a server that stops accepts no further requests on its connections.
//!
//! A drain has two stages. In the first one, which a stop leaves out, the response to the next request is the last on a
//! connection, and idle connections stay open for it. In the second stage idle connections close, too: a client that sends a
//! request just then has to repeat it.

use curtail_units::Duration;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::watch;

/// When a server drains, a connection without a request stays open this long for a request that may be on its way.
pub const LAST_MOMENT: Duration = Duration::from_ms(100);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Open,
    /// The response to the next request is the last one of a connection.
    LastResponses,
    /// Connections without a request close.
    Closing,
}

/// Tells all connections of a server to drain.
#[derive(Debug, Default)]
pub struct DrainSignal {
    sender: watch::Sender<Stage>,
    /// Whether the drain has begun, as a flag that is cheap to read.
    is_begun: AtomicBool,
    /// Whether idle connections close, likewise.
    is_closing: AtomicBool,
    /// Whether requests in progress are aborted.
    is_aborting: AtomicBool,
}

impl DrainSignal {
    /// Begins the drain, or its second stage.
    pub fn begin(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.enter(Stage::Closing);
    }

    /// Begins the first stage of the drain.
    pub fn begin_with_last_responses(&self) {
        self.enter(Stage::LastResponses);
    }

    /// Notes that requests which are still in progress are aborted from now on.
    pub fn begin_abort(&self) {
        self.is_aborting.store(true, Ordering::Release);
    }

    /// Whether requests in progress are aborted.
    #[must_use]
    pub fn is_aborting(&self) -> bool {
        self.is_aborting.load(Ordering::Acquire)
    }

    fn enter(&self, stage: Stage) {
        self.is_begun.store(true, Ordering::Release);
        self.sender.send_modify(|current| *current = stage.max(*current));
    }

    /// Whether the drain has begun.
    #[must_use]
    #[inline]
    pub fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// Waits until the drain begins.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.reached(Stage::LastResponses)
    }

    /// Waits until idle connections have to close.
    pub fn wait_closing(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.reached(Stage::Closing)
    }

    fn reached(&self, wanted: Stage) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut stage = self.sender.subscribe();
        async move { drop(stage.wait_for(|stage| *stage >= wanted).await) }
    }
}

/// One connection's view of the drain.
pub struct Drain {
    signal: Arc<DrainSignal>,
    /// Ready at the stage at which the connection has to do something.
    reached: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    is_waiting: bool,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").field("signal", &self.signal).finish_non_exhaustive()
    }
}

impl Drain {
    /// Creates the view of a connection that can announce its end (HTTP/2): [`Self::poll`] waits for the begin of the drain.
    #[must_use]
    pub fn new(signal: &Arc<DrainSignal>) -> Self {
        Self::at(signal, Stage::LastResponses)
    }

    /// Creates the view of a connection that cannot (HTTP/1.1): [`Self::poll`] waits until idle connections have to close.
    #[must_use]
    pub fn until_closing(signal: &Arc<DrainSignal>) -> Self {
        Self::at(signal, Stage::Closing)
    }

    fn at(signal: &Arc<DrainSignal>, wanted: Stage) -> Self {
        let reached = Box::pin(signal.reached(wanted));
        Self { signal: Arc::clone(signal), reached, is_waiting: false }
    }

    /// Whether the drain has begun.
    #[must_use]
    #[inline]
    pub fn is_begun(&self) -> bool {
        self.signal.is_begun()
    }

    /// Whether idle connections have to close.
    #[must_use]
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.signal.is_closing.load(Ordering::Acquire)
    }

    /// Ready once, at the stage that the connection waits for. A connection is polled several times for each request.
    /// Therefore only its first poll registers a waker, and further polls only read a flag until the drain begins.
    #[inline]
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The first stage wakes a connection that waits for the second one, which then has to wait again.
        if self.is_waiting && !self.is_begun() {
            return Poll::Pending;
        }
        self.is_waiting = true;
        self.reached.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_the_first_stage_has_woken_is_woken_by_the_second_one() {
        let signal = Arc::<DrainSignal>::default();
        let mut drain = Drain::until_closing(&signal);
        let waiting = tokio::spawn(async move {
            std::future::poll_fn(|cx| drain.poll(cx)).await;
        });
        tokio::task::yield_now().await;
        signal.begin_with_last_responses();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && signal.is_begun());
        signal.begin();
        let deadline = std::time::Duration::from_secs(60);
        let woken = tokio::time::timeout(deadline, waiting).await;
        woken.expect("it is woken").expect("no panic");
    }
}
