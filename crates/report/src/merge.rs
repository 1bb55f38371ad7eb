//! Merges the results of several generators of one run.
//!
//! **Requires** one plan (name, load, seed, arms, series, blocks), of which each generator sent another share at the
//! same time. Merging adds histograms by block and series, so the result has the buckets of one generator that recorded
//! all requests. Rates add up, because blocks run at the same time. Results are rejected as those of different runs if
//! a share occurs twice, or if the starts are further apart than a run lasts.
//! **Limits**: each generator counts time from its own start, and all count as started together. The starts are read
//! from the machines' clocks, so these must agree within the duration of the run. If several generators recorded the
//! same measure of a server, the first counts; of the servers' CPU time, the largest. An interrupted generator may have
//! fewer blocks; the merged run is then partial.

use crate::Results;
use crate::results::{Block, Event, Machine, Measure, State};
use curtail_units::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Results that are not of one run: the difference, and the expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MergeError(String);

/// The results of all generators as those of one.
///
/// # Errors
/// When there are no results, or they are not of one run.
pub fn merge(parts: Vec<Results>) -> Result<Results, MergeError> {
    const NOTHING: &str =
        "there is nothing to merge: expected the results of at least one generator";
    let mut parts = parts.into_iter();
    let mut merged = parts.next().ok_or_else(|| MergeError(NOTHING.to_owned()))?;
    let mut whys = vec![merged.state.clone()];
    let (began_unix_ns, lasted) = (merged.began_unix_ns, length(&merged));
    let several = |what: String| MergeError(format!("the results are of several runs: {what}"));
    for (nth, part) in (2..).zip(parts) {
        check(&merged, &whys, &part).map_err(|(what, first, other)| {
            let text =
                format!("{what} is {first} in the first of them and {other} in number {nth}");
            MergeError(format!("the results are not of one run: {text}"))
        })?;
        if part.shares.sent.iter().any(|share| merged.shares.sent.contains(share)) {
            return Err(several(format!(
                "number {nth} sent share {} of the plan again; expected one file of each share, as \
                 `--share 1/2` and `--share 2/2` make them",
                part.shares
            )));
        }
        let apart = Duration::from_ns(part.began_unix_ns.abs_diff(began_unix_ns));
        if apart > lasted {
            return Err(several(format!(
                "number {nth} began {apart} apart from the first, and a run lasted {lasted}; \
                 expected generators that were started together"
            )));
        }
        whys.push(part.state.clone());
        add(&mut merged, part);
    }
    merged.state = state(whys);
    Ok(merged)
}

/// The time from the start of the run to the end of its last block.
fn length(results: &Results) -> Duration {
    let ends = results.blocks.iter().map(|block| block.began + block.lasted);
    ends.max().unwrap_or(Instant::ZERO).since(Instant::ZERO)
}

/// The name of the part that differs, its first value and its other value.
type ResultsDifference = (String, String, String);

fn same<T: PartialEq>(
    what: impl Into<String>,
    first: &T,
    other: &T,
    show: impl Fn(&T) -> String,
) -> Result<(), ResultsDifference> {
    if first == other { Ok(()) } else { Err((what.into(), show(first), show(other))) }
}

fn check(merged: &Results, states: &[State], part: &Results) -> Result<(), ResultsDifference> {
    let text = |text: &String| format!("{text:?}");
    same("the name", &merged.name, &part.name, text)?;
    same("the seed", &merged.seed, &part.seed, u64::to_string)?;
    same("the load", &merged.load, &part.load, text)?;
    same("the number of shares", &merged.shares.of, &part.shares.of, usize::to_string)?;
    same("the number of arms", &merged.arms.len(), &part.arms.len(), usize::to_string)?;
    for (nth, (ours, theirs)) in (1..).zip(merged.arms.iter().zip(&part.arms)) {
        same(format!("arm {nth}"), &ours.name, &theirs.name, text)?;
        same(format!("what arm {nth} is about"), &ours.about, &theirs.about, text)?;
        same(format!("the rate of arm {nth}"), &ours.rate, &theirs.rate, |rate| {
            rate.map_or("none".to_owned(), |rate| format!("{rate} a second"))
        })?;
    }
    same("the number of series", &merged.series.len(), &part.series.len(), usize::to_string)?;
    for (nth, (ours, theirs)) in (1..).zip(merged.series.iter().zip(&part.series)) {
        same(format!("series {nth}"), ours, theirs, |s| {
            format!("{:?} of {:?} with size {}", s.query, s.tenant, s.tenant_size)
        })?;
    }
    let was_cut = |state: &State| matches!(state, State::Partial { .. });
    if !states.iter().any(was_cut) && !was_cut(&part.state) {
        same("the number of blocks", &merged.blocks.len(), &part.blocks.len(), usize::to_string)?;
    }
    for (nth, (ours, theirs)) in (1..).zip(merged.blocks.iter().zip(&part.blocks)) {
        check_block(nth, ours, theirs)?;
    }
    Ok(())
}

fn check_block(nth: usize, ours: &Block, theirs: &Block) -> Result<(), ResultsDifference> {
    let arm = |arm: &usize| format!("number {}", arm + 1);
    same(format!("the arm of block {nth}"), &ours.arm, &theirs.arm, arm)?;
    let purpose =
        |is_warm_up: &bool| if *is_warm_up { "to warm up" } else { "to measure" }.to_owned();
    same(format!("the purpose of block {nth}"), &ours.is_warm_up, &theirs.is_warm_up, purpose)?;
    // Slots double when a run is long, so widths are one width doubled some times.
    let (ours, theirs) = (ours.timeline.width(), theirs.timeline.width());
    let (wide, narrow) = (ours.max(theirs).as_ns(), ours.min(theirs).as_ns());
    let is_doubled = wide.is_multiple_of(narrow) && (wide / narrow).is_power_of_two();
    if is_doubled {
        return Ok(());
    }
    same(format!("the width of slots in block {nth}"), &ours, &theirs, Duration::to_string)
}

fn add(merged: &mut Results, part: Results) {
    merged.began_unix_ns = merged.began_unix_ns.min(part.began_unix_ns);
    merged.command = joined(&merged.command, &part.command);
    merged.shares.sent.extend(part.shares.sent);
    merged.shares.sent.sort_unstable();
    add_machine(&mut merged.machine, part.machine);
    for (nth, block) in part.blocks.into_iter().enumerate() {
        match merged.blocks.get_mut(nth) {
            Some(ours) => add_block(ours, &block),
            None => merged.blocks.push(block),
        }
    }
    let is_new = |merged: &[Measure], measure: &Measure| {
        !merged.iter().any(|ours| (&ours.of, &ours.name) == (&measure.of, &measure.name))
    };
    for measure in part.measures {
        if is_new(&merged.measures, &measure) {
            merged.measures.push(measure);
        }
    }
    let new: Vec<Event> =
        part.events.into_iter().filter(|event| !merged.events.contains(event)).collect();
    merged.events.extend(new);
    merged.events.sort_by_key(|event| event.at);
}

fn add_block(ours: &mut Block, block: &Block) {
    let end = (ours.began + ours.lasted).max(block.began + block.lasted);
    ours.began = ours.began.min(block.began);
    ours.lasted = end.since(ours.began);
    for (all, more) in ours.latencies.iter_mut().zip(&block.latencies) {
        all.merge(more);
    }
    ours.timeline.merge(&block.timeline);
    ours.received_bytes = ours.received_bytes.saturating_add(block.received_bytes);
    ours.connections = ours.connections.saturating_add(block.connections);
    ours.resent = ours.resent.saturating_add(block.resent);
    ours.generator_cpu = ours.generator_cpu + block.generator_cpu;
    ours.servers_cpu = ours.servers_cpu.max(block.servers_cpu);
}

/// Adds a machine; machines with the same description count as one.
fn add_machine(ours: &mut Machine, machine: Machine) {
    if *ours == machine {
        return;
    }
    ours.cpu = joined(&ours.cpu, &machine.cpu);
    ours.kernel = joined(&ours.kernel, &machine.kernel);
    ours.cores += machine.cores;
}

/// Both texts; or only `ours`, if `other` is a part of it.
fn joined(ours: &str, other: &str) -> String {
    if ours.split("; ").any(|part| part == other) {
        ours.to_owned()
    } else {
        format!("{ours}; {other}")
    }
}

/// Void when one state is void, otherwise partial when one is partial; with the reason of each such state.
fn state(states: Vec<State>) -> State {
    let several = states.len() > 1;
    let (mut void, mut partial) = (Vec::new(), Vec::new());
    for (nth, state) in (1..).zip(states) {
        let say = |why| if several { format!("generator {nth}: {why}") } else { why };
        match state {
            State::Complete => {}
            State::Partial { why } => partial.push(say(why)),
            State::Void { why } => void.push(say(why)),
        }
    }
    match (void.is_empty(), partial.is_empty()) {
        (false, _) => State::Void { why: void.join("; ") },
        (true, false) => State::Partial { why: partial.join("; ") },
        (true, true) => State::Complete,
    }
}
