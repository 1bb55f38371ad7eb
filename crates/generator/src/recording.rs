//! The recording of a generator.

use curtail_load::{Failure, Latencies, Timeline, Timing};
use curtail_units::{Duration, Instant};

/// The initial width of a slot of the timeline.
const SLOT: Duration = Duration::from_secs(1);

/// One failed request, as an example of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureExample {
    pub(crate) failure: Failure,
    pub(crate) at: Instant,
    /// The error that the generator saw.
    pub text: String,
}

/// The recording of a generator's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The start of the plan.
    pub(crate) began: Instant,
    /// The end of the last request.
    pub(crate) ended: Instant,
    /// The latencies of each series.
    pub latencies: Vec<Latencies>,
    /// All series over time.
    pub timeline: Timeline,
    /// Requests that had to wait for a connection.
    pub(crate) waited: u64,
    /// The time at which the first of these requests began to wait.
    pub(crate) waited_first: Option<Instant>,
    pub(crate) received_bytes: u64,
    pub(crate) connections: u64,
    /// Resends of requests that the server did not process.
    pub(crate) resent: u64,
    /// CPU time of this process during the run.
    pub(crate) cpu: Duration,
    /// The first failure of each kind.
    pub examples: Vec<FailureExample>,
    /// Whether the run ended early.
    pub is_stopped: bool,
}

impl Recording {
    /// An empty recording of `series` series.
    #[must_use]
    pub fn new(series: usize, began: Instant) -> Self {
        Self {
            began,
            ended: began,
            latencies: vec![Latencies::new(); series],
            timeline: Timeline::new(SLOT),
            waited: 0,
            waited_first: None,
            received_bytes: 0,
            connections: 0,
            resent: 0,
            cpu: Duration::ZERO,
            examples: Vec::new(),
            is_stopped: false,
        }
    }

    pub(super) fn record(&mut self, series: usize, timing: &Timing, failure: Option<Failure>) {
        self.latencies[series].record(timing, failure);
        self.timeline.record(timing.intended.since(self.began), timing, failure);
        self.ended = self.ended.max(timing.ended);
    }

    /// Keeps the first failure of each kind.
    pub(super) fn explain(&mut self, failure: Failure, at: Instant, text: impl FnOnce() -> String) {
        match self.examples.iter_mut().find(|example| example.failure == failure) {
            None => self.examples.push(FailureExample { failure, at, text: text() }),
            Some(known) if at < known.at => *known = FailureExample { failure, at, text: text() },
            Some(_) => {}
        }
    }

    /// Counts requests that began to wait for a connection at `now`.
    pub(super) fn wait(&mut self, requests: u64, now: Instant) {
        if requests > 0 {
            self.waited += requests;
            self.waited_first.get_or_insert(now);
        }
    }

    /// The number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.latencies.iter().map(Latencies::count).sum()
    }

    /// All series together.
    #[must_use]
    pub fn merged(&self) -> Latencies {
        Latencies::merged(&self.latencies)
    }

    /// Adds the recording of another thread in the same time. CPU time is that of the process and stays as it is.
    pub fn merge(&mut self, other: &Self) {
        self.ended = self.ended.max(other.ended);
        for (latencies, more) in self.latencies.iter_mut().zip(&other.latencies) {
            latencies.merge(more);
        }
        self.timeline.merge(&other.timeline);
        self.waited += other.waited;
        self.waited_first = [self.waited_first, other.waited_first].into_iter().flatten().min();
        self.received_bytes += other.received_bytes;
        self.connections += other.connections;
        self.resent += other.resent;
        for FailureExample { failure, at, text } in &other.examples {
            self.explain(*failure, *at, || text.clone());
        }
        self.is_stopped |= other.is_stopped;
    }
}
