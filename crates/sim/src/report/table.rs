//! The report as a table for people: latencies in milliseconds, with their intervals and their ratios to the model's
//! first arm below each row.

use super::{ArmReport, Comparison, Report};
use crate::batches::Estimate;
use curtail_units::Quantile;
use std::fmt::Write as _;

/// A longer name stands on a line of its own.
const NAME_LEN_MAX: usize = 23;

/// Extra work below this is the requests that were in service when counting began.
const SHOWN_MIN: f64 = 0.0001;

/// The reported mean and quantiles.
const COLUMNS: [&str; 6] = ["mean", "p50", "p90", "p95", "p99", "p99.9"];

const NOTHING: &str = "–";

/// An end of an interval that the run does not bound.
const OPEN: &str = "∞";

const FROM: &str = "  95 % from";
const TO: &str = "  95 % to";

pub(super) fn render(report: &Report) -> String {
    let names = report.arms.iter().map(|arm| arm.name().chars().count());
    let width = names.filter(|len| *len <= NAME_LEN_MAX).max().unwrap_or(0).max(FROM.len());
    let mut table = Table { width, text: String::new() };
    let head = COLUMNS.map(str::to_owned);
    table.row("ms", &head, &format!("{:>9}{:>6}", "extra", "busy"));
    for arm in &report.arms {
        table.arm(arm);
    }
    table.text
}

/// The lines so far, and the width of the first column.
struct Table {
    width: usize,
    text: String,
}

impl Table {
    fn line(&mut self, args: std::fmt::Arguments<'_>) {
        self.text.write_fmt(args).expect("writing to a text cannot fail");
        self.text.push('\n');
    }

    /// Adds a name and its cells; a name that is too long has a line of its own.
    fn row(&mut self, name: &str, cells: &[String], rest: &str) {
        let width = self.width;
        let name = if name.chars().count() > width {
            self.line(format_args!("{name}"));
            ""
        } else {
            name
        };
        let cells: String = cells.iter().map(|cell| format!("{cell:>7}")).collect();
        self.line(format_args!("{name:width$} {cells}{rest}"));
    }

    fn arm(&mut self, arm: &ArmReport) {
        let none = if arm.stopped.is_some() { NOTHING } else { "failed" };
        let estimates = estimates(arm.mean_ns, &arm.quantiles_ns);
        let values = estimates.map(|e| e.map_or_else(|| none.to_owned(), |e| ms(e.value)));
        let (extra, busy) = (arm.extra_requests_ratio, arm.utilisation_ratio);
        let rest = format!("{:>9}{:>6}", percent(extra, 2), percent(busy, 0));
        self.row(&arm.name(), &values, &rest);
        self.interval(&estimates, ms);
        if let Some(comparison) = &arm.comparison {
            self.comparison(comparison);
        }
        if let (None, Some(names)) = (arm.stopped, names_without_interval(&estimates)) {
            self.line(format_args!(
                "  no interval for {names}: too few requests ({})",
                arm.requests
            ));
        }
        for (threshold, share) in &arm.above {
            let share = share_with_interval(share, arm.requests);
            self.line(format_args!("  above {threshold}: {share}"));
        }
        if arm.extra_work_ratio >= SHOWN_MIN {
            let extra = percent(arm.extra_work_ratio, 2);
            self.line(format_args!(
                "  executed more than once: {extra} of the requests to a shard"
            ));
        }
        if arm.errors > 0 {
            self.line(format_args!("  {} of {} requests failed", arm.errors, arm.requests));
        }
        if let Some(stopped) = arm.stopped {
            self.line(format_args!("  stopped after {} requests:", arm.requests));
            for text in wrapped(&stopped.to_string()) {
                self.line(format_args!("    {text}"));
            }
        }
        if !arm.settled {
            self.line(format_args!(
                "  the run never settled: its load may be more than it can take"
            ));
        }
    }

    fn comparison(&mut self, comparison: &Comparison) {
        let estimates = estimates(comparison.mean, &comparison.quantiles);
        let values = estimates.map(|e| e.map_or_else(|| NOTHING.to_owned(), |e| ratio(e.value)));
        self.row(&format!("  × {}", comparison.against), &values, "");
        self.interval(&estimates, ratio);
        if let Some(names) = names_without_interval(&estimates) {
            self.line(format_args!("  no ratio interval for {names}: too few paired requests"));
        }
    }

    /// Adds the ends of intervals, if there are any.
    fn interval(&mut self, estimates: &[Option<Estimate>; 6], format: impl Fn(f64) -> String) {
        let intervals = estimates.map(|estimate| bounded_interval(&estimate?));
        if intervals.iter().all(Option::is_none) {
            return;
        }
        let end = |end: Option<f64>| match end {
            None => NOTHING.to_owned(),
            Some(end) if end.is_finite() => format(end),
            Some(_) => OPEN.to_owned(),
        };
        self.row(FROM, &intervals.map(|interval| end(interval.map(|(low, _)| low))), "");
        self.row(TO, &intervals.map(|interval| end(interval.map(|(_, high)| high))), "");
    }
}

/// The estimates of a row, in the order of the header.
fn estimates(
    mean: Option<Estimate>,
    quantiles: &[(Quantile, Option<Estimate>)],
) -> [Option<Estimate>; 6] {
    let mut row = [mean; 6];
    for (cell, (_, estimate)) in row[1..].iter_mut().zip(quantiles) {
        *cell = *estimate;
    }
    row
}

/// The interval of an estimate, unless it is from 0 to infinity and says nothing of the value.
fn bounded_interval(estimate: &Estimate) -> Option<(f64, f64)> {
    estimate.interval.filter(|(low, high)| *low > 0.0 || high.is_finite())
}

/// The names of the estimates without an interval, if any.
fn names_without_interval(estimates: &[Option<Estimate>; 6]) -> Option<String> {
    let lacks = |(name, estimate): (&'static str, &Option<Estimate>)| {
        estimate.filter(|estimate| bounded_interval(estimate).is_none()).map(|_| name)
    };
    let names: Vec<&str> = COLUMNS.into_iter().zip(estimates).filter_map(lacks).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn ratio(ratio: f64) -> String {
    // Four digits, as for milliseconds.
    ms(ratio * 1e6)
}

/// Splits `text` into lines that fit the table.
fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 74;
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("it begins with one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Nanoseconds in milliseconds, with four digits.
pub(crate) fn ms(ns: f64) -> String {
    let ms = ns / 1e6;
    let decimals = match ms {
        0.0..9.9995 => 3,
        0.0..99.995 => 2,
        0.0..999.95 => 1,
        _ => 0,
    };
    format!("{ms:.decimals$}")
}

/// A share of `requests`. Where it is 0 or 1, only the count is known: the requests are alike, so nothing tells how much
/// the share of another run may differ.
fn share_with_interval(share: &Estimate, requests: u64) -> String {
    let value = percent(share.value, 2);
    match share.interval {
        _ if share.value <= 0.0 => format!("none of {requests} requests"),
        _ if share.value >= 1.0 => format!("all of {requests} requests"),
        None => value,
        Some((low, high)) if low <= 0.0 && high >= 1.0 => {
            format!("{value} (no interval: in too few parts of the run)")
        }
        Some((low, high)) => format!("{value} ({} to {})", percent(low, 2), percent(high, 2)),
    }
}

fn percent(ratio: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", ratio * 100.0)
}
