//! Counters to which many threads add.

use crate::{FamilyCollector, Metric, counter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The values of a label and their counts.
pub type Counts = Vec<(&'static str, u64)>;

/// One counter for each value of a label.
#[derive(Debug)]
pub struct CounterVec {
    names: &'static [&'static str],
    counts: Box<[AtomicU64]>,
    /// The usual values of the label. They have a series from the start, so that a scraper sees their first increase;
    /// any other value has a series once it has been counted.
    usual: &'static [&'static str],
}

impl CounterVec {
    /// Creates counters for the values `names`; values in `usual` have a series from the start.
    #[must_use]
    pub fn new(names: &'static [&'static str], usual: &'static [&'static str]) -> Self {
        let counts = names.iter().map(|_| AtomicU64::new(0)).collect();
        Self { names, counts, usual }
    }

    /// Adds `more` to the count of the value with this index in `names`.
    pub fn add(&self, index: usize, more: u64) {
        self.counts[index].fetch_add(more, Relaxed);
    }

    /// Returns the sum of all counts.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> Counts {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let named = self.names.iter().copied().zip(counts);
        named.filter(|(name, count)| *count > 0 || self.usual.contains(name)).collect()
    }
}

/// The current number of things. Each thing counts until its guard is dropped.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicU64>);

/// One thing that a [`Gauge`] counts.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl Gauge {
    /// Counts one more thing, until the guard is dropped.
    #[must_use]
    pub fn enter(&self) -> GaugeGuard {
        self.0.fetch_add(1, Relaxed);
        GaugeGuard(self.clone())
    }

    /// Returns the current number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Reloads of the configuration, by result.
pub static CONFIG_RELOADS: Metric = counter(
    "curtail_config_reloads",
    &["result"],
    "New configurations that were read. `failed`: the new configuration had errors, and the old one stays in effect.",
);

/// The counters of [`CONFIG_RELOADS`].
#[derive(Debug, Default)]
pub struct ReloadCounters([AtomicU64; 2]);

impl ReloadCounters {
    /// Counts a configuration that took effect (`is_ok`), or that was rejected.
    pub fn count(&self, is_ok: bool) {
        self.0[usize::from(!is_ok)].fetch_add(1, Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> [(&'static str, u64); 2] {
        let [ok, failed] = self.0.each_ref().map(|count| count.load(Relaxed));
        [("ok", ok), ("failed", failed)]
    }
}

impl<'a> FamilyCollector<'a> {
    /// Adds [`CONFIG_RELOADS`].
    pub fn reloads(&mut self, counts: [(&'a str, u64); 2]) {
        self.add(&CONFIG_RELOADS, counts.map(|(result, count)| ([("result", result)], count)));
    }
}

#[cfg(test)]
mod tests {
    use super::{CounterVec, Gauge};

    #[test]
    fn usual_values_are_shown_from_the_start_and_others_once_counted() {
        let counts = CounterVec::new(&["good", "bad", "rare", "never"], &["good", "bad"]);
        assert_eq!(counts.read(), [("good", 0), ("bad", 0)]);
        counts.add(2, 1);
        counts.add(0, 2);
        assert_eq!(counts.read(), [("good", 2), ("bad", 0), ("rare", 1)]);
        assert_eq!(counts.sum(), 3);
    }

    #[test]
    fn a_gauge_counts_what_has_not_ended() {
        let gauge = Gauge::default();
        let (first, second) = (gauge.enter(), gauge.clone().enter());
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert_eq!(gauge.get(), 1);
        drop(second);
        assert_eq!(gauge.get(), 0);
    }
}
