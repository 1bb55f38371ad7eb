//! Knowing when the proxy is told to stop.

use crate::worker::Shared;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// What one connection knows of it.
pub(crate) struct Drain {
    shared: Arc<Shared>,
    told: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    is_waiting: bool,
}

impl Drain {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let mut draining = shared.draining.subscribe();
        let told = async move { drop(draining.wait_for(|draining| *draining).await) };
        Self { shared: Arc::clone(shared), told: Box::pin(told), is_waiting: false }
    }

    /// Whether the proxy has been told to stop.
    pub(crate) fn is_told(&self) -> bool {
        self.shared.is_draining.load(Ordering::Acquire)
    }

    /// Ready once, when the proxy is told to stop. A connection is polled several times for each request:
    /// only the first of all polls asks to be woken, the others are one look at a flag.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_waiting && !self.is_told() {
            return Poll::Pending;
        }
        self.is_waiting = true;
        self.told.as_mut().poll(cx)
    }
}
