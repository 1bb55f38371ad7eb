//! One server as a state machine: requests that are queued and executed, and faults.
//!
//! [`Leaf`] is the queue, [`Processor`] the executions in service, [`FaultTimeline`] the faults, as in the simulator.
//! When the caller advances the machine late, each event in between has the instant at which it was due. A late timer
//! therefore delays responses, but moves no event.
//! **Invariant**: `one-end`: each request that is not cancelled is rejected or ends, once.

use crate::config::ServerConfig;
use curtail_model::{Distribution, ExecutionOutcome, FaultEffect, FaultTimeline, Processor};
use curtail_policy::{Class, Decided, Leaf, LeafEffect, LeafEvent, LeafRequestId};
use curtail_units::{Duration, Instant, Rng};
use std::collections::{BTreeMap, VecDeque};

#[cfg(test)]
mod tests;

#[derive(Debug)]
pub(crate) struct ServerMachine {
    leaf: Leaf,
    processor: Processor,
    timeline: FaultTimeline,
    is_stopped: bool,
    service: Distribution,
    service_rng: Rng,
    in_flight: BTreeMap<u64, InFlight>,
    arrived_count: u64,
    effects: VecDeque<ServerEffect>,
}

/// A request that has arrived and not ended.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    arrived: Instant,
    started: Option<Instant>,
    /// Whether the execution of the request has begun to progress.
    has_begun: bool,
    /// The service time in nanoseconds; if absent, it is drawn when the request starts.
    service_ns: Option<f64>,
}

/// An effect of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ServerEffect {
    /// The execution of a request begins.
    Began { request: u64 },
    /// A request is rejected, because the queue is full.
    Rejected { request: u64 },
    /// A request has been executed.
    Ended { request: u64, outcome: ExecutionOutcome, times: Times },
    /// The server is no longer stopped.
    Resumed,
}

/// The time of a request, by purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    /// The time in the queue.
    pub(crate) queue: Duration,
    /// The time in service that the request would take with a core of a healthy server to itself.
    pub(crate) service: Duration,
    /// The additional time in service, because the server was stopped, slow or shared.
    pub(crate) fault: Duration,
}

impl ServerMachine {
    /// A server with an empty queue; its service times are drawn from `rng`.
    pub(crate) fn new(config: &ServerConfig, timeline: FaultTimeline, rng: &Rng) -> Self {
        let pace = timeline.pace();
        let mut processor = Processor::new(config.cores);
        processor.set_pace(Instant::ZERO, pace);
        Self {
            leaf: Leaf::new(config.leaf),
            processor,
            timeline,
            is_stopped: pace.speed == 0.0,
            service: config.service.clone(),
            service_rng: rng.split("service"),
            in_flight: BTreeMap::new(),
            arrived_count: 0,
            effects: VecDeque::new(),
        }
    }

    pub(crate) fn arrive(&mut self, now: Instant, class: Class) -> u64 {
        self.advance(now);
        self.accept(now, class, None)
    }

    /// Cancels a request whose client has gone away. The request may have ended.
    pub(crate) fn cancel(&mut self, now: Instant, request: u64) {
        self.advance(now);
        if self.in_flight.remove(&request).is_some() {
            self.processor.abort(now, request);
            self.leaf_event(now, LeafEvent::Gone { request: LeafRequestId(request) });
        }
    }

    /// Does everything that is due by `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some(at) = self.poll_timeout().filter(|at| *at <= now) {
            while let Some(request) = self.processor.finish(at) {
                self.end(at, request);
            }
            while let Some(event) = self.timeline.poll(at) {
                match event.effect {
                    // The configuration rejects crashes.
                    FaultEffect::None | FaultEffect::Crashes | FaultEffect::Restarts => {}
                    FaultEffect::PaceChanges => self.change_pace(at),
                    FaultEffect::RequestArrives { service_ns, class } => {
                        self.accept(at, class, Some(service_ns));
                    }
                }
            }
        }
    }

    /// The instant at which [`Self::advance`] must be called next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.processor.next_end().into_iter().chain(self.timeline.poll_timeout()).min()
    }

    /// The next effect.
    pub(crate) fn poll_effect(&mut self) -> Option<ServerEffect> {
        self.effects.pop_front()
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn accept(&mut self, now: Instant, class: Class, service_ns: Option<f64>) -> u64 {
        let request = self.arrived_count;
        self.arrived_count += 1;
        let arrived = InFlight { arrived: now, started: None, has_begun: false, service_ns };
        self.in_flight.insert(request, arrived);
        let event = LeafEvent::Arrived { request: LeafRequestId(request), class, tie: None };
        self.leaf_event(now, event);
        request
    }

    fn end(&mut self, now: Instant, request: u64) {
        self.leaf_event(now, LeafEvent::Finished { request: LeafRequestId(request) });
        let outcome = self.timeline.execution_outcome();
        if let Some(ended) = self.in_flight.remove(&request) {
            let started = ended.started.unwrap_or(now);
            let service = Duration::from_ns_f64(ended.service_ns.unwrap_or_default());
            let fault = now.since(started) - service;
            let times = Times { queue: started.since(ended.arrived), service, fault };
            self.effects.push_back(ServerEffect::Ended { request, outcome, times });
        }
        if self.timeline.execution_ended(now) {
            self.change_pace(now);
        }
    }

    fn leaf_event(&mut self, now: Instant, event: LeafEvent) {
        self.leaf.handle(now, event);
        while let Some(Decided { effect, .. }) = self.leaf.poll_effect() {
            match effect {
                LeafEffect::Start { request } => self.start(now, request.0),
                LeafEffect::Refuse { request } => {
                    self.in_flight.remove(&request.0);
                    self.effects.push_back(ServerEffect::Rejected { request: request.0 });
                }
                // Requests here have no tie.
                LeafEffect::TellTwin { .. } | LeafEffect::Drop { .. } => {}
            }
        }
    }

    fn start(&mut self, now: Instant, request: u64) {
        let started = self.in_flight.get_mut(&request).expect("what is queued is in flight");
        started.started = Some(now);
        let service_ns = match started.service_ns {
            Some(service_ns) => service_ns,
            None => self.service.draw_ns(&mut self.service_rng),
        };
        started.service_ns = Some(service_ns);
        self.processor.start(now, request, service_ns);
        if !self.is_stopped {
            started.has_begun = true;
            self.effects.push_back(ServerEffect::Began { request });
        }
    }

    fn change_pace(&mut self, now: Instant) {
        let pace = self.timeline.pace();
        self.processor.set_pace(now, pace);
        let was_stopped = std::mem::replace(&mut self.is_stopped, pace.speed == 0.0);
        if was_stopped && !self.is_stopped {
            self.effects.push_back(ServerEffect::Resumed);
            for (request, in_flight) in &mut self.in_flight {
                if in_flight.started.is_some() && !in_flight.has_begun {
                    in_flight.has_begun = true;
                    self.effects.push_back(ServerEffect::Began { request: *request });
                }
            }
        }
    }
}
