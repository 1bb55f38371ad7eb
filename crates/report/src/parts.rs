//! Parts of the requests: each query, each tenant, and tenants of about one size.
//!
//! Queries keep their order. The largest tenant comes first, so that its tail does not hide in the mean of small
//! tenants. A size covers one power of ten.

use crate::Results;
use crate::results::Series;
use curtail_load::Latencies;
use curtail_text::numbers;
use std::cmp::Reverse;

/// The grouping of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    /// A group for each request.
    Query,
    /// A group for each tenant.
    Tenant,
    /// A group for each size of tenants.
    Size,
}

impl PartKind {
    /// All groupings, in the order of reports.
    pub(crate) const ALL: [Self; 3] = [Self::Query, Self::Tenant, Self::Size];

    /// The name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Tenant => "tenant",
            Self::Size => "size of tenant",
        }
    }
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    holds: Vec<bool>,
}

impl Part {
    pub(super) fn of(&self, series: &[Latencies]) -> Latencies {
        let here = series.iter().zip(&self.holds).filter(|(_, holds)| **holds);
        Latencies::merged(here.map(|(latencies, _)| latencies))
    }
}

/// The parts of the requests of `results`; empty where they would show the same as the whole, or as other parts.
pub(super) fn all(results: &Results, by: PartKind) -> Vec<Part> {
    let parts = match by {
        PartKind::Query => {
            let queries = distinct_of(&results.series, |series| series.query.as_str());
            queries
                .into_iter()
                .map(|(query, holds)| Part { name: query.to_owned(), holds })
                .collect()
        }
        PartKind::Tenant => tenants(&results.series),
        PartKind::Size => sizes(&results.series),
    };
    if parts.len() < 2 { Vec::new() } else { parts }
}

/// The distinct values, in the order of their first occurrence.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// The distinct values of series, each with the series that have it.
fn distinct_of<'a, T: PartialEq>(
    series: &'a [Series],
    value: impl Fn(&'a Series) -> T,
) -> Vec<(T, Vec<bool>)> {
    let with_series = |of: T| {
        let holds = series.iter().map(|each| value(each) == of).collect();
        (of, holds)
    };
    distinct(series.iter().map(&value)).into_iter().map(with_series).collect()
}

fn tenants(series: &[Series]) -> Vec<Part> {
    let mut tenants = distinct_of(series, |series| (series.tenant.as_str(), series.tenant_size));
    tenants.sort_by_key(|((name, size), _)| (Reverse(*size), *name));
    let part = |((name, size), holds): ((&str, u64), Vec<bool>)| {
        let name = match (name.is_empty(), size) {
            (true, _) => "(none)".to_owned(),
            (false, 0) => name.to_owned(),
            (false, size) => format!("{name}, size {}", numbers::thousands(size)),
        };
        Part { name, holds }
    };
    tenants.into_iter().map(part).collect()
}

/// The parts by size; empty if each size has only one tenant, because parts by tenant show more.
fn sizes(series: &[Series]) -> Vec<Part> {
    let tenants = distinct_of(series, |series| (series.tenant.as_str(), series.tenant_size));
    let mut sizes = distinct_of(series, |series| series.tenant_size.checked_ilog10());
    if sizes.len() == tenants.len() {
        return Vec::new();
    }
    sizes.sort_by_key(|(digits, _)| Reverse(*digits));
    let part = |(digits, holds): (Option<u32>, Vec<bool>)| {
        let count = tenants.iter().filter(|((_, size), _)| size.checked_ilog10() == digits).count();
        let of = if count == 1 { "1 tenant".to_owned() } else { format!("{count} tenants") };
        let name = match digits {
            None => format!("unknown, {of}"),
            Some(digits) => {
                let from = 10_u64.pow(digits);
                let to = from.saturating_mul(10).saturating_sub(1);
                format!("{} to {}, {of}", numbers::thousands(from), numbers::thousands(to))
            }
        };
        Part { name, holds }
    };
    sizes.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::{PartKind, all};
    use crate::sample;

    #[test]
    fn parts_are_in_order_and_add_up() {
        let mut results = sample::compared(1);
        let names = |by, results: &crate::Results| -> Vec<String> {
            let seen = results.of_arm(1);
            let parts = all(results, by);
            if !parts.is_empty() {
                let whole: u64 = seen.iter().map(curtail_load::Latencies::count).sum();
                assert_eq!(parts.iter().map(|part| part.of(&seen).count()).sum::<u64>(), whole);
            }
            parts.into_iter().map(|part| part.name).collect()
        };
        assert_eq!(names(PartKind::Query, &results), ["term", "facet"]);
        let tenants = ["large, size 1,000,000", "medium, size 50,000", "small, size 1,000"];
        assert_eq!(names(PartKind::Tenant, &results), tenants);
        assert!(names(PartKind::Size, &results).is_empty(), "each has a size of its own");
        for series in results.series.iter_mut().filter(|series| series.tenant == "medium") {
            series.tenant_size = 9_999;
        }
        let sizes = ["1,000,000 to 9,999,999, 1 tenant", "1,000 to 9,999, 2 tenants"];
        assert_eq!(names(PartKind::Size, &results), sizes);
        results.series.iter_mut().for_each(|series| series.tenant_size = 0);
        assert_eq!(names(PartKind::Tenant, &results), ["large", "medium", "small"]);
        assert!(names(PartKind::Size, &results).is_empty(), "none is known");
    }
}
