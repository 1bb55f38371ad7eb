//! The limits on the requests of a route, or of one tenant or client of it: in flight, and by rate.
//!
//! **Decides** whether a request may start. A request must find fewer than `in_flight_max` others in flight, and a token
//! in a bucket of `burst` tokens, which refills at the configured rate. A rejected request takes no token.
//! **Invariant** `rate-within-burst`: in any time `t`, at most `burst` + `t` × rate requests start, except for the
//! rounding of the interval between two tokens to whole nanoseconds (0.1 % at a million requests a second). A client that
//! sends at its rate is never rejected.
//! **Invariant** `waits-are-true`: after the returned time, the bucket has a token, unless other requests took it.
//! **Source**: the generic cell rate algorithm (ITU-T I.371, annex A, virtual scheduling): the state of a bucket is the
//! instant at which it is full.
//! **Hurts when** requests differ in cost: a limit counts cheap and expensive requests alike.

use curtail_units::{Duration, Instant};

/// The longest time for which a client is asked to wait until another request ends: the time is an estimate.
const IN_FLIGHT_WAIT_MAX: Duration = Duration::from_secs(60);

/// The limits of one route, tenant or client. An absent limit does not reject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLimit {
    /// Maximum number of requests in flight.
    pub in_flight_max: Option<u32>,
    /// The maximum rate.
    pub rate: Option<RateLimit>,
}

impl RequestLimit {
    /// Whether no limit is set.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.in_flight_max.is_none() && self.rate.is_none()
    }
}

/// A maximum rate, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The time in which the bucket gets one token.
    interval: Duration,
    /// The time in which an empty bucket becomes full.
    capacity: Duration,
}

impl RateLimit {
    /// A bucket of `burst` tokens (at least one) that gets `rate` tokens a second.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> Self {
        // Rounded down, so that a client that keeps its rate is never late by a fraction of a nanosecond.
        let interval = Duration::from_ns_f64(libm::floor(1e9 / rate)).as_ns().max(1);
        let capacity = interval.saturating_mul(burst.max(1).into());
        Self { interval: Duration::from_ns(interval), capacity: Duration::from_ns(capacity) }
    }

    /// The rate, with the rounding of the interval.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        1.0 / self.interval.as_secs_f64()
    }
}

/// What a limiter lacks for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRejection {
    /// There are `in_flight_max` requests in flight. The time since the last of them started estimates the time until
    /// the next one ends: in a steady stream, both have the same distribution.
    InFlight {
        /// The time since the last start.
        full_for: Duration,
    },
    /// The bucket is empty.
    Rate {
        /// The time until it has a token.
        wait: Duration,
    },
}

impl LimitRejection {
    /// The time after which the request should be sent again.
    #[must_use]
    pub fn retry_after(self) -> Duration {
        match self {
            Self::InFlight { full_for } => full_for.min(IN_FLIGHT_WAIT_MAX),
            Self::Rate { wait } => wait,
        }
    }
}

/// The requests of one route, tenant or client, measured against a [`RequestLimit`].
///
/// The driver asks [`check`](Self::check) and then calls [`start`](Self::start) at the same instant, so that it can ask
/// several limiters before any of them counts the request. A new limit applies to the requests that are counted already.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestLimiter {
    in_flight: u32,
    /// When the bucket is full.
    full_at: Instant,
    /// When the last request started.
    started_at: Instant,
}

impl RequestLimiter {
    /// Whether a request may start.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(&mut self, limit: &RequestLimit, now: Instant) -> Result<(), LimitRejection> {
        if limit.in_flight_max.is_some_and(|max| self.in_flight >= max) {
            return Err(LimitRejection::InFlight { full_for: now.since(self.started_at) });
        }
        if let Some(rate) = limit.rate {
            // A bucket lacks no more than its capacity, which a reload may have lowered.
            self.full_at = self.full_at.min(now + rate.capacity);
            let wait = self.next_full_at(rate, now).since(now + rate.capacity);
            if wait > Duration::ZERO {
                return Err(LimitRejection::Rate { wait });
            }
        }
        Ok(())
    }

    /// Counts a request that starts; true if it counts as in flight until [`end`](Self::end).
    pub fn start(&mut self, limit: &RequestLimit, now: Instant) -> bool {
        if let Some(rate) = limit.rate {
            self.full_at = self.next_full_at(rate, now);
        }
        self.started_at = now;
        let is_counted = limit.in_flight_max.is_some();
        self.in_flight += u32::from(is_counted);
        is_counted
    }

    /// Removes a request that [`start`](Self::start) counted as in flight.
    pub const fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The number of requests in flight, if they are limited.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether the limiter is like a new one: forgetting it changes no decision.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.in_flight == 0 && self.full_at <= now
    }

    /// When the bucket is full after one more token is taken.
    fn next_full_at(&self, rate: RateLimit, now: Instant) -> Instant {
        self.full_at.max(now) + rate.interval
    }
}

#[cfg(test)]
mod tests;
