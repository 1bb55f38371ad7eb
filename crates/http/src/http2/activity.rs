//! Detects servers that fail silently and leave their connections open.
//!
//! If streams are in flight and no bytes arrive for the configured time, the connection is pinged.

use h2::{Ping, PingPong};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum time until a server responds to a ping; a slower server has failed.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The reports of a connection's streams to the task that drives it.
#[derive(Debug)]
pub(super) struct Activity {
    streams: AtomicUsize,
    heard: Mutex<Instant>,
    /// Wakes the task when a stream begins and no other is in flight.
    begun: Notify,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let heard = Mutex::new(Instant::now());
        Arc::new(Self { streams: AtomicUsize::new(0), heard, begun: Notify::new() })
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Waits until the server does not respond to a ping while streams are in flight.
    pub(super) async fn wait_until_silent(&self, mut pings: PingPong, interval: Duration) {
        loop {
            let due = *self.heard() + interval;
            if Instant::now() < due {
                tokio::time::sleep_until(due).await;
            } else if self.streams() == 0 {
                self.begun.notified().await;
            } else {
                match tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
                    Ok(Ok(_)) => self.note_heard(),
                    // The connection has ended and reports its own error.
                    Ok(Err(_)) => return std::future::pending().await,
                    Err(_) => return,
                }
            }
        }
    }

    fn note_heard(&self) {
        *self.heard() = Instant::now();
    }

    fn heard(&self) -> MutexGuard<'_, Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The count of one stream in flight, until this is dropped.
#[derive(Debug)]
pub(super) struct StreamCount(Arc<Activity>);

impl StreamCount {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        if activity.streams.fetch_add(1, Ordering::Relaxed) == 0 {
            activity.begun.notify_one();
        }
        Self(Arc::clone(activity))
    }

    pub(super) fn note_heard(&self) {
        self.0.note_heard();
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
