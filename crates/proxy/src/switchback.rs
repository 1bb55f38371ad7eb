//! The switchback: random blocks of time in which an upstream sends no hedges and ties at all.
//!
//! It shows what the [holdout](crate::holdout) cannot: what hedges and ties do to the queues that all requests share.
//! All upstreams and proxies with the same share are off at the same time ([`is_off`]). A proxy obeys the header
//! `curtail-holdout`, so the first proxy decides for the proxies behind it.
//! **Limits**: for each upstream with a switchback, less than a megabyte.

use crate::holdout::{Draw, DrawnBy, HoldoutSnapshot, measured, remedy_name};
use crate::metrics::ResponseClass;
use curtail_http::clock::Clock;
use curtail_load::switchback::{Switchback as Measurement, is_off};
use curtail_policy::UpstreamConfig;
use curtail_units::{Instant, Ratio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The switchback of an upstream, or of a route that fans out.
#[derive(Debug)]
pub(crate) struct Switchback {
    pub(crate) share: Ratio,
    remedy: &'static str,
    /// The time of [`Instant::ZERO`], in nanoseconds since 1970.
    start_unix_ns: u64,
    measurement: Mutex<Measurement>,
}

impl Switchback {
    /// The switchback of an upstream with this policy, which is off for a `share` of the blocks.
    pub(crate) fn new(share: Ratio, policy: &UpstreamConfig, clock: Clock) -> Self {
        Self::from_time(share, policy, (clock.unix_ns(Instant::ZERO), clock.now()))
    }

    fn from_time(
        share: Ratio,
        policy: &UpstreamConfig,
        (start_unix_ns, now): (u64, Instant),
    ) -> Self {
        let measurement = Measurement::new(share, start_unix_ns + now.as_ns());
        let (remedy, measurement) = (remedy_name(policy), Mutex::new(measurement));
        Self { share, remedy, start_unix_ns, measurement }
    }

    fn unix_ns(&self, at: Instant) -> u64 {
        self.start_unix_ns.saturating_add(at.as_ns())
    }

    /// Whether hedges and ties are off for requests that arrive now.
    pub(crate) fn is_off(&self, now: Instant) -> bool {
        is_off(self.share, self.unix_ns(now))
    }

    /// Records the end of a request. `draw` is the side of one that may be sent twice.
    pub(crate) fn record(
        &self,
        (arrived, now): (Instant, Instant),
        draw: Option<Draw>,
        response: ResponseClass,
        attempts: usize,
    ) {
        let is_on_side = match (self.is_off(arrived), draw) {
            (true, Some(draw)) => draw.by == DrawnBy::Block,
            (false, None) => true,
            (false, Some(draw)) => draw == Draw { is_holdout: false, by: DrawnBy::Request },
            (true, None) => false,
        };
        if is_on_side {
            let times = (self.unix_ns(arrived), self.unix_ns(now));
            let latency = measured(response, now.since(arrived));
            self.lock().record(times, latency, attempts as u64);
        }
    }

    pub(crate) fn read(&self, now: Instant) -> HoldoutSnapshot {
        let measurement = {
            let mut measurement = self.lock();
            measurement.advance(self.unix_ns(now));
            measurement.clone()
        };
        // Intervals take a hundred microseconds: not under the lock, for which requests wait.
        let effects = measurement.effects();
        let (ratio, remedy, requests) = (self.share, self.remedy, effects.requests);
        HoldoutSnapshot { ratio, remedy, requests, periods: vec![effects] }
    }

    fn lock(&self) -> MutexGuard<'_, Measurement> {
        self.measurement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests;
