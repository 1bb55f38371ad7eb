//! Limits the memory of batches from arrival to commit: one limit for all batches, and a lower limit for each tenant.
//!
//! A tenant gets at most three quarters of the memory. One batch of the maximum size needs that much while it is
//! decoded. The last quarter stays free for other tenants.

use crate::rejection::{RejectReason, Rejection};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The limit on the memory of batches that are not durable yet.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    bytes_max: usize,
    used: Mutex<UsedMemory>,
}

/// The used bytes, in total and by tenant; tenants without used bytes are not listed.
#[derive(Debug, Default)]
struct UsedMemory {
    bytes: usize,
    by_tenant: HashMap<Arc<str>, usize>,
}

/// The reserved bytes of one batch; released when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    limit: Arc<MemoryLimit>,
    tenant: Arc<str>,
    bytes: usize,
}

impl MemoryLimit {
    pub(crate) fn new(bytes_max: u32) -> Self {
        Self { bytes_max: bytes_max as usize, used: Mutex::default() }
    }

    pub(crate) fn reserve(self: &Arc<Self>, tenant: Arc<str>) -> MemoryReservation {
        MemoryReservation { limit: Arc::clone(self), tenant, bytes: 0 }
    }

    /// Maximum bytes of one tenant.
    const fn tenant_max(&self) -> usize {
        self.bytes_max / 4 * 3
    }

    fn used(&self) -> MutexGuard<'_, UsedMemory> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryReservation {
    /// Adds `bytes` to the reservation.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Rejection> {
        let mut used = self.limit.used();
        let of_all = used.bytes.saturating_add(bytes);
        let of_tenant = used.by_tenant.get(&self.tenant).unwrap_or(&0).saturating_add(bytes);
        let (bytes_max, tenant_max) = (self.limit.bytes_max, self.limit.tenant_max());
        if of_all > bytes_max {
            let message = format!("more than {bytes_max} bytes are being received");
            return Err(RejectReason::Exhausted.reject(message));
        }
        if of_tenant > tenant_max {
            let message = format!("more than {tenant_max} bytes of one tenant are being received");
            return Err(RejectReason::Exhausted.reject(message));
        }
        used.bytes = of_all;
        used.by_tenant.insert(Arc::clone(&self.tenant), of_tenant);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut used = self.limit.used();
        used.bytes -= self.bytes;
        if let Some(of_tenant) = used.by_tenant.get_mut(&self.tenant) {
            *of_tenant -= self.bytes;
            if *of_tenant == 0 {
                used.by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_reservations_release_their_bytes() {
        let limit = Arc::new(MemoryLimit::new(12));
        let (mut one, mut other) = (limit.reserve("one".into()), limit.reserve("other".into()));
        one.grow(4).expect("below the limit");
        other.grow(8).expect("below the limit");
        assert_eq!(one.grow(1).expect_err("the limit is reached").reason, RejectReason::Exhausted);
        drop(other);
        one.grow(5).expect("below the limit");
        drop(one);
        assert!(limit.used().by_tenant.is_empty());
        limit.reserve("one".into()).grow(9).expect("its whole share is free");
        assert!(limit.reserve("one".into()).grow(usize::MAX).is_err());
    }

    #[test]
    fn no_tenant_uses_the_share_of_others() {
        let limit = Arc::new(MemoryLimit::new(12));
        let (mut one, mut more) = (limit.reserve("one".into()), limit.reserve("one".into()));
        one.grow(5).expect("below the limit");
        more.grow(4).expect("below the limit");
        let rejection = more.grow(1).expect_err("that is more than its share");
        assert_eq!(rejection.reason, RejectReason::Exhausted);
        assert!(rejection.message.contains("of one tenant"), "{}", rejection.message);
        limit.reserve("other".into()).grow(3).expect("below the limit");
    }
}
