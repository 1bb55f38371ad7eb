//! The remedies of an upstream (hedges and ties): on, off, a dry run, or switched by their measured effect.
//!
//! **Dry run**: a hedge that is due is counted and not sent. [`crate::Reason::DryRun`] has the numbers: the age of the
//! request, and the time that another replica took for its latest response. The request would have had its response at
//! the sum of the two, if it had none before. A dry run counts the first hedge of a request, within the budget of hedges,
//! takes nothing from retries, and sends no ties.
//!
//! **Auto** ([`Remedy`]) decides between four states:
//!
//! ```text
//! dry_run ── estimated gain ──> trial ── gain proven ──> on ──┐ gain proven again
//!    ^                           │  ^                    │ ^──┘
//!    │ backoff over              │  └── gain unproven ───┤
//!    └────────── off <───────────┴─ no gain, unproven    │
//!                 ^──────────────────── no gain ─────────┘
//! ```
//!
//! **Inputs**: estimates of the dry run, and counts of slow requests on both sides of a holdout, both with intervals that
//! hold at all looks. The driver computes them (`curtail_load::remedy`) and hands them over as events. A request is slow
//! if it takes longer than a threshold between the two latencies of the estimate.
//! **Limits**: a decision takes at most [`WINDOW`], or the time for [`DRY_RUN_REQUESTS_MIN`] or [`SIDE_REQUESTS_MIN`]
//! requests if that is longer. Each decision begins new evidence, so no decision uses a request older than that.
//! **Invariant** `on-is-proven`: remedies are on for more than half of the requests only within a window after a proof.
//! **Hurts when** stalls are rarer than about one in [`WINDOW`]: their gain stays unproven. And when remedies slow
//! everybody down: both sides of a holdout share the queues, so no comparison of the two shows it.

use crate::{Decided, Reason};
use curtail_units::{Duration, Instant, Quantile, Ratio};
use serde::{Deserialize, Serialize};

/// The time after which a decision is made without proof.
pub const WINDOW: Duration = Duration::from_secs(45);

/// The minimum number of requests of a dry run that shows no gain.
pub const DRY_RUN_REQUESTS_MIN: u64 = 40_000;

/// The minimum number of slow requests of a dry run that shows a gain: with fewer, a trial would prove nothing.
pub const DRY_RUN_SLOW_MIN: u64 = 20;

/// The minimum number of requests on each side of a comparison that proves nothing.
pub const SIDE_REQUESTS_MIN: u64 = 4_000;

/// The maximum ratio, of latencies or of shares of slow requests, with the remedy to without it, that counts as a gain. A
/// smaller gain is not worth the extra attempts.
pub const GAIN_RATIO_MAX: f64 = 0.8;

/// The time in the state off before the first new dry run. It doubles with each trial that fails.
pub const OFF_MIN: Duration = Duration::from_secs(60);

/// The maximum time in the state off.
pub const OFF_MAX: Duration = Duration::from_secs(3_600);

/// Whether the configured hedges and ties of an upstream are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemedyMode {
    /// They are sent.
    #[default]
    On,
    /// They are not sent.
    Off,
    /// Hedges are counted, but not sent.
    DryRun,
    /// A [`Remedy`] decides.
    Auto,
}

curtail_units::labels!(RemedyMode {
    On => "on",
    Off => "off",
    DryRun => "dry_run",
    Auto => "auto",
});

impl RemedyMode {
    /// Whether this is the default.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }
}

/// The state of a remedy that is switched by its effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemedyState {
    /// Hedges are counted, but not sent.
    #[default]
    DryRun,
    /// Remedies are sent for half of the requests.
    Trial,
    /// Remedies are sent for all requests but a small holdout.
    On,
    /// Nothing is sent or counted, until the next dry run.
    Off,
}

curtail_units::labels!(RemedyState {
    DryRun => "dry_run",
    Trial => "trial",
    On => "on",
    Off => "off",
});

impl RemedyState {
    /// The share of the requests in the holdout; [`None`]: no holdout. In the state on it is `on`, by default one in ten:
    /// as many as show within a window, at 1,000 requests a second, that there are no stalls any more.
    ///
    /// # Panics
    /// Never: both numbers are ratios.
    #[must_use]
    pub fn holdout_ratio(self, on: Option<Ratio>) -> Option<Ratio> {
        let ratio = |share| Ratio::new(share).expect("a ratio");
        match self {
            Self::Trial => Some(ratio(0.5)),
            Self::On => Some(on.unwrap_or(ratio(0.1))),
            Self::DryRun | Self::Off => None,
        }
    }
}

/// The estimate of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemedyEstimate {
    /// The number of requests of the dry run.
    pub requests: u64,
    /// The quantile with the largest estimated gain.
    pub quantile: Quantile,
    /// The latency at the quantile as measured.
    pub without: Duration,
    /// The latency at the quantile with hedges.
    pub with: Duration,
    /// A latency between the two: a request that takes longer is slow.
    pub threshold: Duration,
    /// The number of slow requests as measured.
    pub slow_without: u64,
    /// The number of slow requests with hedges.
    pub slow_with: u64,
    /// The upper end of the interval of the ratio of these numbers, with hedges to without them.
    pub ratio_high: f64,
}

impl RemedyEstimate {
    /// Whether the gain is worth a trial.
    #[must_use]
    pub fn is_gain(&self) -> bool {
        self.with.as_ns_f64() <= GAIN_RATIO_MAX * self.without.as_ns_f64()
            && self.slow_without >= DRY_RUN_SLOW_MIN
            && self.ratio_high <= GAIN_RATIO_MAX
    }
}

impl core::fmt::Display for RemedyEstimate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { requests, quantile, without, with, threshold, .. } = self;
        let Self { slow_without, slow_with, ratio_high, .. } = self;
        write!(f, "quantile {quantile} of {requests} requests {without}, with hedges {with}; ")?;
        write!(f, "slower than {threshold}: {slow_without}, with hedges {slow_with}, ")?;
        write!(f, "ratio at most {ratio_high:.2}")
    }
}

/// The requests of one side of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCount {
    /// Requests that took longer than the threshold.
    pub slow: u64,
    /// All requests.
    pub requests: u64,
}

/// The slow requests on both sides of a holdout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowShares {
    /// A request that takes longer is slow.
    pub threshold: Duration,
    /// The holdout.
    pub without: SlowCount,
    /// All other requests.
    pub with: SlowCount,
    /// The lower end of the interval of the ratio of the two shares, with the remedy to without it.
    pub ratio_low: f64,
    /// The upper end; absent: not bounded.
    pub ratio_high: Option<f64>,
}

impl core::fmt::Display for SlowShares {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { threshold, without, with, ratio_low, ratio_high } = self;
        write!(f, "slower than {threshold}: {} of {} with remedy, ", with.slow, with.requests)?;
        write!(f, "{} of {} without, ratio {ratio_low:.2} to ", without.slow, without.requests)?;
        match ratio_high {
            Some(ratio) => write!(f, "{ratio:.2}"),
            None => f.write_str("infinity"),
        }
    }
}

/// An event of a [`Remedy`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RemedyEvent {
    /// The estimate of the dry run so far.
    Estimated(RemedyEstimate),
    /// The comparison so far.
    Measured(SlowShares),
    /// The instant of [`Remedy::poll_timeout`] has come.
    Woke,
}

/// The state of a remedy, and the evidence that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemedyStatus {
    /// The state.
    pub state: RemedyState,
    /// The number of decisions so far. Each decision begins new evidence.
    pub decisions: u64,
    /// A request that takes longer is slow.
    pub threshold: Duration,
}

/// The machine that switches a remedy by its effect.
#[derive(Clone, Debug)]
pub struct Remedy {
    status: RemedyStatus,
    /// The time of the last decision, or of the first event.
    since: Option<Instant>,
    /// The length of the next state off.
    off: Duration,
    effect: Option<Decided<RemedyState, Reason>>,
}

impl Default for Remedy {
    fn default() -> Self {
        Self::new()
    }
}

impl Remedy {
    /// A remedy in a dry run.
    #[must_use]
    pub fn new() -> Self {
        Self { status: RemedyStatus::default(), since: None, off: OFF_MIN, effect: None }
    }

    /// The state, and the evidence that it needs.
    #[must_use]
    pub const fn status(&self) -> RemedyStatus {
        self.status
    }

    /// Handles an event. An event of another state than the present one changes nothing.
    pub fn handle(&mut self, now: Instant, event: RemedyEvent) {
        let since = *self.since.get_or_insert(now);
        let is_over = now.since(since) >= WINDOW;
        match (self.status.state, event) {
            (RemedyState::DryRun, RemedyEvent::Estimated(estimate)) => {
                if estimate.is_gain() {
                    self.status.threshold = estimate.threshold;
                    self.decide(now, RemedyState::Trial, Reason::GainEstimated { estimate });
                } else if is_over && estimate.requests >= DRY_RUN_REQUESTS_MIN {
                    self.decide(now, RemedyState::DryRun, Reason::NoGainEstimated { estimate });
                }
            }
            (state @ (RemedyState::Trial | RemedyState::On), RemedyEvent::Measured(shares)) => {
                let fewer = shares.without.requests.min(shares.with.requests);
                if shares.ratio_high.is_some_and(|ratio| ratio <= GAIN_RATIO_MAX) {
                    self.off = OFF_MIN;
                    self.decide(now, RemedyState::On, Reason::GainProven { shares });
                } else if shares.ratio_low > GAIN_RATIO_MAX {
                    self.decide(now, RemedyState::Off, Reason::NoGain { shares });
                } else if is_over && fewer >= SIDE_REQUESTS_MIN {
                    let was_on = state == RemedyState::On;
                    let next = if was_on { RemedyState::Trial } else { RemedyState::Off };
                    self.decide(now, next, Reason::GainUnproven { shares });
                }
            }
            (RemedyState::Off, RemedyEvent::Woke) if now.since(since) >= self.off => {
                let waited = now.since(since);
                self.off = Duration::from_ns(self.off.as_ns().saturating_mul(2)).min(OFF_MAX);
                self.decide(now, RemedyState::DryRun, Reason::TriesAgain { waited });
            }
            // Late evidence, or an early wake-up.
            (
                RemedyState::DryRun | RemedyState::Trial | RemedyState::On | RemedyState::Off,
                RemedyEvent::Estimated(_) | RemedyEvent::Measured(_) | RemedyEvent::Woke,
            ) => {}
        }
    }

    /// The next decision, also if it leaves the state as it is: new evidence begins.
    pub fn poll_effect(&mut self) -> Option<Decided<RemedyState, Reason>> {
        self.effect.take()
    }

    /// When to send [`RemedyEvent::Woke`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_off = self.status.state == RemedyState::Off;
        self.since.filter(|_| is_off).map(|since| since + self.off)
    }

    fn decide(&mut self, now: Instant, state: RemedyState, reason: Reason) {
        self.status.state = state;
        self.status.decisions += 1;
        self.since = Some(now);
        self.effect = Some(Decided { effect: state, reason });
    }
}

#[cfg(test)]
mod tests;
