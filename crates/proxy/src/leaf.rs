//! The leaf side: the driver of the machine that queues in front of one server.
//!
//! **Limits**: the queue's own; [`PEERS_MAX`] other leaves to tell of started twins.

use crate::attempt::AttemptRequest;
use crate::clock::Clock;
use crate::config::{ConnectConfig, LeafListener, NamedUpstream, ReplicaUrl};
use crate::connect::Connector;
use crate::driver::Upstream;
use crate::journal::Journal;
use crate::metrics::{LeafMetrics, ReplicaMetrics};
use crate::pool::Pool;
use crate::spans::prepared::PreparedRoute;
use crate::worker::Worker;
use crate::{StartError, headers};
use curtail_policy::journal::Entry;
use curtail_policy::{
    BalanceConfig, Class, Leaf as Machine, LeafEffect, LeafEvent, LeafRequestId, Load, TieId,
    UpstreamConfig,
};
use curtail_units::Rng;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Where a leaf is told that a twin has started; the tie's name follows, 16 hex digits.
pub(crate) const TWIN_STARTED_PATH: &str = "/.curtail/twin-started/";

/// Other leaves that a worker keeps connections to.
const PEERS_MAX: usize = 1_024;

/// A leaf.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) config: LeafListener,
    /// The one server behind it.
    pub(crate) server: Arc<Upstream>,
    /// What spans say of the way to it.
    pub(crate) prepared: Arc<PreparedRoute>,
    pub(crate) metrics: LeafMetrics,
    gate: Mutex<Gate>,
    clock: Clock,
    peers: Mutex<HashMap<(usize, String), Arc<Pool>>>,
}

#[derive(Debug)]
struct Gate {
    machine: Machine,
    requests: u64,
    waiting: HashMap<LeafRequestId, oneshot::Sender<Verdict>>,
    /// Where the twins of queued requests are.
    twins: HashMap<LeafRequestId, String>,
    journal: Option<(Arc<Journal>, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Start,
    TwinStarted,
    Refused,
}

/// What became of a request at the gate.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The server may have it; it is in service until the place is dropped.
    Started(Place),
    /// Its twin has started elsewhere.
    TwinStarted,
    /// There is no room.
    Refused,
}

/// A message for another leaf.
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
        rng: &Rng,
        clock: Clock,
        journal: Option<&Arc<Journal>>,
    ) -> Result<Self, StartError> {
        let server = NamedUpstream {
            name: config.name.clone(),
            replicas: vec![config.server.clone()],
            connect: config.connect.clone(),
            // What goes wrong here is the root's to mend: it knows the other replicas.
            policy: UpstreamConfig::plain(BalanceConfig::RoundRobin),
        };
        let server = Upstream::new(Arc::new(server), workers, rng, clock, journal)?;
        let journal = journal.map(|journal| (Arc::clone(journal), journal.machine()));
        if let Some((journal, machine)) = &journal {
            journal.write(&Entry::<()>::Leaf {
                machine: *machine,
                name: config.name.clone(),
                config: config.queue,
            });
        }
        Ok(Self {
            gate: Mutex::new(Gate {
                machine: Machine::new(config.queue),
                requests: 0,
                waiting: HashMap::new(),
                twins: HashMap::new(),
                journal,
            }),
            prepared: Arc::new(PreparedRoute::new("/", Arc::clone(&server.prepared))),
            server: Arc::new(server),
            metrics: LeafMetrics::default(),
            peers: Mutex::default(),
            clock,
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
        let tie = tie.and_then(headers::read_tie);
        let (sender, receiver) = oneshot::channel();
        let request = {
            let mut gate = self.lock();
            gate.requests += 1;
            let request = LeafRequestId(gate.requests);
            gate.waiting.insert(request, sender);
            if let Some((_, twin)) = tie {
                gate.twins.insert(request, twin.to_owned());
            }
            let tie = tie.map(|(id, _)| id);
            let messages = self.handle(&mut gate, LeafEvent::Arrived { request, class, tie });
            drop(gate);
            self.send(worker, messages);
            request
        };
        // From here on, going away must be told.
        let place =
            Place { leaf: Arc::clone(self), worker: Arc::clone(worker), request, ends: true };
        match receiver.await {
            Ok(Verdict::Start) => Admission::Started(place),
            Ok(Verdict::TwinStarted) => {
                place.forget();
                Admission::TwinStarted
            }
            Ok(Verdict::Refused) | Err(_) => {
                place.forget();
                Admission::Refused
            }
        }
    }

    /// Another leaf says that a twin has started there.
    pub(crate) fn twin_started(&self, worker: &Arc<Worker>, tie: TieId) {
        let mut gate = self.lock();
        let messages = self.handle(&mut gate, LeafEvent::TwinStarted { tie });
        drop(gate);
        self.send(worker, messages);
    }

    /// What a probe is answered with.
    pub(crate) fn load(&self) -> Load {
        let now = self.clock.now();
        self.lock().machine.load(now)
    }

    /// What the state page and the metrics ask the machine.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.lock().machine)
    }

    /// Wakes the machine if it wants to be.
    pub(crate) fn tick(&self, worker: &Arc<Worker>) {
        let mut gate = self.lock();
        if gate.machine.poll_timeout().is_some_and(|at| at <= self.clock.now()) {
            let messages = self.handle(&mut gate, LeafEvent::Woke);
            drop(gate);
            self.send(worker, messages);
        }
    }

    /// Hands an event to the machine and carries out what follows, but for the messages to other leaves.
    fn handle(&self, gate: &mut Gate, event: LeafEvent) -> Vec<TwinMessage> {
        let now = self.clock.now();
        gate.machine.handle(now, event);
        let effects: Vec<_> = std::iter::from_fn(|| gate.machine.poll_effect()).collect();
        if let Some((journal, machine)) = &gate.journal {
            journal.write(&Entry::LeafEvent { machine: *machine, now, event, effects: &effects });
        }
        let mut messages = Vec::new();
        for decided in effects {
            self.metrics.decided(&decided);
            let (request, verdict) = match decided.effect {
                LeafEffect::Start { request } => (request, Verdict::Start),
                LeafEffect::Drop { request } => (request, Verdict::TwinStarted),
                LeafEffect::Refuse { request } => (request, Verdict::Refused),
                LeafEffect::TellTwin { request, tie } => {
                    if let Some(authority) = gate.twins.remove(&request) {
                        messages.push(TwinMessage { tie, authority });
                    }
                    continue;
                }
            };
            if verdict != Verdict::Start {
                gate.twins.remove(&request);
            }
            if let Some(sender) = gate.waiting.remove(&request) {
                // A request that has gone away meanwhile says so itself.
                sender.send(verdict).ok();
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
                let path = path.parse().expect("hex digits are a path");
                let request = AttemptRequest::get(path, &message.authority);
                // A message that is lost costs at most one execution that was not needed.
                match pool.exchange(request, &clock, false).await {
                    Ok(exchanged) => drop(exchanged),
                    Err(error) => tracing::debug!(%error, "twin's leaf was not told"),
                }
            });
        }
    }

    /// The connections to another leaf; none when there are too many, or the address is not one.
    fn peer(&self, worker: usize, authority: &str) -> Option<Arc<Pool>> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (worker, authority.to_owned());
        if let Some(pool) = peers.get(&key) {
            return Some(Arc::clone(pool));
        }
        let url = ReplicaUrl::parse(&format!("http://{authority}"))?;
        if peers.len() >= PEERS_MAX {
            tracing::warn!(peers = peers.len(), "too many other leaves: a twin is not told");
            return None;
        }
        let connect = ConnectConfig::default();
        let connector = Connector::new(&url, &connect).ok()?;
        let pool = Arc::new(Pool::new(connector, connect, Arc::new(ReplicaMetrics::default())));
        peers.insert(key, Arc::clone(&pool));
        Some(pool)
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place at a leaf: queued, then in service. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    leaf: Arc<Leaf>,
    worker: Arc<Worker>,
    request: LeafRequestId,
    ends: bool,
}

impl Place {
    /// The machine knows already that there is no such request any more.
    fn forget(mut self) {
        self.ends = false;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.ends {
            return;
        }
        let mut gate = self.leaf.lock();
        let was_waiting = gate.waiting.remove(&self.request).is_some();
        gate.twins.remove(&self.request);
        let request = self.request;
        let event =
            if was_waiting { LeafEvent::Gone { request } } else { LeafEvent::Finished { request } };
        let messages = self.leaf.handle(&mut gate, event);
        drop(gate);
        self.leaf.send(&self.worker, messages);
    }
}
