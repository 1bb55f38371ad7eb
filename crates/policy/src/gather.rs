//! One request that needs several calls: k of n calls, started in order, until a deadline.
//!
//! **Decides** which calls start and when, when the request is done, and whether the open calls are then abandoned.
//! **Inputs**: ends of calls, time, a client that leaves. The driver owns the calls, their replicas and the merging.
//! **Limits**: [`CALLS_MAX`] calls, one bit of memory each, and one timer. Each event and effect costs O(1), amortized.
//! **Invariants** `exactly-one-done`: a request that is not abandoned is done once, and no call starts afterwards;
//! `started-once`: calls start in order, each at most once; `canaries-first`: no other call starts until every canary
//! has succeeded; `abandoned-are-open`: exactly the open calls are abandoned.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 79: "good enough" results and canaries.
//! **Hurts when** few calls are needed and `rest` is [`RestMode::Finish`]: servers do work for no client.

mod open_calls;
mod reason;

use crate::Decided;
use curtail_units::{Duration, Instant};
use open_calls::OpenCalls;
pub use reason::GatherReason;
use serde::{Deserialize, Serialize};

/// Maximum number of calls of one request.
pub const CALLS_MAX: u32 = 100_000;

/// The number of a call, in the order in which calls start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u32);

/// The fate of the open calls when the request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestMode {
    /// They are abandoned.
    Cancel,
    /// They run to their end, even if the client leaves after the request is done. Writes to a quorum need this.
    Finish,
}

/// The number of calls of a request, and the conditions under which the request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatherConfig {
    /// The number of calls, at most [`CALLS_MAX`].
    pub calls: u32,
    /// The number of calls that must succeed, from 1 to `calls`.
    pub needed: u32,
    /// The number of first calls that must succeed before all other calls start; 0: all calls start at once.
    pub canaries: u32,
    /// The time from arrival after which the request is done with the responses that it has; absent: no deadline.
    pub deadline: Option<Duration>,
    /// The fate of the open calls when the request is done.
    pub rest: RestMode,
}

impl GatherConfig {
    /// A request whose calls all start at once and must all succeed. The first failure ends the request.
    #[must_use]
    pub const fn all_of(calls: u32) -> Self {
        Self { calls, needed: calls, canaries: 0, deadline: None, rest: RestMode::Cancel }
    }
}

/// The conditions under which a request is done, whatever the number of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherRule {
    /// The number of calls that must succeed; absent: all.
    pub needed: Option<u32>,
    /// [`GatherConfig::canaries`].
    pub canaries: u32,
    /// [`GatherConfig::deadline`].
    pub deadline: Option<Duration>,
    /// [`GatherConfig::rest`].
    pub rest: RestMode,
}

impl GatherRule {
    /// The rule for a request with this number of calls.
    #[must_use]
    pub fn of(self, calls: u32) -> GatherConfig {
        let Self { needed, canaries, deadline, rest } = self;
        GatherConfig { calls, needed: needed.unwrap_or(calls), canaries, deadline, rest }
    }
}

/// An event of a request with several calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum GatherEvent {
    /// The request arrived. This is the first event, and comes once.
    Arrived,
    /// A call ended without being abandoned. `success`: its response counts.
    CallEnded { call: CallId, success: bool },
    /// The client left.
    Abandoned,
    /// The request is done, and the driver has no room to let its open calls finish.
    RestRejected,
    /// The instant of [`Gather::poll_timeout`] has come.
    Woke,
}

/// An action for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the types of the fields explain them")]
pub enum GatherEffect {
    /// Start a call.
    StartCall { call: CallId },
    /// Abandon an open call.
    AbandonCall { call: CallId },
    /// Respond to the client.
    Done { outcome: GatherOutcome },
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatherOutcome {
    /// As many calls as needed have succeeded.
    Complete,
    /// The deadline passed before enough calls succeeded. The response is marked as partial.
    Partial,
    /// Fewer calls than needed can succeed, or a canary failed.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Waiting,
    Done,
    Abandoned,
}

/// The machine of one request with several calls.
#[derive(Clone, Debug)]
pub struct Gather {
    config: GatherConfig,
    state: State,
    arrived: Instant,
    /// Calls below this number may start.
    startable: u32,
    start_reason: GatherReason,
    started: u32,
    succeeded: u32,
    failed: u32,
    open: OpenCalls,
    /// The outcome with its reason, until the driver polls it.
    done: Option<Decided<GatherOutcome, GatherReason>>,
    /// The reason for abandoning the open calls, until all of them are abandoned.
    abandon_reason: Option<GatherReason>,
}

impl Gather {
    /// A request that has not arrived yet.
    #[must_use]
    pub fn new(config: GatherConfig) -> Self {
        let calls = config.calls.min(CALLS_MAX);
        let needed = config.needed.clamp(calls.min(1), calls);
        Self {
            config: GatherConfig { calls, needed, ..config },
            state: State::New,
            arrived: Instant::ZERO,
            startable: 0,
            start_reason: GatherReason::FirstWave,
            started: 0,
            succeeded: 0,
            failed: 0,
            open: OpenCalls::new(calls),
            done: None,
            abandon_reason: None,
        }
    }

    /// The configuration, with `calls` and `needed` limited to possible numbers.
    #[must_use]
    pub const fn config(&self) -> &GatherConfig {
        &self.config
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Instant, event: GatherEvent) {
        debug_assert!(self.is_drained(), "effects are drained before the next event");
        match (self.state, event) {
            (State::New, GatherEvent::Arrived) => self.arrive(now),
            (State::Waiting, GatherEvent::CallEnded { call, success }) => {
                if self.open.remove(call) {
                    *(if success { &mut self.succeeded } else { &mut self.failed }) += 1;
                    self.check_counts();
                }
            }
            (State::Done, GatherEvent::CallEnded { call, .. }) => {
                self.open.remove(call);
            }
            (State::Waiting, GatherEvent::Abandoned) => {
                self.state = State::Abandoned;
                self.abandon_reason = Some(GatherReason::ClientGone);
            }
            (State::Done, GatherEvent::RestRejected) => {
                self.abandon_reason = Some(GatherReason::RestRejected);
            }
            (State::Waiting, GatherEvent::Woke) => self.check_deadline(now),
            // Late events of a call or a request that is over.
            (State::New | State::Waiting | State::Done | State::Abandoned, _) => {}
        }
    }

    /// The next action for the driver, with its reason. The driver drains all actions before the next event.
    pub fn poll_effect(&mut self) -> Option<Decided<GatherEffect, GatherReason>> {
        if self.started < self.startable {
            let call = CallId(self.started);
            self.started += 1;
            self.open.insert(call);
            let effect = GatherEffect::StartCall { call };
            return Some(Decided { effect, reason: self.start_reason });
        }
        if let Some(Decided { effect: outcome, reason }) = self.done.take() {
            return Some(Decided { effect: GatherEffect::Done { outcome }, reason });
        }
        let reason = self.abandon_reason?;
        let Some(call) = self.open.pop() else {
            self.abandon_reason = None;
            return None;
        };
        Some(Decided { effect: GatherEffect::AbandonCall { call }, reason })
    }

    /// When to send [`GatherEvent::Woke`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.config.deadline.filter(|_| self.state == State::Waiting)?;
        Some(self.arrived + deadline)
    }

    /// Whether the request has ended and no call is open. With [`RestMode::Finish`], calls may end after the request.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Abandoned) && self.open.is_empty()
    }

    fn is_drained(&self) -> bool {
        self.started == self.startable && self.done.is_none() && self.abandon_reason.is_none()
    }

    fn arrive(&mut self, now: Instant) {
        let GatherConfig { calls, canaries, .. } = self.config;
        self.state = State::Waiting;
        self.arrived = now;
        self.startable = if canaries == 0 { calls } else { calls.min(canaries) };
        self.check_counts();
    }

    /// Ends the request after enough successes or too many failures; starts the remaining calls after the canaries.
    fn check_counts(&mut self) {
        let GatherConfig { calls, needed, .. } = self.config;
        let (succeeded, failed) = (self.succeeded, self.failed);
        if succeeded >= needed {
            self.end(GatherOutcome::Complete, GatherReason::Enough { succeeded, needed });
        } else if failed > calls - needed {
            let reason = GatherReason::TooManyFailed { failed, calls, needed };
            self.end(GatherOutcome::Failed, reason);
        } else if self.startable < calls {
            let canaries = self.startable;
            if failed > 0 {
                self.end(GatherOutcome::Failed, GatherReason::CanaryFailed { canaries });
            } else if succeeded == canaries {
                self.startable = calls;
                self.start_reason = GatherReason::CanariesSucceeded { canaries };
            }
        }
    }

    fn check_deadline(&mut self, now: Instant) {
        let Some(deadline) = self.config.deadline else { return };
        let waited = now.since(self.arrived);
        if waited >= deadline {
            let (succeeded, needed) = (self.succeeded, self.config.needed);
            let reason = GatherReason::Deadline { waited, deadline, succeeded, needed };
            self.end(GatherOutcome::Partial, reason);
        }
    }

    fn end(&mut self, effect: GatherOutcome, reason: GatherReason) {
        self.state = State::Done;
        self.done = Some(Decided { effect, reason });
        self.abandon_reason = (self.config.rest == RestMode::Cancel).then_some(reason);
    }
}

#[cfg(test)]
mod small_worlds;
#[cfg(test)]
mod tests;
