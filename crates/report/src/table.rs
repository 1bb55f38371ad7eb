//! The report as a table for people at a terminal: latencies in milliseconds, at most 80 columns.
//!
//! **Decides** the order: what makes a run doubtful comes first; then each arm with both clocks; then the same by query
//! and by tenant, the largest tenant first, so that its tail does not hide in the mean of small ones. The verdict on all
//! requests comes last, where a terminal shows it.
//! **Marks**: `~` before a figure says that fewer than 100 requests are longer, `n/a` that fewer than 10 are, `failed`
//! that it lies among the requests that failed. Names that do not fit are cut, with `…`.

use super::difference::{self, Comparison, change, percentile_name};
use super::figures::{self, ArmFigures, Figure, PERCENTILES, Percentiles};
use super::parts::{self, By};
use super::servers::{self, Server};
use super::text;
use crate::Results;
use crate::results::{Arm, State};
use curtail_load::compare::{Difference, Verdict};
use curtail_load::{Clock, Latencies};
use curtail_units::Instant;
use std::fmt::{self, Write as _};

#[cfg(test)]
pub(super) mod tests;

/// The width of a terminal, which reports fit.
pub const WIDTH: usize = 80;
/// Before the percentiles of an arm.
const LABEL: usize = 23;

/// More events than this are only counted.
const EVENTS_SHOWN_MAX: usize = 12;

/// The percentiles that are shown by query and by tenant.
const FEW: [usize; 3] = [0, 3, 4];

/// The table.
#[must_use]
pub fn render(results: &Results, comparisons: &[Comparison]) -> String {
    let mut table = Table { text: String::new() };
    table.head(results);
    let figures = figures::of_arms(results);
    if results.is_sweep() {
        table.by_rate(&figures);
    } else {
        table.names_of_percentiles();
        for (arm, figures) in results.arms.iter().zip(&figures) {
            table.arm_heading(arm, figures, results.arms.len() > 1);
            table.arm(figures);
        }
    }
    for by in By::ALL {
        table.parts(by, results);
    }
    table.servers(&servers::of(results), results);
    table.events(results);
    table.legend();
    for by in By::ALL {
        table.comparisons_of_parts(by, comparisons);
    }
    if let Some(why) = difference::no_verdict(results) {
        table.line(format_args!(""));
        table.wrapped("", &why);
    }
    for comparison in comparisons.iter().filter(|comparison| comparison.of.is_none()) {
        table.comparison(comparison);
    }
    table.text
}

fn ratio_and_interval(difference: Option<Difference>) -> (String, String) {
    match difference {
        None => ("n/a".to_owned(), String::new()),
        Some(Difference { ratio, interval: (low, high), .. }) => {
            (change(ratio), format!("{} to {}", change(low), change(high)))
        }
    }
}

/// `text` in at most `most` characters.
fn cut(text: &str, most: usize) -> String {
    if text::width(text) <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn cell(figure: Figure) -> String {
    match figure {
        Figure::Value(latency) => text::ms(latency),
        Figure::Indicative(latency) => format!("~{}", text::ms(latency)),
        Figure::Failed => "failed".to_owned(),
        Figure::TooFew => "n/a".to_owned(),
    }
}

struct Table {
    text: String,
}

impl Table {
    fn line(&mut self, args: fmt::Arguments<'_>) {
        let mut line = String::new();
        line.write_fmt(args).expect("writing to a text cannot fail");
        self.text.push_str(cut(line.trim_end(), WIDTH).as_str());
        self.text.push('\n');
    }

    /// A long text over as many lines as it takes, the first one behind `indent`, the later ones further in.
    fn wrapped(&mut self, indent: &str, text: &str) {
        for line in text::wrapped(indent, text, WIDTH) {
            self.line(format_args!("{line}"));
        }
    }

    fn head(&mut self, results: &Results) {
        match &results.state {
            State::Complete => {}
            State::Partial { why } => self.wrapped("", &format!("PARTIAL RUN: {why}")),
            State::Void { why } => self.wrapped("", &format!("VOID, DO NOT USE: {why}")),
        }
        if let Some((_, why)) = difference::no_verdict_from(results) {
            self.wrapped("", &why);
        }
        let Results { name, seed, load, machine, .. } = results;
        let began = text::utc(results.began_unix_ns);
        self.wrapped("", &format!("{name}, {began}, seed {seed}"));
        self.wrapped("", &format!("load: {load}"));
        self.wrapped(
            "",
            &format!("generator: {} cores, {}, {}", machine.cores, machine.cpu, machine.kernel),
        );
    }

    fn names_of_percentiles(&mut self) {
        let names: String = PERCENTILES
            .iter()
            .map(|(name, _)| *name)
            .chain(["max"])
            .fold(String::new(), |row, name| row + &format!("{name:>8}"));
        self.line(format_args!(""));
        self.line(format_args!("{:LABEL$}{names}", "ms"));
    }

    /// A line for each rate of a sweep.
    fn by_rate(&mut self, arms: &[ArmFigures]) {
        self.line(format_args!(""));
        let names = FEW.map(|nth| PERCENTILES[nth].0);
        let [p50, p99, p999] = names;
        self.line(format_args!(
            "{:>10}{:>12}{:>10}{p50:>10}{p99:>10}{p999:>10}  response in ms",
            "requests/s", "answered/s", "failed"
        ));
        for arm in arms {
            let [p50, p99, p999] = FEW.map(|nth| {
                let quantile = figures::quantile(PERCENTILES[nth].1);
                cell(Figure::of(&arm.latencies, Clock::Response, quantile))
            });
            let answered =
                arm.latencies.response.count() as f64 / arm.lasted.as_secs_f64().max(1e-9);
            self.line(format_args!(
                "{:>10}{:>12}{:>10}{p50:>10}{p99:>10}{p999:>10}",
                text::rate(arm.rate_wanted.unwrap_or(0.0)),
                text::rate(answered),
                text::thousands(arm.latencies.failures.total()),
            ));
        }
    }

    /// What happened, the first of it.
    fn events(&mut self, results: &Results) {
        if results.events.is_empty() {
            return;
        }
        self.line(format_args!(""));
        for event in results.events.iter().take(EVENTS_SHOWN_MAX) {
            let lasted = if event.lasted.as_ns() > 0 {
                format!(" for {}", text::latency(event.lasted))
            } else {
                String::new()
            };
            let at = event.at.since(Instant::ZERO).as_secs_f64();
            self.wrapped("", &format!("at {at:.1} s: {}{lasted}", event.what));
        }
        if results.events.len() > EVENTS_SHOWN_MAX {
            self.line(format_args!("and {} more events", results.events.len() - EVENTS_SHOWN_MAX));
        }
    }

    /// The name and the rate of an arm, with its target if there are several arms.
    fn arm_heading(&mut self, arm: &Arm, figures: &ArmFigures, is_one_of_several: bool) {
        let requests = text::thousands(figures.latencies.count());
        let rate = text::rate(figures.rate());
        let wanted =
            figures.rate_wanted.map_or(String::new(), |rate| format!(" of {}", text::rate(rate)));
        let sent = format!("{requests} requests, {rate}{wanted} a second");
        let name = cut(&arm.name, WIDTH / 2);
        if is_one_of_several {
            self.wrapped("", &format!("{name}: {}", arm.about));
            self.line(format_args!("  {sent}"));
        } else {
            self.line(format_args!("{name}: {sent}"));
        }
    }

    fn arm(&mut self, arm: &ArmFigures) {
        for (label, clock) in [("response", Clock::Response), ("service", Clock::Service)] {
            let percentiles = Percentiles::of(&arm.latencies, clock);
            let cells = percentiles
                .named()
                .fold(String::new(), |row, (_, figure)| row + &format!("{:>8}", cell(figure)));
            self.line(format_args!("  {label:<width$}{cells}", width = LABEL - 2));
        }
        let lag = |q| arm.lag(q).map_or("n/a".to_owned(), text::ms);
        self.line(format_args!(
            "  {:<width$}{:>32}{:>8}",
            "generator lag",
            lag(0.99),
            lag(0.999),
            width = LABEL - 2
        ));
        self.failures(&arm.latencies);
        if let Some(behind) = arm.behind_plan() {
            self.wrapped("  ", &behind);
        }
        self.costs(arm);
    }

    fn costs(&mut self, arm: &ArmFigures) {
        if arm.latencies.count() == 0 {
            return;
        }
        let servers = arm.servers_cpu.filter(|cpu| cpu.as_ns() > 0);
        let servers =
            servers.map_or(String::new(), |cpu| format!(", servers {}", text::ms(arm.each(cpu))));
        let generator = text::ms(arm.each(arm.generator_cpu));
        self.line(format_args!("  CPU time in ms a request: generator {generator}{servers}"));
        let connections = text::thousands(arm.connections);
        let received = text::bytes(arm.received_bytes);
        self.line(format_args!("  {received} received over {connections} connections"));
        if arm.resent > 0 {
            let resends = text::thousands(arm.resent);
            self.line(format_args!(
                "  {resends} resends of requests that the server did not process"
            ));
        }
    }

    fn failures(&mut self, latencies: &Latencies) {
        let failed = latencies.failures.total();
        if failed == 0 {
            return;
        }
        let share = text::percent(failed as f64 / latencies.count() as f64);
        let reasons: Vec<String> = figures::reasons(&latencies.failures)
            .map(|(name, count)| format!("{name} {}", text::thousands(count)))
            .collect();
        let failed = text::thousands(failed);
        self.wrapped("  ", &format!("FAILED: {failed} ({share}): {}", reasons.join(", ")));
        if let Some(longest) = latencies.response.max() {
            self.line(format_args!("  the longest answer took {}", text::latency(longest)));
        }
    }

    /// What was seen of parts of the requests.
    fn parts(&mut self, by: By, results: &Results) {
        let parts = parts::all(results, by);
        if parts.is_empty() {
            return;
        }
        let of_arms: Vec<_> = (0..results.arms.len()).map(|arm| results.of_arm(arm)).collect();
        let names = FEW.map(|nth| PERCENTILES[nth].0);
        self.line(format_args!(""));
        self.line(format_args!(
            "{:<36}{:>10}{:>8}{:>8}{:>8}{:>8}",
            format!("by {}, response in ms", by.name()),
            "requests",
            "failed",
            names[0],
            names[1],
            names[2]
        ));
        for part in parts {
            let several = results.arms.len() > 1;
            if several {
                self.line(format_args!("{}", part.name));
            }
            for (arm, of_arm) in results.arms.iter().zip(&of_arms) {
                let latencies = part.of(of_arm);
                let name = if several { format!("  {}", arm.name) } else { part.name.clone() };
                let [p50, p99, p999] = FEW.map(|nth| {
                    let quantile = figures::quantile(PERCENTILES[nth].1);
                    cell(Figure::of(&latencies, Clock::Response, quantile))
                });
                self.line(format_args!(
                    "{:<36}{:>10}{:>8}{p50:>8}{p99:>8}{p999:>8}",
                    cut(&name, 35),
                    text::thousands(latencies.count()),
                    text::thousands(latencies.failures.total()),
                ));
            }
        }
    }

    /// What servers used, while each arm was measured.
    fn servers(&mut self, servers: &[Server], results: &Results) {
        if servers.is_empty() {
            return;
        }
        let row = |name: &str, cells: [String; 4]| {
            let [cpu, memory, paused, longest] = cells;
            format!("{:<36}{cpu:>8}{memory:>12}{paused:>10}{longest:>10}", cut(name, 35))
        };
        let mut names = servers::columns(servers).iter().map(|(name, _)| (*name).to_owned());
        let names = [(); 4].map(|()| names.next().unwrap_or_default());
        self.line(format_args!(""));
        self.line(format_args!("{}", row("servers", names)));
        for Server { name, of_arms } in servers {
            if let [used] = of_arms.as_slice() {
                self.line(format_args!("{}", row(name, used.cells())));
                continue;
            }
            self.line(format_args!("{name}"));
            for (arm, used) in results.arms.iter().zip(of_arms) {
                self.line(format_args!("{}", row(&format!("  {}", arm.name), used.cells())));
            }
        }
        self.wrapped("", &servers::about(servers));
    }

    /// One arm against the other: every percentile of all requests.
    fn comparison(&mut self, comparison: &Comparison) {
        let Comparison { base, other, percentiles, numbers, method, .. } = comparison;
        self.line(format_args!(""));
        self.wrapped("", &format!("{other} against {base}, response ({method})"));
        for percentile in percentiles {
            self.difference(percentile.name, percentile.difference, percentile.verdict);
        }
        for (name, number) in numbers {
            self.difference(name, number.difference, number.verdict);
        }
    }

    /// The same of parts of the requests: the primary percentile of each.
    fn comparisons_of_parts(&mut self, by: By, comparisons: &[Comparison]) {
        let Some((_, first)) = difference::of_parts(comparisons, by).next() else { return };
        self.line(format_args!(""));
        let Comparison { base, other, primary, method, .. } = first;
        let (name, kind) = (percentile_name(*primary), by.name());
        self.wrapped("", &format!("{other} against {base} by {kind}, {name} alone ({method})"));
        for (part, comparison) in difference::of_parts(comparisons, by) {
            let found =
                comparison.percentiles.iter().find(|percentile| percentile.quantile == *primary);
            if let Some(percentile) = found {
                let (ratio, interval) = ratio_and_interval(percentile.difference);
                let (of, verdict) = (cut(part, 24), percentile.verdict.name());
                self.line(format_args!("  {of:<24}{ratio:>9}  {interval:<22} {verdict}"));
            }
        }
    }

    fn difference(&mut self, name: &str, difference: Option<Difference>, verdict: Verdict) {
        let (ratio, interval) = ratio_and_interval(difference);
        self.line(format_args!("  {name:<10}{ratio:>9}  {interval:<22} {verdict}"));
    }

    fn legend(&mut self) {
        self.line(format_args!(""));
        self.wrapped("", text::CLOCKS);
        self.wrapped("", text::MARKS);
    }
}
