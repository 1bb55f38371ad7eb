//! The figures of a report: the percentiles of each arm, and how far each can be trusted.
//!
//! A percentile with at least 100 requests above it is shown without a mark. With 10 to 99 it is indicative (`~`):
//! another run may give another value. With fewer requests it is not given (`n/a`). Marks do not say whether two runs
//! differ, because one stall slows many requests: `curtail bench compare` compares blocks instead.
//! **Inputs**: recordings on both clocks: response times (from the time when a request was to be sent) and service
//! times (from when it was sent). A failed request is longer than every response, so a percentile among the failures is
//! "failed".

use crate::Results;
pub use curtail_load::compare::PERCENTILES;
use curtail_load::compare::{EXCEEDANCES_MIN, INDICATIVE_MIN};
use curtail_load::{Failure, Failures, Latencies, LatencyKind};
use curtail_sketch::rank;
use curtail_text::numbers;
use curtail_units::{Duration, Quantile};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// The clocks, and their names in reports.
pub(super) const CLOCKS: [(&str, LatencyKind); 2] =
    [("response", LatencyKind::Response), ("service", LatencyKind::Service)];

/// The legend of the clocks.
pub(super) const CLOCKS_LEGEND: &str = "response: from when a request was to be sent to the end of its response, what a user \
waits; service: from when it was sent. They part when the server holds requests back. lag: how late the generator was.";

/// The legend of the marks.
pub(super) const MARKS: &str = "~ fewer than 100 requests are longer; n/a fewer than 10 are; a request that failed is \
longer than every response.";

/// Sending below this fraction of the planned rate is reported.
const BEHIND_MAX: f64 = 0.95;

/// The latency at a quantile, and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Enough requests are longer.
    Value(Duration),
    /// Few requests are longer: from 10 to 99.
    Indicative(Duration),
    /// The request at the quantile failed.
    Failed,
    /// Fewer than 10 requests are longer.
    TooFew,
}

impl Figure {
    /// The latency at `quantile` of all requests, failed ones included.
    #[must_use]
    pub fn of(latencies: &Latencies, clock: LatencyKind, quantile: Quantile) -> Self {
        let above = latencies.count() - rank(quantile, latencies.count());
        match latencies.quantile(clock, quantile) {
            // The failures alone decide it: it would lie among them in the next run as well.
            None if latencies.failures.total() >= INDICATIVE_MIN => Self::Failed,
            None => Self::TooFew,
            Some(_) if above < INDICATIVE_MIN => Self::TooFew,
            Some(latency) if above < EXCEEDANCES_MIN => Self::Indicative(latency),
            Some(latency) => Self::Value(latency),
        }
    }

    /// The longest request, which is known however few requests there are.
    pub(crate) fn longest(latencies: &Latencies, clock: LatencyKind) -> Self {
        match latencies.responses(clock).max() {
            _ if latencies.failures.total() > 0 => Self::Failed,
            None => Self::TooFew,
            Some(longest) => Self::Value(longest),
        }
    }

    /// The latency, if there is one.
    #[must_use]
    pub const fn latency(self) -> Option<Duration> {
        match self {
            Self::Value(latency) | Self::Indicative(latency) => Some(latency),
            Self::Failed | Self::TooFew => None,
        }
    }
}

impl std::fmt::Display for Figure {
    /// The latency in milliseconds, with its mark.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(latency) => f.write_str(&numbers::ms(*latency)),
            Self::Indicative(latency) => write!(f, "~{}", numbers::ms(*latency)),
            Self::Failed => f.write_str("failed"),
            Self::TooFew => f.write_str("n/a"),
        }
    }
}

/// All percentiles of one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Percentiles {
    /// The figures in the order of [`PERCENTILES`].
    pub(crate) at: [Figure; PERCENTILES.len()],
    /// The longest request.
    pub(crate) max: Figure,
}

impl Percentiles {
    /// The percentiles of these requests.
    pub(crate) fn of(latencies: &Latencies, clock: LatencyKind) -> Self {
        Self {
            at: PERCENTILES.map(|(_, q)| Figure::of(latencies, clock, quantile(q))),
            max: Figure::longest(latencies, clock),
        }
    }

    /// The name and the figure of each percentile; the longest request comes last.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, Figure)> + '_ {
        let names = PERCENTILES.into_iter().map(|(name, _)| name);
        names.zip(self.at).chain([("max", self.max)])
    }
}

/// A number that is known to be a quantile.
pub(super) fn quantile(q: f64) -> Quantile {
    Quantile::new(q).expect("it is between 0 and 1")
}

/// The percentiles that an axis of nines names, up to `nines_max`: the number of nines (two for p99), and the name.
pub fn nine_ticks(nines_max: f64) -> impl Iterator<Item = (f64, &'static str)> {
    let names = [
        (std::f64::consts::LOG10_2, "p50"),
        (1.0, "p90"),
        (2.0, "p99"),
        (3.0, "p99.9"),
        (4.0, "p99.99"),
        (5.0, "p99.999"),
        (6.0, "p99.9999"),
    ];
    // `nines_max` is a rounded logarithm.
    names.into_iter().filter(move |(nines, _)| *nines <= nines_max + 1e-9)
}

/// The figures of an arm, without warm-ups.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ArmFigures {
    pub(crate) name: String,
    pub(crate) latencies: Latencies,
    /// The planned requests per second, if known.
    pub(crate) rate_wanted: Option<f64>,
    /// The number of blocks.
    pub(crate) blocks: usize,
    /// The total duration of its blocks.
    pub(crate) lasted: Duration,
    pub(crate) received_bytes: u64,
    pub(crate) connections: u64,
    pub(crate) resent: u64,
    pub(crate) generator_cpu: Duration,
    /// CPU time of the servers, if it was measured in every block.
    pub(crate) servers_cpu: Option<Duration>,
}

impl ArmFigures {
    /// Requests a second, over the time from the first intended request of each block to the end of its last request.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = self.lasted.as_secs_f64();
        if seconds > 0.0 { self.latencies.count() as f64 / seconds } else { 0.0 }
    }

    /// A message if requests were sent much slower than planned although the generator was not late: the service did
    /// not accept more. The time of sending leaves out the longest response once for each block.
    pub(crate) fn behind_plan(&self) -> Option<String> {
        let wanted = self.rate_wanted.filter(|wanted| self.rate() < BEHIND_MAX * wanted)?;
        let longest = self.latencies.service.max().unwrap_or(Duration::ZERO);
        let sending = self.lasted.as_secs_f64() - longest.as_secs_f64() * self.blocks as f64;
        let planned = self.latencies.count() as f64 / wanted;
        (sending * BEHIND_MAX > planned).then(|| {
            format!(
                "BEHIND THE PLAN: {} of {} requests/s were sent. The service did not accept more over \
                these connections; the requests waited, and the wait is part of their response time.",
                numbers::rate(self.rate()),
                numbers::rate(wanted)
            )
        })
    }

    /// The lag of the generator at `q`.
    pub(crate) fn lag(&self, q: f64) -> Option<Duration> {
        self.latencies.lag.quantile(quantile(q))
    }

    /// `time` divided by the number of requests.
    pub(crate) fn each(&self, time: Duration) -> Duration {
        let count = self.latencies.count().max(1);
        Duration::from_ns(time.as_ns() / count)
    }
}

/// The figures of each arm, in their order.
pub(crate) fn of_arms(results: &Results) -> Vec<ArmFigures> {
    let of_arm = |(nth, arm): (usize, &crate::results::Arm)| {
        let blocks = || results.blocks.iter().filter(|b| b.arm == nth && !b.is_warm_up);
        let servers_cpu = |sum: Option<Duration>, of: Option<Duration>| Some(sum? + of?);
        ArmFigures {
            name: arm.name.clone(),
            latencies: Latencies::merged(&results.of_arm(nth)),
            rate_wanted: arm.rate.map(|rate| rate * results.shares.ratio()),
            blocks: blocks().count(),
            lasted: blocks().fold(Duration::ZERO, |sum, block| sum + block.lasted),
            received_bytes: blocks().fold(0, |sum, block| sum.saturating_add(block.received_bytes)),
            connections: blocks().fold(0, |sum, block| sum.saturating_add(block.connections)),
            resent: blocks().fold(0, |sum, block| sum.saturating_add(block.resent)),
            generator_cpu: blocks().fold(Duration::ZERO, |sum, block| sum + block.generator_cpu),
            servers_cpu: blocks().map(|b| b.servers_cpu).fold(Some(Duration::ZERO), servers_cpu),
        }
    };
    results.arms.iter().enumerate().map(of_arm).collect()
}

/// The reasons for which requests failed, each with its count; reasons that did not happen are left out.
pub(super) fn reasons(failures: &Failures) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let counts = Failure::ALL.into_iter().map(|failure| (failure.name(), failures.of(failure)));
    counts.filter(|(_, count)| *count > 0)
}

/// The reasons for which requests failed, with their counts, as text.
pub(super) fn list_reasons(failures: &Failures) -> String {
    let counts = reasons(failures);
    let texts = counts.map(|(name, count)| format!("{name} {}", numbers::thousands(count)));
    texts.collect::<Vec<_>>().join(", ")
}

/// The number of failed requests, and their share of all.
pub(super) fn count_failed(latencies: &Latencies) -> String {
    let failed = latencies.failures.total();
    let share = numbers::percent(failed as f64 / latencies.count() as f64);
    format!("{} ({share})", numbers::thousands(failed))
}

impl Serialize for ArmFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, latencies, .. } = self;
        let failures: BTreeMap<_, _> = reasons(&latencies.failures).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("arm", name)?;
        map.serialize_entry("requests", &latencies.count())?;
        map.serialize_entry("failed", &latencies.failures.total())?;
        map.serialize_entry("failures", &failures)?;
        map.serialize_entry("rate_per_second", &self.rate())?;
        map.serialize_entry("lasted_ns", &self.lasted)?;
        map.serialize_entry("response", &Percentiles::of(latencies, LatencyKind::Response))?;
        map.serialize_entry("service", &Percentiles::of(latencies, LatencyKind::Service))?;
        map.serialize_entry("lag_p99_ns", &self.lag(0.99))?;
        map.serialize_entry("lag_p99_9_ns", &self.lag(0.999))?;
        map.serialize_entry("received_bytes", &self.received_bytes)?;
        map.serialize_entry("connections", &self.connections)?;
        map.serialize_entry("resent", &self.resent)?;
        map.serialize_entry("generator_cpu_ns", &self.generator_cpu)?;
        map.serialize_entry("servers_cpu_ns", &self.servers_cpu)?;
        map.end()
    }
}

impl Serialize for Percentiles {
    /// Writes a key for each percentile (`null` without a number), and for each mark the percentiles that have it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let key = |name: &str| format!("{}_ns", name.replace('.', "_"));
        let marked = |is: fn(Figure) -> bool| -> Vec<String> {
            self.named().filter(|(_, figure)| is(*figure)).map(|(name, _)| key(name)).collect()
        };
        let mut map = serializer.serialize_map(None)?;
        for (name, figure) in self.named() {
            map.serialize_entry(&key(name), &figure.latency())?;
        }
        map.serialize_entry("indicative", &marked(|f| matches!(f, Figure::Indicative(_))))?;
        map.serialize_entry("failed", &marked(|f| f == Figure::Failed))?;
        map.serialize_entry("too_few", &marked(|f| f == Figure::TooFew))?;
        map.end()
    }
}
