use super::{SCHEMA, render};
use crate::{Family, FamilyCollector, Metric, MetricsSnapshot, histogram_seconds};
use curtail_protobuf::{Fields, Value, unzigzag};
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Rng};
use std::collections::BTreeMap;

static DURATION: Metric = histogram_seconds("curtail_request_duration", &["upstream"], "Time.");

/// A scrape with one histogram.
#[derive(Debug)]
struct Snapshot(Histogram);

impl MetricsSnapshot for Snapshot {
    fn families(&self) -> Vec<Family<'_>> {
        let mut out = FamilyCollector::default();
        out.add(&DURATION, [([("upstream", "s")], &self.0)]);
        out.into_families()
    }
}

fn bytes(message: &[u8], field: u64) -> Vec<&[u8]> {
    let value = |(number, value)| match value {
        Value::Bytes(bytes) if number == field => Some(bytes),
        Value::Bytes(_) | Value::Int(_) => None,
    };
    Fields(message).filter_map(value).collect()
}

fn ints(message: &[u8], field: u64) -> Vec<u64> {
    let value = |(number, value)| match value {
        Value::Int(value) if number == field => Some(value),
        Value::Bytes(_) | Value::Int(_) => None,
    };
    Fields(message).filter_map(value).collect()
}

/// The histogram of request durations.
fn histogram(scrape: &[u8]) -> Vec<u8> {
    let mut rest = Fields(scrape);
    while let Some(family) = rest.delimited() {
        if bytes(family, 1) == [b"curtail_request_duration_seconds"] {
            return bytes(bytes(family, 4)[0], 7)[0].to_vec();
        }
    }
    panic!("there is no such family");
}

/// The native buckets by index, as Prometheus reads them.
fn buckets(histogram: &[u8]) -> BTreeMap<i64, u64> {
    let mut deltas = ints(histogram, 13).into_iter().map(unzigzag);
    let (mut index, mut count, mut found) = (0, 0, BTreeMap::new());
    for span in bytes(histogram, 12) {
        index += unzigzag(ints(span, 1)[0]);
        for _ in 0..ints(span, 2)[0] {
            count += deltas.next().expect("a delta for each bucket");
            found.insert(index, u64::try_from(count).expect("a count"));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    found
}

#[test]
fn native_buckets_hold_every_duration_within_the_error_of_the_schema() {
    let mut snapshot = Snapshot(Histogram::new(Precision::FINE));
    let mut rng = Rng::new(7);
    let mut durations: Vec<f64> = (0..5_000).map(|_| 1e-4 * (rng.unit() * 12.0).exp()).collect();
    for seconds in &durations {
        snapshot.0.record(Duration::from_secs_f64(*seconds));
    }
    snapshot.0.record(Duration::ZERO);
    let histogram = histogram(&render(&snapshot));
    assert_eq!(ints(&histogram, 1), [5_001]);
    assert_eq!(
        ints(&histogram, 5).into_iter().map(unzigzag).collect::<Vec<_>>(),
        [i64::from(SCHEMA)]
    );
    assert_eq!(ints(&histogram, 7), [1]);
    let buckets = buckets(&histogram);
    assert_eq!(buckets.values().sum::<u64>(), 5_000);
    durations.sort_by(f64::total_cmp);
    let mut values = durations.iter();
    for (index, count) in buckets {
        let upper = (f64::from(i32::try_from(index).expect("an index")) / 16.0).exp2();
        let lower = upper / (1.0_f64 / 16.0).exp2();
        for value in values.by_ref().take(usize::try_from(count).expect("a count")) {
            let is_in = (lower * 0.995..=upper * 1.005).contains(value);
            assert!(is_in, "{value} is not within {lower} and {upper}");
        }
    }
}

#[test]
fn counts_of_buckets_never_fall_from_scrape_to_scrape() {
    let mut snapshot = Snapshot(Histogram::new(Precision::FINE));
    let mut rng = Rng::new(8);
    let mut before = BTreeMap::new();
    for _ in 0..50 {
        for _ in 0..20 {
            let seconds = 1e-6 * (rng.unit() * 20.0).exp();
            snapshot.0.record(Duration::from_secs_f64(seconds));
        }
        let now = buckets(&histogram(&render(&snapshot)));
        for (index, count) in before {
            assert!(now.get(&index).is_some_and(|now| *now >= count), "bucket {index}");
        }
        before = now;
    }
}

#[test]
fn a_histogram_without_values_is_native_too() {
    let histogram = histogram(&render(&Snapshot(Histogram::new(Precision::FINE))));
    assert!(buckets(&histogram).is_empty());
    assert_eq!(bytes(&histogram, 6).len(), 1, "a zero threshold marks it as native");
}
