//! The requests of one thread: due, waiting for a connection, in flight.

use super::Load;
use super::recording::Recording;
use crate::workload::Choice;
use curtail_load::schedule::Instants;
use curtail_load::{Failure, Share, Slot, Timing};
use curtail_units::{Duration, Instant};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Maximum number of waiting requests of a thread whose waits are measured. Further due requests stay in the plan, and
/// their wait counts as lag.
const BACKLOG_MAX: usize = 1 << 20;

/// Maximum number of journeys of a thread in think time; beyond it, the next step of a journey fails.
const THINKING_MAX: usize = 1 << 20;

/// Maximum resends of a request that the server did not process.
pub(super) const RESENDS_MAX: u8 = 10;

/// The reason why a request failed.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    pub(super) failure: Failure,
    pub(super) text: String,
    /// Whether the server provably did not process the request.
    pub(super) is_unprocessed: bool,
}

impl RequestFailure {
    pub(crate) fn new(failure: Failure, text: impl Into<String>) -> Self {
        Self { failure, text: text.into(), is_unprocessed: false }
    }

    pub(super) fn malformed(text: impl Into<String>) -> Self {
        Self::new(Failure::Malformed, text)
    }

    /// The failure of a request that is invalid with its values filled in.
    pub(super) fn not_a_request(error: impl std::fmt::Display) -> Self {
        Self::malformed(format!("the request, as filled in: {error}"))
    }
}

/// A request that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueRequest {
    pub(super) choice: Choice,
    intended: Instant,
    /// The time at which the generator was ready to send the request, if it was not sent then or not processed.
    waits_since: Option<Instant>,
    resends: u8,
}

impl DueRequest {
    /// The time at which the generator was ready to send the request; the send time unless the request had to wait.
    fn ready(&self, sent: Instant) -> Instant {
        self.waits_since.unwrap_or(sent)
    }

    /// Notes that the request waits since `now`, unless it waited before.
    pub(super) fn waiting_since(self, now: Instant) -> Self {
        Self { waits_since: self.waits_since.or(Some(now)), ..self }
    }
}

#[derive(Debug)]
struct Flight {
    due: DueRequest,
    sent: Instant,
    abort: AbortHandle,
}

#[derive(Debug)]
pub(super) struct Flights {
    load: Arc<Load>,
    began: Instant,
    share: Share,
    plan: std::iter::Enumerate<Instants>,
    /// The number and the time of the next request of the plan in this thread's share.
    next: Option<(u64, Instant)>,
    /// The next steps of journeys, by instant and number of the arrival; an arrival has at most one.
    later: BTreeMap<(Instant, u64), Choice>,
    backlog: VecDeque<DueRequest>,
    flying: Slab<Flight>,
    seen: Recording,
    recent: Slot,
}

impl Flights {
    pub(super) fn new(load: Arc<Load>, thread: usize, began: Instant) -> Self {
        let plan = load.schedule.instants(load.rng.split("schedule")).enumerate();
        let seen = Recording::new(load.workload.series().len(), began);
        let mut flights = Self {
            began,
            share: load.share.part(thread, load.threads.max(1)),
            load,
            plan,
            next: None,
            later: BTreeMap::new(),
            backlog: VecDeque::new(),
            flying: Slab::new(),
            seen,
            recent: Slot::new(),
        };
        flights.look_ahead();
        flights
    }

    fn look_ahead(&mut self) {
        let share = self.share;
        let ours = self
            .plan
            .by_ref()
            .map(|(nth, at)| (nth as u64, at))
            .find(|(nth, _)| share.includes(*nth));
        self.next = ours.map(|(nth, at)| (nth, self.began + at));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|((at, _), _)| *at);
        let planned = self.next.map(|(_, at)| at);
        planned.into_iter().chain(later).min()
    }

    /// The next request that should be sent by now: one that waits, or else one that has come due.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<DueRequest> {
        self.backlog.pop_front().or_else(|| self.come_due(now))
    }

    fn come_due(&mut self, now: Instant) -> Option<DueRequest> {
        let at = self.next_at().filter(|at| *at <= now)?;
        let choice = match self.next {
            Some((nth, planned)) if planned == at => {
                self.look_ahead();
                self.load.workload.choose(nth)
            }
            _ => self.later.pop_first()?.1,
        };
        Some(DueRequest { choice, intended: at, waits_since: None, resends: 0 })
    }

    /// Hands out all due requests: `take` sends one, or gives it back to wait.
    pub(super) fn hand_out(
        &mut self,
        now: Instant,
        mut take: impl FnMut(DueRequest) -> Result<(), DueRequest>,
    ) {
        while self.backlog.len() < BACKLOG_MAX {
            let Some(due) = self.come_due(now) else { return };
            if let Err(due) = take(due) {
                self.backlog.push_back(due.waiting_since(now));
            }
        }
    }

    /// Queues an unsent request again, before those that were scheduled later.
    pub(super) fn give_back(&mut self, due: DueRequest) {
        let place = self.backlog.partition_point(|waiting| waiting.intended <= due.intended);
        self.backlog.insert(place, due);
    }

    /// Takes back a request that was sent and not processed, to be sent again. Returns [`None`] after [`RESENDS_MAX`]
    /// resends.
    pub(super) fn take_back(&mut self, key: usize) -> Option<DueRequest> {
        let Flight { due, sent, .. } = &self.flying[key];
        if due.resends == RESENDS_MAX {
            return None;
        }
        let waits_since = Some(due.ready(*sent));
        let due = DueRequest { waits_since, resends: due.resends + 1, ..*due };
        self.flying.remove(key);
        self.seen.resent += 1;
        Some(due)
    }

    pub(super) fn waiting(&self) -> usize {
        self.backlog.len()
    }

    pub(super) fn flying(&self) -> usize {
        self.flying.len()
    }

    /// The recording since the last call.
    pub(super) fn take_recent(&mut self) -> Slot {
        std::mem::take(&mut self.recent)
    }

    /// The recording, for counts of other things than requests.
    pub(super) const fn seen(&mut self) -> &mut Recording {
        &mut self.seen
    }

    /// Notes that a request is sent now; `abort` ends the task that waits for its response.
    pub(super) fn begin(&mut self, due: DueRequest, now: Instant, abort: AbortHandle) -> usize {
        self.flying.insert(Flight { due, sent: now, abort })
    }

    pub(super) fn finish(&mut self, key: usize, now: Instant, result: Result<(), RequestFailure>) {
        let Flight { due, sent, .. } = self.flying.remove(key);
        let is_good = result.is_ok();
        self.record(due, sent, now, result);
        if let (true, Some((think, choice))) = (is_good, self.load.workload.after(due.choice)) {
            if self.later.len() < THINKING_MAX {
                self.later.insert((now + think, choice.nth), choice);
            } else {
                let text = format!("more than {THINKING_MAX} journeys of a thread are thinking");
                let due = DueRequest { choice, intended: now, waits_since: None, resends: 0 };
                self.fail(due, now, RequestFailure::new(Failure::Ended, text));
            }
        }
    }

    /// Fails the request that has waited longest, without sending it.
    pub(super) fn fail_waiting(&mut self, now: Instant, failed: RequestFailure) {
        if let Some(due) = self.backlog.pop_front() {
            self.fail(due, now, failed);
        }
    }

    pub(super) fn fail(&mut self, due: DueRequest, now: Instant, failed: RequestFailure) {
        self.record(due, now, now, Err(failed));
    }

    /// Ends the requests that the generator was ready to send `timeout` ago or earlier.
    pub(super) fn time_out(&mut self, now: Instant, timeout: Duration) {
        let is_late = |ready: Instant| now.since(ready) >= timeout;
        let late: Vec<usize> = self
            .flying
            .iter()
            .filter(|(_, flight)| is_late(flight.due.ready(flight.sent)))
            .map(|(key, _)| key)
            .collect();
        for key in late {
            self.flying[key].abort.abort();
            let text = format!("no complete response within {timeout}");
            self.finish(key, now, Err(RequestFailure::new(Failure::Timeout, text)));
        }
        while self.backlog.front().is_some_and(|due| is_late(due.ready(now))) {
            let text = format!("no connection was free within {timeout}");
            self.fail_waiting(now, RequestFailure::new(Failure::Timeout, text));
        }
    }

    /// Ends all due requests that are not over; returns the recording.
    pub(super) fn end(mut self, now: Instant) -> Recording {
        let ended = || RequestFailure::new(Failure::Ended, "the run ended before the response");
        let flying: Vec<usize> = self.flying.iter().map(|(key, _)| key).collect();
        for key in flying {
            self.flying[key].abort.abort();
            self.finish(key, now, Err(ended()));
        }
        while let Some(due) = self.next_due(now) {
            self.record(due, now, now, Err(ended()));
        }
        self.seen
    }

    fn record(
        &mut self,
        due: DueRequest,
        sent: Instant,
        now: Instant,
        result: Result<(), RequestFailure>,
    ) {
        let timing = Timing { intended: due.intended, ready: due.ready(sent), sent, ended: now };
        let failure = result.map_err(|failed| {
            self.seen.explain(failed.failure, now, || failed.text);
            failed.failure
        });
        let failure = failure.err();
        self.seen.record(self.load.workload.series_of(due.choice), &timing, failure);
        if failure.is_some() {
            self.recent.failed += 1;
        } else {
            self.recent.response.record(now.since(due.intended));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::Flights;
    use curtail_units::{Duration, Instant};
    use std::sync::Arc;

    #[test]
    fn a_resent_request_counts_once_from_its_scheduled_time_and_its_wait_is_no_lag() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let abort = runtime.spawn(async {}).abort_handle();
        let load = load(([127, 0, 0, 1], 1).into(), 1.0);
        let mut flights = Flights::new(Arc::new(load), 0, Instant::ZERO);
        let sent = flights.next_at().expect("one is planned");
        let due = flights.next_due(sent).expect("it is due");
        let key = flights.begin(due, sent, abort.clone());
        let due = flights.take_back(key).expect("it is the first resend");
        let key = flights.begin(due, sent + Duration::from_ms(50), abort);
        let ended = sent + Duration::from_ms(70);
        flights.finish(key, ended, Ok(()));
        let seen = flights.end(ended);
        let latencies = &seen.latencies[0];
        assert_eq!((seen.count(), seen.resent), (1, 1));
        assert_eq!(latencies.response.max(), Some(Duration::from_ms(70)));
        assert_eq!(latencies.service.max(), Some(Duration::from_ms(20)));
        assert_eq!(latencies.lag.max(), Some(Duration::ZERO));
    }
}
