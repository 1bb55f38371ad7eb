//! The tables of the page: the figures of the terminal's table, with the same marks.

use super::svg::{COLORS, escaped};
use crate::Results;
use crate::difference::{self as compared, Comparison, change};
use crate::figures::{self, ArmFigures, Figure, PERCENTILES, Percentiles};
use crate::parts::{self, PartKind};
use crate::servers::{self, Server};
use curtail_load::compare::{Difference, Verdict};
use curtail_load::{Latencies, LatencyKind};
use curtail_text::numbers::{self, percentile_name};

fn cell(figure: Figure) -> String {
    match figure {
        Figure::Value(_) => format!("<td>{figure}</td>"),
        Figure::Indicative(_) => {
            format!(
                "<td class=\"indicative\" title=\"fewer than 100 requests are longer\">{figure}</td>"
            )
        }
        Figure::Failed => {
            format!("<td class=\"fail\" title=\"among the requests that failed\">{figure}</td>")
        }
        Figure::TooFew => {
            format!("<td class=\"few\" title=\"fewer than 10 requests are longer\">{figure}</td>")
        }
    }
}

fn numbers_of<'a>(cells: impl Iterator<Item = &'a String>) -> String {
    cells.map(|cell| format!("<td>{}</td>", escaped(cell))).collect()
}

/// A cell that spans the rows of all arms, in the first of them.
fn spanning(nth: usize, rows: usize, text: &str) -> String {
    match nth {
        0 => format!("<th rowspan=\"{rows}\">{}</th>", escaped(text)),
        _ => String::new(),
    }
}

fn header(first: &[&str], rest: impl IntoIterator<Item = &'static str>) -> String {
    let names = first.iter().map(|name| format!("<th>{name}</th>"));
    let numbers = rest.into_iter().map(|name| format!("<th class=\"number\">{name}</th>"));
    let cells: String = names.chain(numbers).collect();
    format!("<thead><tr>{cells}</tr></thead>\n")
}

fn table(head: &str, rows: &str) -> String {
    format!("<div class=\"wide\"><table>\n{head}<tbody>\n{rows}</tbody>\n</table></div>\n")
}

pub(super) fn of_arms(arms: &[ArmFigures]) -> String {
    let names = PERCENTILES.iter().map(|(name, _)| *name).chain(["max"]);
    let head = header(&["Latency in ms", "clock"], names);
    let mut rows = String::new();
    for (nth, arm) in arms.iter().enumerate() {
        for (word, clock) in figures::CLOCKS {
            let percentiles = Percentiles::of(&arm.latencies, clock);
            let cells: String = percentiles.named().map(|(_, figure)| cell(figure)).collect();
            let name = if clock == LatencyKind::Response {
                let color = nth % COLORS;
                format!(
                    "<th rowspan=\"2\"><span class=\"key fill{color}\"></span>{}</th>",
                    escaped(&arm.name)
                )
            } else {
                String::new()
            };
            rows += &format!("<tr>{name}<td class=\"word\">{word}</td>{cells}</tr>\n");
        }
    }
    let clocks = escaped(figures::CLOCKS_LEGEND);
    let marks = escaped(figures::MARKS);
    let tables = table(&head, &rows) + &loads(arms);
    format!("{tables}<p class=\"about\">{clocks} {marks}</p>\n")
}

fn loads(arms: &[ArmFigures]) -> String {
    let numbers = [
        "requests",
        "a second",
        "planned",
        "failed",
        "lag p99",
        "lag p99.9",
        "CPU a request",
        "of servers",
        "received",
    ];
    let head = header(&["Load"], numbers);
    let mut rows = String::new();
    for arm in arms {
        let none = || "–".to_owned();
        let lag = |q| arm.lag(q).map_or_else(none, numbers::latency);
        let servers = arm.servers_cpu.filter(|cpu| cpu.as_ns() > 0);
        let cells = [
            numbers::thousands(arm.latencies.count()),
            numbers::rate(arm.rate()),
            arm.rate_wanted.map_or_else(none, numbers::rate),
            failed(&arm.latencies),
            lag(0.99),
            lag(0.999),
            arm.lag(0.5).map_or_else(none, |_| numbers::latency(arm.each(arm.generator_cpu))),
            servers.map_or_else(none, |cpu| numbers::latency(arm.each(cpu))),
            numbers::bytes(arm.received_bytes),
        ];
        let cells = numbers_of(cells.iter());
        rows += &format!("<tr><th>{}</th>{cells}</tr>\n", escaped(&arm.name));
    }
    table(&head, &rows) + &failures(arms)
}

fn failed(latencies: &Latencies) -> String {
    match latencies.failures.total() {
        0 => "0".to_owned(),
        _ => figures::count_failed(latencies),
    }
}

/// The failures and the sending behind plan, with a line for each arm that has such a problem.
fn failures(arms: &[ArmFigures]) -> String {
    let mut lines = String::new();
    for arm in arms.iter().filter(|arm| arm.latencies.failures.total() > 0) {
        let reasons = figures::list_reasons(&arm.latencies.failures);
        let longest = arm.latencies.response.max().map_or_else(String::new, |longest| {
            format!("; the longest response took {}", numbers::latency(longest))
        });
        lines += &format!("<li>{}: failed by {reasons}{longest}</li>\n", escaped(&arm.name));
    }
    for behind in arms.iter().filter_map(|arm| Some((&arm.name, arm.behind_plan()?))) {
        let (name, behind) = (escaped(behind.0), escaped(&behind.1));
        lines += &format!("<li>{name}: {behind}</li>\n");
    }
    if lines.is_empty() { lines } else { format!("<ul class=\"notes\">{lines}</ul>\n") }
}

/// The figures of each part of the requests, grouped by `by`; empty without parts.
pub(super) fn of_parts(by: PartKind, results: &Results) -> String {
    let parts = parts::all(results, by);
    if parts.is_empty() {
        return String::new();
    }
    let of_what = by.name();
    let of_arms: Vec<_> = (0..results.arms.len()).map(|arm| results.of_arm(arm)).collect();
    let names = PERCENTILES.iter().map(|(name, _)| *name).chain(["max"]);
    let head = header(&[of_what, "arm"], ["requests", "failed"].into_iter().chain(names));
    let mut rows = String::new();
    for part in parts {
        for (nth, (arm, of_arm)) in results.arms.iter().zip(&of_arms).enumerate() {
            let latencies = part.of(of_arm);
            let name = spanning(nth, results.arms.len(), &part.name);
            let percentiles = Percentiles::of(&latencies, LatencyKind::Response);
            let cells: String = percentiles.named().map(|(_, figure)| cell(figure)).collect();
            let color = nth % COLORS;
            rows += &format!(
                "<tr>{name}<td class=\"word\"><span class=\"key fill{color}\"></span>{}</td><td>{}</td><td>{}</td>{cells}</tr>\n",
                escaped(&arm.name),
                numbers::thousands(latencies.count()),
                numbers::thousands(latencies.failures.total()),
            );
        }
    }
    format!(
        "<h2>By {of_what}</h2>\n<p class=\"about\">Response in ms.</p>\n{}",
        table(&head, &rows)
    )
}

/// The columns of a difference. The verdict is the first one, so that a narrow screen shows it.
const DIFFERENCE: [&str; 3] = ["difference", "from", "to"];

pub(super) fn of_comparison(comparison: &Comparison) -> String {
    let head = header(&["percentile", "verdict"], DIFFERENCE);
    let of_percentiles = comparison.percentiles.iter().map(|p| (p.name, p.difference, p.verdict));
    let of_numbers = comparison.numbers.iter().map(|(name, n)| (*name, n.difference, n.verdict));
    let rows: String = of_percentiles.chain(of_numbers).map(difference).collect();
    format!("{}<p class=\"about\">{}</p>\n", table(&head, &rows), escaped(&comparison.method))
}

pub(super) fn of_servers(servers: &[Server], results: &Results) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let columns = servers::columns(servers);
    let mut rows = String::new();
    for Server { name, of_arms } in servers {
        for (nth, (arm, used)) in results.arms.iter().zip(of_arms).enumerate() {
            let name = spanning(nth, of_arms.len(), name);
            let cells = numbers_of(used.cells().iter().take(columns.len()));
            let arm = escaped(&arm.name);
            rows += &format!("<tr>{name}<td class=\"word\">{arm}</td>{cells}</tr>\n");
        }
    }
    let head = header(&["Servers", "arm"], columns.iter().map(|(name, _)| *name));
    let about = escaped(&servers::about(servers));
    format!("{}<p class=\"about\">{about}</p>\n", table(&head, &rows))
}

/// The primary percentile of each part of one kind.
pub(super) fn of_parts_compared(by: PartKind, comparisons: &[Comparison]) -> String {
    let Some((_, first)) = compared::of_parts(comparisons, by).next() else { return String::new() };
    let Comparison { base, other, primary, method, .. } = first;
    let head = header(&[by.name(), "verdict"], DIFFERENCE);
    let row = |(name, part): (&str, &Comparison)| {
        let found = part.percentiles.iter().find(|percentile| percentile.quantile == *primary)?;
        Some(difference((name, found.difference, found.verdict)))
    };
    let rows: String = compared::of_parts(comparisons, by).filter_map(row).collect();
    let title = format!("{} of {other} against {base} by {}", percentile_name(*primary), by.name());
    format!(
        "<h2>{}</h2>\n{}<p class=\"about\">{}</p>\n",
        escaped(&title),
        table(&head, &rows),
        escaped(method)
    )
}

fn difference((name, difference, verdict): (&str, Option<Difference>, Verdict)) -> String {
    let cells = match difference {
        None => ["n/a".to_owned(), String::new(), String::new()],
        Some(Difference { ratio, interval: (low, high), .. }) => [ratio, low, high].map(change),
    };
    let cells = numbers_of(cells.iter());
    format!("<tr><th>{}</th><td class=\"word\">{verdict}</td>{cells}</tr>\n", escaped(name))
}
