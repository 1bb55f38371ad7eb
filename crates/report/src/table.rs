//! The report as a table for a terminal of 80 columns, with latencies in milliseconds.
//!
//! **Order**: doubts about the run; each arm on both clocks; queries and tenants, the largest tenant first; the verdict on
//! all requests, which a terminal shows without scrolling.
//! **Marks**: `~`: fewer than 100 requests are longer. `n/a`: fewer than 10 requests are longer. `failed`: the request
//! at the percentile failed. Long names are cut, with `…`.

use super::difference::{self, Comparison, change};
use super::figures::{self, ArmFigures, Figure, PERCENTILES, Percentiles};
use super::parts::{self, PartKind};
use super::servers::{self, Server};
use crate::Results;
use crate::results::{Arm, State};
use curtail_load::compare::{Difference, Verdict};
use curtail_load::{Latencies, LatencyKind};
use curtail_text::numbers::{self, percentile_name};
use curtail_text::{Columns, Left, Page, Rest, Right, WIDTH, cut};
use curtail_units::Instant;
use std::iter;

#[cfg(test)]
pub(super) mod tests;

/// Maximum number of events that are listed; further events are only counted.
const EVENTS_SHOWN_MAX: usize = 12;

/// The percentiles that are shown by query and by tenant, as indexes of [`PERCENTILES`].
const FEW: [usize; 3] = [0, 3, 4];

/// The table.
#[must_use]
pub fn render(results: &Results, comparisons: &[Comparison]) -> String {
    let mut table = Table { page: Page::default() };
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
    for by in PartKind::ALL {
        table.parts(by, results);
    }
    table.servers(&servers::of(results), results);
    table.events(results);
    table.legend();
    for by in PartKind::ALL {
        table.comparisons_of_parts(by, comparisons);
    }
    if let Some(why) = difference::no_verdict(results) {
        table.page.blank();
        table.page.wrapped("", &why);
    }
    for comparison in comparisons.iter().filter(|comparison| comparison.of.is_none()) {
        table.comparison(comparison);
    }
    table.page.finish()
}

fn ratio_and_interval(difference: Option<Difference>) -> (String, String) {
    match difference {
        None => ("n/a".to_owned(), String::new()),
        Some(Difference { ratio, interval: (low, high), .. }) => {
            (change(ratio), format!("{} to {}", change(low), change(high)))
        }
    }
}

/// The cells of the percentiles that are shown by query and by tenant.
fn few_percentiles(latencies: &Latencies) -> [String; FEW.len()] {
    FEW.map(|nth| {
        let quantile = figures::quantile(PERCENTILES[nth].1);
        Figure::of(latencies, LatencyKind::Response, quantile).to_string()
    })
}

/// The columns of an arm: a label, all percentiles, and the longest request.
fn percentile_columns() -> Columns {
    Columns::new(iter::once(Left(23)).chain(iter::repeat_n(Right(7), PERCENTILES.len() + 1)))
}

/// The columns of one arm against the other, after a name in `name` columns.
fn difference_columns(name: usize) -> Columns {
    Columns::new([Left(name), Right(8), Rest])
}

struct Table {
    page: Page,
}

impl Table {
    fn head(&mut self, results: &Results) {
        match &results.state {
            State::Complete => {}
            State::Partial { why } => self.page.wrapped("", &format!("PARTIAL RUN: {why}")),
            State::Void { why } => self.page.wrapped("", &format!("VOID, DO NOT USE: {why}")),
        }
        if let Some((_, why)) = difference::no_verdict_from(results) {
            self.page.wrapped("", &why);
        }
        let Results { name, seed, load, machine, .. } = results;
        let began = numbers::utc(results.began_unix_ns);
        self.page.wrapped("", &format!("{name}, {began}, seed {seed}"));
        self.page.wrapped("", &format!("load: {load}"));
        self.page.wrapped(
            "",
            &format!("generator: {} cores, {}, {}", machine.cores, machine.cpu, machine.kernel),
        );
    }

    fn names_of_percentiles(&mut self) {
        let names = PERCENTILES.iter().map(|(name, _)| *name);
        self.page.blank();
        self.page.row(&percentile_columns(), iter::once("ms").chain(names).chain(["max"]));
    }

    /// A line for each rate of a sweep.
    fn by_rate(&mut self, arms: &[ArmFigures]) {
        let columns =
            Columns::new([Right(10), Right(11), Right(9), Right(9), Right(9), Right(9), Rest]);
        let [p50, p99, p999] = FEW.map(|nth| PERCENTILES[nth].0);
        self.page.blank();
        let names = ["requests/s", "responses/s", "failed", p50, p99, p999, " response in ms"];
        self.page.row(&columns, names);
        for arm in arms {
            let responded =
                arm.latencies.response.count() as f64 / arm.lasted.as_secs_f64().max(1e-9);
            let counts = [
                numbers::rate(arm.rate_wanted.unwrap_or(0.0)),
                numbers::rate(responded),
                numbers::thousands(arm.latencies.failures.total()),
            ];
            self.page.row(&columns, counts.into_iter().chain(few_percentiles(&arm.latencies)));
        }
    }

    fn events(&mut self, results: &Results) {
        if results.events.is_empty() {
            return;
        }
        self.page.blank();
        for event in results.events.iter().take(EVENTS_SHOWN_MAX) {
            let lasted = if event.lasted.as_ns() > 0 {
                format!(" for {}", numbers::latency(event.lasted))
            } else {
                String::new()
            };
            let at = event.at.since(Instant::ZERO).as_secs_f64();
            self.page.wrapped("", &format!("at {at:.1} s: {}{lasted}", event.what));
        }
        if results.events.len() > EVENTS_SHOWN_MAX {
            self.page.line(format!("and {} more events", results.events.len() - EVENTS_SHOWN_MAX));
        }
    }

    /// The name and the rate of an arm, with its target if there are several arms.
    fn arm_heading(&mut self, arm: &Arm, figures: &ArmFigures, is_one_of_several: bool) {
        let requests = numbers::thousands(figures.latencies.count());
        let rate = numbers::rate(figures.rate());
        let wanted = figures
            .rate_wanted
            .map_or(String::new(), |rate| format!(" of {}", numbers::rate(rate)));
        let sent = format!("{requests} requests, {rate}{wanted} a second");
        let name = cut(&arm.name, WIDTH / 2);
        if is_one_of_several {
            self.page.wrapped("", &format!("{name}: {}", arm.about));
            self.page.line(format!("  {sent}"));
        } else {
            self.page.line(format!("{name}: {sent}"));
        }
    }

    fn arm(&mut self, arm: &ArmFigures) {
        let columns = percentile_columns();
        for (name, clock) in figures::CLOCKS {
            let percentiles = Percentiles::of(&arm.latencies, clock);
            let cells = percentiles.named().map(|(_, figure)| figure.to_string());
            self.page.row(&columns, iter::once(format!("  {name}")).chain(cells));
        }
        let lag = |q| arm.lag(q).map_or("n/a".to_owned(), numbers::ms);
        let (p99, p999) = (lag(0.99), lag(0.999));
        self.page.row(&columns, ["  generator lag", "", "", "", &p99, &p999]);
        self.failures(&arm.latencies);
        if let Some(behind) = arm.behind_plan() {
            self.page.wrapped("  ", &behind);
        }
        self.costs(arm);
    }

    fn costs(&mut self, arm: &ArmFigures) {
        if arm.latencies.count() == 0 {
            return;
        }
        let servers = arm.servers_cpu.filter(|cpu| cpu.as_ns() > 0);
        let servers = servers
            .map_or(String::new(), |cpu| format!(", servers {}", numbers::ms(arm.each(cpu))));
        let generator = numbers::ms(arm.each(arm.generator_cpu));
        self.page.line(format!("  CPU time in ms a request: generator {generator}{servers}"));
        let connections = numbers::thousands(arm.connections);
        let received = numbers::bytes(arm.received_bytes);
        self.page.line(format!("  {received} received over {connections} connections"));
        if arm.resent > 0 {
            let resends = numbers::thousands(arm.resent);
            self.page
                .line(format!("  {resends} resends of requests that the server did not process"));
        }
    }

    fn failures(&mut self, latencies: &Latencies) {
        if latencies.failures.total() == 0 {
            return;
        }
        let failed = figures::count_failed(latencies);
        let reasons = figures::list_reasons(&latencies.failures);
        self.page.wrapped("  ", &format!("FAILED: {failed}: {reasons}"));
        if let Some(longest) = latencies.response.max() {
            self.page.line(format!("  the longest response took {}", numbers::latency(longest)));
        }
    }

    /// Adds the figures of parts of the requests.
    fn parts(&mut self, by: PartKind, results: &Results) {
        let parts = parts::all(results, by);
        if parts.is_empty() {
            return;
        }
        let of_arms: Vec<_> = (0..results.arms.len()).map(|arm| results.of_arm(arm)).collect();
        let columns = Columns::new([Left(35), Right(10), Right(7), Right(7), Right(7), Right(7)]);
        let [p50, p99, p999] = FEW.map(|nth| PERCENTILES[nth].0);
        let title = format!("by {}, response in ms", by.name());
        self.page.blank();
        self.page.row(&columns, [title.as_str(), "requests", "failed", p50, p99, p999]);
        for part in parts {
            let several = results.arms.len() > 1;
            if several {
                self.page.line(&part.name);
            }
            for (arm, of_arm) in results.arms.iter().zip(&of_arms) {
                let latencies = part.of(of_arm);
                let name = if several { format!("  {}", arm.name) } else { part.name.clone() };
                let counts = [
                    name,
                    numbers::thousands(latencies.count()),
                    numbers::thousands(latencies.failures.total()),
                ];
                self.page.row(&columns, counts.into_iter().chain(few_percentiles(&latencies)));
            }
        }
    }

    fn servers(&mut self, servers: &[Server], results: &Results) {
        if servers.is_empty() {
            return;
        }
        let columns = Columns::new([Left(35), Right(8), Right(11), Right(9), Right(9)]);
        let row = |name: &str, cells: [String; 4]| iter::once(name.to_owned()).chain(cells);
        let names = servers::columns(servers).iter().map(|(name, _)| *name);
        self.page.blank();
        self.page.row(&columns, iter::once("servers").chain(names));
        for Server { name, of_arms } in servers {
            if let [used] = of_arms.as_slice() {
                self.page.row(&columns, row(name, used.cells()));
                continue;
            }
            self.page.line(name);
            for (arm, used) in results.arms.iter().zip(of_arms) {
                self.page.row(&columns, row(&format!("  {}", arm.name), used.cells()));
            }
        }
        self.page.wrapped("", &servers::about(servers));
    }

    /// Compares one arm with the other: every percentile of all requests.
    fn comparison(&mut self, comparison: &Comparison) {
        let Comparison { base, other, percentiles, numbers, method, .. } = comparison;
        self.page.blank();
        self.page.wrapped("", &format!("{other} against {base}, response ({method})"));
        for percentile in percentiles {
            self.difference(percentile.name, percentile.difference, percentile.verdict);
        }
        for (name, number) in numbers {
            self.difference(name, number.difference, number.verdict);
        }
    }

    /// Compares one arm with the other: the primary percentile of each part of the requests.
    fn comparisons_of_parts(&mut self, by: PartKind, comparisons: &[Comparison]) {
        let Some((_, first)) = difference::of_parts(comparisons, by).next() else { return };
        self.page.blank();
        let Comparison { base, other, primary, method, .. } = first;
        let (name, kind) = (percentile_name(*primary), by.name());
        self.page
            .wrapped("", &format!("{other} against {base} by {kind}, {name} alone ({method})"));
        let columns = difference_columns(26);
        for (part, comparison) in difference::of_parts(comparisons, by) {
            let found =
                comparison.percentiles.iter().find(|percentile| percentile.quantile == *primary);
            if let Some(percentile) = found {
                let (ratio, interval) = ratio_and_interval(percentile.difference);
                let verdict = format!(" {interval:<22} {}", percentile.verdict.name());
                self.page.row(&columns, [format!("  {part}"), ratio, verdict]);
            }
        }
    }

    fn difference(&mut self, name: &str, difference: Option<Difference>, verdict: Verdict) {
        let (ratio, interval) = ratio_and_interval(difference);
        let verdict = format!(" {interval:<22} {verdict}");
        self.page.row(&difference_columns(12), [format!("  {name}"), ratio, verdict]);
    }

    fn legend(&mut self) {
        self.page.blank();
        self.page.wrapped("", figures::CLOCKS_LEGEND);
        self.page.wrapped("", figures::MARKS);
    }
}
