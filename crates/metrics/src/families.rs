//! Families of series: the input of every exposition format.

use crate::{Counts, Metric};
use curtail_sketch::Histogram;
use std::borrow::Cow;

/// The content of one scrape.
pub trait MetricsSnapshot: std::fmt::Debug + Send + Sync + 'static {
    /// Returns every metric that has a series, in the order of the exposition.
    fn families(&self) -> Vec<Family<'_>>;
}

/// The name and value of a label.
pub type Label<'a> = (&'a str, &'a str);

/// A metric and all its series.
#[derive(Debug)]
pub struct Family<'a> {
    /// The metric.
    pub metric: &'static Metric,
    /// The series of the metric.
    pub series: Vec<Series<'a>>,
}

/// One series of a metric.
#[derive(Debug)]
pub struct Series<'a> {
    /// The labels of the series.
    pub labels: Vec<Label<'a>>,
    /// The value of the series.
    pub value: SeriesValue<'a>,
}

/// The value of a series.
#[derive(Clone, Debug)]
pub enum SeriesValue<'a> {
    /// A count.
    Int(u64),
    /// A number.
    Float(f64),
    /// A histogram of durations.
    Histogram(Cow<'a, Histogram>),
    /// The constant 1 of a metric whose labels carry the information.
    Info,
}

impl From<u64> for SeriesValue<'_> {
    fn from(value: u64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for SeriesValue<'_> {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<usize> for SeriesValue<'_> {
    fn from(value: usize) -> Self {
        Self::Int(value as u64)
    }
}

impl From<f64> for SeriesValue<'_> {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl<'a> From<&'a Histogram> for SeriesValue<'a> {
    fn from(durations: &'a Histogram) -> Self {
        Self::Histogram(Cow::Borrowed(durations))
    }
}

impl From<Histogram> for SeriesValue<'_> {
    fn from(durations: Histogram) -> Self {
        Self::Histogram(Cow::Owned(durations))
    }
}

/// Collects families: metrics with all their series.
#[derive(Debug, Default)]
pub struct FamilyCollector<'a> {
    families: Vec<Family<'a>>,
}

impl<'a> FamilyCollector<'a> {
    /// Adds a metric with all series.
    pub fn add<const N: usize, V: Into<SeriesValue<'a>>>(
        &mut self,
        metric: &'static Metric,
        series: impl IntoIterator<Item = ([Label<'a>; N], V)>,
    ) {
        let series = series.into_iter();
        let series = series
            .map(|(labels, value)| Series { labels: labels.to_vec(), value: value.into() })
            .collect();
        self.families.push(Family { metric, series });
    }

    /// Adds counters with one more label: the name of the label, and its values with their counts.
    pub fn counts(
        &mut self,
        metric: &'static Metric,
        series: impl Iterator<Item = (Label<'a>, &'a str, &'a Counts)>,
    ) {
        let split = series.flat_map(|(owner, label, counts)| {
            counts.iter().map(move |&(value, count)| ([owner, (label, value)], count))
        });
        self.add(metric, split);
    }

    /// Adds histograms with one label.
    pub fn histograms(
        &mut self,
        metric: &'static Metric,
        series: impl Iterator<Item = (Label<'a>, impl Into<SeriesValue<'a>>)>,
    ) {
        self.add(metric, series.map(|(label, durations)| ([label], durations)));
    }

    /// Adds a metric of type info: a label with its value.
    pub fn info(&mut self, metric: &'static Metric, label: Label<'a>) {
        self.add(metric, [([label], SeriesValue::Info)]);
    }

    /// Returns all families, in the order in which they were added.
    #[must_use]
    pub fn into_families(self) -> Vec<Family<'a>> {
        self.families
    }
}
