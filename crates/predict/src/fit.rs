//! A fit: the model of a service that explains a recording.
//!
//! | part | comes from |
//! |---|---|
//! | arrivals | the recorded instants, so their burstiness is that of the recording |
//! | waiting and concurrency | order of arrival and departure at each replica (`executions.rs`) |
//! | slow periods of replicas | executions that are slow together (`pace.rs`), as a timeline |
//! | cores | executions that take longer if further requests arrive soon after them (`core_limit.rs`) |
//! | work of a request | its execution at the usual pace; cancelled ones would have been longer |
//! | attempts that take equally long | second attempts, or requests of the same kind (`intrinsic.rs`) |
//! | fan-out | the calls of a request, and its time beyond that of its slowest call |
//! | failures | their share, drawn independently |
//!
//! **Inputs**: one [`Recording`], with all of the load of its replicas.
//! **Limits**: [`SAMPLES_MAX`] samples of work. [`Fit::notes`] says what was assumed, and what could not be fitted.
//! **Hurts when** replicas have load that is not in the recording, when shards have servers in common, and
//! when the recording is shorter than a few periods of the slowest change.

use crate::core_limit::{CoreLimit, find_core_limit, paced_times};
use crate::executions::{Execution, Executions};
use crate::intrinsic::{self, Evidence, Intrinsic, Work};
use crate::pace::{SlowPeriod, find_slow_periods, in_paced_time, shares, work_ns};
use crate::recording::{Recording, RecordingError};
use curtail_policy::{BalanceConfig, UpstreamConfig};
use curtail_sim::Cancelled;
use curtail_units::{Duration, Instant, Rng};
use std::ops::Range;

/// Minimum number of requests of a recording: p99 has ten requests beyond it.
pub const REQUESTS_MIN: usize = 1_000;

/// Maximum number of samples of work that a simulation draws from.
pub const SAMPLES_MAX: usize = 200_000;

/// The number of time blocks of a recording.
const BLOCKS: usize = 40;

/// The fractional part of the golden ratio.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;

/// What the caller knows and the recording does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FitOverrides {
    /// The number of replicas.
    pub replicas: Option<u32>,
    /// The share of requests whose attempts all take equally long, from 0 to 1.
    pub intrinsic_ratio: Option<f64>,
    /// The cores that executions share.
    pub core_limit: Option<CoreLimit>,
    /// The effect of a cancelled attempt at its server; absent: it stops.
    pub cancelled: Option<Cancelled>,
}

/// A part of the model that was assumed or not fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The part.
    pub part: &'static str,
    /// What was assumed, or why there is no fit.
    pub text: &'static str,
}

/// The work of one execution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) work: Duration,
}

/// The model of a service, fitted to a recording.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The source of the recording.
    pub source: String,
    /// The instants of all arrivals, from zero on.
    pub(crate) arrivals: Vec<Instant>,
    /// The work of executions, in order of their start.
    pub(crate) samples: Vec<Sample>,
    /// The slow periods of all replicas, by replica and start.
    pub slow_periods: Vec<SlowPeriod>,
    /// The number of shards that requests fan out to; 1: they do not.
    pub shards: u32,
    /// The number of calls of a request.
    pub calls: u32,
    /// The work of the calls of each request that fans out, in the order of `arrivals`; else empty.
    pub(crate) call_works: Vec<Vec<Duration>>,
    /// The times of requests that fan out, beyond those of their slowest calls.
    pub(crate) overheads: Vec<Duration>,
    /// The number of replicas, of each shard.
    pub replicas: u32,
    /// Maximum number of executions of a replica at once; absent: requests never waited for it.
    pub concurrency: Option<u32>,
    /// The cores that executions share; absent: each has one.
    pub core_limit: Option<CoreLimit>,
    /// The effect of a cancelled attempt at its server.
    pub cancelled: Cancelled,
    /// The share of requests whose attempts take equally long.
    pub intrinsic: Intrinsic,
    /// The share of attempts that failed.
    pub failed_ratio: f64,
    /// The time of a message, one way.
    pub message_delay: Duration,
    /// The time in which requests arrived.
    pub span: Duration,
    /// The time in service of all executions until the last arrival, in slow periods and of further attempts too.
    pub(crate) executed: Duration,
    /// The work of all executions, of further attempts too.
    pub(crate) worked: Duration,
    /// The share of time in which replicas paused, and in which they were slower or faster.
    pub slow_shares: (f64, f64),
    /// The policies during the recording; one attempt if they are not known, to a random replica unless the rule is known.
    pub policy: UpstreamConfig,
    /// Whether the recording has the policy; spans and results do not.
    pub is_policy_known: bool,
    /// Whether requests of the recording have further attempts, such as hedges.
    pub has_further_attempts: bool,
    pub(crate) has_replicas: bool,
    /// What was assumed, and what could not be fitted.
    pub notes: Vec<Note>,
}

impl Fit {
    /// Fits a model to `recording`.
    ///
    /// # Errors
    /// When there are too few requests, or hardly any of them succeeded.
    pub fn new(recording: &Recording, overrides: FitOverrides) -> Result<Self, RecordingError> {
        let found = recording.latencies().count();
        if found < REQUESTS_MIN {
            return Err(match recording.long_requests {
                0 => RecordingError::TooFew { found },
                long => RecordingError::TooManyLong { found, long },
            });
        }
        let executions = Executions::infer(recording);
        let last_arrival = recording.requests.last().map_or(Instant::ZERO, |last| last.arrived);
        let has_replicas = !recording.replicas.is_empty();
        let Slowness { core_limit, periods, works_ns } =
            Slowness::find(recording, &executions, overrides.core_limit);
        let works = works(recording, &executions, &works_ns);
        let intrinsic = match overrides.intrinsic_ratio {
            Some(ratio) => Intrinsic::given(ratio),
            None => intrinsic::estimate(&works),
        };
        let slow_periods: Vec<SlowPeriod> = periods.into_iter().flatten().collect();
        let recorded = u32::try_from(recording.replicas.len()).unwrap_or(u32::MAX);
        let replicas = if has_replicas { recorded } else { overrides.replicas.unwrap_or(3) };
        let fan_out = recording.fan_out.as_ref();
        let shards = fan_out.map_or(1, |fan_out| fan_out.shards);
        let of_fan_out = fan_out.iter().flat_map(|fan_out| &fan_out.requests);
        let call_works = call_works(recording, &works);
        let own = recording.requests.iter().take_while(|_| fan_out.is_none());
        let arrivals = of_fan_out.clone().map(|request| request.arrived);
        let arrivals = arrivals.chain(own.map(|request| request.arrived)).collect();
        let plain = || UpstreamConfig::plain(recording.balance.unwrap_or(BalanceConfig::Random));
        Ok(Self {
            source: recording.source.clone(),
            arrivals,
            shards,
            calls: fan_out.map_or(1, |fan_out| fan_out.calls),
            call_works,
            overheads: of_fan_out.map(|request| request.overhead).collect(),
            samples: to_samples(works),
            slow_shares: shares(&slow_periods, recording.replicas.len(), recording.span()),
            slow_periods,
            replicas: (replicas / shards).max(1),
            concurrency: executions.concurrency,
            core_limit,
            cancelled: overrides.cancelled.unwrap_or_default(),
            failed_ratio: executions.failed as f64 / executions.attempts.max(1) as f64,
            message_delay: recording.message_delay.unwrap_or_default(),
            span: recording.span(),
            executed: executions.total_until(last_arrival),
            worked: Duration::from_ns_f64(works_ns.iter().sum()),
            policy: recording.policy.unwrap_or_else(plain),
            is_policy_known: recording.policy.is_some(),
            has_further_attempts: recording.attempts.len() > recording.requests.len(),
            has_replicas,
            notes: notes(recording, &executions, (&intrinsic, core_limit), overrides),
            intrinsic,
        })
    }

    /// The mean work of a call.
    #[must_use]
    pub fn mean_work(&self) -> Duration {
        let sum: f64 = self.samples.iter().map(|sample| sample.work.as_ns_f64()).sum();
        Duration::from_ns_f64(sum / self.samples.len().max(1) as f64)
    }

    /// The mean number of arrivals a second.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.arrivals.len() as f64 / self.span.as_secs_f64().max(1e-9)
    }

    /// The load of the replicas: the mean number of executions in the time of the recording, divided by the concurrency of
    /// all replicas, or the work in this time, divided by that of all cores; absent if neither is known.
    #[must_use]
    pub fn utilization(&self) -> Option<f64> {
        let replicas = f64::from(self.replicas * self.shards);
        let (busy, capacity) = match self.core_limit {
            Some(CoreLimit::PerReplica(cores)) => (self.worked, cores * replicas),
            Some(CoreLimit::AllReplicas(cores)) => (self.worked, cores),
            None => (self.executed, f64::from(self.concurrency?) * replicas),
        };
        Some(busy.as_secs_f64() / self.span.as_secs_f64().max(1e-9) / capacity)
    }

    /// Whether waiting is known apart from service, so that another load or number of replicas can be predicted.
    #[must_use]
    pub fn separates_waiting(&self) -> bool {
        self.has_replicas
    }

    /// The same service in another stretch of time: [`BLOCKS`] blocks of time, drawn with replacement, one after the
    /// other, with their arrivals, their work and their slow periods (Künsch, 1989).
    pub(crate) fn redrawn(&self, rng: &mut Rng) -> Self {
        let block_ns = (self.span.as_ns() / BLOCKS as u64).max(1);
        let block = Duration::from_ns(block_ns);
        let mut drawn = Self {
            arrivals: Vec::with_capacity(self.arrivals.len()),
            call_works: Vec::with_capacity(self.call_works.len()),
            samples: Vec::with_capacity(self.samples.len()),
            slow_periods: Vec::new(),
            span: Duration::from_ns(block_ns * BLOCKS as u64),
            ..self.clone()
        };
        for nth in 0..BLOCKS as u64 {
            let from = Instant::from_ns(rng.below(BLOCKS) as u64 * block_ns);
            let to = from + block;
            let start = Instant::from_ns(nth * block_ns);
            let moved = |at: Instant| start + at.since(from);
            let arrivals = within(&self.arrivals, |at| *at, (from, to));
            drawn.arrivals.extend(self.arrivals[arrivals.clone()].iter().map(|at| moved(*at)));
            drawn.call_works.extend_from_slice(self.call_works.get(arrivals).unwrap_or_default());
            let samples = within(&self.samples, |sample| sample.at, (from, to));
            let samples =
                self.samples[samples].iter().map(|s| Sample { at: moved(s.at), work: s.work });
            drawn.samples.extend(samples);
            let overlaps = |period: &&SlowPeriod| period.from < to && from < period.to;
            let cut = |period: &SlowPeriod| SlowPeriod {
                from: moved(period.from.max(from)),
                to: moved(period.to.min(to)),
                ..*period
            };
            drawn.slow_periods.extend(self.slow_periods.iter().filter(overlaps).map(cut));
        }
        drawn.slow_periods.sort_by_key(|period| (period.replica, period.from));
        if drawn.samples.is_empty() {
            // Executions that start late, after long waits or in few blocks, may be in none of the drawn ones.
            drawn.samples.clone_from(&self.samples);
        }
        drawn
    }
}

/// Why executions take longer than their work.
struct Slowness {
    core_limit: Option<CoreLimit>,
    /// The slow periods of each replica.
    periods: Vec<Vec<SlowPeriod>>,
    /// The work of each execution, replica by replica.
    works_ns: Vec<f64>,
}

impl Slowness {
    fn find(recording: &Recording, executions: &Executions, given: Option<CoreLimit>) -> Self {
        let executions = &executions.of_replica;
        // Without replicas there is no jointness: the order of latencies within a slot is unknown too.
        if recording.replicas.is_empty() {
            let periods = vec![Vec::new(); executions.len()];
            return Self { core_limit: None, works_ns: works_ns(executions, &periods), periods };
        }
        let periods = find_slow_periods(executions);
        let is_looked_for = given.is_none() && are_replicas_random(recording);
        let found = is_looked_for.then(|| find_core_limit(executions, &periods)).flatten();
        let core_limit = given.or(found);
        let Some(limit) = core_limit else {
            return Self { core_limit, works_ns: works_ns(executions, &periods), periods };
        };
        let times = paced_times(executions, &periods, limit);
        let paced = in_paced_time(executions, &times);
        let periods = find_slow_periods(&paced);
        let works_ns = works_ns(&paced, &periods);
        let real =
            periods.into_iter().zip(&times).map(|(periods, time)| time.real_periods(periods));
        Self { core_limit, periods: real.collect(), works_ns }
    }
}

fn works_ns(executions: &[Vec<Execution>], periods: &[Vec<SlowPeriod>]) -> Vec<f64> {
    let of_replicas = executions.iter().zip(periods);
    let works = of_replicas.flat_map(|(executions, periods)| {
        executions.iter().map(move |execution| work_ns(execution, periods))
    });
    works.collect()
}

/// Whether every request is known to have gone to a random replica, and only there. Calls of one request to several shards
/// take similarly long, and come at the same time.
fn are_replicas_random(recording: &Recording) -> bool {
    let balance = recording.policy.map(|policy| policy.balance).or(recording.balance);
    recording.fan_out.is_none()
        && matches!(balance, Some(BalanceConfig::Random | BalanceConfig::RoundRobin))
        && recording.attempts.len() == recording.requests.len()
}

/// The part of `sorted` whose instants lie in a stretch of time, as indices.
fn within<T>(
    sorted: &[T],
    at: impl Fn(&T) -> Instant,
    (from, to): (Instant, Instant),
) -> Range<usize> {
    let first = sorted.partition_point(|item| at(item) < from);
    let end = sorted.partition_point(|item| at(item) < to);
    first..end
}

/// The work of the first attempts of the calls of each request that fans out. Calls of one request take similarly long:
/// they wait for the same root, and are sent at the same time. Drawn one by one, the slowest of many would be too slow.
fn call_works(recording: &Recording, works: &[Work]) -> Vec<Vec<Duration>> {
    let requests = recording.fan_out.as_ref().map_or(0, |fan_out| fan_out.requests.len());
    let mut of_requests = vec![Vec::new(); requests];
    for work in works.iter().filter(|work| work.nth == 0 && work.is_whole) {
        let caller = recording.requests[work.request as usize].caller as usize;
        if let Some(of_request) = of_requests.get_mut(caller) {
            of_request.push(Duration::from_ns_f64(work.ns));
        }
    }
    of_requests
}

/// The work of all executions.
fn works(recording: &Recording, executions: &Executions, works_ns: &[f64]) -> Vec<Work> {
    let works = executions.of_replica.iter().flatten().zip(works_ns).map(|(execution, ns)| Work {
        request: execution.request,
        nth: execution.nth,
        kind: recording.requests[execution.request as usize].kind,
        started: execution.started,
        ns: *ns,
        is_whole: execution.is_whole,
    });
    works.collect()
}

/// The samples of work, in order of time. A cancelled execution gets a work above its own, from the product-limit
/// distribution: its mass moves to all longer executions, and that of cancelled ones among them moves on (Efron, 1967).
fn to_samples(mut works: Vec<Work>) -> Vec<Sample> {
    // Second attempts are of slow requests only, so they are no sample of all requests.
    works.retain(|work| work.nth == 0);
    works.sort_unstable_by(|a, b| a.ns.total_cmp(&b.ns).then(b.is_whole.cmp(&a.is_whole)));
    // The mass of all executions before each one, and of all.
    let mut masses_before = Vec::with_capacity(works.len() + 1);
    let (mut sum, mut mass) = (0.0, 1.0);
    for (nth, work) in works.iter().enumerate() {
        masses_before.push(sum);
        match works.len() - nth - 1 {
            longer if longer > 0 && !work.is_whole => mass *= 1.0 + 1.0 / longer as f64,
            // The longest one counts as complete.
            _ => sum += mass,
        }
    }
    masses_before.push(sum);
    let mut samples = Vec::with_capacity(works.len());
    let mut turn = 0.0;
    for (nth, work) in works.iter().enumerate() {
        let mut ns = work.ns;
        if !work.is_whole {
            // Steps of the golden ratio visit the distribution evenly.
            turn = (turn + GOLDEN_RATIO) % 1.0;
            let target = turn.mul_add(sum - masses_before[nth], masses_before[nth]);
            let above = masses_before.partition_point(|mass| *mass <= target);
            ns = works.get(above - 1).map_or(ns, |longer| longer.ns.max(ns));
        }
        samples.push(Sample { at: work.started, work: Duration::from_ns_f64(ns) });
    }
    samples.sort_unstable_by_key(|sample| sample.at);
    let keep_every = samples.len().div_ceil(SAMPLES_MAX).max(1);
    samples.into_iter().step_by(keep_every).collect()
}

fn notes(
    recording: &Recording,
    executions: &Executions,
    (intrinsic, core_limit): (&Intrinsic, Option<CoreLimit>),
    overrides: FitOverrides,
) -> Vec<Note> {
    let mut notes = Vec::new();
    if !recording.has_arrivals {
        let text = "not recorded one by one: assumed random at the recorded rate";
        notes.push(Note { part: "arrivals", text });
    }
    notes.extend(capacity_notes(recording, executions, core_limit, overrides));
    let mut note = |part, text| notes.push(Note { part, text });
    let has_replicas = !recording.replicas.is_empty();
    if has_replicas && overrides.replicas.is_some() {
        note("replicas", "named by the recording: the given number is not used");
    }
    if recording.left_out > 0 {
        note("requests", "the recording has more than a prediction uses: the last ones are used");
    }
    if recording.rejected_spans > 0 {
        note(
            "spans",
            "copies, and those that end before they start or last above an hour, are left out",
        );
    }
    if recording.long_requests > 0 {
        note(
            "long requests",
            "those that last longer than the recording, such as streams, are left out: their load is not known",
        );
    }
    if recording.policy.is_none() {
        let text = match recording.balance {
            Some(_) => "spans have only the balancing rule: assumed one attempt, without retries",
            None => "not recorded: assumed one attempt to a random replica, without retries",
        };
        note("policies", text);
        if recording.attempts.len() > recording.requests.len() {
            note(
                "further attempts",
                "spans do not have the policy of these: predict from the journal of the proxy",
            );
        }
    }
    if recording.policy.is_some_and(|policy| policy.retry.is_none()) {
        note(
            "retries",
            "off in the recording, and so in the keys of the remedies: a failed request is not sent again",
        );
    }
    if recording.holdout_ratio() > 0.0 {
        note(
            "holdout",
            "its requests are load, but their latencies are left out; the model hedges them as all others",
        );
    }
    if recording.message_delay.is_none() {
        note("messages", "not measured: counted as service");
        note(
            "tie",
            "needs a leaf in front of each server; without leaves, both copies are executed: 100 % more requests",
        );
    }
    if let Some(text) = intrinsic_note(intrinsic.evidence) {
        note("attempts that take equally long", text);
    }
    if executions.failed > 0 {
        note("failures", "assumed independent of each other and of the replica");
    }
    notes
}

/// What was assumed about the load that replicas bear.
fn capacity_notes(
    recording: &Recording,
    executions: &Executions,
    core_limit: Option<CoreLimit>,
    overrides: FitOverrides,
) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |part, text| notes.push(Note { part, text });
    let has_replicas = !recording.replicas.is_empty();
    if !has_replicas {
        note(
            "waiting",
            "not known apart from service: predictions hold for the recorded load only",
        );
        note("slow periods", "not fitted: the recording names no replicas");
        if overrides.core_limit.is_some() {
            note("cores", "the given number is not used: the recording names no replicas");
        }
        if overrides.replicas.is_none() {
            note("replicas", "not recorded: assumed 3");
        }
    } else if let Some(limit) = core_limit {
        if overrides.core_limit.is_none() {
            note("cores", core_limit_note(limit));
        }
    } else if executions.concurrency.is_none() && !executions.is_measured {
        if recording.policy.is_none() && recording.balance.is_none() {
            let text = "not looked for, as it is not recorded how replicas were chosen: assumed one for each execution \
                        (--cores, --shared-cores)";
            note("cores", text);
        }
        note(
            "concurrency",
            "no request waited, so the limit is not known: assumed unlimited, so a higher load looks too good",
        );
    }
    let can_wait = executions.concurrency.is_some() || core_limit.is_some();
    if can_wait && overrides.cancelled.is_none() {
        note(
            "cancelled attempts",
            "assumed to stop at their servers; if they run on there (--cancelled runs_on), second attempts cost more",
        );
    }
    notes
}

const fn core_limit_note(limit: CoreLimit) -> &'static str {
    match limit {
        CoreLimit::AllReplicas(_) => {
            "executions take longer while requests arrive at other replicas: assumed that all share the cores of one machine, and that a further replica would too"
        }
        CoreLimit::PerReplica(_) => {
            "executions take longer while requests arrive at their replica: assumed that those of a replica share its cores"
        }
    }
}

const fn intrinsic_note(evidence: Evidence) -> Option<&'static str> {
    match evidence {
        Evidence::Nothing => Some(
            "not known without second attempts or kinds of requests: both extremes are predicted",
        ),
        Evidence::Kinds { is_one_kind: true, .. } => {
            Some("from one kind of requests: other kinds have too few slow requests")
        }
        Evidence::Kinds { is_one_kind: false, .. } => {
            Some("from requests of the same kind: other differences count as chance")
        }
        Evidence::Attempts { .. } | Evidence::Given => None,
    }
}

#[cfg(test)]
mod tests;
