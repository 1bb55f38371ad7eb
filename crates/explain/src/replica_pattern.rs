//! Whether requests are slow alone, together with others at the same replica or at all replicas, or after an idle time.
//!
//! A slow trace of a component lasts for some time. Of the other traces that begin in this time at the same replica, and of
//! the traces that begin at other replicas, how many take long as well? Alone, as few as ever; during a pause, most at the same
//! replica; during an overload or a failure of what replicas share, most at all of them. A replica that sleeps when it is idle
//! is slow whenever it had no trace for some time.
//!
//! The whole trace stands for its call to the replica, because most of the time of a slow trace is in the component.

use crate::component::Component;
use crate::populations::Populations;
use crate::traces::Traces;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use curtail_sketch::tail_start;
use curtail_units::wilson_interval;

/// The smallest share of the traces with a value that does not tell replicas apart.
const COMMON_VALUE_MIN: f64 = 0.9;

/// The attributes of a service's spans that tell its replicas apart, the best first.
const SERVER_KEYS: [&str; 5] =
    ["k8s.pod.name", "service.instance.id", "k8s.pod.uid", "container.id", "host.name"];

/// The attributes of a caller's spans that tell apart the replicas of a service without spans.
const CALLER_KEYS: [&str; 4] =
    ["server.address", "server.port", "network.peer.address", "network.peer.port"];

/// The place of a key among the keys of replicas; other keys come last.
pub(crate) fn replica_key_rank(key: &str) -> usize {
    SERVER_KEYS.iter().chain(&CALLER_KEYS).position(|known| *known == key).unwrap_or(usize::MAX)
}

/// The smallest lower bound of the ratio of long traces among the traces that begin while another one is slow; and the same
/// relative to the ratio of all traces.
const SIMULTANEOUS_MIN: f64 = 0.2;
const SIMULTANEOUS_TIMES_MIN: f64 = 3.0;

/// The smallest ratio at other replicas, relative to that at the same replica, if what replicas share is slow. Replicas that
/// are busy at the same time have queues at the same time too, but each its own.
const EVERYWHERE_MIN: f64 = 0.75;

/// The smallest lower bound of the ratio of long traces among the traces that begin after an idle time.
const AFTER_IDLE_MIN: f64 = 0.5;

/// The number of traces, and of long ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceCount {
    pub(crate) long: u32,
    pub(crate) all: u32,
}

impl TraceCount {
    fn add(&mut self, is_long: bool) {
        self.all += 1;
        self.long += u32::from(is_long);
    }

    /// The share of them that takes long.
    fn ratio(self) -> f64 {
        f64::from(self.long) / f64::from(self.all.max(1))
    }

    /// Whether the lower bound of the share that takes long exceeds this ratio.
    fn lower_bound_exceeds(self, ratio: f64) -> bool {
        self.all > 0 && wilson_interval(self.ratio(), f64::from(self.all)).0 > ratio
    }
}

/// How the slow traces of a component are spread over replicas and time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplicaPattern {
    /// The number of the key that tells replicas apart.
    pub(crate) key: u32,
    pub(crate) kind: PatternKind,
}

/// What the slow traces of a component have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PatternKind {
    /// Many of the traces that begin meanwhile take long: at the same replica, perhaps at other replicas too.
    Simultaneous { same_replica: TraceCount, other_replicas: TraceCount, is_everywhere: bool },
    /// Most traces take long that begin after their replica had none for this time.
    AfterIdle { least_ns: i64, traces: TraceCount },
}

impl ReplicaPattern {
    /// Finds what the slow traces of a component have in common; [`None`]: nothing. `is_dominated` has the slow traces of
    /// the component, which spans tell apart by replica; `is_long` has these and all others that take long.
    pub(crate) fn find(
        traces: &Traces,
        populations: &Populations,
        component: Component,
        (is_dominated, is_long): (&[bool], &[bool]),
    ) -> Option<Self> {
        let (service, keys) = match component {
            Component::UntracedCall { caller, .. } => (caller, &CALLER_KEYS[..]),
            Component::SelfTime { .. } | Component::Gap { .. } => {
                (component.service(), &SERVER_KEYS[..])
            }
            Component::Phase { .. } => return None,
        };
        let (key, replicas) = replicas_of(traces, populations, (service, keys), is_dominated)?;
        let mut all = TraceCount::default();
        let (mut same_replica, mut other_replicas) = (TraceCount::default(), TraceCount::default());
        let mut idle: Vec<IdleTime> = Vec::new();
        // The end of the last trace at each replica, and of the last slow one at those that are slow now.
        let mut ends_ns: BTreeMap<u32, i64> = BTreeMap::new();
        let mut slow = SlowReplicas::default();
        for nth in by_start(traces, populations) {
            let (row, is_slow) = (&traces.rows[nth as usize], is_dominated[nth as usize]);
            let is_long = is_slow || is_long[nth as usize];
            all.add(is_long);
            let of_trace = || {
                let values = traces.values_of(row).iter().copied();
                values.filter(|value| replicas.contains(value))
            };
            if of_trace().next().is_none() {
                continue;
            }
            let idle_ns = of_trace().filter_map(|replica| ends_ns.get(&replica));
            if let Some(ns) = idle_ns.map(|end_ns| row.start_ns - end_ns).max() {
                idle.push(IdleTime { ns, is_slow, is_long });
            }
            slow.advance(row.start_ns);
            let own = of_trace().filter(|replica| slow.ends_ns.contains_key(replica)).count();
            if own > 0 {
                same_replica.add(is_long);
            }
            if slow.ends_ns.len() > own {
                other_replicas.add(is_long);
            }
            let end_ns = row.start_ns + row.duration_ns;
            for replica in of_trace() {
                let last_ns = ends_ns.entry(replica).or_insert(end_ns);
                *last_ns = end_ns.max(*last_ns);
                if is_slow {
                    slow.add(replica, end_ns);
                }
            }
        }
        let of_all = SIMULTANEOUS_TIMES_MIN * f64::from(all.long) / f64::from(all.all);
        let ratio_min = SIMULTANEOUS_MIN.max(of_all);
        let kind = if same_replica.lower_bound_exceeds(ratio_min) {
            let is_everywhere = other_replicas.lower_bound_exceeds(ratio_min)
                && other_replicas.ratio() >= EVERYWHERE_MIN * same_replica.ratio();
            PatternKind::Simultaneous { same_replica, other_replicas, is_everywhere }
        } else {
            after_idle(&idle)?
        };
        Some(Self { key, kind })
    }
}

/// The replicas at which a slow trace goes on. However many there are, a trace costs a few lookups.
#[derive(Debug, Default)]
struct SlowReplicas {
    ends_ns: BTreeMap<u32, i64>,
    by_end: BTreeSet<(i64, u32)>,
}

impl SlowReplicas {
    fn add(&mut self, replica: u32, end_ns: i64) {
        let before_ns = self.ends_ns.get(&replica).copied();
        if before_ns.is_none_or(|before_ns| before_ns < end_ns) {
            before_ns.map(|before_ns| self.by_end.remove(&(before_ns, replica)));
            self.by_end.insert((end_ns, replica));
            self.ends_ns.insert(replica, end_ns);
        }
    }

    /// Forgets the replicas whose slow traces have ended by now.
    fn advance(&mut self, now_ns: i64) {
        while let Some((end_ns, replica)) = self.by_end.first().copied()
            && end_ns <= now_ns
        {
            self.by_end.pop_first();
            self.ends_ns.remove(&replica);
        }
    }
}

/// The time for which the replica of a trace had no other one.
#[derive(Clone, Copy, Debug)]
struct IdleTime {
    ns: i64,
    is_slow: bool,
    is_long: bool,
}

/// Whether most traces take long whose replica was idle for as long as it was before nine of ten slow traces.
fn after_idle(idle: &[IdleTime]) -> Option<PatternKind> {
    let mut slow: Vec<i64> = idle.iter().filter(|of| of.is_slow).map(|of| of.ns).collect();
    if slow.is_empty() {
        return None;
    }
    let at = tail_start(0.1, slow.len());
    let (_, least_ns, _) = slow.select_nth_unstable(at);
    let (least_ns, mut traces) = (*least_ns, TraceCount::default());
    idle.iter().filter(|of| of.ns >= least_ns).for_each(|of| traces.add(of.is_long));
    let is_idle = least_ns > 0 && traces.lower_bound_exceeds(AFTER_IDLE_MIN);
    is_idle.then_some(PatternKind::AfterIdle { least_ns, traces })
}

/// The first of the keys that most slow traces of the component have, with the values that tell replicas apart: a value that
/// nearly all traces have is no replica, such as the port at which a service is called.
fn replicas_of(
    traces: &Traces,
    populations: &Populations,
    (service, keys): (u32, &[&str]),
    is_dominated: &[bool],
) -> Option<(u32, BTreeSet<u32>)> {
    let compared = || populations.slow.iter().chain(&populations.baseline);
    keys.iter().find_map(|key| {
        let mut fields = (0..).zip(traces.fields.values());
        let (number, field) = fields.find(|(_, field)| {
            let is_of_service = field.service == service && !field.is_call_count;
            is_of_service && traces.names.get(field.name) == *key
        })?;
        let values_of = |nth: u32| {
            let values = traces.values_of(&traces.rows[nth as usize]).iter().copied();
            values.filter(|value| traces.values.get(*value).0 == number)
        };
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        let mut all = 0;
        for nth in compared() {
            values_of(*nth).for_each(|value| *counts.entry(value).or_default() += 1);
            all += u32::from(values_of(*nth).next().is_some());
        }
        counts.retain(|_, count| f64::from(*count) < COMMON_VALUE_MIN * f64::from(all));
        let replicas: BTreeSet<u32> = counts.into_keys().collect();
        let slow = || populations.slow.iter().filter(|nth| is_dominated[**nth as usize]);
        let has = |nth: &&u32| values_of(**nth).any(|value| replicas.contains(&value));
        let is_common = slow().filter(has).count() * 2 > slow().count();
        (replicas.len() > 1 && is_common).then_some((field.name, replicas))
    })
}

/// All compared traces, in the order of their starts.
fn by_start(traces: &Traces, populations: &Populations) -> Vec<u32> {
    let start = |nth: &u32| traces.rows[*nth as usize].start_ns;
    let mut all = [&populations.slow[..], &populations.baseline].concat();
    // Two sorted runs: one merge.
    all.sort_by_key(start);
    all
}
