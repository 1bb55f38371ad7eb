//! Quantiles, buckets and counts as tables.

use super::found::{list, text};
use curtail_load::compare::{EXCEEDANCES_MIN, INDICATIVE_MIN};
use curtail_sketch::rank;
use curtail_text::lines::share_room;
use curtail_text::numbers::percentile_name;
use curtail_text::{Column, Columns, Left, Page, Rest, Right, cut_middle};
use curtail_units::{Duration, Quantile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::iter;

const BAR_LEN: f64 = 40.0;

/// The widths of a count and of a quantile, without the space before them.
const COUNT_LEN: usize = 9;
const QUANTILE_LEN: usize = 10;

/// The label of a bucket of a histogram; its value is the upper bound of the bucket.
const BUCKET: &str = "__bucket";

/// Minimum width of a value of a group.
const VALUE_LEN_MIN: usize = 6;

/// The values of a group: one for each `--by`.
pub(super) type Group = Vec<String>;

/// The number of values of each group: the sum of its buckets.
pub(super) fn value_counts(histogram: &Value) -> BTreeMap<Group, u64> {
    let count = |buckets: Vec<(f64, f64)>| {
        let count: f64 = buckets.into_iter().map(|(_, count)| count).sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = count as u64;
        count
    };
    groups(histogram, BUCKET).into_iter().map(|(name, buckets)| (name, count(buckets))).collect()
}

/// Returns pairs for each group: the numeric value of the label `key` of a series, and the value of the series.
fn groups(json: &Value, key: &str) -> BTreeMap<Group, Vec<(f64, f64)>> {
    let mut groups = BTreeMap::<Group, Vec<(f64, f64)>>::new();
    for series in list(&json["series"]) {
        let label = list(&series["labels"]).iter().find(|label| label["key"] == key);
        let at = label.and_then(|label| label["value"]["doubleValue"].as_f64());
        let value = series["value"].as_f64().unwrap_or_default();
        groups.entry(group(series, key)).or_default().push((at.unwrap_or_default(), value));
    }
    groups
}

/// Marks a quantile of `values` values, as in all reports, if few values are larger than the quantile.
fn marked(at: f64, values: u64, shown: String) -> String {
    let beyond = Quantile::new(at).map_or(0, |quantile| values - rank(quantile, values));
    match beyond {
        0..INDICATIVE_MIN => "n/a".to_owned(),
        INDICATIVE_MIN..EXCEEDANCES_MIN => format!("~{shown}"),
        _ => shown,
    }
}

/// Renders a line for each group, with a column for each quantile; `counts` has the number of values of each group.
pub(super) fn quantiles(
    json: &Value,
    is_duration: bool,
    (error, counts): (Option<f64>, &BTreeMap<Group, u64>),
    columns: usize,
) -> String {
    let groups = groups(json, "p");
    let Some(first) = groups.values().next() else { return "none\n".to_owned() };
    let keys: Group =
        labels_without(&list(&json["series"])[0], "p").map(|label| text(&label["key"])).collect();
    let numbers = iter::once(COUNT_LEN).chain(iter::repeat_n(QUANTILE_LEN, first.len()));
    let numbers: Vec<Column> = numbers.map(Right).collect();
    let of_numbers = 1 + COUNT_LEN + (1 + QUANTILE_LEN) * first.len();
    let widths = name_widths(&keys, groups.keys(), columns.saturating_sub(of_numbers));
    let names = |values: &Group| -> Group {
        values.iter().zip(&widths).map(|(value, width)| cut_middle(value, *width)).collect()
    };
    let table = Columns::new(widths.iter().copied().map(Left).chain(numbers));
    // Names keep a few columns each, so a table of many can be wider than the terminal.
    let mut page = Page::new(usize::MAX);
    let heads = first
        .iter()
        .map(|(at, _)| Quantile::new(*at).map_or_else(|_| at.to_string(), percentile_name));
    page.row(&table, names(&keys).into_iter().chain(["values".to_owned()]).chain(heads));
    for (name, values) in &groups {
        let count = counts.get(name).copied().unwrap_or_default();
        let cells = values.iter().map(|(at, value)| marked(*at, count, shown(*value, is_duration)));
        page.row(&table, names(name).into_iter().chain([count.to_string()]).chain(cells));
    }
    let error = match error {
        // An older server does not report the error.
        None => String::new(),
        Some(0.0) => "exact; ".to_owned(),
        Some(error) => format!("error at most {:.2} %; ", 100.0 * error),
    };
    page.line(format!("{error}~: fewer than 100 larger values; n/a: fewer than 10"));
    page.finish()
}

/// Returns the widths of the columns of groups: those of the longest values, or less if all together exceed `room`.
fn name_widths<'g>(
    keys: &Group,
    groups: impl Iterator<Item = &'g Group>,
    room: usize,
) -> Vec<usize> {
    let mut wanted: Vec<usize> = keys.iter().map(|key| key.chars().count()).collect();
    for group in groups {
        for (wanted, value) in wanted.iter_mut().zip(group) {
            *wanted = value.chars().count().max(*wanted);
        }
    }
    // A space between two columns.
    let room = room.saturating_sub(keys.len().saturating_sub(1));
    share_room(&wanted, room.max(VALUE_LEN_MIN * keys.len()))
}

/// Renders a table for each group, with a line and a bar for each bucket.
pub(super) fn histogram(json: &Value, is_duration: bool) -> String {
    let groups = groups(json, BUCKET);
    if groups.is_empty() {
        return "none\n".to_owned();
    }
    let columns = Columns::new([Left(5), Right(10), Right(12), Rest]);
    let mut page = Page::new(usize::MAX);
    for (name, mut buckets) in groups {
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        if !name.is_empty() {
            page.line(name.join(" "));
        }
        let most = buckets.iter().map(|(_, count)| *count).fold(1.0, f64::max);
        for (upper, count) in buckets {
            let (upper, bar) = (shown(upper, is_duration), bar(count / most));
            page.row(&columns, ["up to", &upper, &count.to_string(), &bar]);
        }
    }
    page.finish()
}

/// Renders a line for each group, the group with most spans first; without groups, a bare number.
pub(super) fn counts(json: &Value) -> String {
    let mut all: Vec<_> = list(&json["series"])
        .iter()
        .map(|series| (series["value"].as_f64().unwrap_or_default(), group(series, "__name__")))
        .collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    if all.is_empty() {
        all.push((0.0, Group::new()));
    }
    let columns = Columns::new([Right(12), Rest]);
    let mut page = Page::new(usize::MAX);
    for (count, name) in all {
        if name.is_empty() {
            page.line(count.to_string());
        } else {
            page.row(&columns, [count.to_string(), name.join(" ")]);
        }
    }
    page.finish()
}

/// Returns the values of all labels of a series except the label `without`.
fn group(series: &Value, without: &str) -> Group {
    labels_without(series, without).map(|label| text(&label["value"]["stringValue"])).collect()
}

fn labels_without<'v>(series: &'v Value, without: &str) -> impl Iterator<Item = &'v Value> {
    list(&series["labels"]).iter().filter(move |label| label["key"] != without)
}

fn shown(value: f64, is_duration: bool) -> String {
    if is_duration && value >= 0.0 {
        Duration::from_secs_f64(value).to_string()
    } else {
        value.to_string()
    }
}

fn bar(share: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is short")]
    let len = (share * BAR_LEN).ceil() as usize;
    "#".repeat(len)
}

#[cfg(test)]
mod tests {
    use super::{counts, histogram, quantiles};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn series(name: &str, service: &str, p: f64) -> Value {
        json!({ "value": 0.1, "labels": [
            { "key": "name", "value": { "stringValue": name } },
            { "key": "resource.service.name", "value": { "stringValue": service } },
            { "key": "p", "value": { "doubleValue": p } },
        ] })
    }

    #[test]
    fn groups_with_long_names_stay_apart_within_the_columns() {
        let long = "a".repeat(80);
        let names = ["1", "2"].map(|end| format!("{long}{end}"));
        let rows = names.iter().flat_map(|name| names.iter().map(move |service| (name, service)));
        let all: Vec<Value> = rows
            .flat_map(|(name, service)| [0.5, 0.9, 0.99, 0.999].map(|p| series(name, service, p)))
            .collect();
        let json = json!({ "series": all });
        for columns in [80, 120] {
            let table = quantiles(&json, true, (None, &BTreeMap::new()), columns);
            let lines: Vec<&str> = table.lines().collect();
            assert!(lines[0].starts_with("name"), "{table}");
            assert!(lines[0].contains(".name "), "{table}");
            let mut rows = lines[1..5].to_vec();
            assert!(rows.iter().all(|row| row.chars().count() == columns), "{table}");
            rows.dedup();
            assert_eq!(rows.len(), 4, "{table}");
        }
    }

    #[test]
    fn names_of_groups_are_whole_in_a_histogram() {
        let name = "a".repeat(100);
        let json = json!({ "series": [{ "value": 3.0, "labels": [
            { "key": "name", "value": { "stringValue": name } },
            { "key": "__bucket", "value": { "doubleValue": 0.1 } },
        ] }] });
        let table = histogram(&json, true);
        assert_eq!(table.lines().next(), Some(&*name));
    }

    #[test]
    fn one_count_is_a_bare_number() {
        let json = json!({ "series": [{ "value": 12.0, "labels": [] }] });
        assert_eq!(counts(&json), "12\n");
        assert_eq!(counts(&json!({ "series": [] })), "0\n");
    }
}
