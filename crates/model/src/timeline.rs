//! The timeline of one server's faults, for drivers without an event queue of their own.
//!
//! **Invariant**: all instants are those that the faults returned, however late the driver polls.

use crate::faults::{ExecutionOutcome, FaultEffect, FaultStep, Faults};
use crate::processor::Pace;
use curtail_units::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The faults of one server, and when they change.
#[derive(Clone, Debug)]
pub struct FaultTimeline {
    /// The faults of this server alone.
    faults: Faults,
    /// The instants at which sites wake.
    due: BinaryHeap<Reverse<(Instant, u32)>>,
}

/// A change that a fault causes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultEvent {
    /// The instant of the change.
    pub at: Instant,
    /// The change.
    pub effect: FaultEffect,
}

/// A change of a server's pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaceChange {
    /// The instant of the change.
    pub at: Instant,
    /// The new pace.
    pub pace: Pace,
}

impl FaultTimeline {
    /// The timeline of `server`, from [`Instant::ZERO`] on; `faults` are those of all servers, not yet begun.
    #[must_use]
    pub fn new(faults: &Faults, server: u32) -> Self {
        let mut timeline = Self { due: BinaryHeap::new(), faults: faults.of_server(server) };
        for site in 0..timeline.faults.len() {
            let step = timeline.faults.begin(site);
            timeline.schedule(Instant::ZERO, site, step);
        }
        timeline
    }

    /// The pace that the faults leave to the server.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.faults.pace(0)
    }

    /// Draws how an execution ends.
    pub fn execution_outcome(&mut self) -> ExecutionOutcome {
        self.faults.execution_outcome(0)
    }

    /// The instant of the next event, at which the driver calls [`Self::poll`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next event until `now`.
    pub fn poll(&mut self, now: Instant) -> Option<FaultEvent> {
        if self.poll_timeout()? > now {
            return None;
        }
        let Reverse((at, site)) = self.due.pop()?;
        let step = self.faults.wake(site, at);
        self.schedule(at, site, step);
        Some(FaultEvent { at, effect: step.effect })
    }

    /// Counts an ended execution; true when the server stops to collect garbage.
    pub fn execution_ended(&mut self, now: Instant) -> bool {
        self.faults.count_execution(0);
        let mut stops = false;
        while let Some(site) = self.faults.garbage_to_collect(0) {
            let step = self.faults.wake(site, now);
            self.schedule(now, site, step);
            stops = true;
        }
        stops
    }

    /// The changes of pace from now on, except for those that executions cause (garbage collection).
    pub fn pace_changes(mut self) -> impl Iterator<Item = PaceChange> {
        self.due.retain(|Reverse((_, site))| self.faults.changes_pace(*site));
        std::iter::from_fn(move || {
            let FaultEvent { at, .. } = self.poll(Instant::MAX)?;
            Some(PaceChange { at, pace: self.pace() })
        })
    }

    fn schedule(&mut self, now: Instant, site: u32, step: FaultStep) {
        if let Some(wait) = step.next {
            self.due.push(Reverse((now + wait, site)));
        }
    }
}
