//! The driver of the root's machines: the one place where policies meet the clock and the journal.
//!
//! An [`Upstream`] keeps its machine under a lock that is held for one event at a time, some hundred
//! nanoseconds; the clock is read under it, so that no machine sees time go back. The [`Driver`] of a
//! request hands its events to the machine and gets the effects; what they do is [`crate::root`]'s business.
//! An event of an upstream in a [`Group`] holds the lock of the group as well.
//!
//! A fresh machine replaces one that panics ([`crate::guard`]). It has no latencies, no loads and a full budget, its
//! group too. The requests of the old machine pass straight through, because the loads of the fresh one do not count
//! their attempts.

use crate::StartError;
use crate::config::{NamedUpstream, ReplicaUrl, load_trust};
use crate::group::Group;
use crate::guard::{Guard, Step};
use crate::journal::Journal;
use crate::metrics::UpstreamMetrics;
use crate::site::Lasting;
use crate::spans::prepared::PreparedUpstream;
use curtail_http::clock::Clock;
use curtail_http::connect::Connector;
use curtail_http::connection_counts::ConnectionCounters;
use curtail_http::pool::Pool;
use curtail_http::tls::Trust;
use curtail_policy::journal::Entry;
use curtail_policy::{
    Call, Decided, Effect, Event, Group as GroupMachine, Reason, ReplicaId, Request,
    Upstream as Machine, UpstreamEvent,
};
use curtail_units::{Instant, Rng};
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
    guard: Guard,
    pub(crate) group: Option<Arc<Group>>,
    root: Mutex<Root>,
}

/// A replica as the proxy reaches it.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) url: ReplicaUrl,
    pub(crate) authority: String,
    pub(crate) metrics: Arc<ConnectionCounters>,
    connector: Connector,
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
    /// The number of earlier machines, which panicked.
    generation: u64,
    calls: u64,
    rng: Rng,
    journal: Option<(Arc<Journal>, u32)>,
    /// The group's number in the journal.
    group: Option<u32>,
}

impl Upstream {
    /// # Errors
    /// When the TLS configuration of a replica cannot be used.
    pub(crate) fn new(
        config: Arc<NamedUpstream>,
        workers: usize,
        rng: Rng,
        lasting: &Lasting,
        group: Option<Arc<Group>>,
    ) -> Result<Self, StartError> {
        let trust = load_trust(&config.connect, &config.replicas)?;
        let replicas: Box<[Replica]> = config
            .replicas
            .iter()
            .map(|url| {
                let connector = Connector::new(url, &config.connect, &trust)?;
                let metrics = Arc::new(ConnectionCounters::default());
                let pool = |_| {
                    let (connector, metrics) = (connector.clone(), Arc::clone(&metrics));
                    Arc::new(Pool::new(connector, config.connect.clone(), metrics))
                };
                Ok(Replica {
                    url: url.clone(),
                    authority: url.authority(),
                    pools: (0..workers).map(pool).collect(),
                    metrics,
                    connector,
                })
            })
            .collect::<Result<_, StartError>>()?;
        let journal = lasting.journal.as_ref();
        let journal = journal.map(|journal| (Arc::clone(journal), journal.machine()));
        let machine = Machine::new(config.policy, replicas.len(), &rng);
        let number = group.as_ref().and_then(|group| group.number());
        let root = Root { machine, generation: 0, calls: 0, rng, journal, group: number };
        root.write_begin(&config);
        Ok(Self {
            replicas,
            metrics: UpstreamMetrics::default(),
            prepared: Arc::new(PreparedUpstream::new(&config)),
            clock: lasting.clock,
            guard: Guard::new(&config.name, &lasting.process),
            group,
            root: Mutex::new(root),
            config,
        })
    }

    pub(crate) fn replica(&self, id: ReplicaId) -> &Replica {
        &self.replicas[id.index()]
    }

    /// Reads the trusted certificates of the replicas again.
    ///
    /// # Errors
    /// When they cannot be read; the old ones stay in use.
    pub(crate) fn load_trust(&self) -> Result<Trust, StartError> {
        Ok(load_trust(&self.config.connect, &self.config.replicas)?)
    }

    /// Replaces the trusted certificates, from the next connection attempt on.
    pub(crate) fn replace_trust(&self, trust: &Trust) {
        for replica in &self.replicas {
            if let Err(error) = replica.connector.replace_trust(trust) {
                tracing::error!("{error}");
            }
        }
    }

    /// Something happened that is not the business of one request.
    pub(crate) fn handle(&self, event: UpstreamEvent, effects: &mut Effects) {
        let mut root = self.lock();
        let mut group = self.lock_group();
        let now = self.clock.now();
        let handled = root.machine.in_group(group.as_deref_mut(), |machine| {
            self.guard.run(now, Step::Upstream, || machine.handle(now, event))
        });
        let decided = root.drain(effects);
        if handled.is_none() {
            effects.truncate(decided);
        }
        if let Some((journal, machine)) = &root.journal {
            let effects = &effects[decided..];
            journal.write(&Entry::UpstreamEvent { machine: *machine, now, event, effects });
        }
        if handled.is_none() {
            self.begin_anew(&mut root, group);
        }
    }

    /// When the machine wants to be woken.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let mut root = self.lock();
        let now = self.clock.now();
        let ask =
            |machine: &Machine| self.guard.run(now, Step::Question, || machine.poll_timeout());
        ask(&root.machine).or_else(|| {
            root.begin_anew(&self.config);
            ask(&root.machine)
        })?
    }

    /// Reads a copy of the machine, for the state page and the metrics. A read may update estimates, and the decisions
    /// of the machine must follow from its journal alone.
    ///
    /// A panic replaces the machine, but not its group: a fresh group would not be in the journals of the other
    /// members. If the fresh machine panics too, the result is the default.
    pub(crate) fn look<T: Default>(&self, look: impl Fn(&mut Machine, Instant) -> T) -> T {
        let ask = |root: MutexGuard<'_, Root>| {
            let (mut machine, generation) = (root.machine.clone(), root.generation);
            let mut group = self.lock_group().map(|group| group.clone());
            let now = self.clock.now();
            drop(root);
            let asked = machine.in_group(group.as_mut(), |machine| {
                self.guard.run(now, Step::Question, || look(machine, now))
            });
            asked.ok_or(generation)
        };
        ask(self.lock()).unwrap_or_else(|generation| {
            let mut root = self.lock();
            if root.generation == generation {
                root.begin_anew(&self.config);
            }
            ask(root).unwrap_or_default()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Root> {
        // A machine never blocks, and its panics are caught before the lock is released.
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a machine that panicked, and that of its group: either may be the broken one.
    fn begin_anew(&self, root: &mut Root, group: Option<MutexGuard<'_, GroupMachine>>) {
        root.begin_anew(&self.config);
        if let Some(mut group) = group {
            *group = GroupMachine::new((&self.config.policy).into());
        }
    }

    /// The caller holds the upstream's own lock, and reads the clock afterwards.
    fn lock_group(&self) -> Option<MutexGuard<'_, GroupMachine>> {
        self.group.as_ref().map(|group| group.lock())
    }
}

impl Root {
    /// Moves the machine's effects to `effects`; returns where they begin.
    fn drain(&mut self, effects: &mut Effects) -> usize {
        let begin = effects.len();
        effects.extend(std::iter::from_fn(|| self.machine.poll_effect()));
        begin
    }

    /// Replaces a machine that panicked. The journal lists the fresh one as another machine: a replay of the old
    /// one ends with the event at which it panicked.
    fn begin_anew(&mut self, config: &NamedUpstream) {
        self.generation += 1;
        self.rng = self.rng.split("anew");
        self.machine = Machine::new(config.policy, config.replicas.len(), &self.rng);
        if let Some((journal, machine)) = &mut self.journal {
            *machine = journal.machine();
        }
        self.write_begin(config);
    }

    fn write_begin(&self, config: &NamedUpstream) {
        let Some((journal, machine)) = &self.journal else { return };
        journal.write(&Entry::<()>::Upstream {
            machine: *machine,
            name: config.name.clone(),
            config: config.policy,
            replicas: u16::try_from(config.replicas.len()).expect("at most REPLICAS_MAX"),
            group: self.group,
            rng: self.rng.clone(),
        });
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
    /// The generation of the machine that knows the call.
    generation: u64,
    is_broken: bool,
}

impl Driver {
    /// The request has arrived; `effects` gets what follows.
    pub(crate) fn arrive(
        upstream: Arc<Upstream>,
        request: Request,
        effects: &mut Effects,
    ) -> (Self, Instant) {
        let (number, generation) = {
            let mut root = upstream.lock();
            root.calls += 1;
            let number = root.calls;
            if let Some((journal, machine)) = &root.journal {
                journal.write(&Entry::<()>::Request { machine: *machine, call: number, request });
            }
            (number, root.generation)
        };
        let call = Call::new(request);
        let mut driver = Self { upstream, call, number, generation, is_broken: false };
        let now = driver.handle(Event::Arrived, effects);
        (driver, now)
    }

    /// Something happened to the request; `effects` gets what follows, and the time of it is returned.
    pub(crate) fn handle(&mut self, event: Event, effects: &mut Effects) -> Instant {
        let mut root = self.upstream.lock();
        let mut group = self.upstream.lock_group();
        let now = self.upstream.clock.now();
        self.is_broken |= self.generation != root.generation;
        if self.is_broken {
            return now;
        }
        self.upstream.metrics.handled(&event);
        let (call, guard) = (&mut self.call, &self.upstream.guard);
        let handled = root.machine.in_group(group.as_deref_mut(), |machine| {
            guard.run(now, Step::Request, || call.handle(machine, now, event))
        });
        let decided = root.drain(effects);
        if handled.is_none() {
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
        if self.is_broken {
            self.upstream.begin_anew(&mut root, group);
        }
        now
    }

    /// When the machine wants to be woken.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.call.poll_timeout()
    }

    /// Whether the request's machine has panicked. The request then passes straight through, without further
    /// decisions.
    pub(crate) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The replica of a request without a policy: round robin.
    pub(crate) fn any_replica(&self) -> Option<ReplicaId> {
        let turn = self.number.checked_rem(self.upstream.replicas.len() as u64)?;
        u16::try_from(turn).ok().map(ReplicaId)
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
