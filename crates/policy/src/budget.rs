//! The budget: the limit on extra attempts (hedges and retries).
//!
//! **Inputs**: requests and extra attempts, counted over a rolling window of [`BudgetConfig::window`].
//! **Limits**: a hedge must keep the extra attempts of a window within `ratio` × its requests. A retry may also use the
//! `reserve`, so that requests survive a failed replica at low traffic.
//! **Invariant** `extra-within-budget`: a granted attempt never exceeds the limit of the window.
//! **Source**: Finagle's `BackupRequestFilter`, which has one budget for hedges and one for retries. Curtail has a
//! rolling window in place of Finagle's leaky bucket, so that a journal alone proves the limit.
//! **Hurts when** everything is slow: then no budget is large enough, and extra attempts only add load.

use crate::Reason;
use curtail_units::{Duration, Instant, Ratio};
use serde::{Deserialize, Serialize};

/// The limit on the extra attempts of an upstream, or of a group of upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetConfig {
    /// Maximum number of extra attempts per request, over the window.
    pub ratio: Ratio,
    /// The time over which requests and extra attempts are counted.
    pub window: Duration,
    /// Number of extra attempts in a window up to which retries are allowed, even if `ratio` allows fewer.
    pub reserve: u32,
}

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            ratio: Ratio::new(0.02).expect("0.02 is a ratio"),
            window: Duration::from_secs(10),
            reserve: 10,
        }
    }
}

/// The purpose of an extra attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The request is slow.
    Hedge,
    /// The request is slow, but hedges are not sent: counts against hedges of a dry run, and not against retries.
    DryRun,
    /// An attempt of the request failed, or is overdue.
    Retry,
}

/// The number of slots of the window, including the slot that is being filled.
const SLOTS: usize = 10;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u64,
    extra: u64,
    /// Hedges of a dry run.
    dry_run: u64,
}

/// Counts requests and extra attempts over a rolling window.
#[derive(Clone, Debug)]
pub struct Budget {
    config: BudgetConfig,
    slots: [Slot; SLOTS],
    /// The sum of all slots.
    total: Slot,
    /// The number of the current slot, counted from the start of the driver's clock.
    present: u64,
}

impl Budget {
    /// A budget with nothing counted yet.
    #[must_use]
    pub fn new(config: BudgetConfig) -> Self {
        Self { config, slots: [Slot::default(); SLOTS], total: Slot::default(), present: 0 }
    }

    /// Counts a request.
    pub fn request(&mut self, now: Instant) {
        let slot = self.slot(now);
        slot.requests += 1;
        self.total.requests += 1;
    }

    /// Grants and counts an extra attempt, if the window has room for it.
    ///
    /// # Errors
    /// [`Reason::BudgetSpent`] with the window's counts.
    pub fn withdraw(&mut self, now: Instant, purpose: Purpose) -> Result<(), Reason> {
        self.slot(now);
        let share = self.config.ratio.get() * self.total.requests as f64;
        let (allowed, extra) = match purpose {
            Purpose::Hedge => (share, self.total.extra),
            Purpose::DryRun => (share, self.total.extra + self.total.dry_run),
            Purpose::Retry => (share.max(f64::from(self.config.reserve)), self.total.extra),
        };
        if (extra + 1) as f64 > allowed {
            let Self { total: Slot { requests, .. }, config: BudgetConfig { ratio, .. }, .. } =
                *self;
            return Err(Reason::BudgetSpent { extra, requests, ratio });
        }
        let is_dry_run = purpose == Purpose::DryRun;
        let count = |slot: &mut Slot| {
            *(if is_dry_run { &mut slot.dry_run } else { &mut slot.extra }) += 1;
        };
        count(self.slot(now));
        count(&mut self.total);
        Ok(())
    }

    /// Requests and extra attempts within the window that ends now.
    pub fn counts(&mut self, now: Instant) -> (u64, u64) {
        self.slot(now);
        (self.total.requests, self.total.extra)
    }

    /// Empties the slots that have left the window, and returns the slot of `now`.
    fn slot(&mut self, now: Instant) -> &mut Slot {
        let slot_ns = (self.config.window.as_ns() / SLOTS as u64).max(1);
        let present = now.as_ns() / slot_ns;
        let index = |slot: u64| usize::try_from(slot % SLOTS as u64).expect("below SLOTS");
        let passed = (present - self.present).min(SLOTS as u64);
        for slot in present - passed + 1..=present {
            let gone = core::mem::take(&mut self.slots[index(slot)]);
            self.total.requests -= gone.requests;
            self.total.extra -= gone.extra;
            self.total.dry_run -= gone.dry_run;
        }
        self.present = present;
        &mut self.slots[index(present)]
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, BudgetConfig, Purpose};
    use crate::Reason;
    use curtail_units::{Duration, Instant, Ratio, Rng};

    fn budget() -> Budget {
        Budget::new(BudgetConfig {
            ratio: Ratio::new(0.02).expect("a ratio"),
            window: Duration::from_secs(10),
            reserve: 3,
        })
    }

    #[test]
    fn a_hedge_needs_fifty_requests_and_a_retry_has_its_reserve() {
        let now = Instant::from_ns(1);
        let mut budget = budget();
        assert!(matches!(budget.withdraw(now, Purpose::Hedge), Err(Reason::BudgetSpent { .. })));
        (0..49).for_each(|_| budget.request(now));
        assert!(budget.withdraw(now, Purpose::Hedge).is_err());
        budget.request(now);
        assert_eq!(budget.withdraw(now, Purpose::Hedge), Ok(()));
        assert!(budget.withdraw(now, Purpose::Hedge).is_err());
        assert_eq!(budget.withdraw(now, Purpose::Retry), Ok(()));
        assert_eq!(budget.withdraw(now, Purpose::Retry), Ok(()));
        assert!(budget.withdraw(now, Purpose::Retry).is_err(), "the reserve is three in all");
    }

    #[test]
    fn a_dry_run_has_the_budget_of_hedges_and_takes_nothing_from_them() {
        let now = Instant::from_ns(1);
        let mut budget = budget();
        (0..100).for_each(|_| budget.request(now));
        assert_eq!(budget.withdraw(now, Purpose::DryRun), Ok(()));
        assert_eq!(budget.withdraw(now, Purpose::DryRun), Ok(()));
        let spent = budget.withdraw(now, Purpose::DryRun);
        assert!(matches!(spent, Err(Reason::BudgetSpent { extra: 2, requests: 100, .. })));
        assert_eq!(budget.counts(now), (100, 0));
        assert_eq!(budget.withdraw(now, Purpose::Hedge), Ok(()));
        assert_eq!(budget.withdraw(now, Purpose::Retry), Ok(()));
        let later = now + Duration::from_secs(11);
        (0..50).for_each(|_| budget.request(later));
        assert_eq!(budget.withdraw(later, Purpose::DryRun), Ok(()), "the window is over");
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut budget = budget();
        (0..100).for_each(|_| budget.request(Instant::ZERO));
        let later = Instant::ZERO + Duration::from_secs(11);
        assert_eq!(budget.counts(later), (0, 0));
        assert!(budget.withdraw(later, Purpose::Hedge).is_err());
        assert_eq!(
            budget.counts(Instant::from_ns(u64::MAX / 2)),
            (0, 0),
            "a long silence is cheap"
        );
    }

    #[test]
    fn extra_within_budget_whatever_the_order() {
        let seed = 11;
        let mut rng = Rng::new(seed);
        let mut budget = budget();
        let mut now = Instant::ZERO;
        for _ in 0..100_000 {
            now = now + Duration::from_us(rng.below(5_000) as u64);
            if rng.chance(0.9) {
                budget.request(now);
            } else {
                let before = budget.counts(now);
                let granted = budget.withdraw(now, Purpose::Hedge).is_ok();
                let bound = 0.02 * before.0 as f64;
                assert_eq!(granted, (before.1 + 1) as f64 <= bound, "seed {seed}, {before:?}");
            }
        }
    }
}
