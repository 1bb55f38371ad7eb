//! Connections to replicas, counted from when they are made until they are dropped.

use crate::metrics::ReplicaMetrics;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One open connection of a pool; counted until dropped.
#[derive(Debug)]
pub(crate) struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    /// Counts one more, unless there are `max` already.
    pub(crate) fn new(open: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let counted = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < max).then_some(counted)
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection to the replica; counted as open until dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    pub(crate) metrics: Arc<ReplicaMetrics>,
    /// Among the HTTP/1.1 connections.
    pub(crate) place: Option<OpenCount>,
}

#[cfg(test)]
impl CountedConnection {
    /// One that no pool knows of.
    pub(crate) fn of_no_pool() -> Self {
        Self { metrics: Arc::default(), place: None }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.metrics.closed(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_up_to_a_bound_until_they_are_dropped() {
        let open = Arc::default();
        let (first, second) = (OpenCount::new(&open, 2), OpenCount::new(&open, 2));
        assert!(first.is_some() && second.is_some());
        assert!(OpenCount::new(&open, 2).is_none());
        drop(first);
        assert!(OpenCount::new(&open, 2).is_some(), "the one that was refused does not count");
        drop(second);
        assert_eq!(open.load(Ordering::Relaxed), 0);
    }
}
