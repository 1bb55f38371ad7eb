//! The load of a replica, as its leaf reports it to probes: the requests in flight and the latency to expect.
//!
//! **Inputs**: arrivals; at the end of a request, its latency and the number in flight on its arrival.
//! **Limits**: O(1) a request. Latencies are kept by *level* of requests in flight: each number below 8 is a level, and
//! each octave from 8 on has four levels. A level keeps its last [`LATENCIES_KEPT`] latencies, so a tracker takes at
//! most 64 × 272 bytes.
//! **Invariant** `load-says-what-is-known`: once a latency is recorded, every later load has a latency.
//! **Source**: Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024, section 4. The
//! levels and ages are ours.
//! **Hurts when** requests differ much in cost: the median of a mixture fits none of its parts.

use alloc::vec::Vec;
use arrayvec::ArrayVec;
use curtail_units::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// The age up to which a latency is recent: the time of a few probes at moderate rates. At high rates
/// [`LATENCIES_KEPT`] is the tighter limit.
const RECENT: Duration = Duration::from_ms(300);

/// The number of latencies kept for each level: enough for a median that one odd request does not move.
const LATENCIES_KEPT: usize = 16;

/// The last level; it also holds all higher numbers in flight.
const LEVEL_MAX: u32 = u64::BITS - 1;

/// The load that a leaf reports to a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Requests that have arrived and not finished, the queue included.
    pub in_flight: u32,
    /// The expected latency of a request that arrives now: the median latency of recent requests that arrived at about
    /// the same number in flight; zero while no latency is known.
    pub latency: Duration,
}

/// The last latencies of requests that arrived at one level, in a ring.
#[derive(Clone, Debug, Default)]
struct Latencies {
    /// The latencies, each with the instant at which it was recorded.
    ring: ArrayVec<(Instant, Duration), LATENCIES_KEPT>,
    /// The index of the oldest latency in a full ring.
    oldest: usize,
}

impl Latencies {
    fn record(&mut self, now: Instant, latency: Duration) {
        if self.ring.is_full() {
            self.ring[self.oldest] = (now, latency);
            self.oldest = (self.oldest + 1) % LATENCIES_KEPT;
        } else {
            self.ring.push((now, latency));
        }
    }

    /// The lower median of the latencies recorded since `since`, if there are any.
    fn median(&self, since: Instant) -> Option<Duration> {
        let recent = self.ring.iter().filter(|(at, _)| *at >= since);
        let mut latencies: ArrayVec<Duration, LATENCIES_KEPT> =
            recent.map(|(_, latency)| *latency).collect();
        let middle = latencies.len().checked_sub(1)? / 2;
        Some(*latencies.select_nth_unstable(middle).1)
    }
}

/// Keeps the load of one replica: O(1) a request.
#[derive(Clone, Debug, Default)]
pub struct LoadTracker {
    in_flight: u32,
    /// A bit for each level that was seen.
    seen: u64,
    /// The latencies of the levels seen, the lowest first.
    levels: Vec<Latencies>,
}

impl LoadTracker {
    /// Counts a request that arrived. Returns the number in flight before it, which the caller keeps for
    /// [`Self::observe`].
    pub fn arrived(&mut self) -> u32 {
        let in_flight_on_arrival = self.in_flight;
        self.in_flight = in_flight_on_arrival.saturating_add(1);
        in_flight_on_arrival
    }

    /// Records the latency of a request on whose arrival `in_flight` others were in flight.
    pub fn observe(&mut self, now: Instant, in_flight: u32, latency: Duration) {
        let level = level(in_flight);
        let place = self.place(level);
        if self.seen & (1 << level) == 0 {
            self.seen |= 1 << level;
            self.levels.insert(place, Latencies::default());
        }
        self.levels[place].record(now, latency);
    }

    /// Records a request that was cancelled at `age`: its latency would have been longer. The age counts only if it
    /// exceeds the expected latency, because then age and latency lie on the same side of the median.
    pub fn observe_cancelled(&mut self, now: Instant, in_flight: u32, age: Duration) {
        if age > self.load(now).latency {
            self.observe(now, in_flight, age);
        }
    }

    /// Removes a request from those in flight, after any outcome.
    pub fn ended(&mut self) {
        debug_assert!(self.in_flight > 0, "each request that arrived ends once");
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Requests that have arrived and not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The load to report to a probe. Its latency is from the level that is nearest to the current number in flight: of
    /// the levels with recent latencies, or of all levels if no latency is recent.
    #[must_use]
    pub fn load(&self, now: Instant) -> Load {
        let recent = Instant::from_ns(now.as_ns().saturating_sub(RECENT.as_ns()));
        let latency = self.nearest(recent).or_else(|| self.nearest(Instant::ZERO));
        Load { in_flight: self.in_flight, latency: latency.unwrap_or(Duration::ZERO) }
    }

    /// The median latency since `since` at the nearest level that has one. Of two equally near levels it takes the
    /// higher one, because it is better to overestimate the load.
    fn nearest(&self, since: Instant) -> Option<Duration> {
        let present = level(self.in_flight);
        let (mut above, mut below) = (self.seen >> present, self.seen & ((1 << present) - 1));
        loop {
            let up = (above != 0).then(|| present + above.trailing_zeros());
            let down = (below != 0).then(|| below.ilog2());
            let level = match (up, down) {
                (None, None) => return None,
                (Some(up), Some(down)) if up - present > present - down => down,
                (Some(up), _) => up,
                (None, Some(down)) => down,
            };
            let median = self.levels[self.place(level)].median(since);
            if median.is_some() {
                return median;
            }
            if level >= present {
                above &= above - 1;
            } else {
                below &= !(1 << level);
            }
        }
    }

    /// The index of a level in `levels`, or the index at which the level would be inserted.
    fn place(&self, level: u32) -> usize {
        (self.seen & ((1 << level) - 1)).count_ones() as usize
    }
}

/// The level of a number in flight: the number itself below 8, then four levels for each octave.
const fn level(in_flight: u32) -> u32 {
    if in_flight < 8 {
        return in_flight;
    }
    let octave = in_flight.ilog2();
    let quarter = (in_flight >> (octave - 2)) & 3;
    let level = 8 + (octave - 3) * 4 + quarter;
    if level < LEVEL_MAX { level } else { LEVEL_MAX }
}

#[cfg(test)]
mod tests;
