//! What each part of a run is called in a results file, and the way there and back.
//!
//! Names carry their units. Numbers that are no numbers (a measure that was not there) are `null`.

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

/// What is wrong in a file that is JSON and has every key.
pub(super) struct Wrong {
    /// The path of a key.
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

/// What says whether it is such a file at all.
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
    state: WireState,
    machine: WireMachine,
    /// The whole plan, if the file does not say.
    #[serde(default = "WireShares::all")]
    shares: WireShares,
    load: Cow<'a, str>,
    arms: Vec<WireArm>,
    series: Vec<WireSeries>,
    #[serde(skip_deserializing)]
    figures: Vec<ArmFigures>,
    events: Vec<WireEvent>,
    blocks: Vec<WireBlock>,
    measures: Vec<WireMeasure>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum WireState {
    Complete,
    Partial { why: String },
    Void { why: String },
}

#[derive(Serialize, Deserialize)]
struct WireMachine {
    cpu: String,
    cores: usize,
    kernel: String,
}

#[derive(Serialize, Deserialize)]
struct WireShares {
    of: usize,
    /// From 1 on, as in `--share`.
    sent: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
struct WireArm {
    name: String,
    about: String,
    rate_per_second: Option<f64>,
}

#[derive(Serialize, Deserialize)]
struct WireSeries {
    query: String,
    tenant: String,
    tenant_size: u64,
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
    /// Reasons that did not happen are left out.
    failures: BTreeMap<Cow<'static, str>, u64>,
}

#[derive(Serialize, Deserialize)]
struct WireHistogram {
    /// For those who read without a reader of histograms; counts are counts of `hdr_v2`.
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
    /// Those in which requests were intended.
    slots: Vec<WireSlot>,
}

#[derive(Serialize, Deserialize)]
struct WireSlot {
    nth: usize,
    failed: u64,
    response: WireHistogram,
}

#[derive(Serialize, Deserialize)]
struct WireMeasure {
    of: String,
    name: String,
    /// Nanoseconds from the start of the run on, and how much.
    points: Vec<(Instant, Option<f64>)>,
}

#[derive(Serialize, Deserialize)]
struct WireEvent {
    at_ns: Instant,
    lasted_ns: Duration,
    what: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

impl<'a> Document<'a> {
    pub(super) fn new(schema: &'a str, results: &'a Results, figures: Vec<ArmFigures>) -> Self {
        let Results { name, command, seed, began_unix_ns, machine, state, load, .. } = results;
        let Machine { cpu, cores, kernel } = machine.clone();
        Self {
            schema: schema.into(),
            name: name.into(),
            command: command.into(),
            seed: *seed,
            began_unix_ns: *began_unix_ns,
            state: WireState::of(state),
            machine: WireMachine { cpu, cores, kernel },
            shares: WireShares::of(&results.shares),
            load: load.into(),
            arms: results.arms.iter().map(WireArm::of).collect(),
            series: results.series.iter().map(WireSeries::of).collect(),
            figures,
            events: results.events.iter().map(WireEvent::of).collect(),
            blocks: results.blocks.iter().map(WireBlock::of).collect(),
            measures: results.measures.iter().map(WireMeasure::of).collect(),
        }
    }

    pub(super) fn into_results(self) -> Result<Results, Wrong> {
        let WireMachine { cpu, cores, kernel } = self.machine;
        let results = Results {
            name: self.name.into_owned(),
            command: self.command.into_owned(),
            seed: self.seed,
            began_unix_ns: self.began_unix_ns,
            machine: Machine { cpu, cores, kernel },
            shares: self.shares.back()?,
            state: self.state.back(),
            load: self.load.into_owned(),
            arms: self.arms.into_iter().map(WireArm::back).collect(),
            series: self.series.into_iter().map(WireSeries::back).collect(),
            blocks: nth_of("blocks", self.blocks, WireBlock::back)?,
            measures: self.measures.into_iter().map(WireMeasure::back).collect(),
            events: self.events.into_iter().map(WireEvent::back).collect(),
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

/// Each item taken back; what is wrong is given its place in the list.
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

impl WireState {
    fn of(state: &State) -> Self {
        match state {
            State::Complete => Self::Complete,
            State::Partial { why } => Self::Partial { why: why.clone() },
            State::Void { why } => Self::Void { why: why.clone() },
        }
    }

    fn back(self) -> State {
        match self {
            Self::Complete => State::Complete,
            Self::Partial { why } => State::Partial { why },
            Self::Void { why } => State::Void { why },
        }
    }
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

impl WireArm {
    fn of(arm: &Arm) -> Self {
        let Arm { name, about, rate } = arm.clone();
        Self { name, about, rate_per_second: rate.and_then(finite) }
    }

    fn back(self) -> Arm {
        Arm { name: self.name, about: self.about, rate: self.rate_per_second }
    }
}

impl WireSeries {
    fn of(series: &Series) -> Self {
        let Series { query, tenant, tenant_size } = series.clone();
        Self { query, tenant, tenant_size }
    }

    fn back(self) -> Series {
        Series { query: self.query, tenant: self.tenant, tenant_size: self.tenant_size }
    }
}

impl WireEvent {
    fn of(event: &Event) -> Self {
        Self { at_ns: event.at, lasted_ns: event.lasted, what: event.what.clone() }
    }

    fn back(self) -> Event {
        Event { at: self.at_ns, lasted: self.lasted_ns, what: self.what }
    }
}

impl WireMeasure {
    fn of(measure: &Measure) -> Self {
        let points = measure.points.iter().map(|(at, value)| (*at, finite(*value))).collect();
        Self { of: measure.of.clone(), name: measure.name.clone(), points }
    }

    fn back(self) -> Measure {
        let points = self.points.into_iter().map(|(at, value)| (at, value.unwrap_or(f64::NAN)));
        Measure { of: self.of, name: self.name, points: points.collect() }
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
