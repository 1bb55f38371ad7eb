//! The forms of histograms, latencies and timelines in JSON; all other types derive theirs ([`crate::results`]).
//!
//! Keys carry their units.

use crate::hdr;
use curtail_load::{Failure, Failures, Latencies, SLOTS_MAX, Slot, Timeline};
use curtail_sketch::{Exact, Histogram};
use curtail_units::Duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The key that identifies a results file.
#[derive(Deserialize)]
#[serde(expecting = "an object with a `schema`")]
pub(super) struct Head {
    pub(super) schema: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct WireLatencies {
    response: WireHistogram,
    service: WireHistogram,
    lag: WireHistogram,
    /// Reasons without failures are absent.
    failures: BTreeMap<Cow<'static, str>, u64>,
}

#[derive(Serialize, Deserialize)]
struct WireHistogram {
    /// For programs that do not read `hdr_v2`.
    count: u64,
    sum_ns: u128,
    min_ns: Duration,
    max_ns: Duration,
    #[serde(default, skip_serializing_if = "is_zero")]
    overflowed: u64,
    hdr_v2: String,
}

#[derive(Serialize, Deserialize)]
struct WireTimeline {
    width_ns: Duration,
    slot_count: usize,
    slots: Vec<WireSlot>,
}

#[derive(Serialize, Deserialize)]
struct WireSlot {
    nth: usize,
    failed: u64,
    response: WireHistogram,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(crate) const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// `#[serde(with)]` of a list of [`Latencies`].
pub(crate) mod latencies {
    use super::{Deserialize, Deserializer, Latencies, Serializer, WireLatencies};
    use serde::de::Error as _;

    pub(crate) fn serialize<S: Serializer>(all: &[Latencies], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(WireLatencies::of))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Vec<Latencies>, D::Error> {
        let all = Vec::<WireLatencies>::deserialize(from)?.into_iter().enumerate();
        all.map(|(nth, wire)| {
            wire.back().map_err(|wrong| D::Error::custom(format!("latencies[{nth}].{wrong}")))
        })
        .collect()
    }
}

impl WireLatencies {
    fn of(latencies: &Latencies) -> Self {
        let Latencies { response, service, lag, failures } = latencies;
        let counts = Failure::ALL.map(|failure| (failure.name().into(), failures.of(failure)));
        Self {
            response: WireHistogram::of(response),
            service: WireHistogram::of(service),
            lag: WireHistogram::of(lag),
            failures: counts.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }

    fn back(self) -> Result<Latencies, String> {
        let mut failures = Failures::NONE;
        for (name, count) in self.failures {
            let known = Failure::ALL.into_iter().find(|failure| failure.name() == name);
            let known = known.ok_or_else(|| {
                let names = Failure::ALL.map(Failure::name).join(", ");
                format!("failures.{name}: expected one of {names}")
            })?;
            failures.add_n(known, count);
        }
        let histogram = |name: &str, histogram: WireHistogram| {
            histogram.back().map_err(|wrong| format!("{name}.{wrong}"))
        };
        Ok(Latencies {
            response: histogram("response", self.response)?,
            service: histogram("service", self.service)?,
            lag: histogram("lag", self.lag)?,
            failures,
        })
    }
}

impl WireHistogram {
    fn of(histogram: &Histogram) -> Self {
        let Exact { sum_ns, min, max, overflowed } = histogram.exact();
        let (count, hdr_v2) = (histogram.count(), hdr::encode(histogram));
        Self { count, sum_ns, min_ns: min, max_ns: max, overflowed, hdr_v2 }
    }

    fn back(self) -> Result<Histogram, String> {
        let Self { count, sum_ns, min_ns: min, max_ns: max, overflowed, hdr_v2 } = self;
        let histogram = hdr::decode(&hdr_v2, Exact { sum_ns, min, max, overflowed })
            .map_err(|damaged| format!("hdr_v2: expected {}", damaged.expected))?;
        if histogram.count() != count {
            let expected = histogram.count();
            return Err(format!("count: expected {expected}, the sum of the counts in hdr_v2"));
        }
        Ok(histogram)
    }
}

/// `#[serde(with)]` of a [`Timeline`].
pub(crate) mod timeline {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Timeline, WireTimeline};
    use serde::de::Error as _;

    pub(crate) fn serialize<S: Serializer>(timeline: &Timeline, to: S) -> Result<S::Ok, S::Error> {
        WireTimeline::of(timeline).serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Timeline, D::Error> {
        let back = WireTimeline::deserialize(from)?.back();
        back.map_err(|wrong| D::Error::custom(format!("timeline.{wrong}")))
    }
}

impl WireTimeline {
    fn of(timeline: &Timeline) -> Self {
        let slots = timeline.slots().iter().enumerate();
        let seen = slots.filter(|(_, slot)| slot.failed > 0 || slot.response.count() > 0);
        let wire = |(nth, slot): (usize, &Slot)| {
            let response = WireHistogram::of(&slot.response);
            WireSlot { nth, failed: slot.failed, response }
        };
        Self {
            width_ns: timeline.width(),
            slot_count: timeline.slots().len(),
            slots: seen.map(wire).collect(),
        }
    }

    fn back(self) -> Result<Timeline, String> {
        if self.slot_count > SLOTS_MAX {
            return Err(format!("slot_count: expected at most {SLOTS_MAX}"));
        }
        if self.width_ns == Duration::ZERO {
            return Err("width_ns: expected at least 1".to_owned());
        }
        let mut slots = vec![Slot::new(); self.slot_count];
        for (place, wire) in self.slots.into_iter().enumerate() {
            let slot = slots.get_mut(wire.nth).ok_or_else(|| {
                format!("slots[{place}].nth: expected less than {}", self.slot_count)
            })?;
            let response = wire.response.back();
            slot.response = response.map_err(|wrong| format!("slots[{place}].response.{wrong}"))?;
            slot.failed = wire.failed;
        }
        Ok(Timeline::of_slots(self.width_ns, slots))
    }
}
