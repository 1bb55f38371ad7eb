//! The report as a table for people: latencies in milliseconds, below each row how sure they are.

use super::{ArmReport, Report};
use crate::batches::Estimate;
use std::fmt::Write as _;

/// A longer name stands on a line of its own.
const NAME_LEN_MAX: usize = 22;

/// Extra work below this is the requests that were in service when counting began.
const SHOWN_MIN: f64 = 0.0001;

const NOTHING: &str = "–";

pub(super) fn render(report: &Report) -> String {
    let names = report.arms.iter().map(|arm| arm.name().chars().count());
    let width = names.filter(|len| *len <= NAME_LEN_MAX).max().unwrap_or(0).max("± 95 %".len());
    let mut text = String::new();
    let mut line = |args: std::fmt::Arguments<'_>| {
        text.write_fmt(args).expect("writing to a text cannot fail");
        text.push('\n');
    };
    line(format_args!(
        "{:width$} {:>8}{:>8}{:>8}{:>8}{:>8}{:>9}{:>7}",
        "ms", "mean", "p50", "p90", "p99", "p99.9", "extra", "busy"
    ));
    for arm in &report.arms {
        let mut name = arm.name();
        if name.chars().count() > width {
            line(format_args!("{name}"));
            name.clear();
        }
        line(format_args!(
            "{name:width$} {}{:>9}{:>7}",
            cells(arm, |e| e.map_or_else(|| "failed".to_owned(), |e| ms(e.value))),
            percent(arm.extra_requests_ratio, 2),
            percent(arm.utilisation_ratio, 0),
        ));
        line(format_args!("{:width$} {}", "  ± 95 %", cells(arm, error)));
        for (threshold, share) in &arm.above {
            line(format_args!("  above {threshold}: {}", share_with_interval(share)));
        }
        if arm.extra_work_ratio >= SHOWN_MIN {
            let extra = percent(arm.extra_work_ratio, 2);
            line(format_args!("  executed more than once: {extra} of the requests to a shard"));
        }
        if arm.errors > 0 {
            line(format_args!("  {} of {} requests failed", arm.errors, arm.requests));
        }
        if !arm.settled {
            line(format_args!("  the run never settled: its load may be more than it can take"));
        }
    }
    text
}

/// The mean and the quantiles of an arm.
fn cells(arm: &ArmReport, cell: impl Fn(Option<Estimate>) -> String) -> String {
    let estimates = [arm.mean_ns].into_iter().chain(arm.quantiles_ns.iter().map(|(_, e)| *e));
    estimates.map(|estimate| format!("{:>8}", cell(estimate))).collect()
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

fn error(estimate: Option<Estimate>) -> String {
    let relative = estimate.filter(|e| e.interval.is_some()).map(|e| e.relative_error());
    relative.map_or_else(
        || NOTHING.to_owned(),
        |relative| if relative < 1.0 { percent(relative, 1) } else { "> 100 %".to_owned() },
    )
}

fn share_with_interval(share: &Estimate) -> String {
    let value = percent(share.value, 2);
    share.interval.map_or_else(
        || value.clone(),
        |(low, high)| format!("{value} ({} to {})", percent(low, 2), percent(high, 2)),
    )
}

fn percent(ratio: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", ratio * 100.0)
}
