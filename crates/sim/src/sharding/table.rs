//! The report as tables for people: latencies in milliseconds, three rules side by side.

use super::{Placed, ShardingReport};
use crate::batches::Estimate;
use crate::report::ms;
use std::fmt::Write as _;

/// Rules side by side.
const RULES: usize = 3;

/// The columns of one rule, and its cells: shards, how full the fullest server is, p50 and p99.
const RULE_LEN: usize = 24;
const CELLS_LEN: [usize; 4] = [7, 5, 6, 6];

pub(super) fn render(report: &ShardingReport) -> String {
    let mut text = String::new();
    for nth in 0..report.rules.len().div_ceil(RULES) {
        text += &table(report, nth * RULES);
        text.push('\n');
    }
    let placed = || report.rows.iter().flat_map(|row| &row.placed);
    let errors = placed().filter_map(|placed| placed.p99_ns).map(|e| e.relative_error());
    let worst = errors.filter(|error| error.is_finite()).fold(0.0_f64, f64::max);
    let requests = report.requests;
    writeln!(
        text,
        "full: the fullest server against the mean; p50 and p99: ms, of {requests} requests;\n\
         ± 95 % of the p99: at most {:.1} %",
        worst * 100.0
    )
    .expect("a text takes everything");
    text
}

/// The rules from `first` on.
fn table(report: &ShardingReport, first: usize) -> String {
    let last = (first + RULES).min(report.rules.len());
    let names: String = report.rules[first..last].iter().map(|name| heading(name)).collect();
    let head = line(["shards", "full", "p50", "p99"].map(str::to_owned));
    let heads = head.repeat(last - first);
    let mut text = format!("{:7}{}\n{:>7}{heads}\n", "", names.trim_end(), "servers");
    for row in &report.rows {
        let cells: String = row.placed[first..last].iter().map(cells).collect();
        writeln!(text, "{:>7}{cells}", row.servers).expect("a text takes everything");
    }
    text
}

/// A name over the columns of its rule.
fn heading(name: &str) -> String {
    format!("  {name:.22}{:1$}", "", RULE_LEN.saturating_sub(2 + name.chars().count().min(22)))
}

fn cells(placed: &Placed) -> String {
    let latency = |estimate: Option<Estimate>| estimate.map_or("–".to_owned(), |e| ms(e.value));
    line([
        placed.placement.shards.to_string(),
        format!("{:.2}", placed.placement.imbalance()),
        latency(placed.p50_ns),
        latency(placed.p99_ns),
    ])
}

/// Cells side by side.
fn line(cells: [String; 4]) -> String {
    let cells = cells.iter().zip(CELLS_LEN);
    cells.map(|(cell, len)| format!("{cell:>len$}")).collect()
}
