//! What was gathered of groups of spans.
//!
//! All numbers of a group are kept, and a quantile is one of them. When they are more than [`EXACT_MAX`] in
//! all, durations are counted in a histogram for each group instead, and quantiles have its error.
//!
//! **Source**: the rule of ranks is in [`curtail_sketch::rank()`].

use super::filter::took;
use super::measure::{EXACT_MAX, GROUPS_MAX, NotMeasured, What, number, ordered};
use super::of::Of;
use crate::schema::spans::DURATION;
use curtail_sketch::{Histogram, Precision, rank};
use curtail_units::{Duration, Quantile};
use std::collections::BTreeMap;

/// Spans that have the same values in the same step of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// When the step begins, in nanoseconds since 1970; zero without steps.
    pub start_ns: i64,
    /// In the order in which they were asked for; none where a span has none.
    pub values: Vec<Option<String>>,
    /// How many spans there are with the number that was asked for, or were before only the tail of them
    /// stayed.
    pub count: u64,
    /// What was asked for of their numbers; durations are in nanoseconds.
    pub numbers: Numbers,
}

/// What was measured of numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Nothing was asked for.
    Uncounted,
    /// In the order in which they were asked for.
    Quantiles(Vec<f64>),
    /// Of all.
    Extremes {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
        /// All together.
        sum: f64,
    },
    /// The counts of values up to each power of two, in order. Values at or below zero are in a bucket at zero.
    Buckets(Vec<(f64, u64)>),
}

pub(super) type Name = (i64, Vec<Option<String>>);

/// Numbers of all groups.
pub(super) struct Gathered<'a> {
    what: &'a What,
    /// Whether the numbers are durations; other numbers are [`ordered`].
    is_of_durations: bool,
    groups: BTreeMap<Name, usize>,
    counts: Vec<u64>,
    gathering: Gathering,
    /// Of the quantiles that were answered, as a share of them.
    error: f64,
}

/// What is gathered of each group.
enum Gathering {
    Nothing,
    /// All, and how many in all groups.
    Exact(Vec<Exact>, usize),
    /// In place of those, once there are too many.
    Counted(Vec<Histogram>),
    /// The least, the greatest, and the sum.
    Extremes(Vec<(i64, i64, f64)>),
    /// By the [`ordered`] power of two.
    Buckets(Vec<BTreeMap<i64, u64>>),
}

impl<'a> Gathered<'a> {
    pub(super) fn new(what: &'a What) -> Self {
        let (number, gathering) = match what {
            What::Count => (None, Gathering::Nothing),
            What::Quantiles(of, _) => (Some(of), Gathering::Exact(Vec::new(), 0)),
            What::Extremes(of) => (Some(of), Gathering::Extremes(Vec::new())),
            What::Buckets(of) => (Some(of), Gathering::Buckets(Vec::new())),
        };
        let is_of_durations = number == Some(&Of::Column(DURATION));
        Self {
            what,
            is_of_durations,
            groups: BTreeMap::new(),
            counts: Vec::new(),
            gathering,
            error: 0.0,
        }
    }

    /// The number of a group, which is added if it is new.
    pub(super) fn group(&mut self, name: Name) -> usize {
        let next = self.groups.len();
        let group = *self.groups.entry(name).or_insert(next);
        if group == next {
            self.counts.push(0);
            match &mut self.gathering {
                Gathering::Nothing => {}
                Gathering::Exact(exact, _) => exact.push(Exact::default()),
                Gathering::Counted(counted) => counted.push(Histogram::new(Precision::FINE)),
                Gathering::Extremes(extremes) => extremes.push((i64::MAX, i64::MIN, 0.0)),
                Gathering::Buckets(buckets) => buckets.push(BTreeMap::new()),
            }
        }
        group
    }

    /// Takes a number that stands for so many.
    pub(super) fn push(
        &mut self,
        group: usize,
        ordered: i64,
        weight: u64,
    ) -> Result<(), NotMeasured> {
        if self.counts.len() > GROUPS_MAX {
            return Err(NotMeasured::Groups);
        }
        self.counts[group] += weight;
        let number = || told(self.is_of_durations, ordered);
        match &mut self.gathering {
            Gathering::Nothing => {}
            Gathering::Counted(counted) => {
                counted[group].record_n(duration(ordered), weight);
            }
            Gathering::Extremes(extremes) => {
                let (min, max, sum) = &mut extremes[group];
                *min = ordered.min(*min);
                *max = ordered.max(*max);
                #[expect(clippy::cast_precision_loss, reason = "a sum need not be exacter")]
                let weight = weight as f64;
                *sum += weight * number();
            }
            Gathering::Buckets(buckets) => {
                *buckets[group].entry(self::ordered(bucket(number()))).or_default() += weight;
            }
            Gathering::Exact(exact, count) => {
                exact[group].push(ordered, weight);
                *count += 1;
                if *count > EXACT_MAX {
                    if !self.is_of_durations {
                        return Err(NotMeasured::Numbers);
                    }
                    self.gathering = Gathering::Counted(exact.iter_mut().map(counted).collect());
                }
            }
        }
        Ok(())
    }

    /// Takes numbers that stand for themselves alone, each with its group.
    pub(super) fn push_all(&mut self, groups: &[u32], ordered: &[i64]) -> Result<(), NotMeasured> {
        if let Gathering::Exact(exact, count) = &mut self.gathering
            && *count + groups.len() <= EXACT_MAX
            && self.counts.len() <= GROUPS_MAX
        {
            *count += groups.len();
            for (group, ordered) in groups.iter().zip(ordered) {
                self.counts[*group as usize] += 1;
                exact[*group as usize].single.push(*ordered);
            }
            return Ok(());
        }
        groups
            .iter()
            .zip(ordered)
            .try_for_each(|(group, ordered)| self.push(*group as usize, *ordered, 1))
    }

    /// All groups, and the error of quantiles.
    pub(super) fn answer(mut self) -> (Vec<Group>, f64) {
        let mut groups = Vec::new();
        for ((start_ns, values), group) in std::mem::take(&mut self.groups) {
            let numbers = self.numbers(group);
            groups.push(Group { start_ns, values, count: self.counts[group], numbers });
        }
        (groups, self.error)
    }

    fn numbers(&mut self, group: usize) -> Numbers {
        let quantiles = match self.what {
            What::Quantiles(_, quantiles) => &**quantiles,
            What::Count | What::Extremes(_) | What::Buckets(_) => &[],
        };
        let is_of_durations = self.is_of_durations;
        match &mut self.gathering {
            Gathering::Nothing => Numbers::Uncounted,
            Gathering::Exact(exact, _) => {
                let all = &mut exact[group];
                let each = |at: &Quantile| told(is_of_durations, all.quantile(*at));
                Numbers::Quantiles(quantiles.iter().map(each).collect())
            }
            Gathering::Counted(counted) => {
                let counted = &counted[group];
                let found = quantiles.iter().map(|at| counted.quantile(*at).unwrap_or_default());
                let found: Vec<_> = found.collect();
                let error = found.iter().map(|found| error(counted, *found));
                self.error = error.fold(self.error, f64::max);
                Numbers::Quantiles(found.into_iter().map(Duration::as_ns_f64).collect())
            }
            Gathering::Extremes(extremes) => {
                let (min, max, sum) = extremes[group];
                Numbers::Extremes {
                    min: told(is_of_durations, min),
                    max: told(is_of_durations, max),
                    sum,
                }
            }
            Gathering::Buckets(buckets) => {
                let buckets = buckets[group].iter();
                Numbers::Buckets(buckets.map(|(power, count)| (number(*power), *count)).collect())
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "to 104 days a duration is exact")]
fn told(is_duration: bool, ordered: i64) -> f64 {
    if is_duration { took(ordered) as f64 } else { number(ordered) }
}

/// All numbers of a group.
#[derive(Default)]
struct Exact {
    /// Of spans that stand for themselves: nearly all.
    single: Vec<i64>,
    /// Of others, with their weights.
    weighted: Vec<(i64, u64)>,
}

impl Exact {
    fn push(&mut self, ordered: i64, weight: u64) {
        match weight {
            1 => self.single.push(ordered),
            _ => self.weighted.push((ordered, weight)),
        }
    }

    /// The value of a quantile's rank.
    fn quantile(&mut self, quantile: Quantile) -> i64 {
        let weighted: u64 = self.weighted.iter().map(|(_, weight)| weight).sum();
        let rank = rank(quantile, self.single.len() as u64 + weighted).max(1);
        if self.weighted.is_empty() {
            let nth = usize::try_from(rank - 1).unwrap_or_default();
            return *self.single.select_nth_unstable(nth).1;
        }
        // Sorted when it was asked before.
        self.single.sort_unstable();
        self.weighted.sort_unstable();
        let mut single = self.single.iter().map(|one| (*one, 1)).peekable();
        let mut weighted = self.weighted.iter().copied().peekable();
        let (mut below, mut last) = (0, 0);
        while below < rank {
            let is_single = match (single.peek(), weighted.peek()) {
                (Some(one), Some(other)) => one <= other,
                (one, _) => one.is_some(),
            };
            let next = if is_single { single.next() } else { weighted.next() };
            let Some((value, weight)) = next else { break };
            (below, last) = (below + weight, value);
        }
        last
    }
}

fn duration(ns: i64) -> Duration {
    Duration::from_ns(took(ns).cast_unsigned())
}

fn counted(all: &mut Exact) -> Histogram {
    let mut histogram = Histogram::new(Precision::FINE);
    let Exact { single, weighted } = std::mem::take(all);
    single.into_iter().for_each(|ns| histogram.record(duration(ns)));
    weighted.into_iter().for_each(|(ns, weight)| histogram.record_n(duration(ns), weight));
    histogram
}

/// By which share of it a duration that was found may be wrong. The last bucket has all that are longer.
fn error(counted: &Histogram, found: Duration) -> f64 {
    let usual = Precision::FINE.error();
    if counted.overflowed() == 0 || found.mul_f64(1.0 + 2.0 * usual) < Precision::END {
        return usual;
    }
    let longest = counted.max().unwrap_or_default();
    usual.max(longest.as_ns_f64() / found.as_ns_f64() - 1.0)
}

/// The smallest power of two that is not below a number; at least one for durations, which are whole.
fn bucket(number: f64) -> f64 {
    const FRACTION_BITS: u32 = 52;
    if number <= 0.0 {
        return 0.0;
    }
    // A power of two has no fraction bits; any other number belongs to the next power. The last one is infinity.
    let power = number.max(f64::MIN_POSITIVE).to_bits() >> FRACTION_BITS << FRACTION_BITS;
    let power = f64::from_bits(power);
    let next = f64::from_bits(power.to_bits() + (1 << FRACTION_BITS));
    if power < number { next } else { power }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn a_bucket_is_the_next_power_of_two_at_every_size() {
        for (number, power) in [
            (-1.0, 0.0),
            (0.0, 0.0),
            (1.0, 1.0),
            (1.5, 2.0),
            (1_024.0, 1_024.0),
            (1_025.0, 2_048.0),
            (0.3, 0.5),
            (1e300, 2.0_f64.powi(997)),
            (f64::MAX, f64::INFINITY),
            (f64::INFINITY, f64::INFINITY),
            (f64::from_bits(1), f64::MIN_POSITIVE),
        ] {
            assert_eq!(bucket(number).to_bits(), f64::to_bits(power), "{number}");
        }
    }
}
