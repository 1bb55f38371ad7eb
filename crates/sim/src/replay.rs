//! Replays a journal of the proxy into fresh machines, which must make the same decisions, byte for byte.
//!
//! Each entry is rebuilt from the effects of the fresh machine and compared with its line.
//! **Limits**: [`MACHINES_MAX`] machines, [`CALLS_MAX`] requests at a time. A replay ends at the first difference,
//! because later differences follow from the first.
//! **Hurts when** a read between two events changes a machine: the journal has no entry for it.

use crate::journal_lines::{JournalLines, Unreadable};
use curtail_policy::journal::Entry;
use curtail_policy::{
    Call, Event, Gather, GatherEvent, Group, Leaf, LeafEvent, REPLICAS_MAX, ReplicaId, Upstream,
    UpstreamEvent,
};
use curtail_units::Instant;
use serde::Serialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Maximum number of machines of one journal.
const MACHINES_MAX: usize = 100_000;

/// Maximum number of requests in progress. One that fans out counts as one more, and as another one for each 64 calls.
const CALLS_MAX: usize = 1_000_000;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The number of replayed requests.
    pub requests: u64,
    /// The number of events that machines handled.
    pub events: u64,
    /// The number of effects that were the same.
    pub effects: u64,
    /// The end of the replay.
    pub end: End,
}

/// The end of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All effects are the same, and the journal is complete.
    Complete,
    /// All effects are the same, but the last line is missing: the writer was killed or still writes, so the number of
    /// missing entries is unknown.
    Unfinished,
    /// All effects are the same up to a gap: the writer of the journal could not keep up.
    Cut {
        /// The number of missing entries.
        lost: u64,
    },
    /// The replay ended at the first difference.
    Different(Box<Difference>),
}

/// An entry whose effects differ from those of a fresh machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line of the journal, from 1.
    pub line: u64,
    /// The name of the machine.
    pub machine: String,
    /// The event: the entry up to its effects.
    pub event: String,
    /// The effects in the journal.
    pub expected: String,
    /// The effects of the fresh machine.
    pub got: String,
}

/// Replays a journal.
///
/// # Errors
/// When the journal cannot be read, or a line is invalid.
pub fn replay(mut journal: impl BufRead) -> Result<Replayed, Unreadable> {
    let mut replay = Replay::default();
    let mut lines = JournalLines::begin(&mut journal)?;
    while lines.advance()? {
        if let Some(end) = replay.entry(&lines)? {
            let is_last = matches!(end, End::Different(_)) || !lines.advance()?;
            return if is_last {
                Ok(replay.ended(end))
            } else {
                Err(lines.wrong("expected no entry after the last one"))
            };
        }
    }
    Ok(replay.ended(End::Unfinished))
}

/// The time of a machine, which never goes back.
#[derive(Default)]
struct Clock(Instant);

impl Clock {
    fn advance(&mut self, lines: &JournalLines<'_>, now: Instant) -> Result<(), Unreadable> {
        if now < self.0 {
            let (now, before) = (now.as_ns(), self.0.as_ns());
            let text = format!("now goes back to {now} from {before}");
            return Err(lines.wrong(format!("{text}: expected the times of a machine in order")));
        }
        self.0 = now;
        Ok(())
    }
}

/// A root's machine and its requests that are not over.
struct Root {
    name: String,
    clock: Clock,
    /// One above the highest number of a replica that the journal has named.
    replicas: u32,
    group: Option<u32>,
    upstream: Upstream,
    calls: BTreeMap<u64, Call>,
    /// The highest number of a request so far; a request up to this number that is not in `calls` is over.
    last_call: u64,
}

struct Machine<M> {
    name: String,
    clock: Clock,
    machine: M,
}

#[derive(Default)]
struct Replay {
    groups: BTreeMap<u32, Group>,
    roots: BTreeMap<u32, Root>,
    leaves: BTreeMap<u32, Machine<Leaf>>,
    /// Requests with several calls that are not over.
    gathers: BTreeMap<u64, Machine<Gather>>,
    calls: usize,
    requests: u64,
    events: u64,
    effects: u64,
}

impl Replay {
    fn ended(self, end: End) -> Replayed {
        let Self { requests, events, effects, .. } = self;
        Replayed { requests, events, effects, end }
    }

    /// Replays the entry of a line; `Some` is the end.
    fn entry(&mut self, lines: &JournalLines<'_>) -> Result<Option<End>, Unreadable> {
        match lines.parse::<IgnoredAny>()? {
            Entry::Journal { .. } => return Err(lines.wrong("the schema is here a second time")),
            Entry::Group { machine, config, .. } => {
                self.check_new(lines, machine)?;
                self.groups.insert(machine, Group::new(config));
            }
            Entry::Upstream { machine, name, config, replicas, group, rng } => {
                let ids: Vec<ReplicaId> = replicas.iter().map(|(id, _)| *id).collect();
                check_replicas(lines, &ids)?;
                if let Some(group) = group
                    && !self.groups.contains_key(&group)
                {
                    let text = format!("unknown group {group}: expected its entry first");
                    return Err(lines.wrong(text));
                }
                self.check_new(lines, machine)?;
                let upstream = Upstream::with_replicas(config, &ids, &rng);
                let (clock, calls, last_call) = (Clock::default(), BTreeMap::new(), 0);
                let replicas = ids.last().map_or(0, |last| last.0.saturating_add(1));
                let root = Root { name, clock, replicas, group, upstream, calls, last_call };
                self.roots.insert(machine, root);
            }
            Entry::Replica { machine, replica, .. } => {
                let root = root(&mut self.roots, lines, machine)?;
                if replica.0 < root.replicas {
                    return Err(lines.wrong(format!("replica {} is here a second time", replica.0)));
                }
                root.replicas = replica.0.saturating_add(1);
            }
            Entry::Leaf { machine, name, config } => {
                self.check_new(lines, machine)?;
                let leaf = Machine { name, clock: Clock::default(), machine: Leaf::new(config) };
                self.leaves.insert(machine, leaf);
            }
            Entry::Gather { gather, name, config } => {
                let machine = Gather::new(config);
                self.add_calls(lines, weight(&machine))?;
                let machine = Machine { name, clock: Clock::default(), machine };
                if self.gathers.insert(gather, machine).is_some() {
                    return Err(lines.wrong(format!("gather {gather} is here a second time")));
                }
            }
            Entry::Request { machine, call, request, eligible } => {
                check_replicas(lines, eligible.as_deref().unwrap_or_default())?;
                let pinned = Call::pinned(request, eligible.map(Arc::from));
                self.add_call(lines, (machine, call), pinned)?;
            }
            Entry::Call { machine, call, now, event, .. } => {
                return self.call_event(lines, (machine, call), now, event);
            }
            Entry::GatherEvent { gather, now, event, .. } => {
                return self.gather_event(lines, gather, now, event);
            }
            Entry::UpstreamEvent { machine, now, event, .. } => {
                return self.upstream_event(lines, machine, now, event);
            }
            Entry::LeafEvent { machine, now, event, .. } => {
                return self.leaf_event(lines, machine, now, event);
            }
            Entry::Cut { lost } => return Ok(Some(End::Cut { lost })),
            Entry::End { entries } if entries != lines.number() - 1 => {
                return Err(lines.wrong(format!("expected {entries} entries before this line")));
            }
            Entry::End { .. } => return Ok(Some(End::Complete)),
        }
        Ok(None)
    }

    fn add_call(
        &mut self,
        lines: &JournalLines<'_>,
        (machine, number): (u32, u64),
        call: Call,
    ) -> Result<(), Unreadable> {
        self.add_calls(lines, 1)?;
        let root = root(&mut self.roots, lines, machine)?;
        if root.calls.insert(number, call).is_some() {
            return Err(lines.wrong(format!("request {number} is here a second time")));
        }
        root.last_call = root.last_call.max(number);
        self.requests += 1;
        Ok(())
    }

    fn call_event(
        &mut self,
        lines: &JournalLines<'_>,
        (machine, number): (u32, u64),
        now: Instant,
        event: Event,
    ) -> Result<Option<End>, Unreadable> {
        let root = root(&mut self.roots, lines, machine)?;
        root.clock.advance(lines, now)?;
        let effects = if let Some(call) = root.calls.get_mut(&number) {
            let group = root.group.and_then(|group| self.groups.get_mut(&group));
            let handle = |upstream: &mut Upstream| call.handle(upstream, now, event);
            let step = |upstream: &mut _| decided(upstream, handle, Upstream::poll_effect);
            let effects = root.upstream.in_group(group, step);
            if call.is_over() {
                root.calls.remove(&number);
                self.calls -= 1;
            }
            effects
        } else if number <= root.last_call {
            // News of a request that is over: it is past deciding anything.
            Some(Vec::new())
        } else {
            return Err(lines.wrong(format!("request {number} is not known")));
        };
        let name = root.name.clone();
        let entry = |effects| Entry::Call { machine, call: number, now, event, effects };
        Ok(self.compare(lines, name, effects, entry))
    }

    fn upstream_event(
        &mut self,
        lines: &JournalLines<'_>,
        machine: u32,
        now: Instant,
        event: UpstreamEvent,
    ) -> Result<Option<End>, Unreadable> {
        let root = root(&mut self.roots, lines, machine)?;
        root.clock.advance(lines, now)?;
        if let UpstreamEvent::ReplicaJoined { replica }
        | UpstreamEvent::ReplicaLeft { replica }
        | UpstreamEvent::HealthChecked { replica, .. }
        | UpstreamEvent::WeightChanged { replica, .. }
        | UpstreamEvent::ZoneChanged { replica, .. }
        | UpstreamEvent::ProbeSucceeded { replica, .. }
        | UpstreamEvent::ProbeUnsupported { replica } = event
            && replica.0 >= root.replicas
        {
            let text = format!("unknown replica {}: expected its entry first", replica.0);
            return Err(lines.wrong(text));
        }
        let group = root.group.and_then(|group| self.groups.get_mut(&group));
        let handle = |upstream: &mut Upstream| upstream.handle(now, event);
        let step = |upstream: &mut _| decided(upstream, handle, Upstream::poll_effect);
        let effects = root.upstream.in_group(group, step);
        let name = root.name.clone();
        let entry = |effects| Entry::UpstreamEvent { machine, now, event, effects };
        Ok(self.compare(lines, name, effects, entry))
    }

    fn leaf_event(
        &mut self,
        lines: &JournalLines<'_>,
        machine: u32,
        now: Instant,
        event: LeafEvent,
    ) -> Result<Option<End>, Unreadable> {
        let Some(place) = self.leaves.get_mut(&machine) else {
            return Err(lines.wrong(format!("leaf {machine} is not known")));
        };
        place.clock.advance(lines, now)?;
        let handle = |leaf: &mut Leaf| leaf.handle(now, event);
        let effects = decided(&mut place.machine, handle, Leaf::poll_effect);
        let name = place.name.clone();
        let entry = |effects| Entry::LeafEvent { machine, now, event, effects };
        Ok(self.compare(lines, name, effects, entry))
    }

    fn gather_event(
        &mut self,
        lines: &JournalLines<'_>,
        gather: u64,
        now: Instant,
        event: GatherEvent,
    ) -> Result<Option<End>, Unreadable> {
        let Some(place) = self.gathers.get_mut(&gather) else {
            return Err(lines.wrong(format!("unknown gather {gather}: expected its entry first")));
        };
        place.clock.advance(lines, now)?;
        let handle = |gather: &mut Gather| gather.handle(now, event);
        let effects = decided(&mut place.machine, handle, Gather::poll_effect);
        let name = place.name.clone();
        if place.machine.is_over() {
            self.calls -= weight(&place.machine);
            self.gathers.remove(&gather);
        }
        let entry = |effects| Entry::GatherEvent { gather, now, event, effects };
        Ok(self.compare(lines, name, effects, entry))
    }

    /// Compares the line with the entry that has `effects`.
    fn compare<E: Serialize>(
        &mut self,
        lines: &JournalLines<'_>,
        machine: String,
        effects: Option<Vec<E>>,
        entry: impl FnOnce(Vec<E>) -> Entry<Vec<E>>,
    ) -> Option<End> {
        self.events += 1;
        let got = if let Some(effects) = effects {
            let count = effects.len() as u64;
            let line = serde_json::to_string(&entry(effects)).expect("an entry is plain data");
            if line == lines.text() {
                self.effects += count;
                return None;
            }
            split(&line).1.to_owned()
        } else {
            "a panic: the policy broke its own invariant".to_owned()
        };
        let (event, expected) = split(lines.text());
        let (event, expected) = (event.to_owned(), expected.to_owned());
        let difference = Difference { line: lines.number(), machine, event, expected, got };
        Some(End::Different(Box::new(difference)))
    }

    /// Counts requests that are not over.
    fn add_calls(&mut self, lines: &JournalLines<'_>, calls: usize) -> Result<(), Unreadable> {
        self.calls += calls;
        if self.calls <= CALLS_MAX {
            return Ok(());
        }
        Err(lines.wrong(format!("expected at most {CALLS_MAX} requests at a time")))
    }

    fn check_new(&self, lines: &JournalLines<'_>, machine: u32) -> Result<(), Unreadable> {
        if self.groups.len() + self.roots.len() + self.leaves.len() >= MACHINES_MAX {
            return Err(lines.wrong(format!("expected at most {MACHINES_MAX} machines")));
        }
        let is_known = self.groups.contains_key(&machine)
            || self.roots.contains_key(&machine)
            || self.leaves.contains_key(&machine);
        if is_known {
            return Err(lines.wrong(format!("machine {machine} is here a second time")));
        }
        Ok(())
    }
}

fn check_replicas(lines: &JournalLines<'_>, ids: &[ReplicaId]) -> Result<(), Unreadable> {
    if ids.len() <= REPLICAS_MAX && ids.is_sorted_by(|one, next| one < next) {
        return Ok(());
    }
    Err(lines.wrong(format!("expected at most {REPLICAS_MAX} replicas in ascending order")))
}

/// The memory of a gather, in words of its set of calls.
fn weight(gather: &Gather) -> usize {
    1 + gather.config().calls as usize / 64
}

fn root<'r>(
    roots: &'r mut BTreeMap<u32, Root>,
    lines: &JournalLines<'_>,
    machine: u32,
) -> Result<&'r mut Root, Unreadable> {
    let text = || format!("unknown upstream {machine}: expected its entry first");
    roots.get_mut(&machine).ok_or_else(|| lines.wrong(text()))
}

/// The decisions of a machine; [`None`] when it panics, which the proxy survives too.
fn decided<M, E>(
    machine: &mut M,
    handle: impl FnOnce(&mut M),
    poll_effect: impl Fn(&mut M) -> Option<E>,
) -> Option<Vec<E>> {
    let decide = || {
        handle(machine);
        std::iter::from_fn(|| poll_effect(machine)).collect()
    };
    catch_unwind(AssertUnwindSafe(decide)).ok()
}

/// Splits an entry into the part before its effects, and the effects, which every writer puts last.
fn split(line: &str) -> (&str, &str) {
    const EFFECTS: &str = ",\"effects\":";
    line.rsplit_once(EFFECTS).map_or((line, ""), |(event, effects)| {
        (event, effects.strip_suffix('}').unwrap_or(effects))
    })
}
