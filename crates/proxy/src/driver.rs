//! The driver of the root's machines: the one place where policies meet the clock and the journal.
//!
//! An [`Upstream`] keeps its machine under a lock that is held for one event at a time, some hundred
//! nanoseconds; the clock is read under it, so that no machine sees time go back. The [`Driver`] of a
//! request hands its events to the machine and gets the effects; what they do is [`crate::root`]'s business.

use crate::StartError;
use crate::clock::Clock;
use crate::config::{NamedUpstream, ReplicaUrl};
use crate::connect::Connector;
use crate::journal::Journal;
use crate::metrics::{ReplicaMetrics, UpstreamMetrics};
use crate::pool::Pool;
use crate::spans::prepared::PreparedUpstream;
use curtail_policy::journal::Entry;
use curtail_policy::{
    Call, Decided, Effect, Event, Reason, ReplicaId, Request, Upstream as Machine, UpstreamEvent,
};
use curtail_units::{Instant, Rng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Effects with their reasons, in the order in which they were decided.
pub(crate) type Effects = Vec<Decided<Effect, Reason>>;

/// An upstream: its machine and its replicas.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: Arc<NamedUpstream>,
    pub(crate) replicas: Box<[Replica]>,
    pub(crate) metrics: UpstreamMetrics,
    /// What spans say of it.
    pub(crate) prepared: Arc<PreparedUpstream>,
    pub(crate) clock: Clock,
    root: Mutex<Root>,
}

/// A replica as the proxy reaches it.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) url: ReplicaUrl,
    pub(crate) authority: String,
    pub(crate) metrics: Arc<ReplicaMetrics>,
    pools: Box<[Arc<Pool>]>,
}

impl Replica {
    /// The connections of one worker.
    pub(crate) fn pool(&self, worker: usize) -> &Arc<Pool> {
        &self.pools[worker]
    }

    /// The connections of all workers.
    pub(crate) fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }
}

#[derive(Debug)]
struct Root {
    machine: Machine,
    calls: u64,
    journal: Option<(Arc<Journal>, u32)>,
}

impl Upstream {
    /// # Errors
    /// When the TLS configuration of a replica cannot be used.
    pub(crate) fn new(
        config: Arc<NamedUpstream>,
        workers: usize,
        rng: &Rng,
        clock: Clock,
        journal: Option<&Arc<Journal>>,
    ) -> Result<Self, StartError> {
        let replicas: Box<[Replica]> = config
            .replicas
            .iter()
            .map(|url| {
                let connector = Connector::new(url, &config.connect)?;
                let metrics = Arc::new(ReplicaMetrics::default());
                let pool = |_| {
                    let (connector, metrics) = (connector.clone(), Arc::clone(&metrics));
                    Arc::new(Pool::new(connector, config.connect.clone(), metrics))
                };
                Ok(Replica {
                    url: url.clone(),
                    authority: url.authority(),
                    pools: (0..workers).map(pool).collect(),
                    metrics,
                })
            })
            .collect::<Result<_, StartError>>()?;
        let journal = journal.map(|journal| (Arc::clone(journal), journal.machine()));
        if let Some((journal, machine)) = &journal {
            journal.write(&Entry::<()>::Upstream {
                machine: *machine,
                name: config.name.clone(),
                config: config.policy,
                replicas: u16::try_from(replicas.len()).expect("at most REPLICAS_MAX"),
                rng: rng.clone(),
            });
        }
        let machine = Machine::new(config.policy, replicas.len(), rng);
        Ok(Self {
            replicas,
            metrics: UpstreamMetrics::default(),
            prepared: Arc::new(PreparedUpstream::new(&config)),
            clock,
            root: Mutex::new(Root { machine, calls: 0, journal }),
            config,
        })
    }

    pub(crate) fn replica(&self, id: ReplicaId) -> &Replica {
        &self.replicas[id.index()]
    }

    /// Something happened that is not the business of one request.
    pub(crate) fn handle(&self, event: UpstreamEvent, effects: &mut Effects) {
        let mut root = self.lock();
        let now = self.clock.now();
        root.machine.handle(now, event);
        let decided = root.drain(effects);
        if let Some((journal, machine)) = &root.journal {
            let effects = &effects[decided..];
            journal.write(&Entry::UpstreamEvent { machine: *machine, now, event, effects });
        }
    }

    /// When the machine wants to be woken.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.lock().machine.poll_timeout()
    }

    /// What the state page and the metrics ask a copy of the machine: a question may bring its estimates up
    /// to date, and what it decides must follow from its journal alone, whoever looks on.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Machine, Instant) -> T) -> T {
        let root = self.lock();
        let (mut machine, now) = (root.machine.clone(), self.clock.now());
        drop(root);
        look(&mut machine, now)
    }

    fn lock(&self) -> MutexGuard<'_, Root> {
        // A machine never blocks and fails only by a bug; what it knows is then still the best there is.
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Root {
    /// Moves the machine's effects to `effects`; returns where they begin.
    fn drain(&mut self, effects: &mut Effects) -> usize {
        let begin = effects.len();
        effects.extend(std::iter::from_fn(|| self.machine.poll_effect()));
        begin
    }
}

/// The driver of one request.
///
/// When it is dropped before the request is over, the client has gone away.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) upstream: Arc<Upstream>,
    call: Call,
    number: u64,
    is_broken: bool,
}

impl Driver {
    /// The request has arrived; `effects` gets what follows.
    pub(crate) fn arrive(
        upstream: Arc<Upstream>,
        request: Request,
        effects: &mut Effects,
    ) -> (Self, Instant) {
        let number = {
            let mut root = upstream.lock();
            root.calls += 1;
            let number = root.calls;
            if let Some((journal, machine)) = &root.journal {
                journal.write(&Entry::<()>::Request { machine: *machine, call: number, request });
            }
            number
        };
        let mut driver = Self { upstream, call: Call::new(request), number, is_broken: false };
        let now = driver.handle(Event::Arrived, effects);
        (driver, now)
    }

    /// Something happened to the request; `effects` gets what follows, and the time of it is returned.
    pub(crate) fn handle(&mut self, event: Event, effects: &mut Effects) -> Instant {
        let mut root = self.upstream.lock();
        let now = self.upstream.clock.now();
        if self.is_broken {
            return now;
        }
        self.upstream.metrics.told(&event);
        let decided = effects.len();
        let handled = catch_unwind(AssertUnwindSafe(|| {
            self.call.handle(&mut root.machine, now, event);
        }));
        root.drain(effects);
        if handled.is_err() {
            // The message and the place went to standard error with the panic.
            tracing::error!(
                upstream = self.upstream.config.name,
                "a policy broke its own invariant"
            );
            self.is_broken = true;
            effects.truncate(decided);
        }
        if let Some((journal, machine)) = &root.journal {
            journal.write(&Entry::Call {
                machine: *machine,
                call: self.number,
                now,
                event,
                effects: &effects[decided..],
            });
        }
        now
    }

    /// When the machine wants to be woken.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.call.poll_timeout()
    }

    /// Whether the machine has broken its own invariant: from then on it is told nothing and decides
    /// nothing, and the request must pass straight through.
    pub(crate) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The replica of a request that no policy looks after: each in turn.
    pub(crate) fn any_replica(&self) -> Option<&Replica> {
        let replicas = &self.upstream.replicas;
        let turn = self.number.checked_rem(replicas.len() as u64)?;
        replicas.get(usize::try_from(turn).ok()?)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.call.is_over() && !self.is_broken {
            // What is to be cancelled is dropped with the request itself.
            self.handle(Event::Abandoned, &mut Effects::new());
        }
    }
}
