//! The limiter of a leaf: whether one more request may be in service.
//!
//! **Invariant** `leaf-concurrency-bounded`: at most [`LeafConfig::concurrency`](crate::LeafConfig) are in service.

/// Counts the requests in service against a fixed limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limiter {
    concurrency: u32,
    in_service: u32,
}

impl Limiter {
    pub(super) fn new(concurrency: u32) -> Self {
        Self { concurrency: concurrency.max(1), in_service: 0 }
    }

    pub(super) const fn concurrency(&self) -> u32 {
        self.concurrency
    }

    pub(super) const fn in_service(&self) -> u32 {
        self.in_service
    }

    pub(super) const fn has_room(&self) -> bool {
        self.in_service < self.concurrency
    }

    pub(super) fn start(&mut self) {
        debug_assert!(self.has_room(), "leaf-concurrency-bounded");
        self.in_service += 1;
    }

    pub(super) const fn end(&mut self) {
        self.in_service -= 1;
    }
}
