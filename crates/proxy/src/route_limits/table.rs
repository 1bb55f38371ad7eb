//! The limiters of the clients or tenants of a route, in a table of fixed size.
//!
//! The hash of a client chooses a set of [`SET_LEN`] places, under a lock of its own. An idle limiter is like a new one, so
//! its place is free: the table holds only clients with requests in flight or tokens to get back. When all places of a set
//! are taken, a further client of the set finds none. The table has two places for each of its `max` clients: when `max`
//! clients are there, one further client in 120 finds its set full.
//! **Limits**: two clients with the same 64-bit hash share a limiter. The hasher has random keys, so nobody can choose such
//! a pair, or the clients of one set.
//! **Cost**: one lock, and a search of 16 hashes. A place has 32 bytes.

use super::lock;
use curtail_policy::RequestLimiter;
use curtail_units::Instant;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, MutexGuard};

/// The number of places in a set.
const SET_LEN: usize = 16;

#[derive(Debug)]
pub(super) struct LimiterTable {
    max: usize,
    hasher: RandomState,
    sets: Box<[Mutex<LimiterSet>]>,
}

/// The places of the clients whose hashes are near each other.
#[derive(Debug, Default)]
pub(super) struct LimiterSet([(u64, RequestLimiter); SET_LEN]);

impl LimiterTable {
    pub(super) fn new(max: usize) -> Self {
        let sets = (2 * max).div_ceil(SET_LEN).max(1);
        let sets = std::iter::repeat_with(Mutex::default).take(sets).collect();
        Self { max, hasher: RandomState::new(), sets }
    }

    /// The number of clients that the table is made for.
    pub(super) const fn max(&self) -> usize {
        self.max
    }

    pub(super) fn hash(&self, client: impl Hash) -> u64 {
        self.hasher.hash_one(client)
    }

    /// The set of a hash.
    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, LimiterSet> {
        // The upper bits choose evenly among any number of sets.
        let index = (u128::from(hash) * self.sets.len() as u128) >> 64;
        lock(&self.sets[usize::try_from(index).expect("below the number of sets")])
    }
}

impl LimiterSet {
    /// The limiter of a client; [`None`] if all places of its set are taken.
    pub(super) fn limiter(&mut self, hash: u64, now: Instant) -> Option<&mut RequestLimiter> {
        let known = self.0.iter().position(|(of, _)| *of == hash);
        let free = || self.0.iter().position(|(_, limiter)| limiter.is_idle(now));
        let (of, limiter) = &mut self.0[known.or_else(free)?];
        if *of != hash {
            (*of, *limiter) = (hash, RequestLimiter::default());
        }
        Some(limiter)
    }

    /// Ends a request of a client that is in flight, so its place is not free.
    pub(super) fn end(&mut self, hash: u64) {
        if let Some((_, limiter)) = self.0.iter_mut().find(|(of, _)| *of == hash) {
            limiter.end();
        }
    }
}
