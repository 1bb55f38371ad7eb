//! The report as a table for people: latencies in milliseconds, with their intervals and their ratios to the model's
//! first arm below each row.

use super::{ArmReport, Comparison, Report, TypeReport};
use crate::batches::Estimate;
use curtail_text::numbers::{four_digits, ms, percent_to};
use curtail_text::{Columns, Left, Page, Right};
use curtail_units::{Duration, Quantile};
use std::iter;

/// Maximum length of a name in a row; a longer name is on a line of its own.
const NAME_LEN_MAX: usize = 17;

/// Minimum share of extra work that is printed; less comes from requests that were in service when counting began.
const SHOWN_MIN: f64 = 0.0001;

const COLUMNS: [&str; 6] = ["mean", "p50", "p90", "p95", "p99", "p99.9"];

const NOTHING: &str = "–";

/// An end of an interval that the run does not bound.
const OPEN: &str = "∞";

const FROM: &str = "  95 % from";
const TO: &str = "  95 % to";

pub(super) fn render(report: &Report) -> String {
    let names = report.arms.iter().map(|arm| arm.name().chars().count());
    let width = names.filter(|len| *len <= NAME_LEN_MAX).max().unwrap_or(0).max(FROM.len());
    let numbers = [7, 6, 6, 6, 6, 6, 13, 5].map(Right);
    let columns = Columns::new(iter::once(Left(width)).chain(numbers));
    let mut table = Table { width, columns, page: Page::default() };
    table.row("ms", COLUMNS.into_iter().chain(["more requests", "busy"]));
    for arm in &report.arms {
        table.arm(arm);
    }
    table.page.finish()
}

struct Table {
    width: usize,
    columns: Columns,
    page: Page,
}

impl Table {
    /// Adds a name and its cells; a name that is too long has a line of its own.
    fn row<C: AsRef<str>>(&mut self, name: &str, cells: impl IntoIterator<Item = C>) {
        let cells: Vec<C> = cells.into_iter().collect();
        let cells = cells.iter().map(AsRef::as_ref);
        if name.chars().count() > self.width {
            self.page.line(name);
            self.page.row(&self.columns, iter::once("").chain(cells));
        } else {
            self.page.row(&self.columns, iter::once(name).chain(cells));
        }
    }

    fn arm(&mut self, arm: &ArmReport) {
        let none = if arm.stopped.is_some() { NOTHING } else { "failed" };
        let estimates = estimates(arm.mean_ns, &arm.quantiles_ns);
        let values = estimates.map(|e| e.map_or_else(|| none.to_owned(), |e| latency(e.value)));
        let shares = match arm.stopped {
            Some(_) => [NOTHING.to_owned(), NOTHING.to_owned()],
            None => [percent_to(arm.extra_requests_ratio, 2), percent_to(arm.utilization_ratio, 0)],
        };
        self.row(&arm.name(), values.into_iter().chain(shares));
        self.interval(&estimates, latency);
        if let Some(comparison) = &arm.comparison {
            self.comparison(comparison);
        }
        if arm.stopped.is_none() {
            let too_few = format!("too few requests ({})", arm.requests);
            self.missing_intervals("interval", &estimates, &too_few);
        }
        for (threshold, share) in &arm.above {
            let share = share_with_interval(share, arm.requests);
            self.page.line(format!("  above {threshold}: {share}"));
        }
        if arm.stopped.is_none() && arm.extra_work_ratio >= SHOWN_MIN {
            let extra = percent_to(arm.extra_work_ratio, 2);
            self.page.line(format!("  extra executions: {extra} of the calls to shards"));
        }
        for of in &arm.types {
            self.request_type(of);
        }
        if arm.stopped.is_none() && arm.client_retries_ratio > 0.0 {
            let retries = percent_to(arm.client_retries_ratio, 2);
            self.page.line(format!("  sent again by clients: {retries} of the requests"));
        }
        if arm.partial > 0 {
            let line = format!("  {} of {} responses are partial", arm.partial, arm.requests);
            self.page.line(line);
        }
        if arm.errors > 0 {
            self.page.line(format!("  {} of {} requests failed", arm.errors, arm.requests));
        }
        if let Some(stopped) = arm.stopped {
            let requests = arm.requests;
            self.page.wrapped("  ", &format!("stopped after {requests} requests: {stopped}"));
        } else if !arm.settled {
            self.page
                .line("  the run never settled: the load may be too high, or requests_max too low");
        }
    }

    fn request_type(&mut self, of: &TypeReport) {
        let estimates = estimates(of.mean_ns, &of.quantiles_ns);
        let none = if of.requests == 0 { NOTHING } else { "failed" };
        let value = |e: Option<Estimate>| e.map_or_else(|| none.to_owned(), |e| latency(e.value));
        self.row(&format!("  {}", of.name), estimates.map(value));
        self.interval(&estimates, latency);
    }

    fn comparison(&mut self, comparison: &Comparison) {
        let estimates = estimates(comparison.mean, &comparison.quantiles);
        let values =
            estimates.map(|e| e.map_or_else(|| NOTHING.to_owned(), |e| four_digits(e.value)));
        self.row(&format!("  × {}", comparison.against), values);
        self.interval(&estimates, four_digits);
        self.missing_intervals("ratio interval", &estimates, "too few paired requests");
    }

    /// States why estimates have no interval: there are too few requests, or it is from 0 to infinity.
    fn missing_intervals(&mut self, noun: &str, row: &[Option<Estimate>; 6], too_few: &str) {
        for (has_any, reason) in [(false, too_few), (true, "the run does not bound it")] {
            let lacks = |(name, estimate): (&'static str, &Option<Estimate>)| {
                let lacks = |e: &Estimate| bounded_interval(e).is_none();
                estimate.filter(|e| lacks(e) && e.interval.is_some() == has_any).map(|_| name)
            };
            let names: Vec<&str> = COLUMNS.into_iter().zip(row).filter_map(lacks).collect();
            if !names.is_empty() {
                self.page.line(format!("  no {noun} for {}: {reason}", names.join(", ")));
            }
        }
    }

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
        self.row(FROM, intervals.map(|interval| end(interval.map(|(low, _)| low))));
        self.row(TO, intervals.map(|interval| end(interval.map(|(_, high)| high))));
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

/// The interval of an estimate, unless it is from 0 to infinity, which says nothing about the value.
fn bounded_interval(estimate: &Estimate) -> Option<(f64, f64)> {
    estimate.interval.filter(|(low, high)| *low > 0.0 || high.is_finite())
}

pub(crate) fn latency(ns: f64) -> String {
    ms(Duration::from_ns_f64(ns))
}

/// A share of `requests` with its interval. A share of 0 or 1 is printed as a count, because equal requests do not tell
/// how much the share would differ in another run.
fn share_with_interval(share: &Estimate, requests: u64) -> String {
    let value = percent_to(share.value, 2);
    match share.interval {
        _ if share.value <= 0.0 => format!("none of {requests} requests"),
        _ if share.value >= 1.0 => format!("all of {requests} requests"),
        None => value,
        Some((low, high)) if low <= 0.0 && high >= 1.0 => {
            format!("{value} (no interval: in too few parts of the run)")
        }
        Some((low, high)) => format!("{value} ({} to {})", percent_to(low, 2), percent_to(high, 2)),
    }
}
