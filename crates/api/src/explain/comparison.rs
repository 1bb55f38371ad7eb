//! The two populations of a comparison, each stated as a condition.
//!
//! | condition | traces |
//! |---|---|
//! | `service.version=1.4` | with a span, or a resource, that has this value of the attribute |
//! | `2h..1h` | that began between two times: each a length of time before now, a time as in other requests, or `now` |
//!
//! **Limits**: of the attribute, [`KNOWN_MAX`] values are kept for an error.

use crate::query_request::{duration_ns, time_ns};
use curtail_explain::{AttributeValue, Side, SpanRow};
use curtail_text::expectation;
use std::collections::BTreeSet;
use std::ops::Range;

/// Maximum number of values of an attribute that an error can name.
const KNOWN_MAX: usize = 20;

/// The condition that makes a trace one of a population.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Has { key: String, value: String },
    Began(Range<i64>),
}

/// A population.
#[derive(Clone, Debug)]
struct Population {
    text: String,
    condition: Condition,
    traces: u64,
    /// The traces that are not in the other population too.
    alone: u64,
    /// Values of the attribute that were seen.
    known: BTreeSet<String>,
}

/// Two populations of traces to compare.
#[derive(Clone, Debug)]
pub struct Comparison {
    baseline: Population,
    slow: Population,
}

impl Comparison {
    /// Parses the conditions of the baseline and of the traces to explain, at `now_ns` since 1970.
    ///
    /// # Errors
    /// Says what was expected instead of one of the conditions.
    pub fn parse([baseline, slow]: [&str; 2], now_ns: i64) -> Result<Self, String> {
        let [baseline, slow] =
            [Population::parse(baseline, now_ns)?, Population::parse(slow, now_ns)?];
        if baseline.condition == slow.condition {
            return Err(format!("expected two populations, found {:?} twice", slow.text));
        }
        Ok(Self { baseline, slow })
    }

    /// The times of the populations whose traces began in a time.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<i64>> {
        let range = |population: &Population| match &population.condition {
            Condition::Began(range) => Some(range.clone()),
            Condition::Has { .. } => None,
        };
        [&self.baseline, &self.slow].into_iter().filter_map(range).collect()
    }

    /// The side of a trace; [`None`] if it is in neither population, or in both.
    pub(super) fn side(&mut self, trace: &[SpanRow<'_>]) -> Option<Side> {
        let [is_baseline, is_slow] = [self.baseline.has(trace), self.slow.has(trace)];
        if is_baseline == is_slow {
            return None;
        }
        let (population, side) = if is_slow {
            (&mut self.slow, Side::Slow)
        } else {
            (&mut self.baseline, Side::Baseline)
        };
        population.alone += 1;
        Some(side)
    }

    /// Why one of the populations is empty.
    ///
    /// # Errors
    /// When one of them is.
    pub fn check(&self) -> Result<(), String> {
        [&self.baseline, &self.slow].into_iter().try_for_each(Population::check)
    }
}

impl Population {
    fn parse(text: &str, now_ns: i64) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected ATTRIBUTE=VALUE or a time range (as 2h..1h, FROM..TO in RFC 3339, or 1h..now), found {text:?}"
            )
        };
        let condition = if let Some((key, value)) = text.split_once('=') {
            Condition::Has { key: key.to_owned(), value: value.to_owned() }
        } else {
            let (from, to) = text.split_once("..").ok_or_else(wrong)?;
            let [from, to] = [time(from, now_ns), time(to, now_ns)];
            let range = from.zip(to).ok_or_else(wrong)?;
            if range.0 >= range.1 {
                return Err(format!(
                    "expected a time range that begins before its end, found {text:?}"
                ));
            }
            Condition::Began(range.0..range.1)
        };
        Ok(Self { text: text.to_owned(), condition, traces: 0, alone: 0, known: BTreeSet::new() })
    }

    fn has(&mut self, trace: &[SpanRow<'_>]) -> bool {
        let has = match &self.condition {
            Condition::Began(range) => trace
                .iter()
                .map(|row| row.span.start_ns)
                .min()
                .is_some_and(|ns| range.contains(&ns)),
            Condition::Has { key, value } => {
                let attributes = trace.iter().flat_map(|row| row.attributes);
                let mut has = false;
                for (_, found) in attributes.filter(|(of, _)| of == key) {
                    let found = match found {
                        AttributeValue::Text(text) => (*text).to_owned(),
                        AttributeValue::Number(number) => number.to_string(),
                    };
                    has |= found == *value;
                    if self.known.len() < KNOWN_MAX {
                        self.known.insert(found);
                    }
                }
                has
            }
        };
        self.traces += u64::from(has);
        has
    }

    fn check(&self) -> Result<(), String> {
        match (self.traces, self.alone) {
            (0, _) => {}
            (_, 0) => return Err(format!("every trace with {} is in both populations", self.text)),
            _ => return Ok(()),
        }
        let why = match &self.condition {
            Condition::Began(_) => "no trace began in this time".to_owned(),
            Condition::Has { key, value } => {
                let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
                expectation(value, &known, &format!("no span has the attribute {key}"))
            }
        };
        Err(format!("no trace has {}: {why}", self.text))
    }
}

/// A time: before `now_ns` by a length of time, or in one of the formats of requests.
fn time(text: &str, now_ns: i64) -> Option<i64> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    match text {
        "now" | "" => Some(now_ns),
        _ => match duration_ns(text).filter(|_| has_unit) {
            Some(before_ns) => now_ns.checked_sub(before_ns),
            None => time_ns(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use curtail_explain::SpanKind;
    use curtail_trace::Span;

    const NOW_NS: i64 = 1_750_000_000_000_000_000;
    const HOUR_NS: i64 = 3_600_000_000_000;

    fn side(comparison: &mut Comparison, start_ns: i64, version: &str) -> Option<Side> {
        let attributes = [("service.version", AttributeValue::Text(version))];
        let row = SpanRow {
            span: Span { id: 1, parent_id: 0, start_ns, end_ns: start_ns + 1 },
            service: "shop",
            operation: "GET /",
            kind: SpanKind::Server,
            is_abandoned: false,
            attributes: &attributes,
        };
        comparison.side(&[row])
    }

    #[test]
    fn times_are_before_now_or_as_in_other_requests() {
        let mut times = Comparison::parse(["2h..1h", "1h..now"], NOW_NS).expect("both are ranges");
        assert_eq!(
            times.ranges(),
            [NOW_NS - 2 * HOUR_NS..NOW_NS - HOUR_NS, NOW_NS - HOUR_NS..NOW_NS]
        );
        assert_eq!(side(&mut times, NOW_NS - HOUR_NS - 1, "1"), Some(Side::Baseline));
        assert_eq!(side(&mut times, NOW_NS - HOUR_NS, "1"), Some(Side::Slow));
        assert_eq!(side(&mut times, NOW_NS, "1"), None);
        let same = ["2025-06-15T13:06:40Z..2025-06-15T14:06:40Z", "1749996400..1750000000"];
        let same = Comparison::parse(same, NOW_NS).expect("both are ranges");
        assert_eq!(same.ranges(), times.ranges());
    }

    #[test]
    fn a_trace_has_one_value_of_an_attribute() {
        let texts = ["service.version=1.4", "service.version=1.5"];
        let mut versions = Comparison::parse(texts, NOW_NS).expect("both are attributes");
        assert_eq!(versions.ranges(), []);
        assert_eq!(side(&mut versions, 0, "1.4"), Some(Side::Baseline));
        assert_eq!(side(&mut versions, 0, "1.4.1"), None);
        let error = versions.check().expect_err("no trace has 1.5");
        assert_eq!(error, "no trace has service.version=1.5: did you mean 1.4?");
        assert_eq!(side(&mut versions, 0, "1.5"), Some(Side::Slow));
        assert_eq!(versions.check(), Ok(()));
    }

    #[test]
    fn what_is_no_condition_is_rejected() {
        for (texts, expected) in [
            (["1.4", "version=1"], "expected ATTRIBUTE=VALUE or a time range"),
            (["version=1", "version=1"], "found \"version=1\" twice"),
            (["1h..2h", "1h..now"], "begins before its end"),
            (["2h..x", "1h..now"], "expected ATTRIBUTE=VALUE"),
        ] {
            let error = Comparison::parse(texts, NOW_NS).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }
}
