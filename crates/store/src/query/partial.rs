//! The aggregate of some spans, by group. Partials can be merged, so that cores, runs and machines can share a query.
//!
//! A partial keeps all numbers of a group, so quantiles are exact. Beyond [`EXACT_MAX`] numbers in all, it counts
//! durations in a histogram for each group instead, and quantiles have the error of the histogram.
//!
//! **Invariant**: partials merged in the order of their rows equal one partial of all rows. Only sums depend on the
//! order.
//!
//! **Source**: the rule of ranks is in [`curtail_sketch::rank()`].

use super::filter::took;
use super::measure::{
    Aggregate, AggregateError, AggregateQuery, BY_MAX, EXACT_MAX, GROUPS_MAX, ordered, read_ordered,
};
use super::select::select;
use super::span_field::SpanField;
use crate::columns::{Dictionary, Plain, text};
use crate::schema::spans::DURATION;
use curtail_sketch::{Histogram, Precision, rank};
use curtail_units::{Duration, Quantile};
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Minimum length of a piece of numbers. A shorter piece is copied to the end of the one before.
const PIECE_MIN: usize = 256;

/// Spans that have the same values in the same step of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The start of the step, in nanoseconds since 1970; zero if the query has no steps.
    pub start_ns: i64,
    /// The values in the order of the query's fields; [`None`] where the spans have no value.
    pub values: Vec<Option<String>>,
    /// The number of spans that have the number of the query, as their weights say.
    pub count: u64,
    /// The aggregate of their numbers; durations are in nanoseconds.
    pub numbers: Numbers,
}

/// The aggregate of numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// The query has no number.
    Uncounted,
    /// The quantiles in the order of the query.
    Quantiles(Vec<f64>),
    /// The extremes and the sum of all numbers.
    Extremes {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
        /// The sum.
        sum: f64,
    },
    /// The upper bound of each bucket, a power of two, and its count. Numbers up to zero are in the bucket of zero.
    Buckets(Vec<(f64, u64)>),
}

/// The identity of a group within a partial: the start of its step, and the codes of its values; zero is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    pub(super) start_ns: i64,
    pub(super) values: [u32; BY_MAX],
}

/// The aggregate of some spans.
#[derive(Debug)]
pub(super) struct Partial {
    /// Whether the numbers are durations; other numbers are [`ordered`].
    is_of_durations: bool,
    /// The texts of all values by which spans are grouped.
    values: Dictionary,
    groups: HashMap<GroupKey, u32>,
    /// The key of each group by its number, which also indexes the next two fields.
    keys: Vec<GroupKey>,
    counts: Vec<u64>,
    numbers: GroupNumbers,
}

/// The numbers of each group.
#[derive(Debug)]
enum GroupNumbers {
    Nothing,
    /// All numbers, and their count in all groups.
    Exact(Vec<ExactNumbers>, usize),
    /// Replaces exact numbers, when there are too many.
    Histograms(Vec<Histogram>),
    Extremes(Vec<Extremes>),
    /// The count of each bucket by its [`ordered`] power of two.
    Buckets(Vec<BTreeMap<i64, u64>>),
}

impl Partial {
    pub(super) fn new(what: &Aggregate) -> Self {
        let numbers = match what {
            Aggregate::Count => GroupNumbers::Nothing,
            Aggregate::Quantiles(..) => GroupNumbers::Exact(Vec::new(), 0),
            Aggregate::Extremes(_) => GroupNumbers::Extremes(Vec::new()),
            Aggregate::Buckets(_) => GroupNumbers::Buckets(Vec::new()),
        };
        Self {
            is_of_durations: what.number() == Some(&SpanField::Column(DURATION)),
            values: Dictionary::new(Plain::Text),
            groups: HashMap::new(),
            keys: Vec::new(),
            counts: Vec::new(),
            numbers,
        }
    }

    /// The code of a value, which is added if it is new.
    pub(super) fn intern(&mut self, value: &str) -> u32 {
        self.values.intern(value.as_bytes())
    }

    /// The number of a group, which is added if it is new.
    pub(super) fn group(&mut self, key: GroupKey) -> u32 {
        let next = u32::try_from(self.keys.len()).expect("there are no more groups than rows");
        let group = *self.groups.entry(key).or_insert(next);
        if group == next {
            self.keys.push(key);
            self.counts.push(0);
            match &mut self.numbers {
                GroupNumbers::Nothing => {}
                GroupNumbers::Exact(exact, _) => exact.push(ExactNumbers::default()),
                GroupNumbers::Histograms(all) => all.push(Histogram::new(Precision::FINE)),
                GroupNumbers::Extremes(extremes) => extremes.push(Extremes::NONE),
                GroupNumbers::Buckets(buckets) => buckets.push(BTreeMap::new()),
            }
        }
        group
    }

    /// Adds the number of a row to a group, as often as the weight of the row says.
    pub(super) fn push(
        &mut self,
        group: u32,
        ordered: i64,
        weight: u64,
    ) -> Result<(), AggregateError> {
        let group = group as usize;
        self.counts[group] += weight;
        match &mut self.numbers {
            GroupNumbers::Nothing => {}
            GroupNumbers::Exact(exact, count) => {
                *count += 1;
                exact[group].weighted.push((ordered, weight));
            }
            GroupNumbers::Histograms(all) => all[group].record_n(duration(ordered), weight),
            GroupNumbers::Extremes(extremes) => {
                let number = read_number(self.is_of_durations, ordered);
                extremes[group].push(ordered, number, weight);
            }
            GroupNumbers::Buckets(buckets) => {
                let number = read_number(self.is_of_durations, ordered);
                *buckets[group].entry(self::ordered(bucket(number))).or_default() += weight;
            }
        }
        self.check()
    }

    /// Adds the numbers of rows with a weight of one, each to its group.
    pub(super) fn push_all(
        &mut self,
        groups: &[u32],
        ordered: &[i64],
    ) -> Result<(), AggregateError> {
        let GroupNumbers::Exact(exact, count) = &mut self.numbers else {
            let mut each = groups.iter().zip(ordered);
            return each.try_for_each(|(group, ordered)| self.push(*group, *ordered, 1));
        };
        *count += groups.len();
        // A counting sort: each group has a range of one buffer.
        let mut lens = vec![0; exact.len()];
        groups.iter().for_each(|group| lens[*group as usize] += 1);
        let mut ends: Vec<usize> = lens
            .iter()
            .scan(0, |end, len| {
                *end += len;
                Some(*end - len)
            })
            .collect();
        let mut sorted = vec![0; groups.len()];
        for (group, ordered) in groups.iter().zip(ordered) {
            let end = &mut ends[*group as usize];
            sorted[*end] = *ordered;
            *end += 1;
        }
        for ((exact, count), (len, end)) in
            exact.iter_mut().zip(&mut self.counts).zip(lens.into_iter().zip(ends))
        {
            *count += len as u64;
            if len > 0 {
                exact.single.push(sorted[end - len..end].to_vec());
            }
        }
        self.check()
    }

    /// Adds the aggregate of later rows.
    pub(super) fn merge(&mut self, mut later: Self) -> Result<(), AggregateError> {
        let codes: Vec<_> = later.values.iter().map(|value| self.values.intern(value)).collect();
        let code = |of_later: u32| of_later.checked_sub(1).map_or(0, |nth| codes[nth as usize]);
        let groups: Vec<_> = later
            .keys
            .iter()
            .map(|key| self.group(GroupKey { values: key.values.map(code), ..*key }) as usize)
            .collect();
        groups.iter().zip(&later.counts).for_each(|(group, count)| self.counts[*group] += count);
        if matches!(
            (&self.numbers, &later.numbers),
            (GroupNumbers::Exact(..), GroupNumbers::Histograms(_))
                | (GroupNumbers::Histograms(_), GroupNumbers::Exact(..))
        ) {
            self.numbers.use_histograms();
            later.numbers.use_histograms();
        }
        let groups = groups.into_iter();
        match (&mut self.numbers, later.numbers) {
            (GroupNumbers::Exact(exact, count), GroupNumbers::Exact(later, more)) => {
                *count += more;
                groups.zip(later).for_each(|(group, later)| exact[group].merge(later));
            }
            (GroupNumbers::Histograms(all), GroupNumbers::Histograms(later)) => {
                groups.zip(&later).for_each(|(group, later)| all[group].merge(later));
            }
            (GroupNumbers::Extremes(extremes), GroupNumbers::Extremes(later)) => {
                groups.zip(&later).for_each(|(group, later)| extremes[group].merge(later));
            }
            (GroupNumbers::Buckets(buckets), GroupNumbers::Buckets(later)) => {
                for (group, later) in groups.zip(later) {
                    for (bucket, count) in later {
                        *buckets[group].entry(bucket).or_default() += count;
                    }
                }
            }
            // The query has no number.
            _ => {}
        }
        self.check()
    }

    /// Checks the maxima of groups and numbers, and changes to histograms if durations exceed theirs.
    fn check(&mut self) -> Result<(), AggregateError> {
        if self.keys.len() > GROUPS_MAX {
            return Err(AggregateError::Groups);
        }
        if matches!(self.numbers, GroupNumbers::Exact(_, count) if count > EXACT_MAX) {
            if !self.is_of_durations {
                return Err(AggregateError::Numbers);
            }
            self.numbers.use_histograms();
        }
        Ok(())
    }

    /// All groups in order, and the maximum relative error of their quantiles.
    pub(super) fn finish(self, query: &AggregateQuery) -> (Vec<Group>, f64) {
        let value = |code: &u32| (*code != 0).then(|| text(self.values.get(*code)).to_owned());
        let named = self.keys.iter().enumerate().map(|(group, key)| {
            let values = key.values[..query.by.len()].iter().map(value);
            (key.start_ns, values.collect::<Vec<_>>(), group)
        });
        let mut named: Vec<_> = named.collect();
        named.sort_unstable();
        let (mut groups, mut error) = (Vec::new(), 0.0);
        for (start_ns, values, group) in named {
            let (numbers, of_group) = self.numbers_of(group, &query.what);
            error = f64::max(error, of_group);
            groups.push(Group { start_ns, values, count: self.counts[group], numbers });
        }
        (groups, error)
    }

    /// The aggregate of the numbers of a group, and the maximum relative error of its quantiles.
    fn numbers_of(&self, group: usize, what: &Aggregate) -> (Numbers, f64) {
        let quantiles = match what {
            Aggregate::Quantiles(_, quantiles) => &**quantiles,
            Aggregate::Count | Aggregate::Extremes(_) | Aggregate::Buckets(_) => &[],
        };
        let number = |ordered: i64| read_number(self.is_of_durations, ordered);
        let exact = match &self.numbers {
            GroupNumbers::Nothing => Numbers::Uncounted,
            GroupNumbers::Exact(exact, _) => {
                let found = exact[group].quantiles(quantiles);
                Numbers::Quantiles(found.into_iter().map(number).collect())
            }
            GroupNumbers::Histograms(all) => {
                let all = &all[group];
                let found = quantiles.iter().map(|at| all.quantile(*at).unwrap_or_default());
                let found: Vec<_> = found.collect();
                let error = found.iter().map(|found| error(all, *found)).fold(0.0, f64::max);
                let found = found.into_iter().map(Duration::as_ns_f64).collect();
                return (Numbers::Quantiles(found), error);
            }
            GroupNumbers::Extremes(extremes) => {
                let Extremes { min, max, sum } = extremes[group];
                Numbers::Extremes { min: number(min), max: number(max), sum }
            }
            GroupNumbers::Buckets(buckets) => {
                let each = buckets[group].iter();
                Numbers::Buckets(
                    each.map(|(power, count)| (read_ordered(*power), *count)).collect(),
                )
            }
        };
        (exact, 0.0)
    }
}

impl GroupNumbers {
    /// Replaces exact numbers by histograms.
    fn use_histograms(&mut self) {
        if let Self::Exact(exact, _) = self {
            *self = Self::Histograms(exact.iter().map(ExactNumbers::histogram).collect());
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "to 104 days a duration is exact")]
fn read_number(is_duration: bool, ordered: i64) -> f64 {
    if is_duration { took(ordered) as f64 } else { read_ordered(ordered) }
}

/// All numbers of a group.
#[derive(Debug, Default)]
struct ExactNumbers {
    /// The numbers of spans with weight one (nearly all), in pieces, which merging does not copy.
    single: Vec<Vec<i64>>,
    /// The numbers of other spans, with their weights.
    weighted: Vec<(i64, u64)>,
}

impl ExactNumbers {
    fn merge(&mut self, later: Self) {
        for piece in later.single {
            match self.single.last_mut() {
                Some(last) if piece.len() < PIECE_MIN => last.extend(piece),
                _ => self.single.push(piece),
            }
        }
        self.weighted.extend(later.weighted);
    }

    /// The numbers at the ranks of the quantiles.
    fn quantiles(&self, quantiles: &[Quantile]) -> Vec<i64> {
        let single: usize = self.single.iter().map(Vec::len).sum();
        let weighted: u64 = self.weighted.iter().map(|(_, weight)| weight).sum();
        let ranks = quantiles.iter().map(|at| rank(*at, single as u64 + weighted).max(1));
        if self.weighted.is_empty() {
            let nth = |rank: u64| usize::try_from(rank - 1).expect("no more than there are");
            return ranks.map(|rank| select(&self.single, nth(rank))).collect();
        }
        let single = self.single.iter().flatten().map(|number| (*number, 1));
        let mut all: Vec<_> = single.chain(self.weighted.iter().copied()).collect();
        all.sort_unstable();
        let mut below = 0;
        for (_, weight) in &mut all {
            below += *weight;
            *weight = below;
        }
        ranks.map(|rank| all[all.partition_point(|(_, below)| *below < rank)].0).collect()
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new(Precision::FINE);
        self.single.iter().flatten().for_each(|ns| histogram.record(duration(*ns)));
        self.weighted.iter().for_each(|(ns, weight)| histogram.record_n(duration(*ns), *weight));
        histogram
    }
}

/// The least, the greatest, and the sum of the numbers of a group.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    min: i64,
    max: i64,
    sum: f64,
}

impl Extremes {
    const NONE: Self = Self { min: i64::MAX, max: i64::MIN, sum: 0.0 };

    fn push(&mut self, ordered: i64, number: f64, weight: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a sum need not be exacter")]
        let weight = weight as f64;
        self.merge(&Self { min: ordered, max: ordered, sum: weight * number });
    }

    fn merge(&mut self, later: &Self) {
        let Self { min, max, sum } = *later;
        *self = Self { min: self.min.min(min), max: self.max.max(max), sum: self.sum + sum };
    }
}

fn duration(ns: i64) -> Duration {
    Duration::from_ns(took(ns).cast_unsigned())
}

/// The relative error of a quantile of a histogram. The last bucket also has all longer durations.
fn error(histogram: &Histogram, found: Duration) -> f64 {
    let usual = Precision::FINE.error();
    if histogram.overflowed() == 0 || found.mul_f64(1.0 + 2.0 * usual) < Precision::END {
        return usual;
    }
    let longest = histogram.max().unwrap_or_default();
    usual.max(longest.as_ns_f64() / found.as_ns_f64() - 1.0)
}

/// The smallest power of two that is at least a number; zero for numbers up to zero.
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
