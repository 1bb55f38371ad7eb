//! How much may be received at once.

use crate::refusal::{Kind, Refusal};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes that batches take from when they come until they are durable.
#[derive(Debug)]
pub(crate) struct Room {
    free: Semaphore,
    bytes: u32,
}

/// What one batch has taken of it; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    of: &'a Room,
    permit: Option<SemaphorePermit<'a>>,
}

impl Room {
    pub(crate) fn new(bytes: u32) -> Self {
        Self { free: Semaphore::new(bytes as usize), bytes }
    }

    pub(crate) const fn begin(&self) -> Held<'_> {
        Held { of: self, permit: None }
    }
}

impl Held<'_> {
    /// Takes so many bytes more.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        let more =
            u32::try_from(bytes).ok().and_then(|bytes| self.of.free.try_acquire_many(bytes).ok());
        let Some(more) = more else {
            let message = format!("more than {} bytes are being received", self.of.bytes);
            return Err(Kind::Exhausted.refuse(message));
        };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_given_back() {
        let room = Room::new(10);
        let (mut one, mut other) = (room.begin(), room.begin());
        one.take(4).expect("there is room");
        other.take(6).expect("there is room");
        assert_eq!(one.take(1).expect_err("there is none").kind, Kind::Exhausted);
        drop(other);
        one.take(6).expect("there is room");
        drop(one);
        room.begin().take(10).expect("all of it is there");
        assert!(room.begin().take(usize::MAX).is_err());
    }
}
