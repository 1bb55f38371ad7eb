//! One server in real time: drives its [`ServerMachine`] and responds to the waiting clients.

use crate::executions::Executions;
use crate::machine::{ServerEffect, ServerMachine, Times};
use curtail_http::clock::Clock;
use curtail_http::precise_timer::PreciseTimer;
use curtail_model::ExecutionOutcome;
use curtail_policy::Class;
use curtail_units::Instant;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) id: ServerId,
    pub(crate) executions: Arc<Executions>,
    clock: Clock,
    /// Wakes [`Server::run`].
    state: Mutex<State>,
    /// Notified when something is due earlier than [`Server::run`] expects.
    due_earlier: Notify,
    resumed: Notify,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerId {
    pub(crate) number: usize,
    pub(crate) shard: usize,
    /// The number of the replica within its shard.
    pub(crate) replica: usize,
}

#[derive(Debug)]
struct State {
    machine: ServerMachine,
    clients: BTreeMap<u64, Client>,
    wakes_at: Instant,
}

/// The client of a request, which waits for its end.
#[derive(Debug)]
struct Client {
    tenant: Option<String>,
    response: oneshot::Sender<Result<ExecutionRecord, Rejection>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutionRecord {
    pub(crate) outcome: ExecutionOutcome,
    pub(crate) times: Times,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rejection;

impl Server {
    pub(crate) fn new(
        id: ServerId,
        machine: ServerMachine,
        clock: Clock,
        executions: Arc<Executions>,
    ) -> Self {
        let state = State { machine, clients: BTreeMap::new(), wakes_at: Instant::MAX };
        Self {
            id,
            executions,
            clock,
            state: Mutex::new(state),
            due_earlier: Notify::new(),
            resumed: Notify::new(),
        }
    }

    pub(crate) async fn execute(
        &self,
        class: Class,
        tenant: Option<&str>,
    ) -> Result<ExecutionRecord, Rejection> {
        let (response, ended) = oneshot::channel();
        let request = {
            let mut state = self.state();
            let request = state.machine.arrive(self.clock.now(), class);
            let client = Client { tenant: tenant.map(str::to_owned), response };
            state.clients.insert(request, client);
            self.carry_out(&mut state);
            request
        };
        let _cancels_on_drop = CancelOnDrop { server: self, request };
        ended.await.expect("the machine ends or rejects each request that is not cancelled")
    }

    /// Waits until the server is not stopped.
    pub(crate) async fn resumed(&self) {
        loop {
            let resumed = self.resumed.notified();
            let is_stopped = {
                let mut state = self.state();
                state.machine.advance(self.clock.now());
                self.carry_out(&mut state);
                state.machine.is_stopped()
            };
            if !is_stopped {
                return;
            }
            resumed.await;
        }
    }

    /// Advances the machine whenever something is due, as long as the future is polled.
    pub(crate) async fn run(&self, mut timer: PreciseTimer) {
        loop {
            let due = {
                let mut state = self.state();
                state.machine.advance(self.clock.now());
                let due = state.machine.poll_timeout();
                state.wakes_at = due.unwrap_or(Instant::MAX);
                self.carry_out(&mut state);
                due
            };
            let left = due.map(|due| due.since(self.clock.now()));
            tokio::select! {
                ended = timer.wait(left.unwrap_or_default()), if left.is_some() => {
                    ended.expect("a runtime that does I/O");
                }
                () = self.due_earlier.notified() => {}
            }
        }
    }

    fn cancel(&self, request: u64) {
        let mut state = self.state();
        if state.clients.remove(&request).is_some() {
            state.machine.cancel(self.clock.now(), request);
            self.carry_out(&mut state);
        }
    }

    fn carry_out(&self, state: &mut State) {
        while let Some(effect) = state.machine.poll_effect() {
            match effect {
                ServerEffect::Began { request } => {
                    // Requests of noisy neighbors have no client, and are not counted.
                    if let Some(client) = state.clients.get(&request) {
                        self.executions.count(self.id.number, client.tenant.as_deref());
                    }
                }
                ServerEffect::Rejected { request } => state.respond(request, Err(Rejection)),
                ServerEffect::Ended { request, outcome, times } => {
                    state.respond(request, Ok(ExecutionRecord { outcome, times }));
                }
                ServerEffect::Resumed => self.resumed.notify_waiters(),
            }
        }
        if state.machine.poll_timeout().is_some_and(|due| due < state.wakes_at) {
            self.due_earlier.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the lock is held")
    }
}

impl State {
    fn respond(&mut self, request: u64, response: Result<ExecutionRecord, Rejection>) {
        if let Some(client) = self.clients.remove(&request) {
            // The client may have gone away in the meantime.
            let _gone = client.response.send(response);
        }
    }
}

struct CancelOnDrop<'a> {
    server: &'a Server,
    request: u64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.server.cancel(self.request);
    }
}
