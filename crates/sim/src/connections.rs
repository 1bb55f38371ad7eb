//! Connections of clients to replicas: an attempt that finds no idle connection opens one first.
//!
//! Each client has connections of its own to each replica, and uses the most recently used one first. A response makes
//! the connection idle again. A cancelled or failed attempt closes its connection, as in HTTP/1.1.
//! **Inputs**: the attempts of a run. Set-up times have random numbers of their own.
//! **Limits**: as many idle connections as there were attempts in flight at once.

use crate::model::Model;
use crate::slab::Key;
use curtail_config::Section;
use curtail_model::Distribution;
use curtail_units::{Duration, Instant, Rng};

/// The connections of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionModel {
    /// The time to open a connection, in addition to the message delay of the attempt.
    pub setup: Distribution,
    /// The time after which an idle connection is closed.
    pub idle_max: Duration,
}

impl ConnectionModel {
    /// Reads the keys of connections.
    pub(crate) fn read(s: &mut Section<'_>) -> Self {
        let setup = s.section("setup", "Time to open a connection.", Distribution::read);
        if setup.mean_ns() <= 0.0 {
            s.error("setup", "the mean is zero: expected a duration above zero");
        }
        let idle_max = s
            .field("idle_max", "Time after which an idle connection is closed; absent: never.")
            .at_least(Duration::from_us(1))
            .optional()
            .unwrap_or(Duration::MAX);
        Self { setup, idle_max }
    }
}

/// The connections of a run.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    model: ConnectionModel,
    rng: Rng,
    /// Since when each idle connection of each pair is idle, the latest last.
    idle: Vec<Vec<Instant>>,
    /// The index in `idle` for the connection of each attempt, by the index of the attempt's key; absent: it is closed.
    of_attempt: Vec<Option<usize>>,
}

impl Connections {
    /// No connections yet, between `pairs` pairs of clients and replicas; [`None`] if connections take no time. `rng` is the
    /// generator of the run's seed.
    pub(crate) fn new(model: &Model, pairs: usize, rng: &Rng) -> Option<Self> {
        Some(Self {
            model: model.connection.clone()?,
            rng: rng.split("connections"),
            idle: vec![Vec::new(); pairs],
            of_attempt: Vec::new(),
        })
    }

    /// Gives an attempt a connection. Returns the time to open it, which is zero for an idle connection. A crash of the
    /// server, at `crashed`, closed its idle connections.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        attempt: Key,
        pair: usize,
        crashed: Option<Instant>,
    ) -> Duration {
        let index = attempt.index as usize;
        if self.of_attempt.len() <= index {
            self.of_attempt.resize(index + 1, None);
        }
        self.of_attempt[index] = Some(pair);
        let is_open = |since: Instant| {
            now.since(since) <= self.model.idle_max && crashed.is_none_or(|crashed| since > crashed)
        };
        if self.idle[pair].pop().is_some_and(is_open) {
            return Duration::ZERO;
        }
        // All others have been idle for longer.
        self.idle[pair].clear();
        self.model.setup.draw(&mut self.rng)
    }

    /// Closes the connection of a cancelled attempt.
    pub(crate) fn close(&mut self, attempt: Key) {
        // A request of a noisy neighbor has no connection.
        if let Some(pair) = self.of_attempt.get_mut(attempt.index as usize) {
            *pair = None;
        }
    }

    /// Ends the use of a connection. It is idle from now on if its attempt got a response.
    pub(crate) fn end(&mut self, now: Instant, attempt: Key, has_response: bool) {
        let pair = self.of_attempt.get_mut(attempt.index as usize).and_then(Option::take);
        if let Some(pair) = pair.filter(|_| has_response) {
            self.idle[pair].push(now);
        }
    }
}
