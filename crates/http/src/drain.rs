//! Draining: a server that stops accepts no further requests on its connections.

use curtail_units::Duration;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::watch;

/// When a server drains, a connection without a request stays open this long for a request that may be on its way.
pub const LAST_MOMENT: Duration = Duration::from_ms(100);

/// Tells all connections of a server to drain.
#[derive(Debug, Default)]
pub struct DrainSignal {
    sender: watch::Sender<bool>,
    /// Whether the drain has begun, as a flag that is cheap to read.
    is_begun: AtomicBool,
}

impl DrainSignal {
    /// Begins the drain.
    pub fn begin(&self) {
        self.is_begun.store(true, Ordering::Release);
        self.sender.send_replace(true);
    }

    /// Whether the drain has begun.
    #[must_use]
    #[inline]
    pub fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Acquire)
    }

    /// Waits until the drain begins.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut begun = self.sender.subscribe();
        async move { drop(begun.wait_for(|begun| *begun).await) }
    }
}

/// One connection's view of the drain.
pub struct Drain {
    signal: Arc<DrainSignal>,
    begun: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    is_waiting: bool,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drain").field("signal", &self.signal).finish_non_exhaustive()
    }
}

impl Drain {
    /// Creates the view of a signal.
    #[must_use]
    pub fn new(signal: &Arc<DrainSignal>) -> Self {
        Self { signal: Arc::clone(signal), begun: Box::pin(signal.wait()), is_waiting: false }
    }

    /// Whether the drain has begun.
    #[must_use]
    #[inline]
    pub fn is_begun(&self) -> bool {
        self.signal.is_begun()
    }

    /// Ready once, when the drain begins. A connection is polled several times for each request. Therefore only its
    /// first poll registers a waker, and all further polls only read a flag.
    #[inline]
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_waiting && !self.is_begun() {
            return Poll::Pending;
        }
        self.is_waiting = true;
        self.begun.as_mut().poll(cx)
    }
}
