//! The JSON form of results. Types whose fields are the keys derive it ([`crate::results`]); the others are here.
//!
//! Keys carry their units. NaN (a missing measure) is `null`.

use crate::Results;
use crate::figures::ArmFigures;
use crate::hdr;
use crate::results::{Arm, Block, Event, Machine, Measure, Series, Shares, State};
use curtail_load::{Failure, Failures, Latencies, SLOTS_MAX, Slot, Timeline};
use curtail_sketch::{Exact, Histogram};
use curtail_units::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

pub(super) struct Wrong {
    pub(super) place: String,
    pub(super) expected: String,
}

impl Wrong {
    fn new(place: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place: place.into(), expected: expected.into() }
    }

    fn within(self, outer: &str) -> Self {
        Self { place: format!("{outer}.{}", self.place), ..self }
    }
}

/// The key that identifies a results file.
#[derive(Deserialize)]
#[serde(expecting = "an object with a `schema`")]
pub(super) struct Head {
    pub(super) schema: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Document<'a> {
    schema: Cow<'a, str>,
    name: Cow<'a, str>,
    command: Cow<'a, str>,
    seed: u64,
    began_unix_ns: u64,
    state: Cow<'a, State>,
    machine: Cow<'a, Machine>,
    /// The whole plan, if the file does not say.
    #[serde(default = "WireShares::all")]
    shares: WireShares,
    load: Cow<'a, str>,
    arms: Cow<'a, [Arm]>,
    series: Cow<'a, [Series]>,
    #[serde(skip_deserializing)]
    figures: Vec<ArmFigures>,
    events: Cow<'a, [Event]>,
    blocks: Vec<WireBlock>,
    measures: Cow<'a, [Measure]>,
}

#[derive(Serialize, Deserialize)]
struct WireShares {
    of: usize,
    /// From 1 on, as in `--share`.
    sent: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
struct WireBlock {
    arm: usize,
    began_ns: Instant,
    lasted_ns: Duration,
    is_warm_up: bool,
    received_bytes: u64,
    connections: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    resent: u64,
    generator_cpu_ns: Duration,
    servers_cpu_ns: Option<Duration>,
    latencies: Vec<WireLatencies>,
    timeline: WireTimeline,
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
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl<'a> Document<'a> {
    pub(super) fn new(schema: &'a str, results: &'a Results, figures: Vec<ArmFigures>) -> Self {
        Self {
            schema: schema.into(),
            name: (&results.name).into(),
            command: (&results.command).into(),
            seed: results.seed,
            began_unix_ns: results.began_unix_ns,
            state: Cow::Borrowed(&results.state),
            machine: Cow::Borrowed(&results.machine),
            shares: WireShares::of(&results.shares),
            load: (&results.load).into(),
            arms: (&results.arms).into(),
            series: (&results.series).into(),
            figures,
            events: (&results.events).into(),
            blocks: results.blocks.iter().map(WireBlock::of).collect(),
            measures: (&results.measures).into(),
        }
    }

    pub(super) fn into_results(self) -> Result<Results, Wrong> {
        let results = Results {
            name: self.name.into_owned(),
            command: self.command.into_owned(),
            seed: self.seed,
            began_unix_ns: self.began_unix_ns,
            machine: self.machine.into_owned(),
            shares: self.shares.back()?,
            state: self.state.into_owned(),
            load: self.load.into_owned(),
            arms: self.arms.into_owned(),
            series: self.series.into_owned(),
            blocks: nth_of("blocks", self.blocks, WireBlock::back)?,
            measures: self.measures.into_owned(),
            events: self.events.into_owned(),
        };
        for (nth, block) in results.blocks.iter().enumerate() {
            if block.arm >= results.arms.len() {
                let expected = format!("the place of one of {} arms", results.arms.len());
                return Err(Wrong::new(format!("blocks[{nth}].arm"), expected));
            }
            if block.latencies.len() != results.series.len() {
                let expected = format!("one for each of {} series", results.series.len());
                return Err(Wrong::new(format!("blocks[{nth}].latencies"), expected));
            }
        }
        Ok(results)
    }
}

/// Converts each item; an error gets the index of its item.
fn nth_of<W, T>(
    list: &str,
    items: Vec<W>,
    back: impl Fn(W) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let items = items.into_iter().enumerate();
    items
        .map(|(nth, item)| back(item).map_err(|wrong| wrong.within(&format!("{list}[{nth}]"))))
        .collect()
}

impl WireShares {
    fn all() -> Self {
        Self::of(&Shares::all())
    }

    fn of(shares: &Shares) -> Self {
        Self { of: shares.of, sent: shares.sent.iter().map(|nth| nth + 1).collect() }
    }

    fn back(self) -> Result<Shares, Wrong> {
        let Self { of, sent } = self;
        let is_ascending = sent.is_sorted_by(|one, other| one < other);
        if sent.is_empty() || !is_ascending || !sent.iter().all(|nth| (1..=of).contains(nth)) {
            let expected = format!("ascending numbers from 1 to {of}, at least one");
            return Err(Wrong::new("shares.sent", expected));
        }
        Ok(Shares { of, sent: sent.into_iter().map(|nth| nth - 1).collect() })
    }
}

impl WireBlock {
    fn of(block: &Block) -> Self {
        Self {
            arm: block.arm,
            began_ns: block.began,
            lasted_ns: block.lasted,
            is_warm_up: block.is_warm_up,
            received_bytes: block.received_bytes,
            connections: block.connections,
            resent: block.resent,
            generator_cpu_ns: block.generator_cpu,
            servers_cpu_ns: block.servers_cpu,
            latencies: block.latencies.iter().map(WireLatencies::of).collect(),
            timeline: WireTimeline::of(&block.timeline),
        }
    }

    fn back(self) -> Result<Block, Wrong> {
        Ok(Block {
            arm: self.arm,
            began: self.began_ns,
            lasted: self.lasted_ns,
            latencies: nth_of("latencies", self.latencies, WireLatencies::back)?,
            timeline: self.timeline.back().map_err(|wrong| wrong.within("timeline"))?,
            received_bytes: self.received_bytes,
            connections: self.connections,
            resent: self.resent,
            generator_cpu: self.generator_cpu_ns,
            servers_cpu: self.servers_cpu_ns,
            is_warm_up: self.is_warm_up,
        })
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

    fn back(self) -> Result<Latencies, Wrong> {
        let mut failures = Failures::NONE;
        for (name, count) in self.failures {
            let known = Failure::ALL.into_iter().find(|failure| failure.name() == name);
            let known = known.ok_or_else(|| {
                let names = Failure::ALL.map(Failure::name).join(", ");
                Wrong::new(format!("failures.{name}"), format!("one of {names}"))
            })?;
            failures.add_n(known, count);
        }
        let histogram = |name: &str, histogram: WireHistogram| {
            histogram.back().map_err(|wrong| wrong.within(name))
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

    fn back(self) -> Result<Histogram, Wrong> {
        let Self { count, sum_ns, min_ns: min, max_ns: max, overflowed, hdr_v2 } = self;
        let histogram = hdr::decode(&hdr_v2, Exact { sum_ns, min, max, overflowed })
            .map_err(|damaged| Wrong::new("hdr_v2", damaged.expected))?;
        if histogram.count() != count {
            let expected = format!("{}, the sum of the counts in hdr_v2", histogram.count());
            return Err(Wrong::new("count", expected));
        }
        Ok(histogram)
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

    fn back(self) -> Result<Timeline, Wrong> {
        if self.slot_count > SLOTS_MAX {
            return Err(Wrong::new("slot_count", format!("at most {SLOTS_MAX}")));
        }
        if self.width_ns == Duration::ZERO {
            return Err(Wrong::new("width_ns", "at least 1"));
        }
        let mut slots = vec![Slot::new(); self.slot_count];
        for (place, wire) in self.slots.into_iter().enumerate() {
            let slot = slots.get_mut(wire.nth).ok_or_else(|| {
                Wrong::new(format!("slots[{place}].nth"), format!("less than {}", self.slot_count))
            })?;
            let response = wire.response.back();
            let within = format!("slots[{place}].response");
            slot.response = response.map_err(|wrong| wrong.within(&within))?;
            slot.failed = wire.failed;
        }
        Ok(Timeline::of_slots(self.width_ns, slots))
    }
}
