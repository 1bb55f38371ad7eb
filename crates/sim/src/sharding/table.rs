//! The report as tables for people: latencies in milliseconds, three rules side by side.

use super::{Placed, ShardingReport};
use crate::batches::Estimate;
use crate::report::latency;
use curtail_text::numbers::percent_to;
use curtail_text::{Columns, Left, Page, Right};
use std::iter;

/// The number of rules side by side.
const RULES: usize = 3;

/// The widths of the cells of one rule: shards, how full the fullest server is, p50 and p99.
const CELLS_LEN: [usize; 4] = [6, 4, 5, 5];

/// The width of all cells of one rule, with the spaces between them.
const RULE_LEN: usize = 23;

pub(super) fn render(report: &ShardingReport) -> String {
    let mut page = Page::default();
    for nth in 0..report.rules.len().div_ceil(RULES) {
        table(report, nth * RULES, &mut page);
        page.blank();
    }
    let placed = || report.rows.iter().flat_map(|row| &row.placed);
    let errors = placed().filter_map(|placed| placed.p99_ns).map(|e| e.relative_error());
    let worst = errors.filter(|error| error.is_finite()).fold(0.0_f64, f64::max);
    page.line(format!(
        "full: the fullest server against the mean; p50 and p99: ms, of {} requests;",
        report.requests
    ));
    page.line(format!("± 95 % of the p99: at most {}", percent_to(worst, 1)));
    page.finish()
}

/// Adds the rules from `first` on.
fn table(report: &ShardingReport, first: usize, page: &mut Page) {
    let last = (first + RULES).min(report.rules.len());
    let rules = last - first;
    let headings = Columns::new(iter::once(7).chain(iter::repeat_n(RULE_LEN, rules)).map(Left));
    let names = report.rules[first..last].iter().map(|name| format!(" {name}"));
    page.row(&headings, iter::once(String::new()).chain(names));
    let of_rules = CELLS_LEN.into_iter().map(Right).cycle().take(CELLS_LEN.len() * rules);
    let columns = Columns::new(iter::once(Right(7)).chain(of_rules));
    let heads = ["shards", "full", "p50", "p99"].into_iter().cycle().take(CELLS_LEN.len() * rules);
    page.row(&columns, iter::once("servers").chain(heads));
    for row in &report.rows {
        let cells = row.placed[first..last].iter().flat_map(cells);
        page.row(&columns, iter::once(row.servers.to_string()).chain(cells));
    }
}

fn cells(placed: &Placed) -> [String; 4] {
    let shown =
        |estimate: Option<Estimate>| estimate.map_or("–".to_owned(), |e| latency(e.value));
    [
        placed.placement.shards.to_string(),
        format!("{:.2}", placed.placement.imbalance()),
        shown(placed.p50_ns),
        shown(placed.p99_ns),
    ]
}
