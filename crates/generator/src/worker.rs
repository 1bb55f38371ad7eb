//! One thread of the generator: opens and closes connections, and gives due requests to them.

use super::connections::{Connection, Connections};
use super::flight::{DueRequest, Flights, RequestFailure};
use super::pace;
use super::recording::Recording;
use super::{Load, PROGRESS_EVERY, Stop, http1, http2};
use crate::target::Protocol;
use curtail_http::clock::Clock;
use curtail_http::connect::OpenedConnection;
use curtail_http::precise_timer::PreciseTimer;
use curtail_load::{Failure, Slot};
use curtail_units::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::task::{Context, Poll};

/// The interval of checks for timeouts and the end of the run.
const LOOK_EVERY: Duration = Duration::from_ms(10);

#[derive(Clone)]
pub(super) struct Run {
    /// The start of the plan.
    pub(super) began: Instant,
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    /// Receives the recording since the last message.
    pub(super) progress: SyncSender<Slot>,
}

pub(super) struct Worker {
    pub(super) load: Arc<Load>,
    clock: Clock,
    connections_max: usize,
    state: RefCell<State>,
    /// The number of connections so far; connections use the addresses in turn.
    connected: Cell<usize>,
}

struct State {
    flights: Flights,
    connections: Connections,
    is_over: bool,
}

impl Worker {
    /// Sends the `nth` thread's part of `load`; returns when the part is over or the run is stopped.
    pub(super) fn run(load: Arc<Load>, nth: usize, run: &Run) -> io::Result<Recording> {
        let flights = Flights::new(Arc::clone(&load), nth, run.began);
        let worker = Rc::new(Self {
            connections_max: load.connections_max.div_ceil(load.threads.max(1)).max(1),
            state: RefCell::new(State {
                flights,
                connections: Connections::default(),
                is_over: false,
            }),
            load,
            clock: run.clock,
            connected: Cell::new(nth),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let tasks = tokio::task::LocalSet::new();
        let dispatched = tasks.block_on(&runtime, worker.dispatch(run));
        // From now on no connection is made and nothing is sent.
        worker.state.borrow_mut().is_over = true;
        // Connections refer to the worker, so they go first.
        drop(tasks);
        dispatched?;
        let worker = Rc::into_inner(worker).expect("no task is left to share it");
        let State { flights, .. } = worker.state.into_inner();
        let mut seen = flights.end(worker.clock.now());
        seen.is_stopped = run.stop.is_stopped();
        Ok(seen)
    }

    async fn dispatch(self: &Rc<Self>, run: &Run) -> io::Result<()> {
        let mut timer = PreciseTimer::new()?;
        let mut look_at = run.began;
        let mut report_at = run.began + PROGRESS_EVERY;
        loop {
            let now = self.clock.now();
            self.hand_out(now);
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.end_late_ones(now);
            }
            if now >= report_at {
                report_at = now + PROGRESS_EVERY;
                // Progress that nobody has taken is not missed.
                let _sent = run.progress.try_send(self.state.borrow_mut().flights.take_recent());
            }
            let next = self.state.borrow().flights.next_at();
            // Each request is over within the timeout, so the end is not far from the last one.
            if run.stop.is_stopped() || next.is_none() && self.is_done() {
                break;
            }
            let until = next.map_or(look_at, |next| next.min(look_at));
            pace::until(until, &mut timer, self.clock).await?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let State { flights, connections, .. } = &*self.state.borrow();
        flights.flying() == 0 && flights.waiting() == 0 && connections.assigned() == 0
    }

    /// Gives due requests to idle connections, queues the remaining requests, and opens connections.
    fn hand_out(self: &Rc<Self>, now: Instant) {
        let State { flights, connections, .. } = &mut *self.state.borrow_mut();
        let waiting = flights.waiting();
        flights.hand_out(now, |due| connections.assign(due));
        if connections.len() >= self.connections_max {
            let more = flights.waiting() - waiting;
            flights.seen().wait(more as u64, now);
        }
        self.connect(flights, connections, now);
    }

    /// Opens connections, up to the limit, while there are more requests than free places on connections.
    fn connect(self: &Rc<Self>, flights: &Flights, connections: &mut Connections, now: Instant) {
        let at_once = match self.load.protocol {
            Protocol::Http1 => 1,
            Protocol::Http2 | Protocol::Grpc => http2::STREAMS_MAX,
        };
        let wanted = flights.flying() + connections.assigned() + flights.waiting();
        let room =
            |connections: &Connections| (connections.len() - connections.draining()) * at_once;
        while room(connections) < wanted && connections.len() < self.connections_max {
            let connection = connections.open(now);
            let task =
                ConnectionTask { worker: Rc::clone(self), connection: Rc::clone(&connection) };
            let task = tokio::task::spawn_local(task.serve());
            connection.set_abort_handle(task.abort_handle());
        }
    }

    /// Gives an unsent request to an idle connection, or queues it and opens connections.
    fn hand_back(self: &Rc<Self>, state: &mut State, due: Option<DueRequest>) {
        let State { flights, connections, is_over } = state;
        let now = self.clock.now();
        if let Some(due) = due.map(|due| due.waiting_since(now)) {
            let assigned = if *is_over { Err(due) } else { connections.assign(due) };
            assigned.unwrap_or_else(|due| flights.give_back(due));
        }
        if !*is_over {
            self.connect(flights, connections, now);
        }
    }

    fn end_late_ones(&self, now: Instant) {
        let State { flights, connections, .. } = &mut *self.state.borrow_mut();
        let timeout = self.load.timeout;
        for connection in
            connections.opening_since(Instant::from_ns(now.as_ns().saturating_sub(timeout.as_ns())))
        {
            connection.abort_handle().abort();
            let failed =
                RequestFailure::new(Failure::Connect, format!("no connection within {timeout}"));
            flights.fail_waiting(now, failed);
        }
        flights.time_out(now, timeout);
    }
}

/// The task of a connection. When it ends, for any reason, the worker removes the connection.
pub(super) struct ConnectionTask {
    pub(super) worker: Rc<Worker>,
    pub(super) connection: Rc<Connection>,
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        let state = &mut *self.worker.state.borrow_mut();
        state.connections.closed(&self.connection);
        let assigned = state.connections.take_assigned(&self.connection);
        self.worker.hand_back(state, assigned);
    }
}

impl ConnectionTask {
    /// Connects, and sends requests until the connection closes or nothing is left to send.
    async fn serve(self) {
        let Load { target, connector, protocol, .. } = &*self.worker.load;
        let nth = self.worker.connected.get();
        self.worker.connected.set(nth + 1);
        let mut addresses = target.addresses.clone();
        addresses.rotate_left(nth % target.addresses.len());
        match connector.connect_to(&addresses, &self.worker.clock).await {
            Err(error) => {
                self.fail_waiting(RequestFailure::new(Failure::Connect, error.to_string()));
            }
            Ok(OpenedConnection { stream, .. }) => {
                {
                    let State { flights, connections, .. } = &mut *self.worker.state.borrow_mut();
                    connections.opened(&self.connection);
                    flights.seen().connections += 1;
                }
                match protocol {
                    Protocol::Http1 => http1::serve(self, stream).await,
                    Protocol::Http2 | Protocol::Grpc => http2::serve(self, stream).await,
                }
            }
        }
    }

    /// The next request to send; nothing when the run is over.
    pub(super) fn poll_due(&self, cx: &Context<'_>) -> Poll<Option<DueRequest>> {
        let worker = &self.worker;
        let State { flights, connections, is_over } = &mut *worker.state.borrow_mut();
        if let Some(due) = connections.take_assigned(&self.connection) {
            return Poll::Ready(Some(due));
        }
        if *is_over {
            return Poll::Ready(None);
        }
        if let Some(due) = flights.next_due(worker.clock.now()) {
            connections.mark_busy(&self.connection);
            return Poll::Ready(Some(due));
        }
        connections.mark_idle(&self.connection, cx);
        Poll::Pending
    }

    /// Marks the connection as draining: it takes no further requests, but responses may still come.
    pub(super) fn drain(&self) {
        let state = &mut *self.worker.state.borrow_mut();
        state.connections.drain(&self.connection);
        let assigned = state.connections.take_assigned(&self.connection);
        self.worker.hand_back(state, assigned);
    }

    pub(super) fn with_flights<T>(&self, act: impl FnOnce(&mut Flights, Instant) -> T) -> T {
        let now = self.worker.clock.now();
        act(&mut self.worker.state.borrow_mut().flights, now)
    }

    pub(super) fn fail_waiting(&self, failed: RequestFailure) {
        self.with_flights(|flights, now| flights.fail_waiting(now, failed));
    }

    pub(super) fn fail(&self, due: DueRequest, failed: RequestFailure) {
        self.with_flights(|flights, now| flights.fail(due, now, failed));
    }

    /// Ends a request after `received` bytes, or sends it again because the server did not process it.
    pub(super) fn finish(&self, key: usize, received: u64, result: Result<(), RequestFailure>) {
        let state = &mut *self.worker.state.borrow_mut();
        state.flights.seen().received_bytes += received;
        let is_unprocessed = result.as_ref().is_err_and(|failed| failed.is_unprocessed);
        match is_unprocessed.then(|| state.flights.take_back(key)).flatten() {
            Some(due) => self.worker.hand_back(state, Some(due)),
            None => state.flights.finish(key, self.worker.clock.now(), result),
        }
    }
}
