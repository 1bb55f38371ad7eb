//! Counters to which many threads add.

use crate::{FamilyCollector, Metric, counter};
use curtail_sketch::{AtomicHistogram, Histogram};
use curtail_units::Label;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The values of a label and their counts.
pub type Counts = Vec<(&'static str, u64)>;

/// A counter or histogram that a scrape copies.
pub trait Instrument {
    /// The copy.
    type Value: Clone + std::fmt::Debug;

    /// The value now.
    fn read(&self) -> Self::Value;
}

/// A counter. Counting is one addition.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }
}

impl Instrument for Counter {
    type Value = u64;

    fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Instrument for AtomicHistogram {
    type Value = Histogram;

    fn read(&self) -> Histogram {
        self.snapshot()
    }
}

/// Declares a struct of counters, and the struct of their values in a scrape. A counter without a first value begins as
/// its default. The values are read in the order of the fields.
#[macro_export]
macro_rules! counters {
    (@first $kind:ty) => { <$kind as Default>::default() };
    (@first $kind:ty, $new:expr) => { $new };
    (
        $(#[$doc:meta])*
        $vis:vis $counters:ident, $counts:ident {
            $($(#[$field_doc:meta])* $field:ident: $kind:ty $(= $new:expr)?,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        $vis struct $counters {
            $($(#[$field_doc])* $vis $field: $kind,)+
        }

        #[doc = concat!("The values of [`", stringify!($counters), "`].")]
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $counts {
            $($(#[$field_doc])* $vis $field: <$kind as $crate::Instrument>::Value,)+
        }

        impl Default for $counters {
            fn default() -> Self {
                Self { $($field: $crate::counters!(@first $kind $(, $new)?),)+ }
            }
        }

        impl $counters {
            /// The values now.
            $vis fn read(&self) -> $counts {
                $counts { $($field: $crate::Instrument::read(&self.$field),)+ }
            }
        }
    };
}

/// One counter for each value of a label. Counting is one addition, without a map or a text.
#[derive(Debug)]
pub struct CounterVec<L> {
    counts: Box<[Counter]>,
    /// The values that are shown from the start, so that their first increase is seen; any other is shown once it has
    /// been counted.
    usual: &'static [&'static str],
    label: PhantomData<fn(&L)>,
}

impl<L: Label> CounterVec<L> {
    /// Counters for a label of which only the values named in `usual` are expected.
    #[must_use]
    pub fn usually(usual: &'static [&'static str]) -> Self {
        let counts = L::NAMES.iter().map(|_| Counter::default()).collect();
        Self { counts, usual, label: PhantomData }
    }

    /// Adds to the count of a value.
    pub fn add(&self, label: &L, more: u64) {
        self.counts[label.index()].add(more);
    }

    /// Returns the sum of all counts.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.counts.iter().map(Instrument::read).sum()
    }
}

impl<L: Label> Default for CounterVec<L> {
    /// Counters for a label of which every value is expected.
    fn default() -> Self {
        Self::usually(L::NAMES)
    }
}

impl<L: Label> Instrument for CounterVec<L> {
    type Value = Counts;

    fn read(&self) -> Counts {
        let counts = self.counts.iter().map(Instrument::read);
        let named = L::NAMES.iter().copied().zip(counts);
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

    /// Counts one more thing, unless there are already `max`.
    #[must_use]
    pub fn enter_below(&self, max: usize) -> Option<GaugeGuard> {
        let guard = GaugeGuard(self.clone());
        (self.0.fetch_add(1, Relaxed) < max as u64).then_some(guard)
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

/// The result of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadResult {
    /// The new configuration took effect.
    Ok,
    /// The new configuration was rejected.
    Failed,
}

curtail_units::labels!(ReloadResult { Ok => "ok", Failed => "failed", });

impl ReloadResult {
    /// The result of a reload that returned `applied`.
    pub const fn of<T, E>(applied: &Result<T, E>) -> Self {
        if applied.is_ok() { Self::Ok } else { Self::Failed }
    }
}

impl<'a> FamilyCollector<'a> {
    /// Adds [`CONFIG_RELOADS`].
    pub fn reloads(&mut self, counts: &Counts) {
        let series = counts.iter().map(|(result, count)| ([("result", *result)], *count));
        self.add(&CONFIG_RELOADS, series);
    }
}

#[cfg(test)]
mod tests {
    use super::{CounterVec, Gauge, Instrument as _};

    #[expect(dead_code, reason = "the name of a value that is never counted")]
    enum Word {
        Good,
        Bad,
        Rare,
        Never,
    }

    curtail_units::labels!(Word { Good => "good", Bad => "bad", Rare => "rare", Never => "never", });

    #[test]
    fn usual_values_are_shown_from_the_start_and_others_once_counted() {
        let counts = CounterVec::usually(&["good", "bad"]);
        assert_eq!(counts.read(), [("good", 0), ("bad", 0)]);
        counts.add(&Word::Rare, 1);
        counts.add(&Word::Good, 2);
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
        assert!(gauge.enter_below(1).is_none());
        assert_eq!(gauge.get(), 1, "the refused one does not count");
        assert!(gauge.enter_below(2).is_some());
        drop(second);
        assert_eq!(gauge.get(), 0);
    }
}
