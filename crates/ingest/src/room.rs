//! How much may be received at once, of all and of one tenant.
//!
//! A tenant whose batches are long, or come slowly, does not take the room of the others: one has at most three
//! quarters of it, which a batch of the greatest length needs while it is decoded.

use crate::refusal::{Kind, Refusal};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that batches take from when they come until they are durable.
#[derive(Debug)]
pub(crate) struct Room {
    bytes_max: usize,
    taken: Mutex<Taken>,
}

/// What is taken of it; who has nothing is not listed.
#[derive(Debug, Default)]
struct Taken {
    bytes: usize,
    of: HashMap<Arc<str>, usize>,
}

/// What one batch has taken of it; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    room: &'a Room,
    tenant: Arc<str>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(bytes_max: u32) -> Self {
        Self { bytes_max: bytes_max as usize, taken: Mutex::default() }
    }

    pub(crate) const fn begin(&self, tenant: Arc<str>) -> Held<'_> {
        Held { room: self, tenant, bytes: 0 }
    }

    /// How many bytes one tenant may have.
    const fn share(&self) -> usize {
        self.bytes_max / 4 * 3
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held<'_> {
    /// Takes so many bytes more.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        let mut taken = self.room.taken();
        let of_all = taken.bytes.saturating_add(bytes);
        let of_tenant = taken.of.get(&self.tenant).unwrap_or(&0).saturating_add(bytes);
        let (bytes_max, share) = (self.room.bytes_max, self.room.share());
        if of_all > bytes_max {
            let message = format!("more than {bytes_max} bytes are being received");
            return Err(Kind::Exhausted.refuse(message));
        }
        if of_tenant > share {
            let message = format!("more than {share} bytes of one tenant are being received");
            return Err(Kind::Exhausted.refuse(message));
        }
        taken.bytes = of_all;
        taken.of.insert(Arc::clone(&self.tenant), of_tenant);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.bytes -= self.bytes;
        if let Some(of_tenant) = taken.of.get_mut(&self.tenant) {
            *of_tenant -= self.bytes;
            if *of_tenant == 0 {
                taken.of.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_given_back() {
        let room = Room::new(12);
        let (mut one, mut other) = (room.begin("one".into()), room.begin("other".into()));
        one.take(4).expect("there is room");
        other.take(8).expect("there is room");
        assert_eq!(one.take(1).expect_err("there is none").kind, Kind::Exhausted);
        drop(other);
        one.take(5).expect("there is room");
        drop(one);
        assert!(room.taken().of.is_empty());
        room.begin("one".into()).take(9).expect("all of its share is there");
        assert!(room.begin("one".into()).take(usize::MAX).is_err());
    }

    #[test]
    fn nobody_takes_the_share_of_others() {
        let room = Room::new(12);
        let (mut one, mut more) = (room.begin("one".into()), room.begin("one".into()));
        one.take(5).expect("there is room");
        more.take(4).expect("there is room");
        let refusal = more.take(1).expect_err("that is more than its share");
        assert_eq!(refusal.kind, Kind::Exhausted);
        assert!(refusal.message.contains("of one tenant"), "{}", refusal.message);
        room.begin("other".into()).take(3).expect("there is room for others");
    }
}
