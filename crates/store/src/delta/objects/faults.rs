//! Faults of a store, for tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// The time at which the failing operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The operation fails before it is executed.
    Before,
    /// The operation succeeds and reports an error.
    After,
}

/// Makes the nth operation from now on fail. At first, no operation fails.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The number of operations up to the failing one; zero for none.
    left: AtomicU64,
    is_after: std::sync::atomic::AtomicBool,
}

/// The fate of an operation that was executed.
#[derive(Debug)]
pub(super) struct Fault(bool);

impl Faults {
    /// Makes the nth operation from now on fail, counted from one.
    pub(crate) fn arm(&self, nth: u64, when: When) {
        self.is_after.store(when == When::After, Ordering::Relaxed);
        self.left.store(nth, Ordering::Relaxed);
    }

    /// Lets all later operations succeed; returns whether one was still to fail.
    pub(crate) fn disarm(&self) -> bool {
        self.left.swap(0, Ordering::Relaxed) > 0
    }

    pub(super) fn strike(&self) -> Result<Fault, object_store::Error> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        let is_after = self.is_after.load(Ordering::Relaxed);
        if left == 1 && !is_after { Err(failed()) } else { Ok(Fault(left == 1)) }
    }
}

impl Fault {
    pub(super) fn strike(self) -> Result<(), object_store::Error> {
        if self.0 { Err(failed()) } else { Ok(()) }
    }
}

fn failed() -> object_store::Error {
    object_store::Error::Generic { store: "test", source: "planned failure".into() }
}
