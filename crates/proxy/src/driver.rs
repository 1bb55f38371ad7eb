//! The driver of the root's machines: the one place where policies meet the clock and the journal.
//!
//! An [`Upstream`] keeps its machine under a lock, held for one event (some hundred nanoseconds) or one read of the
//! admin port (some 10 microseconds). The clock is read under the lock, so no machine sees time go back. A [`Driver`]
//! hands the events of one request to the machine and returns the effects, which [`crate::root`] carries out. An event
//! of an upstream in a [`Group`] holds the lock of the group as well.
//!
//! A fresh machine replaces one that panics or makes an impossible decision ([`crate::guard`]). It has no latencies, no
//! loads and a full budget; after a panic its group is a fresh one too. The requests of the old machine continue
//! without a policy, because the loads of the fresh one do not count their attempts.

mod broken_log;
mod circuit;
mod health;
mod in_flight_limit;
pub(crate) mod membership;

use crate::StartError;
use crate::config::{NamedUpstream, ReplicaConfig, ZoneSide};
use crate::discovery::Discovery;
use crate::group::Group;
use crate::guard::{Guard, Step};
use crate::health::CheckPermits;
use crate::holdout::{Holdout, measured};
use crate::journal::Journal;
use crate::metrics::{ResponseClass, UpstreamMetrics};
use crate::remedy::AutoRemedy;
use crate::replica::{Replica, Replicas};
use crate::snapshot::ProcessState;
use crate::switchback::Switchback;
use crate::trail::Trail;
use arc_swap::ArcSwap;
use broken_log::BrokenResponseLog;
use curtail_http::clock::Clock;
use curtail_http::pool::Pool;
use curtail_policy::journal::Entry;
use curtail_policy::{
    BalanceConfig, Call, Decided, Effect, Event, Group as GroupMachine, Reason, RemedyMode,
    RemedyState, ReplicaId, Request, Upstream as Machine, UpstreamConfig, UpstreamEvent,
};
use curtail_units::{Duration, Instant, Ratio, Rng};
use in_flight_limit::InFlightLimit;
pub(crate) use in_flight_limit::{InFlightSnapshot, UpstreamFull};
use membership::{Membership, Sources};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Effects with their reasons, in the order in which they were decided.
pub(crate) type Effects = Vec<Decided<Effect, Reason>>;

#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) policy: UpstreamConfig,
    workers: usize,
    /// Changes only under the lock of `root`.
    pub(crate) replicas: ArcSwap<Replicas>,
    sources: ArcSwap<Sources>,
    /// The pools, with their workers, of replicas that have left or moved and still have attempts in flight.
    retired: Mutex<Vec<(usize, Weak<Pool>)>>,
    pub(crate) metrics: UpstreamMetrics,
    pub(crate) clock: Clock,
    guard: Guard,
    configured_holdout: Option<Ratio>,
    /// The measurement of the effect of hedges and ties; absent: there is no holdout.
    pub(crate) holdout: Option<Holdout>,
    pub(crate) switchback: Option<Switchback>,
    /// The estimate of the effect that hedges would have; absent: there is no dry run.
    pub(crate) dry_run: Option<Holdout>,
    /// Absent: the remedies are not switched by their effect.
    pub(crate) auto: Option<AutoRemedy>,
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) in_flight_limit: InFlightLimit,
    pub(crate) check_permits: CheckPermits,
    broken_log: BrokenResponseLog,
    root: Mutex<Root>,
}

/// What a new upstream shares with others, or takes over from an upstream of its name.
#[derive(Debug, Default)]
pub(crate) struct SharedParts {
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) discovery: Option<Arc<Discovery>>,
    /// The replicas of the earlier upstream that stay until discovery has had a response.
    pub(crate) carried: Vec<ReplicaConfig>,
}

#[derive(Debug)]
struct Root {
    machine: Machine,
    /// The number of earlier machines, which panicked or made an impossible decision.
    generation: u64,
    calls: u64,
    /// The number of replicas that have had an ID.
    replicas_numbered: u32,
    rng: Rng,
    journal: Option<(Arc<Journal>, u32)>,
    /// The group's number in the journal.
    group: Option<u32>,
}

impl Upstream {
    /// # Errors
    /// When the TLS configuration of a replica cannot be used.
    pub(crate) fn new(
        config: &NamedUpstream,
        workers: usize,
        rng: Rng,
        process_state: &ProcessState,
        shared: SharedParts,
    ) -> Result<Self, StartError> {
        let SharedParts { group, discovery, carried } = shared;
        // Connections of an earlier upstream do not stay: they may trust certificates that are not trusted any more.
        let none = Replicas::default();
        let membership = Membership::new(config, workers, &none, (discovery, carried))?;
        let replicas = membership.replicas.into_iter().map(|(replica, placement)| {
            replica.present_placement.store(placement.into());
            replica
        });
        let replicas: Replicas = (0..).map(ReplicaId).zip(replicas).collect();
        let journal = process_state.journal.as_ref();
        let journal = journal.map(|journal| (Arc::clone(journal), journal.machine()));
        let root = Root {
            machine: Machine::new(config.policy, replicas.len(), &rng),
            generation: 0,
            calls: 0,
            replicas_numbered: u32::try_from(replicas.len()).expect("at most REPLICAS_MAX"),
            rng,
            journal,
            group: group.as_ref().and_then(|group| group.number()),
        };
        let is_auto = config.policy.remedy == RemedyMode::Auto;
        let holdout =
            if is_auto { RemedyState::On.holdout_ratio(config.holdout) } else { config.holdout };
        let is_dry_run = is_auto || config.policy.remedy == RemedyMode::DryRun;
        let now = process_state.clock.now();
        let upstream = Self {
            name: config.name.clone(),
            policy: config.policy,
            workers,
            replicas: ArcSwap::from_pointee(replicas),
            sources: ArcSwap::new(membership.sources),
            retired: Mutex::default(),
            metrics: UpstreamMetrics::default(),
            clock: process_state.clock,
            guard: Guard::new(&config.name, &process_state.process),
            configured_holdout: config.holdout,
            holdout: holdout.map(|ratio| Holdout::new(ratio, &config.policy)),
            switchback: config
                .switchback
                .map(|share| Switchback::new(share, &config.policy, process_state.clock)),
            dry_run: is_dry_run.then(Holdout::dry_run),
            auto: is_auto.then(|| AutoRemedy::new(config.holdout, now)),
            group,
            in_flight_limit: InFlightLimit::new(config.in_flight_max),
            check_permits: CheckPermits::default(),
            broken_log: BrokenResponseLog::default(),
            root: Mutex::new(root),
        };
        let mut root = upstream.lock();
        root.write_begin(&upstream);
        root.take_members(&upstream);
        drop(root);
        Ok(upstream)
    }

    /// Whether a reload to `config` keeps this upstream, perhaps with other replicas.
    pub(crate) fn is_kept_by(&self, config: &NamedUpstream) -> bool {
        let group = self.group.as_ref().map(|group| group.name());
        self.name == config.name
            && self.policy == config.policy
            && self.configured_holdout == config.holdout
            && self.switchback.as_ref().map(|switchback| switchback.share) == config.switchback
            && group == config.group.as_deref()
    }

    /// The share of the requests in the holdout now, if there is one.
    pub(crate) fn holdout_ratio(&self) -> Option<Ratio> {
        match &self.auto {
            Some(auto) => auto.holdout_ratio(),
            None => self.configured_holdout,
        }
    }

    /// Records the end of a request, in the metrics and in the measurements of holdout and dry run.
    pub(crate) fn record_end(&self, trail: &Trail, response: ResponseClass, now: Instant) {
        let age = now.since(trail.started);
        self.metrics.ended(response, age);
        if let (Some(holdout), Some(draw)) = (&self.holdout, trail.draw) {
            holdout.record(now, draw, (response, age), trail.attempts.len());
        }
        if !trail.is_repeatable {
            return;
        }
        if let Some(switchback) = &self.switchback {
            let times = (trail.started, now);
            switchback.record(times, trail.draw, response, trail.attempts.len());
        }
        let saved = trail.dry_run_saved(now);
        let auto = self.auto.as_ref();
        let state = auto.map(|auto| auto.record(trail, measured(response, age), saved));
        let is_dry_run = state.is_none_or(|state| state == RemedyState::DryRun);
        if let Some(dry_run) = self.dry_run.as_ref().filter(|_| is_dry_run) {
            dry_run.record_dry_run(now, (response, age), (trail.attempts.len(), saved));
            let is_won = saved.is_some_and(|saved| saved > Duration::ZERO);
            self.metrics.dry_run_won.add(u64::from(is_won));
        }
    }

    /// Handles an event that does not concern one request; returns the generation of the machine that decided.
    pub(crate) fn handle(&self, event: UpstreamEvent, effects: &mut Effects) -> u64 {
        let mut root = self.lock();
        let generation = root.generation;
        self.handle_locked(&mut root, &mut self.lock_group(), event, effects);
        generation
    }

    fn handle_locked(
        &self,
        root: &mut Root,
        group: &mut Option<MutexGuard<'_, GroupMachine>>,
        event: UpstreamEvent,
        effects: &mut Effects,
    ) {
        let (now, decided) = (self.clock.now(), effects.len());
        let handled = root.machine.in_group(group.as_deref_mut(), |machine| {
            self.guard.run(now, Step::Upstream(event), || {
                machine.handle(now, event);
                drain(machine, effects);
            })
        });
        if handled.is_none() {
            effects.truncate(decided);
        }
        if let Some((journal, machine)) = &root.journal {
            let effects = &effects[decided..];
            journal.write(&Entry::UpstreamEvent { machine: *machine, now, event, effects });
        }
        if handled.is_none() {
            self.restart(root, group);
        }
    }

    /// Counts and logs an effect that cannot be carried out, and replaces the machine that decided it, once. Its group
    /// stays: the journal has no panic there, so a replay of the other members goes on.
    pub(crate) fn report_defect(&self, generation: u64, message: &str) {
        let mut root = self.lock();
        self.guard.report(self.clock.now(), Step::Effects, message);
        if root.generation == generation {
            root.restart(self);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let mut root = self.lock();
        let now = self.clock.now();
        let ask = |machine: &Machine| self.guard.run(now, Step::Read, || machine.poll_timeout());
        ask(&root.machine).or_else(|| {
            root.restart(self);
            ask(&root.machine)
        })?
    }

    /// Reads numbers of the machine, for the state page and the metrics. The read must not change later decisions,
    /// because they must follow from the journal alone.
    ///
    /// A panic replaces the machine, but not its group: a fresh group would not be in the journals of the other
    /// members. If the fresh machine panics too, the result is the default.
    pub(crate) fn look<T: Default>(&self, look: impl Fn(&mut Machine, Instant) -> T) -> T {
        let (mut root, mut group) = (self.lock(), self.lock_group());
        let now = self.clock.now();
        let mut ask = |root: &mut Root| {
            root.machine.in_group(group.as_deref_mut(), |machine| {
                self.guard.run(now, Step::Read, || look(machine, now))
            })
        };
        let value = ask(&mut root).or_else(|| {
            root.restart(self);
            ask(&mut root)
        });
        value.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Root> {
        // A machine never blocks, and its panics are caught before the lock is released.
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a machine that panicked, and that of its group: either may be the broken one.
    fn restart(&self, root: &mut Root, group: &mut Option<MutexGuard<'_, GroupMachine>>) {
        root.restart(self);
        if let Some(group) = group {
            **group = GroupMachine::new((&self.policy).into());
        }
    }

    /// The caller holds the upstream's own lock, and reads the clock afterwards.
    fn lock_group(&self) -> Option<MutexGuard<'_, GroupMachine>> {
        self.group.as_ref().map(|group| group.lock())
    }
}

fn drain(machine: &mut Machine, effects: &mut Effects) {
    effects.extend(std::iter::from_fn(|| machine.poll_effect()));
}

impl Root {
    /// Replaces a machine that panicked. The journal lists the fresh one as another machine: a replay of the old
    /// one ends with the event at which it panicked.
    fn restart(&mut self, upstream: &Upstream) {
        self.generation += 1;
        self.rng = self.rng.split("anew");
        let ids: Vec<ReplicaId> = upstream.replicas.load().ids().collect();
        let fresh = upstream.guard.run(upstream.clock.now(), Step::Restart, || {
            Machine::with_replicas(upstream.policy, &ids, &self.rng)
        });
        self.machine = fresh.unwrap_or_else(|| {
            let plain = UpstreamConfig::plain(BalanceConfig::RoundRobin);
            let policy = UpstreamConfig { timeout: upstream.policy.timeout, ..plain };
            Machine::with_replicas(policy, &ids, &self.rng)
        });
        if let Some((journal, machine)) = &mut self.journal {
            *machine = journal.machine();
        }
        self.write_begin(upstream);
        self.take_members(upstream);
    }

    /// Hands a fresh machine what is known about its replicas.
    fn take_members(&mut self, upstream: &Upstream) {
        let now = upstream.clock.now();
        let replicas = upstream.replicas.load();
        let unusable = replicas.iter().filter(|(_, replica)| !replica.health.is_usable());
        let unusable = unusable
            .map(|(replica, _)| UpstreamEvent::HealthChecked { replica, is_healthy: false });
        for event in unusable.chain(self.placement_events(&replicas)).collect::<Vec<_>>() {
            self.machine.handle(now, event);
            if let Some((journal, machine)) = &self.journal {
                let effects = &Effects::new();
                journal.write(&Entry::UpstreamEvent { machine: *machine, now, event, effects });
            }
        }
    }

    /// The weights and zones that the machine does not know yet.
    fn placement_events(&self, replicas: &Replicas) -> Vec<UpstreamEvent> {
        let mut events = Vec::new();
        for (replica, present) in replicas.iter() {
            let present = present.present_placement.load();
            let (weight, is_far) =
                (present.placement.weight, present.side == Some(ZoneSide::Other));
            if self.machine.weight(replica) != Some(weight) {
                events.push(UpstreamEvent::WeightChanged { replica, weight });
            }
            if self.machine.is_far(replica) != Some(is_far) {
                events.push(UpstreamEvent::ZoneChanged { replica, is_far });
            }
        }
        events
    }

    fn write_begin(&self, upstream: &Upstream) {
        let Some((journal, machine)) = &self.journal else { return };
        let replicas = upstream.replicas.load();
        journal.write(&Entry::<()>::Upstream {
            machine: *machine,
            name: upstream.name.clone(),
            config: *self.machine.config(),
            replicas: replicas
                .iter()
                .map(|(id, replica)| (id, replica.config.identity()))
                .collect(),
            group: self.group,
            rng: self.rng.clone(),
        });
    }

    fn next_replica_id(&mut self) -> ReplicaId {
        let id = ReplicaId(self.replicas_numbered);
        self.replicas_numbered += 1;
        id
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
    /// The replicas as they were when the last attempt was decided.
    replicas: Option<Arc<Replicas>>,
    timeout: Option<Instant>,
    is_broken: bool,
}

impl Driver {
    pub(crate) fn arrive(
        upstream: Arc<Upstream>,
        request: Request,
        eligible: Option<Arc<[ReplicaId]>>,
        effects: &mut Effects,
    ) -> (Box<Self>, Instant) {
        let (number, generation) = {
            let mut root = upstream.lock();
            root.calls += 1;
            let number = root.calls;
            if let Some((journal, machine)) = &root.journal {
                let (machine, call) = (*machine, number);
                let eligible = eligible.as_deref().map(Vec::from);
                journal.write(&Entry::<()>::Request { machine, call, request, eligible });
            }
            (number, root.generation)
        };
        let call = Call::pinned(request, eligible);
        let (replicas, timeout, is_broken) = (None, None, false);
        let mut driver =
            Box::new(Self { upstream, call, number, generation, replicas, timeout, is_broken });
        let now = driver.handle(Event::Arrived, effects);
        (driver, now)
    }

    /// Hands an event to the machine. Adds the effects to `effects`, and returns the time of the event.
    pub(crate) fn handle(&mut self, event: Event, effects: &mut Effects) -> Instant {
        let mut root = self.upstream.lock();
        let mut group = self.upstream.lock_group();
        let now = self.upstream.clock.now();
        self.is_broken |= self.generation != root.generation;
        if self.is_broken {
            return now;
        }
        self.upstream.metrics.handled(&event);
        let (call, guard, decided) = (&mut self.call, &self.upstream.guard, effects.len());
        let handled = root.machine.in_group(group.as_deref_mut(), |machine| {
            guard.run(now, Step::Call(event), || {
                call.handle(machine, now, event);
                drain(machine, effects);
                call.poll_timeout()
            })
        });
        match handled {
            Some(timeout) => self.timeout = timeout,
            None => {
                self.is_broken = true;
                effects.truncate(decided);
            }
        }
        let is_send =
            |decided: &Decided<Effect, Reason>| matches!(decided.effect, Effect::Send { .. });
        if effects[decided..].iter().any(is_send) {
            // Under the lock, so the replica that the machine chose is among them.
            self.replicas = Some(self.upstream.replicas.load_full());
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
            self.upstream.restart(&mut root, &mut group);
        }
        let changes = root.circuit_changes();
        drop((root, group));
        self.upstream.report_circuit_changes(changes);
        now
    }

    /// When the machine wants to be woken; [`None`] once it has decided the request.
    pub(crate) const fn timeout(&self) -> Option<Instant> {
        self.timeout
    }

    /// Whether the request passes straight through, without further decisions: its machine panicked or made an
    /// impossible decision.
    pub(crate) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Continues without the machine, because an effect cannot be carried out.
    #[cold]
    pub(crate) fn fail_open(&mut self, message: &str) {
        self.is_broken = true;
        self.upstream.report_defect(self.generation, message);
    }

    /// A replica, unless it left before the last attempt was decided.
    pub(crate) fn replica(&self, id: ReplicaId) -> Option<&Arc<Replica>> {
        self.replicas.as_ref()?.get(id)
    }

    /// The replica of a request without a policy: round robin.
    pub(crate) fn any_replica(&mut self) -> Option<ReplicaId> {
        let is_eligible =
            |id: &ReplicaId| self.call.eligible().is_none_or(|eligible| eligible.contains(id));
        let replicas = self.replicas.insert(self.upstream.replicas.load_full());
        let ids: Vec<ReplicaId> = replicas.ids().filter(is_eligible).collect();
        let turn = usize::try_from(self.number).unwrap_or(usize::MAX);
        (!ids.is_empty()).then(|| ids[turn % ids.len()])
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.call.is_over() && !self.is_broken {
            // The open attempts are dropped with the request itself.
            self.handle(Event::Abandoned, &mut Effects::new());
        }
    }
}
