//! Reads a proxy's journal.
//!
//! A journal has each request and attempt as the proxy saw them, the replicas by name, the policies in force, and the
//! measured time of a message. It has no sizes and no names of operations, so all requests are of one kind.
//! The machines of several workers for one upstream are read as one.
//! **Invariant**: the requests of an upstream had one policy. A journal with two, after a reload or a decision of
//! `remedy: auto`, is rejected. Requests of a holdout are marked.

use super::{
    AttemptEnd, ROWS_MAX, RecordedAttempt, RecordedRequest, Recording, RecordingError, UNKNOWN,
    choose,
};
use curtail_policy::journal::Entry;
use curtail_policy::{Event, Outcome, RemedyMode, RemedyState, UpstreamConfig, UpstreamEvent};
use curtail_sim::{JournalLines, Unreadable};
use curtail_units::{Duration, Instant};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::io::BufRead;

/// The part of a decision that a recording needs.
#[derive(Deserialize)]
struct DecisionLine {
    effect: EffectLine,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum EffectLine {
    Send {
        attempt: usize,
        replica: u32,
    },
    Cancel {
        attempt: usize,
    },
    Respond {
        attempt: usize,
    },
    Fail(IgnoredAny),
    Skip,
    SetRemedy {
        state: RemedyState,
    },
    /// An effect of a probe, a gather or a leaf.
    #[serde(alias = "probe", alias = "start_call", alias = "abandon_call", alias = "done")]
    #[serde(alias = "start", alias = "tell_twin", alias = "drop", alias = "refuse")]
    Other(IgnoredAny),
}

/// One upstream, over all workers.
#[derive(Default)]
struct UpstreamRows {
    /// The policy of the requests so far.
    policy: Option<UpstreamConfig>,
    /// Whether there were others.
    has_other_policies: bool,
    /// The names of the replicas, each once.
    replicas: Vec<String>,
    message_ns: Vec<u64>,
    rows: Vec<(RecordedRequest, Vec<RecordedAttempt>)>,
    left_out: u64,
}

/// A machine of a worker: the name of its upstream, its policy, and the index of each of its replicas.
struct Machine {
    upstream: String,
    policy: UpstreamConfig,
    replicas: BTreeMap<u32, u32>,
}

#[derive(Default)]
struct Reader {
    upstreams: BTreeMap<String, UpstreamRows>,
    machines: BTreeMap<u32, Machine>,
    open: BTreeMap<(u32, u64), OpenRequest>,
}

/// A request whose response, or last attempt, is still to come.
#[derive(Default)]
struct OpenRequest {
    is_holdout: bool,
    arrived: Option<Instant>,
    latency: Option<Duration>,
    is_over: bool,
    attempts: Vec<OpenAttempt>,
}

struct OpenAttempt {
    replica: u32,
    sent: Instant,
    ended: Option<(Instant, AttemptEnd)>,
}

impl Recording {
    /// Reads a journal of the proxy; `upstream` is the one to read if there are several.
    ///
    /// # Errors
    /// When the journal is damaged or of another version, or has no request to this upstream.
    pub fn from_journal(
        mut journal: impl BufRead,
        upstream: Option<&str>,
    ) -> Result<Self, RecordingError> {
        let mut reader = Reader::default();
        let mut lines = JournalLines::begin(&mut journal)?;
        while lines.advance()? {
            reader.entry(&lines)?;
        }
        reader.finish(upstream)
    }
}

impl Reader {
    fn entry(&mut self, lines: &JournalLines<'_>) -> Result<(), Unreadable> {
        match lines.parse::<Vec<DecisionLine>>()? {
            Entry::Upstream { machine, name, config, replicas, .. } => {
                let upstream = self.upstreams.entry(name.clone()).or_default();
                let known = replicas.into_iter().map(|(id, name)| (id.0, upstream.replica(name)));
                let replicas = known.collect();
                let policy = in_force(config);
                self.machines.insert(machine, Machine { upstream: name, policy, replicas });
            }
            Entry::Replica { machine, replica, name } => {
                if let Some(machine) = self.machines.get_mut(&machine)
                    && let Some(upstream) = self.upstreams.get_mut(&machine.upstream)
                {
                    machine.replicas.insert(replica.0, upstream.replica(name));
                }
            }
            Entry::Request { machine, call, request, .. } => {
                if !self.machines.contains_key(&machine) {
                    let text = format!("unknown upstream {machine}: expected its entry first");
                    return Err(lines.wrong(text));
                }
                let is_holdout = request.is_holdout;
                let open = OpenRequest { is_holdout, ..OpenRequest::default() };
                self.open.insert((machine, call), open);
            }
            Entry::Call { machine, call, now, event, effects } => {
                self.call_event((machine, call), now, event, effects);
            }
            Entry::UpstreamEvent { machine, event, effects, .. } => {
                self.upstream_event(machine, event, &effects);
            }
            Entry::Journal { .. }
            | Entry::Group { .. }
            | Entry::Leaf { .. }
            | Entry::Gather { .. }
            | Entry::GatherEvent { .. }
            | Entry::LeafEvent { .. }
            | Entry::Cut { .. }
            | Entry::End { .. } => {}
        }
        Ok(())
    }

    fn upstream_event(&mut self, machine: u32, event: UpstreamEvent, effects: &[DecisionLine]) {
        let Some(machine) = self.machines.get_mut(&machine) else { return };
        if let UpstreamEvent::MessageTimed { one_way } = event
            && let Some(upstream) = self.upstreams.get_mut(&machine.upstream)
            && upstream.message_ns.len() < ROWS_MAX
        {
            upstream.message_ns.push(one_way.as_ns());
        }
        for DecisionLine { effect } in effects {
            if let EffectLine::SetRemedy { state } = effect {
                machine.policy.remedy = match state {
                    RemedyState::DryRun => RemedyMode::DryRun,
                    RemedyState::Off => RemedyMode::Off,
                    RemedyState::Trial | RemedyState::On => RemedyMode::On,
                };
            }
        }
    }

    fn call_event(
        &mut self,
        key: (u32, u64),
        now: Instant,
        event: Event,
        effects: Vec<DecisionLine>,
    ) {
        let Some(open) = self.open.get_mut(&key) else { return };
        match event {
            Event::Arrived => open.arrived = Some(now),
            Event::Responded { attempt, outcome } => {
                let end = match outcome {
                    Outcome::Good => AttemptEnd::Responded,
                    // The other copy is executed: this one only waited, and would have taken longer.
                    Outcome::TwinStarted => AttemptEnd::Cancelled,
                    Outcome::Bad | Outcome::Refused => AttemptEnd::Failed,
                };
                open.end_attempt(attempt.index(), now, end);
            }
            Event::Failed { attempt, .. } => {
                open.end_attempt(attempt.index(), now, AttemptEnd::Failed);
            }
            Event::Ended { attempt, whole } => {
                open.finish_response(attempt.index(), now, whole);
            }
            Event::Abandoned => open.abandon(now),
            Event::ReplayLost | Event::Woke => {}
        }
        for DecisionLine { effect } in effects {
            open.carry_out(now, &effect);
        }
        if open.is_over
            && let Some(open) = self.open.remove(&key)
        {
            self.keep(key.0, open);
        }
    }

    fn keep(&mut self, machine: u32, open: OpenRequest) {
        let Some(machine) = self.machines.get(&machine) else { return };
        let Some(upstream) = self.upstreams.get_mut(&machine.upstream) else { return };
        let Some(arrived) = open.arrived else { return };
        let policy = *upstream.policy.get_or_insert(machine.policy);
        upstream.has_other_policies |= policy != machine.policy;
        if upstream.rows.len() == ROWS_MAX {
            upstream.left_out += 1;
            return;
        }
        let attempts = open.attempts.iter().map(|attempt| {
            let (ended, end) = attempt.ended.unwrap_or((attempt.sent, AttemptEnd::Cancelled));
            RecordedAttempt {
                replica: machine.replicas.get(&attempt.replica).copied().unwrap_or(UNKNOWN),
                sent: attempt.sent,
                lasted: ended.since(attempt.sent),
                end,
                service: None,
            }
        });
        let request = RecordedRequest {
            arrived,
            latency: open.latency,
            kind: 0,
            attempts: 0,
            caller: UNKNOWN,
            is_holdout: open.is_holdout,
        };
        upstream.rows.push((request, attempts.collect()));
    }

    fn finish(mut self, wanted: Option<&str>) -> Result<Recording, RecordingError> {
        let busy = self.upstreams.iter().filter(|(_, upstream)| !upstream.rows.is_empty());
        let known: Vec<String> = busy.map(|(name, _)| name.clone()).collect();
        if let Some(pattern) = wanted.filter(|wanted| wanted.contains('*')) {
            return Err(RecordingError::FanOutInJournal { pattern: pattern.to_owned(), known });
        }
        let name = choose(known, wanted)?;
        let mut upstream =
            self.upstreams.remove(&name).ok_or(RecordingError::TooFew { found: 0 })?;
        if upstream.has_other_policies {
            return Err(RecordingError::Invalid {
                location: format!("upstream {name}"),
                expected: "one policy for all requests, but a reload or remedy: auto changed it: \
                           record again without a change"
                    .to_owned(),
            });
        }
        upstream.message_ns.sort_unstable();
        let median = upstream.message_ns.get(upstream.message_ns.len() / 2);
        let mut recording = Recording {
            source: format!("journal, upstream {name}"),
            replicas: upstream.replicas,
            policy: upstream.policy,
            message_delay: median.map(|ns| Duration::from_ns(*ns)),
            has_arrivals: true,
            left_out: upstream.left_out,
            ..Recording::default()
        };
        recording.fill(upstream.rows);
        Ok(recording)
    }
}

impl UpstreamRows {
    /// The index of the replica with this name.
    fn replica(&mut self, name: String) -> u32 {
        let known = self.replicas.iter().position(|known| *known == name);
        let index = known.unwrap_or_else(|| {
            self.replicas.push(name);
            self.replicas.len() - 1
        });
        u32::try_from(index).unwrap_or(UNKNOWN)
    }
}

impl OpenRequest {
    fn end_attempt(&mut self, index: usize, now: Instant, end: AttemptEnd) {
        if let Some(attempt) = self.attempts.get_mut(index) {
            attempt.ended.get_or_insert((now, end));
        }
    }

    /// The client has the whole response, or a part of it.
    fn finish_response(&mut self, index: usize, now: Instant, whole: bool) {
        self.is_over = true;
        self.latency = self.arrived.map(|arrived| now.since(arrived)).filter(|_| whole);
        if let Some(attempt) = self.attempts.get_mut(index) {
            let end = if whole { AttemptEnd::Responded } else { AttemptEnd::Failed };
            attempt.ended = Some((now, end));
        }
    }

    /// The client has gone: its open attempts are cancelled, and the request counts as failed.
    fn abandon(&mut self, now: Instant) {
        self.is_over = true;
        for attempt in &mut self.attempts {
            attempt.ended.get_or_insert((now, AttemptEnd::Cancelled));
        }
    }

    fn carry_out(&mut self, now: Instant, effect: &EffectLine) {
        match effect {
            EffectLine::Send { attempt, replica } => {
                // Attempts are numbered in the order in which they are sent.
                if *attempt == self.attempts.len() {
                    self.attempts.push(OpenAttempt { replica: *replica, sent: now, ended: None });
                }
            }
            EffectLine::Cancel { attempt } => {
                self.end_attempt(*attempt, now, AttemptEnd::Cancelled);
            }
            EffectLine::Respond { attempt } => {
                // A kept response is not good, and its request is over.
                let is_kept = self.attempts.get(*attempt).and_then(|attempt| attempt.ended);
                self.is_over |= is_kept.is_some_and(|(_, end)| end == AttemptEnd::Failed);
            }
            EffectLine::Fail(_) => {
                self.is_over = true;
                for attempt in &mut self.attempts {
                    attempt.ended.get_or_insert((now, AttemptEnd::Cancelled));
                }
            }
            EffectLine::Skip | EffectLine::SetRemedy { .. } | EffectLine::Other(_) => {}
        }
    }
}

/// The policy that is in force at first: with `remedy: auto`, a dry run.
fn in_force(config: UpstreamConfig) -> UpstreamConfig {
    let remedy = match config.remedy {
        RemedyMode::Auto => RemedyMode::DryRun,
        mode @ (RemedyMode::On | RemedyMode::Off | RemedyMode::DryRun) => mode,
    };
    UpstreamConfig { remedy, ..config }
}

#[cfg(test)]
mod tests;
