//! The leaf side: the driver of the machine that queues in front of one server.
//!
//! A fresh machine replaces one that panics or makes an impossible decision ([`crate::guard`]). If this happens at a
//! request's arrival, the request goes to the server without queueing. All other requests arrive again at the fresh
//! machine, those in service first, so that the count in service is right and no queued request is lost.
//! **Limits**: those of the queue; connections to [`PEERS_MAX`] other leaves.

use crate::config::{ConnectConfig, LeafListener, NamedUpstream, ReplicaConfig};
use crate::driver::{SharedParts, Upstream};
use crate::guard::{Guard, Step};
use crate::journal::Journal;
use crate::metrics::LeafMetrics;
use crate::snapshot::ProcessState;
use crate::spans::prepared::PreparedRoute;
use crate::worker::Worker;
use crate::{StartError, leaf_headers};
use curtail_http::clock::Clock;
use curtail_http::connect::Connector;
use curtail_http::connection_counts::ConnectionCounters;
use curtail_http::origin::ServerOrigin;
use curtail_http::outbound_request::OutboundRequest;
use curtail_http::pool::Pool;
use curtail_policy::journal::Entry;
use curtail_policy::{
    BalanceConfig, Class, Decided, Leaf as Machine, LeafEffect, LeafEvent, LeafReason,
    LeafRequestId, Load, TieId, UpstreamConfig,
};
use curtail_units::{Instant, Rng};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The path of a message that a twin has started; the tie's ID follows, 16 hex digits.
pub(crate) const TWIN_STARTED_PATH: &str = "/.curtail/twin-started/";

/// Maximum number of other leaves that a worker keeps connections to.
const PEERS_MAX: usize = 1_024;

/// The peer remembers a message for this long; a later one has no effect.
const TWIN_STARTED_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) config: LeafListener,
    pub(crate) server: Arc<Upstream>,
    pub(crate) prepared: Arc<PreparedRoute>,
    pub(crate) metrics: LeafMetrics,
    guard: Guard,
    gate: Mutex<Gate>,
    clock: Clock,
    peers: Mutex<HashMap<(usize, String), Arc<Pool>>>,
}

#[derive(Debug)]
struct Gate {
    machine: Machine,
    requests: u64,
    /// The requests that the machine knows.
    present: HashMap<LeafRequestId, PresentRequest>,
    journal: Option<(Arc<Journal>, u32)>,
}

/// A request that is queued or in service.
#[derive(Debug)]
struct PresentRequest {
    class: Class,
    tie: Option<TieId>,
    /// The address of its twin's leaf, until the twin is cancelled.
    twin: Option<String>,
    /// Receives the machine's verdict; [`None`] once the request is in service.
    waiting: Option<oneshot::Sender<Verdict>>,
}

type Effects = Vec<Decided<LeafEffect, LeafReason>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Start,
    TwinStarted,
    Refused,
}

/// The result of admission.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The server may have the request, which is in service until the permit is dropped.
    Started(LeafPermit),
    TwinStarted,
    /// There is no room.
    Refused,
}

#[derive(Debug)]
struct TwinMessage {
    tie: TieId,
    authority: String,
}

impl Leaf {
    /// # Errors
    /// When the TLS configuration towards the server cannot be used.
    pub(crate) fn new(
        config: LeafListener,
        workers: usize,
        rng: Rng,
        process_state: &ProcessState,
    ) -> Result<Self, StartError> {
        let server = server_upstream(&config);
        let server = Upstream::new(&server, workers, rng, process_state, SharedParts::default())?;
        let journal = process_state.journal.as_ref();
        let journal = journal.map(|journal| (Arc::clone(journal), journal.machine()));
        let machine = Machine::new(config.queue);
        let gate = Gate { machine, requests: 0, present: HashMap::new(), journal };
        gate.write_begin(&config);
        Ok(Self {
            guard: Guard::new(&config.name, &process_state.process),
            gate: Mutex::new(gate),
            prepared: Arc::new(PreparedRoute::new("/", Some(&server.name))),
            server: Arc::new(server),
            metrics: LeafMetrics::default(),
            peers: Mutex::default(),
            clock: process_state.clock,
            config,
        })
    }

    /// Waits until the request may start, or is dropped, or refused.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        worker: &Arc<Worker>,
        class: Class,
        tie: Option<&str>,
    ) -> Admission {
        let tie = tie.and_then(leaf_headers::read_tie);
        let (sender, receiver) = oneshot::channel();
        let request = {
            let mut gate = self.lock();
            gate.requests += 1;
            let request = LeafRequestId(gate.requests);
            let (tie, twin) = (tie.map(|(id, _)| id), tie.map(|(_, twin)| twin.to_owned()));
            gate.present
                .insert(request, PresentRequest { class, tie, twin, waiting: Some(sender) });
            let messages = self.handle(&mut gate, LeafEvent::Arrived { request, class, tie });
            drop(gate);
            self.send(worker, messages);
            request
        };
        // From here on, the leaf must know when the client disconnects.
        let ending = Some(LeafEvent::Gone { request });
        let permit =
            LeafPermit { leaf: Arc::clone(self), worker: Arc::clone(worker), request, ending };
        match receiver.await {
            Ok(Verdict::Start) => Admission::Started(permit),
            Ok(Verdict::TwinStarted) => {
                permit.forget();
                Admission::TwinStarted
            }
            Ok(Verdict::Refused) => {
                permit.forget();
                Admission::Refused
            }
            // The machine has lost the request: it passes straight through.
            Err(_) => Admission::Started(permit),
        }
    }

    pub(crate) fn twin_started(&self, worker: &Arc<Worker>, tie: TieId) {
        let mut gate = self.lock();
        let messages = self.handle(&mut gate, LeafEvent::TwinStarted { tie });
        drop(gate);
        self.send(worker, messages);
    }

    /// The load that a probe reports.
    pub(crate) fn load(&self) -> Load {
        let now = self.clock.now();
        self.look(|machine| machine.load(now))
    }

    /// Reads from the machine, for the state page and the metrics; the default if a fresh machine panics as well.
    pub(crate) fn look<T: Default>(&self, look: impl Fn(&Machine) -> T) -> T {
        let (mut gate, now) = (self.lock(), self.clock.now());
        let ask = |machine: &Machine| self.guard.run(now, Step::Read, || look(machine));
        let asked = ask(&gate.machine).or_else(|| {
            // Dropped messages leave twins uncancelled, each of which costs one redundant execution.
            drop(self.restart(&mut gate));
            ask(&gate.machine)
        });
        asked.unwrap_or_default()
    }

    /// Hands an event to the machine and carries out the effects. Returns the messages for other leaves.
    fn handle(&self, gate: &mut Gate, event: LeafEvent) -> Vec<TwinMessage> {
        let mut messages = Vec::new();
        if !self.step(gate, event, &mut messages) {
            if let LeafEvent::Arrived { request, .. } = event {
                gate.pass_straight(request);
            }
            messages.extend(self.restart(gate));
        }
        messages
    }

    /// Runs the machine on an event and carries out its effects; false when the machine must be replaced.
    fn step(&self, gate: &mut Gate, event: LeafEvent, messages: &mut Vec<TwinMessage>) -> bool {
        let Some(effects) = self.decide(gate, event) else { return false };
        let is_possible = self.carry_out(gate, effects, messages);
        if !is_possible {
            let message = "an effect names an unknown request";
            self.guard.report(self.clock.now(), Step::Leaf(event), message);
        }
        is_possible
    }

    /// Runs the machine on an event; [`None`] when it panics.
    fn decide(&self, gate: &mut Gate, event: LeafEvent) -> Option<Effects> {
        let (now, machine) = (self.clock.now(), &mut gate.machine);
        let effects = self.guard.run(now, Step::Leaf(event), || {
            machine.handle(now, event);
            std::iter::from_fn(|| machine.poll_effect()).collect::<Effects>()
        });
        if let Some((journal, machine)) = &gate.journal {
            let (machine, effects) = (*machine, effects.as_deref().unwrap_or_default());
            journal.write(&Entry::LeafEvent { machine, now, event, effects });
        }
        effects
    }

    /// False when an effect names a request that is not there.
    fn carry_out(
        &self,
        gate: &mut Gate,
        effects: Effects,
        messages: &mut Vec<TwinMessage>,
    ) -> bool {
        #[cfg(test)]
        if crate::guard::planted::is_impossible(&self.config.name) {
            return false;
        }
        for decided in effects {
            let (request, verdict) = match decided.effect {
                LeafEffect::Start { request } => (request, Verdict::Start),
                LeafEffect::Drop { request } => (request, Verdict::TwinStarted),
                LeafEffect::Refuse { request } => (request, Verdict::Refused),
                LeafEffect::TellTwin { request, tie } => {
                    let Some(present) = gate.present.get_mut(&request) else { return false };
                    if let Some(authority) = present.twin.take() {
                        self.metrics.decided(&decided);
                        messages.push(TwinMessage { tie, authority });
                    }
                    continue;
                }
            };
            let Some(present) = gate.present.get_mut(&request) else { return false };
            // A request in service when its machine panicked is only counted again, not sent again.
            if let Some(sender) = present.waiting.take() {
                self.metrics.decided(&decided);
                // The receiver is gone if the client has disconnected; the dropped permit reports this.
                sender.send(verdict).ok();
            }
            if verdict != Verdict::Start {
                gate.present.remove(&request);
            }
        }
        true
    }

    /// Replaces a machine that panicked and lets all requests arrive at the fresh one. If that panics as well, the
    /// queued requests pass straight through.
    fn restart(&self, gate: &mut Gate) -> Vec<TwinMessage> {
        gate.replace_machine(&self.config);
        let mut present: Vec<_> =
            gate.present.iter().map(|(id, p)| (p.arrival(*id), *id)).collect();
        present.sort_unstable_by_key(|&(_, request)| {
            (gate.present[&request].waiting.is_some(), request)
        });
        let mut messages = Vec::new();
        for (arrived, _) in present {
            if !self.step(gate, arrived, &mut messages) {
                gate.replace_machine(&self.config);
                let all: Vec<_> = gate.present.keys().copied().collect();
                all.into_iter().for_each(|request| gate.pass_straight(request));
                break;
            }
        }
        messages
    }

    fn send(&self, worker: &Arc<Worker>, messages: Vec<TwinMessage>) {
        for message in messages {
            let Some(pool) = self.peer(worker.index, &message.authority) else { continue };
            let clock = self.clock;
            tokio::spawn(async move {
                let path = format!("{TWIN_STARTED_PATH}{:016x}", message.tie.0);
                let request = OutboundRequest::get(&path, &message.authority);
                // A message that is lost costs at most one execution that was not needed.
                let exchange = pool.exchange(request, &clock, false);
                match tokio::time::timeout(TWIN_STARTED_TIMEOUT, exchange).await {
                    Ok(Ok(exchanged)) => drop(exchanged),
                    Ok(Err(error)) => tracing::debug!(%error, "cannot cancel the twin at its leaf"),
                    Err(_) => tracing::debug!("the leaf of the twin does not respond"),
                }
            });
        }
    }

    /// The connections to another leaf; [`None`] if there are too many leaves, or the address is invalid.
    fn peer(&self, worker: usize, authority: &str) -> Option<Arc<Pool>> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (worker, authority.to_owned());
        if let Some(pool) = peers.get(&key) {
            return Some(Arc::clone(pool));
        }
        // A root may name any other leaf, but no socket of this machine.
        let url = ServerOrigin::parse(&format!("http://{authority}"))?;
        if peers.keys().filter(|(owner, _)| *owner == worker).count() >= PEERS_MAX {
            tracing::debug!(authority, "too many other leaves: a twin is not cancelled");
            return None;
        }
        let connect = ConnectConfig::default();
        let connector = Connector::load(&url, &connect).ok()?;
        let pool = Arc::new(Pool::new(connector, connect, Arc::new(ConnectionCounters::default())));
        peers.insert(key, Arc::clone(&pool));
        Some(pool)
    }

    /// Closes one worker's idle connections to other leaves, and removes leaves without connections.
    pub(crate) fn sweep(&self, worker: usize, now: Instant) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|(owner, _), pool| {
            if *owner != worker {
                return true;
            }
            pool.sweep(now);
            // A message in flight holds its pool.
            Arc::strong_count(pool) > 1 || !pool.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// Lets a request go to the server without the machine.
    fn pass_straight(&mut self, request: LeafRequestId) {
        if let Some(sender) = self.present.remove(&request).and_then(|present| present.waiting) {
            // As in `carry_out`, the receiver may be gone.
            sender.send(Verdict::Start).ok();
        }
    }

    fn replace_machine(&mut self, config: &LeafListener) {
        self.machine = Machine::new(config.queue);
        if let Some((journal, machine)) = &mut self.journal {
            *machine = journal.machine();
        }
        self.write_begin(config);
    }

    fn write_begin(&self, config: &LeafListener) {
        let Some((journal, machine)) = &self.journal else { return };
        let (machine, name, config) = (*machine, config.name.clone(), config.queue);
        journal.write(&Entry::<()>::Leaf { machine, name, config });
    }
}

impl PresentRequest {
    const fn arrival(&self, request: LeafRequestId) -> LeafEvent {
        LeafEvent::Arrived { request, class: self.class, tie: self.tie }
    }
}

pub(crate) fn server_upstream(config: &LeafListener) -> NamedUpstream {
    NamedUpstream {
        name: config.name.clone(),
        replicas: vec![ReplicaConfig::unnamed(config.server.clone())],
        discovery: None,
        group: None,
        zone: None,
        holdout: None,
        switchback: None,
        in_flight_max: None,
        connect: config.connect.clone(),
        health_check: None,
        // The root handles errors here: it knows the other replicas.
        policy: UpstreamConfig::plain(BalanceConfig::RoundRobin),
    }
}

/// The permit of a request at a leaf: queued, then in service. Dropping the permit cancels the request, so that neither the
/// age at which it was cut short nor the short time of a refused connection counts as a latency.
#[derive(Debug)]
pub(crate) struct LeafPermit {
    leaf: Arc<Leaf>,
    worker: Arc<Worker>,
    request: LeafRequestId,
    /// The event at its end; absent if the machine has forgotten the request already.
    ending: Option<LeafEvent>,
}

impl LeafPermit {
    /// Drops the permit of a request that the machine has dropped or refused.
    fn forget(mut self) {
        self.ending = None;
    }

    /// Ends the service: the server has finished the request, or failed it.
    pub(crate) fn finish(permit: Option<Self>) {
        if let Some(mut permit) = permit {
            permit.ending = Some(LeafEvent::Finished { request: permit.request });
        }
    }
}

impl Drop for LeafPermit {
    fn drop(&mut self) {
        let Some(event) = self.ending else { return };
        let mut gate = self.leaf.lock();
        // The machine does not know a request that passed straight through.
        if gate.present.remove(&self.request).is_none() {
            return;
        }
        let messages = self.leaf.handle(&mut gate, event);
        drop(gate);
        self.leaf.send(&self.worker, messages);
    }
}
