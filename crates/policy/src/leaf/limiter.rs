//! The limiter of a leaf: how many requests are in service.
//!
//! **Decides** whether one more request may start.
//! **Inputs**: starts and ends of service.
//! **Limits**: [`LeafConfig::concurrency`](crate::LeafConfig), at least 1.
//! **Invariant** `leaf-concurrency-bounded`: never more requests in service than the limit.

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
