//! The simulated world, which drives the policy machines in simulated time, as the proxy drives them in real time.
//!
//! The world has the machines, the servers, the messages in flight and the event queue. [`root`] simulates the
//! requests at their roots, and [`request`] their calls, which send attempts to replicas. [`leaf`] simulates the leaves, which are queues in front of the servers, and
//! these servers. [`fault`] runs the faults.
//! **Inputs**: a [`Model`], the policies of one arm, a seed. Arrivals, service times of first attempts, and faults have
//! generators that no policy influences. Two arms therefore see the same ones (common random numbers).
//! **Limits**: [`LIMITS`] bounds the calls, attempts, probes and messages in flight plus the queued events, and the
//! successive events in which no request ends. A run that exceeds a limit is stopped.
//! **Invariants**: `same-seed-same-log`: the inputs determine every event, and [`World::log`] is a hash of all events
//! in order.
//! `attempts-end`: the world keeps each attempt until the last message about it could matter, and no longer.

mod fault;
mod leaf;
mod remedy;
mod request;
mod root;
mod tiers;

use crate::alarm::{Alarm, Rung};
use crate::batches::Batches;
use crate::connections::Connections;
use crate::model::Model;
use crate::network::Network;
use crate::queue::{Lane, Queue};
use crate::record::{Recorder, RequestRecord};
use crate::recorded::RecordedCursor;
use crate::scenario::Arm;
use crate::slab::{Key, Slab};
use crate::tally::{Counts, EndedRequest, Stop, Tallied, Tally};
use curtail_load::remedy::RemedyEvidence;
use curtail_model::{ArrivalProcess, Faults};
use curtail_policy::{
    GatherConfig, Group, ReplicaId, Upstream, UpstreamConfig, UpstreamEvent, Weight,
};
use curtail_units::{Duration, Instant, Rng};
use leaf::LeafPlace;
use request::{Attempt, CallPlace, Probe, TwinNews};
use root::RequestPlace;
use tiers::TierPlace;

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug)]
enum Step {
    RequestArrives,
    AttemptArrives(Key),
    CancelArrives(Key),
    ResponseArrives(Key),
    TwinNewsArrives(Key),
    ProbeArrives(Key),
    ProbeResponseArrives(Key),
    ProbeTimesOut(Key),
    CallAlarm(u32),
    UpstreamAlarm(u32),
    ServerAlarm(u32),
    /// A recorded slow period begins or ends.
    RecordedPaceChanges,
    /// A fault of a tier begins, ends or changes, or sends a request.
    FaultWakes(u32, u32),
    ClientGivesUp(Key),
    /// The deadline of a request.
    RequestAlarm(Key),
    /// A client sends a request again.
    RequestRetried(Key),
    RemediesTick,
}

impl Step {
    /// The step as a number, for the log.
    const fn as_u64(self) -> u64 {
        let (kind, number) = match self {
            Self::RequestArrives => (0, 0),
            Self::AttemptArrives(key) => (1, key.as_u64()),
            Self::CancelArrives(key) => (2, key.as_u64()),
            Self::ResponseArrives(key) => (3, key.as_u64()),
            Self::TwinNewsArrives(key) => (4, key.as_u64()),
            Self::ProbeArrives(key) => (5, key.as_u64()),
            Self::ProbeResponseArrives(key) => (6, key.as_u64()),
            Self::ProbeTimesOut(key) => (7, key.as_u64()),
            Self::CallAlarm(index) => (8, index as u64),
            Self::UpstreamAlarm(index) => (9, index as u64),
            Self::RequestAlarm(key) => (10, key.as_u64()),
            Self::ServerAlarm(index) => (11, index as u64),
            Self::FaultWakes(tier, site) => (12, (tier as u64) << 32 | site as u64),
            Self::ClientGivesUp(key) => (13, key.as_u64()),
            Self::RecordedPaceChanges => (14, 0),
            Self::RemediesTick => (15, 0),
            Self::RequestRetried(key) => (16, key.as_u64()),
        };
        number.rotate_left(4) ^ kind
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of calls, attempts, probes and messages in flight, plus entries of the event queue.
    pub(crate) in_flight_max: usize,
    /// Maximum number of successive events in which no request ends.
    pub(crate) idle_events_max: u64,
}

// In flight: some 600 MB. Without an end: ten times what the largest fan-out takes.
const LIMITS: Limits = Limits { in_flight_max: 2_000_000, idle_events_max: 1 << 26 };

/// The reason why a run was stopped early. The figures of such a run are meaningless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message explains the maximum")]
pub enum StopReason {
    /// More was in flight than `max`.
    #[error(
        "more than {max} calls, attempts and messages are in flight: the servers cannot keep up with this load; \
         lower the arrivals, or set a lower timeout or queue_len_max"
    )]
    TooManyInFlight { max: usize },
    /// No request ended for `max` events.
    #[error(
        "no request ended in {max} events: the faults or probes are too frequent for these arrivals, or the timeout \
         is too long"
    )]
    NoRequestEnds { max: u64 },
}

impl StopReason {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooManyInFlight { .. } => "too_many_in_flight",
            Self::NoRequestEnds { .. } => "no_request_ends",
        }
    }
}

/// An upstream's machine at one root, and the alarm of the machine.
#[derive(Debug)]
struct UpstreamPlace {
    machine: Upstream,
    alarm: Alarm,
    tier: u32,
    /// The index of its client's group.
    group: usize,
    /// The evidence for its remedies; absent: they are not switched by their effect.
    evidence: Option<Box<RemedyEvidence>>,
}

/// The random generators, one for each purpose.
#[derive(Debug)]
struct Draws {
    think_times: Rng,
    clients: Rng,
    shards: Rng,
    overhead: Rng,
    /// Service times of first attempts.
    service: Rng,
    /// Service times of later attempts.
    copies: Rng,
    /// Service times in the tiers behind the first.
    tiers: Rng,
    request_types: Rng,
    request_factors: Rng,
    call_factors: Rng,
    holdout: Rng,
    client_retries: Rng,
}

#[derive(Debug)]
pub(crate) struct World<'m> {
    model: &'m Model,
    now: Instant,
    queue: Queue<Step>,
    events: u64,
    log: u64,
    draws: Draws,
    arrivals: ArrivalProcess,
    /// What each request waits for.
    gather: GatherConfig,
    network: Network,
    connections: Option<Connections>,
    /// The machine of each client and shard: by tier, then by client, then by shard.
    upstreams: Vec<UpstreamPlace>,
    /// The group of each client of each tier; empty without groups.
    groups: Vec<Group>,
    requests: Slab<RequestPlace>,
    calls: Slab<CallPlace>,
    /// The alarm of each call, by the index of the call.
    call_alarms: Vec<Alarm>,
    attempts: Slab<Attempt>,
    twin_news: Slab<TwinNews>,
    probes: Slab<Probe>,
    probe_timeout: Duration,
    leaves: Vec<LeafPlace>,
    /// The largest pace of an execution in the first tier, if its servers share cores.
    share_of_cores: f64,
    /// The factor on the service times of each server.
    server_factors: Vec<f64>,
    /// The faults of each tier.
    faults: Vec<Faults>,
    tiers: Vec<TierPlace<'m>>,
    recorded: Option<RecordedCursor>,
    counts: Counts,
    warm_up_counts: Counts,
    tally: Tally,
    /// Absent: requests are not recorded.
    recorder: Option<Box<Recorder>>,
    done: bool,
    limits: Limits,
    /// The number of events at which the run is stopped, unless a request ends before.
    idle_until: u64,
    stopped: Option<StopReason>,
    #[cfg(test)]
    remedy_steps: Vec<remedy::RemedyStep>,
}

fn upstreams(
    tiers: &[TierPlace<'_>],
    policy: &UpstreamConfig,
    weights: &[Weight],
    machines: &Rng,
) -> Vec<UpstreamPlace> {
    let mut upstreams = Vec::new();
    for (tier, place) in (0..).zip(tiers) {
        let all = place.upstream(0, 0)..place.upstream(place.clients, 0);
        upstreams.extend(all.map(|nth| UpstreamPlace {
            machine: Upstream::new(
                *policy,
                place.replicas as usize,
                &machines.split_index(u64::from(nth)),
            ),
            alarm: Alarm::OFF,
            tier,
            group: place.shard_and_client(nth).1 as usize,
            evidence: None,
        }));
    }
    for place in upstreams.iter_mut().filter(|place| place.tier == 0) {
        for (replica, weight) in (0..).map(ReplicaId).zip(weights) {
            let event = UpstreamEvent::WeightChanged { replica, weight: *weight };
            place.machine.handle(Instant::ZERO, event);
        }
    }
    upstreams
}

/// The factor of each server of the first tier; other servers have none.
fn server_factors(model: &Model, tiers: &[TierPlace<'_>], rng: &Rng) -> Vec<f64> {
    let mut factors = model.server_factors.of_servers(model.servers, rng);
    let servers: u32 = tiers.iter().map(|tier| tier.servers).sum();
    factors.resize(servers as usize, 1.0);
    factors
}

impl<'m> World<'m> {
    pub(crate) fn new(
        model: &'m Model,
        arm: &Arm,
        (stop, thresholds): (Stop, &[Duration]),
        seed: u64,
    ) -> Self {
        let rng = Rng::new(seed);
        let policy = &arm.policy;
        let tiers = TierPlace::all_of(model);
        let machines = rng.split("upstreams");
        let mut world = Self {
            model,
            now: Instant::ZERO,
            queue: Queue::new(),
            events: 0,
            log: 0,
            draws: Draws {
                think_times: rng.split("think_times"),
                clients: rng.split("clients"),
                shards: rng.split("shards"),
                overhead: rng.split("overhead"),
                service: rng.split("service"),
                copies: rng.split("copies"),
                tiers: rng.split("tiers"),
                request_types: rng.split("request_types"),
                request_factors: rng.split("request_factors"),
                call_factors: rng.split("call_factors"),
                holdout: rng.split("holdout"),
                client_retries: rng.split("client_retries"),
            },
            arrivals: ArrivalProcess::new(&model.arrivals, model.requests_per_second(), &rng),
            gather: root::gather_of(arm.fan_out, model.fan_out),
            network: Network::new(&model.message_delay, rng.split("network")),
            connections: Connections::new(model, TierPlace::pairs(&tiers), &rng),
            upstreams: upstreams(&tiers, policy, &model.weights, &machines),
            groups: tiers
                .iter()
                .filter(|_| arm.group.is_some())
                .flat_map(|tier| (0..tier.clients).map(|_| Group::new(policy.into())))
                .collect(),
            requests: Slab::new(),
            calls: Slab::new(),
            call_alarms: Vec::new(),
            attempts: Slab::new(),
            twin_news: Slab::new(),
            probes: Slab::new(),
            probe_timeout: policy.balance.probe_timeout().unwrap_or(Duration::MAX),
            leaves: (0..).zip(&tiers).flat_map(|(nth, tier)| tier.leaves(nth)).collect(),
            share_of_cores: 1.0,
            server_factors: server_factors(model, &tiers, &rng),
            faults: (0..).zip(&tiers).map(|(nth, tier)| tier.faults(nth, &rng)).collect(),
            tiers,
            recorded: model.timeline.as_ref().map(|t| RecordedCursor::new(t, model.servers)),
            counts: Counts::default(),
            warm_up_counts: Counts::default(),
            tally: Tally::new(
                stop,
                thresholds,
                model.request_types.len(),
                f64::from(model.fan_out) / f64::from(model.servers),
            ),
            recorder: None,
            done: false,
            limits: LIMITS,
            idle_until: LIMITS.idle_events_max,
            stopped: None,
            #[cfg(test)]
            remedy_steps: Vec::new(),
        };
        world.begin();
        world.begin_remedies(policy.remedy);
        world
    }

    /// The same world, which records the first `requests_max` requests that count.
    pub(crate) fn recording(mut self, requests_max: u64) -> Self {
        self.recorder = Some(Box::new(Recorder::new(requests_max)));
        self
    }

    /// Takes the records of the requests that have ended since the last call. At the end of the run, these are all
    /// remaining ones.
    pub(crate) fn take_records(&mut self) -> Vec<RequestRecord> {
        let Some(recorder) = &mut self.recorder else { return Vec::new() };
        if self.done {
            recorder.finish_all();
        }
        recorder.take()
    }

    /// Simulates up to `events` events; false when the run has ended.
    pub(crate) fn run(&mut self, events: u64) -> bool {
        let until = self.events + events;
        while !self.done && self.events < until {
            let Some((at, step)) = self.queue.pop() else {
                self.done = true;
                break;
            };
            debug_assert!(at >= self.now, "time does not go back");
            self.now = at;
            self.step(step);
            if self.events >= self.idle_until {
                self.stop(StopReason::NoRequestEnds { max: self.limits.idle_events_max });
            }
        }
        !self.done
    }

    pub(crate) const fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    /// The same world with other limits.
    #[cfg(test)]
    pub(crate) const fn with_limits(mut self, limits: Limits) -> Self {
        (self.limits, self.idle_until) = (limits, limits.idle_events_max);
        self
    }

    const fn stop(&mut self, why: StopReason) {
        self.stopped = Some(why);
        self.done = true;
    }

    /// Stops a run with too much in flight. What adds requests calls it: arrivals, retries, servers and noisy neighbors.
    fn check_in_flight(&mut self) {
        let known = self.calls.len() + self.attempts.len() + self.probes.len();
        if known + self.twin_news.len() + self.queue.len() > self.limits.in_flight_max {
            self.stop(StopReason::TooManyInFlight { max: self.limits.in_flight_max });
        }
    }

    /// The number of events so far: entries of the event queue that had an effect.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// A hash of everything that has happened, in its order.
    pub(crate) const fn log(&self) -> u64 {
        self.log
    }

    pub(crate) fn into_batches(self) -> Batches {
        self.tally.batches
    }

    pub(crate) const fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn counts(&mut self) -> Counts {
        let warm_up = self.warm_up_counts;
        self.counts_now().since(&warm_up)
    }

    fn begin(&mut self) {
        self.begin_arrivals();
        self.begin_faults();
        self.schedule_pace_change();
        for index in 0..self.upstreams.len() {
            self.wake_upstream(index);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::RequestArrives => self.request_arrives(),
            Step::AttemptArrives(key) => self.attempt_arrives(key),
            Step::CancelArrives(key) => self.cancel_arrives(key),
            Step::ResponseArrives(key) => self.response_arrives(key),
            Step::TwinNewsArrives(key) => self.twin_news_arrives(key),
            Step::ProbeArrives(key) => self.probe_arrives(key),
            Step::ProbeResponseArrives(key) => self.probe_response_arrives(key),
            Step::ProbeTimesOut(key) => {
                if !self.probe_times_out(key) {
                    return;
                }
            }
            Step::CallAlarm(index) => {
                if !self.is_due(step, |world| &mut world.call_alarms[index as usize]) {
                    return;
                }
                self.call_woke(index);
            }
            Step::UpstreamAlarm(index) => {
                if !self.is_due(step, |world| &mut world.upstreams[index as usize].alarm) {
                    return;
                }
                self.upstream_woke(index as usize);
            }
            Step::ServerAlarm(index) => {
                if !self.is_due(step, |world| &mut world.leaves[index as usize].server_alarm) {
                    return;
                }
                self.server_finished(index);
            }
            Step::FaultWakes(tier, site) => self.fault_wakes((tier, site)),
            Step::RemediesTick => self.remedies_tick(),
            Step::RecordedPaceChanges => self.recorded_pace_changes(),
            Step::RequestRetried(key) => self.request_retried(key),
            Step::RequestAlarm(key) => {
                if !self.request_woke(key) {
                    return;
                }
            }
            Step::ClientGivesUp(key) => {
                if !self.client_gives_up(key) {
                    return;
                }
            }
        }
        self.note(step);
    }

    /// Whether an alarm that came out of the queue rings now.
    fn is_due(&mut self, step: Step, alarm: impl FnOnce(&mut Self) -> &mut Alarm) -> bool {
        let now = self.now;
        let rung = alarm(self).rung(now);
        if let Rung::Later(at) = rung {
            self.queue.push_lane(Lane::Alarms, at, step);
        }
        rung == Rung::Due
    }

    const fn note(&mut self, step: Step) {
        self.events += 1;
        let word = self.now.as_ns() ^ step.as_u64().rotate_left(32);
        self.log = (self.log.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Sends a message; `step` is its arrival.
    fn post(&mut self, step: Step) {
        self.post_after(Duration::ZERO, step);
    }

    /// Sends a message after `wait`; `step` is its arrival.
    fn post_after(&mut self, wait: Duration, step: Step) {
        let at = self.now + wait + self.network.delay();
        self.queue.push_lane(Lane::Messages, at, step);
    }

    fn counts_now(&mut self) -> Counts {
        let now = self.now;
        // The load of the first tier: that of its own keys.
        let leaves = self.leaves.iter_mut().take(self.model.servers as usize);
        let work_ns = leaves.map(|leaf| leaf.processor.work_ns(now)).sum();
        Counts { work_ns, elapsed: now.since(Instant::ZERO), ..self.counts }
    }

    /// Removes an attempt about which no message can matter any more.
    fn forget_attempt(&mut self, key: Key) -> Option<Attempt> {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget(key);
        }
        self.attempts.remove(key)
    }

    fn tally_request(&mut self, request: EndedRequest) {
        self.idle_until = self.events + self.limits.idle_events_max;
        match self.tally.ended(request) {
            Tallied::Nothing => {}
            Tallied::WarmUpOver => self.warm_up_counts = self.counts_now(),
            Tallied::Done => self.done = true,
        }
    }
}
