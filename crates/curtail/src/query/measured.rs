//! Quantiles, buckets and counts as tables.

use super::found::{list, shortened, text};
use curtail_load::compare::{EXCEEDANCES_MIN, INDICATIVE_MIN};
use curtail_sketch::rank;
use curtail_units::{Duration, Quantile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The longest bar.
const BAR_LEN: f64 = 40.0;

/// The maximum length of a name: with its count and four quantiles, a group fits 80 columns.
const NAME_LEN: usize = 26;

/// The number of values of each group: the sum of its buckets.
pub(super) fn value_counts(histogram: &Value) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for series in list(&histogram["series"]) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = series["value"].as_f64().unwrap_or_default() as u64;
        *counts.entry(group(series, "__bucket")).or_default() += count;
    }
    counts
}

/// A quantile of `values` values, marked by the rule of every report if only few values are larger.
fn marked(at: f64, values: u64, shown: String) -> String {
    let beyond = Quantile::new(at).map_or(0, |quantile| values - rank(quantile, values));
    match beyond {
        0..INDICATIVE_MIN => "n/a".to_owned(),
        INDICATIVE_MIN..EXCEEDANCES_MIN => format!("~{shown}"),
        _ => shown,
    }
}

/// Adds a line for each group and a column for each quantile; `counts` are the values of each group.
pub(super) fn quantiles(
    json: &Value,
    is_duration: bool,
    error: Option<f64>,
    counts: &BTreeMap<String, u64>,
) -> String {
    let mut groups = BTreeMap::<String, Vec<(f64, f64)>>::new();
    for series in list(&json["series"]) {
        let at = series["labels"].as_array().and_then(|labels| {
            labels.iter().find(|label| label["key"] == "p").map(|label| &label["value"])
        });
        let at = at.and_then(|at| at["doubleValue"].as_f64()).unwrap_or_default();
        let value = series["value"].as_f64().unwrap_or_default();
        groups.entry(group(series, "p")).or_default().push((at, value));
    }
    let Some(first) = groups.values().next() else { return "none\n".to_owned() };
    let mut out = format!("{:NAME_LEN$} {:>9}", "", "values");
    for (at, _) in first {
        write!(out, " {:>10}", format!("p{}", percent(*at))).ok();
    }
    out.push('\n');
    for (name, values) in groups {
        let count = counts.get(&name).copied().unwrap_or_default();
        write!(out, "{:NAME_LEN$} {count:>9}", shortened(&name, NAME_LEN)).ok();
        for (at, value) in values {
            let value = marked(at, count, shown(value, is_duration));
            write!(out, " {value:>10}").ok();
        }
        out.push('\n');
    }
    match error {
        // An older server does not report the error.
        None => {}
        Some(0.0) => out += "exact; ",
        Some(error) => write!(out, "error at most {:.2} %; ", 100.0 * error).unwrap_or_default(),
    }
    out + "~: fewer than 100 larger values; n/a: fewer than 10\n"
}

/// A line for each bucket, with a bar; one table for each group.
pub(super) fn histogram(json: &Value, is_duration: bool) -> String {
    let mut groups = BTreeMap::<String, Vec<(f64, f64)>>::new();
    for series in list(&json["series"]) {
        let labels = list(&series["labels"]);
        let bucket = labels.iter().find(|label| label["key"] == "__bucket");
        let upper = bucket.and_then(|label| label["value"]["doubleValue"].as_f64());
        let count = series["value"].as_f64().unwrap_or_default();
        groups
            .entry(group(series, "__bucket"))
            .or_default()
            .push((upper.unwrap_or_default(), count));
    }
    if groups.is_empty() {
        return "none\n".to_owned();
    }
    let mut out = String::new();
    for (name, mut buckets) in groups {
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        if !name.is_empty() {
            writeln!(out, "{name}").ok();
        }
        let most = buckets.iter().map(|(_, count)| *count).fold(1.0, f64::max);
        for (upper, count) in buckets {
            let bar = bar(count / most);
            writeln!(out, "up to {:>10} {count:>12} {bar}", shown(upper, is_duration)).ok();
        }
    }
    out
}

/// A line for each group, those of most spans first.
pub(super) fn counts(json: &Value) -> String {
    let mut all: Vec<_> = list(&json["series"])
        .iter()
        .map(|series| (series["value"].as_f64().unwrap_or_default(), group(series, "__name__")))
        .collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    if all.is_empty() {
        all.push((0.0, String::new()));
    }
    let mut out = String::new();
    for (count, name) in all {
        writeln!(out, "{count:>12} {name}").ok();
    }
    out
}

/// What tells a series from others, but for one label.
fn group(series: &Value, without: &str) -> String {
    let labels = list(&series["labels"]).iter().filter(|label| label["key"] != without);
    let values: Vec<_> = labels.map(|label| text(&label["value"]["stringValue"])).collect();
    values.join(" ")
}

fn percent(quantile: f64) -> String {
    let percent = format!("{:.4}", 100.0 * quantile);
    percent.trim_end_matches('0').trim_end_matches('.').to_owned()
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
